"""What is concluded from the Python workers' answer, and how long it is remembered. Sessions are doubles."""

from __future__ import annotations

import json
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.spark_session import python_workers

pytest.importorskip("pyspark")

GOOD = {"executable": "/venv/python", "version": "3.11.7", "packages": ["pyarrow", "numpy"]}
BARE = {"executable": "/usr/bin/python3", "version": "3.11.2", "packages": ["numpy"]}
OTHER = (
    "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark cannot"
)
NONE = 'java.io.IOException: Cannot run program "python9": error=2, No such file or directory'
EARLY = "  File worker.py\nModuleNotFoundError: No module named 'pyspark'"


class Context:
    """A SparkContext whose interpreters answer as given."""

    def __init__(self, master: str, answers: dict[str, Any]) -> None:
        self.master, self.pythonExec = master, "python3"
        self.answers = answers
        self.asked: list[str] = []


class Session:
    def __init__(self, context: Context) -> None:
        self.sparkContext = context

    def range(self, *_: int) -> Any:
        return SimpleNamespace(select=lambda _: SimpleNamespace(collect=self._answer))

    def _answer(self) -> list[tuple[str]]:
        context = self.sparkContext
        context.asked.append(context.pythonExec)
        found = context.answers[context.pythonExec]
        if isinstance(found, str):
            raise RuntimeError(found)
        return [(json.dumps(found),)]


def session(python3: Any, here: Any = GOOD, master: str = "spark://host:7077") -> Any:
    return Session(Context(master, {"python3": python3, sys.executable: here}))


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import functions

    monkeypatch.setattr(functions, "udf", lambda *_, **__: lambda _: None)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (BARE, "run /usr/bin/python3 (Python 3.11.2), which lacks pyarrow"),
        (OTHER, "run python3 (Python 3.12), and this process Python"),
        (NONE, "there is no python9"),
        (EARLY, "run python3, which lacks pyspark"),
    ],
)
def test_what_the_workers_lack_is_said(answer: Any, says: str) -> None:
    with pytest.raises(SetupError) as caught:
        python_workers.interpreter_for(session(answer))
    assert caught.value.code == "spark-workers" and not caught.value.retry
    assert says in caught.value.message
    assert "PYSPARK_PYTHON" in caught.value.hint and sys.executable in caught.value.hint


def test_a_good_answer_is_asked_for_once() -> None:
    made = session(GOOD)
    found = [python_workers.interpreter_for(each) for each in (made, Session(made.sparkContext))]
    assert found == ["", ""]
    assert made.sparkContext.asked == ["python3"]


def test_a_bad_answer_is_remembered_for_a_minute() -> None:
    """Somebody may install what is missing."""
    made = session(BARE)
    for now in (0.0, 59.0):
        with pytest.raises(SetupError):
            python_workers.interpreter_for(made, now)
    assert made.sparkContext.asked == ["python3"]
    made.sparkContext.answers["python3"] = GOOD
    assert python_workers.interpreter_for(made, 60.0) == ""


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]"])
@pytest.mark.parametrize("answer", [BARE, OTHER, NONE])
def test_in_local_mode_tasks_get_the_interpreter_of_this_process(master: str, answer: Any) -> None:
    made = session(answer, master=master)
    assert python_workers.interpreter_for(made) == sys.executable
    assert made.sparkContext.pythonExec == "python3", "the session's own functions run as before"
    with python_workers.running(made, sys.executable):
        assert made.sparkContext.pythonExec == sys.executable
    with python_workers.running(made, ""):
        assert made.sparkContext.pythonExec == "python3"
    with pytest.raises(SetupError, match="lacks pyarrow"):
        python_workers.interpreter_for(session(BARE, BARE, master))


def test_a_session_on_this_interpreter_is_not_asked() -> None:
    made = session(BARE, master="local[2]")
    made.sparkContext.pythonExec = sys.executable
    assert python_workers.interpreter_for(made) == "" and made.sparkContext.asked == []


def test_other_errors_are_not_taken_for_the_workers() -> None:
    made = session("the cluster is full")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="cluster is full"):
            python_workers.interpreter_for(made)
    assert len(made.sparkContext.asked) == 2


def test_the_code_is_no_retry() -> None:
    assert not LakemirrorError("spark-workers", "").retry


def test_two_threads_leave_the_interpreter_as_it_was() -> None:
    """Each gives its functions to Spark; a user's functions get the session's own interpreter afterwards."""
    shared, entered = session(BARE, master="local[2]"), threading.Event()

    def second() -> None:
        with python_workers.running(shared, sys.executable):
            entered.set()
            left.wait(10)

    left, thread = threading.Event(), threading.Thread(target=second)
    with python_workers.running(shared, sys.executable):
        thread.start()
        entered.wait(0.2)  # without a lock it is in its block now
    left.set()
    thread.join(10)
    assert entered.is_set() and shared.sparkContext.pythonExec == "python3"
