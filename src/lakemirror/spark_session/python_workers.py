"""The Python workers of a session: whether they can run lakemirror's tasks. One small task asks, once a session.

session ─▶ one task without Arrow ─▶ interpreter, Python, packages ─▶ the interpreter to use | `spark-workers`

A session that another program made takes the first `python3` on its path, which may be another Python, or lack pyarrow.
Without this check, each batch would fail after Spark's retries.
"""

from __future__ import annotations

import contextlib
import json
import logging
import platform
import re
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from lakemirror.errors import SetupError
from lakemirror.spark_session.connect_server import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

PACKAGES = ("pyarrow", "numpy")
_AGAIN = 60.0  # seconds for which an error is remembered: somebody may install what is missing
_LOCAL = re.compile(r"local(\[.*\])?")

_answers: WeakKeyDictionary[Any, tuple[float, str | SetupError]] = WeakKeyDictionary()
_asking = threading.Lock()
_giving = threading.Lock()


def interpreter_for(session: SparkSession, now: float | None = None) -> str:
    """The interpreter that tasks are given by `running`; empty: the session's own. Asked once a session.

    In local mode, where the session's own cannot run tasks, it is the interpreter of this process. SetupError
    `spark-workers` says what the workers lack. Errors of Spark itself are raised unchanged.
    """
    key = session if is_remote(session) else session.sparkContext
    now = time.monotonic() if now is None else now
    with _asking:
        asked, answer = _answers.get(key, (0.0, None))
        if answer is None or (isinstance(answer, SetupError) and now - asked >= _AGAIN):
            answer = _decided(session)
            _answers[key] = now, answer
    if isinstance(answer, SetupError):
        raise answer
    return answer


@contextlib.contextmanager
def running(session: SparkSession, interpreter: str) -> Iterator[None]:
    """Within the block, Python functions that are given to Spark will run on this interpreter; empty: the session's.

    Such blocks of several threads run one after the other.
    """
    if not interpreter:
        yield
        return
    context = session.sparkContext
    with _giving:
        before = context.pythonExec
        context.pythonExec = interpreter
        try:
            yield
        finally:
            context.pythonExec = before


def _decided(session: SparkSession) -> str | SetupError:
    own = is_local(session) and session.sparkContext.pythonExec == sys.executable
    problem = None if own else _problem(session)
    if problem is None:
        return ""
    if is_local(session):
        with running(session, sys.executable):
            if _problem(session) is None:
                log.info("%s: tasks run on %s instead", problem.message, sys.executable)
                return sys.executable
    return problem


def _problem(session: SparkSession) -> SetupError | None:
    """Why the workers cannot run tasks; None if they can."""
    from pyspark.sql import functions as F

    try:
        asked = F.udf(_asker(), "string", useArrow=False)
        found = json.loads(session.range(0, 1, 1, 1).select(asked("id")).collect()[0][0])
    except Exception as error:
        problem = _of_failure(str(vars(error).get("java_exception") or error), session)
        if problem is None:
            raise
        return problem
    missing = [name for name in PACKAGES if name not in found["packages"]]
    if not missing:
        return None
    python, lacks = found["executable"], " and ".join(missing)
    return SetupError(
        "spark-workers",
        f"the Python workers of Spark run {python} (Python {found['version']}), which lacks {lacks}",
        hint=f"Set PYSPARK_PYTHON={sys.executable} before the session starts, if the workers have it; or run there: "
        f"{python} -m pip install {' '.join(missing)}",
    )


def _of_failure(text: str, session: SparkSession) -> SetupError | None:
    """The error behind a Python worker that does not start; None if it is of another kind."""
    python = "another interpreter" if is_remote(session) else session.sparkContext.pythonExec
    ours = ".".join(platform.python_version_tuple()[:2])
    if match := re.search(r"different version:? (\d+\.\d+)", text):
        why = f"the Python workers of Spark run {python} (Python {match[1]}), and this process Python {ours}"
    elif match := re.search(r'Cannot run program "([^"]*)"', text):
        why = f"the Python workers of Spark do not start: there is no {match[1]}"
    elif match := re.search(r"No module named '([^']*)'", text):
        why = f"the Python workers of Spark run {python}, which lacks {match[1]}"
    else:
        return None
    hint = (
        f"Set PYSPARK_PYTHON, before the session starts, to a Python {ours} with {' and '.join(PACKAGES)}, such as "
        f"{sys.executable}; on a cluster, every worker needs it."
    )
    return SetupError("spark-workers", why, hint=hint)


def _asker() -> Any:
    """A function that Spark pickles by value: a worker need not have lakemirror."""
    packages = PACKAGES

    def answer(_: Any) -> str:
        import importlib.util
        import json
        import platform
        import sys

        found = [name for name in packages if importlib.util.find_spec(name) is not None]
        return json.dumps({"executable": sys.executable, "version": platform.python_version(), "packages": found})

    return answer


def is_local(session: SparkSession) -> bool:
    """True if the tasks of a session run in this process's own JVM, on its cores."""
    return not is_remote(session) and _LOCAL.fullmatch(session.sparkContext.master or "") is not None
