"""A backlog starts Spark by itself while the local engine goes on: with the real one, and where it does not start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.landing import MARKER, declare, put
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase, api

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 6


def backlog(folder: Path) -> Counter[tuple[int, int]]:
    """Files of two tables, in which a key has a change in each; the rows of each table after them."""
    for table in ("t", "u"):
        declare(folder, table, ["id"])
        for number in range(1, FILES + 1):
            put(folder, table, number, {"id": [0, number], "n": [number, number], MARKER: [4, 4]})
    return Counter([(0, FILES), *((number, number) for number in range(1, FILES + 1))])


def test_what_spark_takes_is_what_the_local_engine_left(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, go, taken = backlog(tmp_path), threading.Event(), []
    monkeypatch.setattr("lakemirror.mirror.planner.WHILE_STARTING", 1)
    monkeypatch.setattr(api, "_start_spark", lambda *_, **__: go.wait(60) and spark)

    class Seen:
        def applied(self, name: Any, applied: Any) -> None:
            taken.append(applied.engine)
            go.set()
            for thread in [each for each in threading.enumerate() if each.name == "spark-start"]:
                thread.join(60)

        def failed(self, name: Any, error: Any) -> None: ...

        def dropped(self, target: str) -> None: ...

    result = MirroredDatabase(tmp_path, spark_from_bytes=1).sync(Seen())
    assert not result.failed and result.started_spark
    assert "local" in taken and taken[-1] == "spark"
    assert {table.engine for table in MirroredDatabase(tmp_path).status().tables} == {"spark"}
    assert table_rows(tmp_path, "t") == table_rows(tmp_path, "u") == rows


KILLED = """
import json, threading
from pathlib import Path
from pyspark import SparkContext
from lakemirror import MirroredDatabase
from lakemirror.spark_session import session
from tests.landing import MARKER, put
import lakemirror.mirror.planner as planner

planner.WHILE_STARTING = 1
engines = []

class Seen:
    def applied(self, name, applied):
        engines[-1].append(applied.engine)
        for thread in [each for each in threading.enumerate() if each.name == "spark-start"]:
            thread.join(150)
        if len(engines) == len(engines[0]) == 1:
            SparkContext._gateway.proc.kill()
            SparkContext._gateway.proc.wait()
    def failed(self, name, error): engines[-1].append(str(error))
    def dropped(self, target): ...

for first in (1, 4):
    for number in range(first, first + 3):
        put(Path("shop"), "t", number, {"id": [0, number], "n": [number, number], MARKER: [4, 4]})
    engines.append([])
    assert not MirroredDatabase("shop", spark_from_bytes=1).sync(Seen()).failed
print(json.dumps(engines))
session.stop()
"""


@pytest.mark.full
def test_a_spark_that_is_killed_before_its_first_batch_stops_nothing(tmp_path: Path) -> None:
    declare(tmp_path / "shop", "t", ["id"])
    done = subprocess.run(
        [sys.executable, "-c", KILLED], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, cwd=tmp_path,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    killed, after = json.loads(done.stdout.splitlines()[-1])
    assert killed == ["local", "local"], "the batch that Spark had is applied here"
    assert "the local engine goes on without Spark" in done.stderr
    assert "spark" in after, "the next pass starts another one"
    assert table_rows(tmp_path / "shop", "t") == Counter([(0, 6), *((number, number) for number in range(1, 7))])


SCRIPT = """
import json, sys, threading
from lakemirror import MirroredDatabase
from lakemirror.spark_session import session

class Seen:
    commits = []
    def applied(self, name, applied):
        self.commits.append([applied.engine, applied.engine_reason])
        for thread in [each for each in threading.enumerate() if each.name == "spark-start"]:
            thread.join(150)
    def failed(self, name, error): ...
    def dropped(self, target): ...

planner = sys.modules["lakemirror.mirror.planner"]
planner.WHILE_STARTING = 1
result = MirroredDatabase("shop", spark_from_bytes=1, spark=sys.argv[1:]).sync(Seen())
print(json.dumps([str(error) for error in result.failed.values()]), json.dumps(Seen.commits), sep="\\n")
session.stop()
"""


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("spark.driver.extraJavaOptions=-agentlib:nosuch", "spark-failed: "),
        ("spark.driver.memory=900t", "GiB of memory are free"),
        pytest.param("spark.ui.enabled=false", "", marks=pytest.mark.full),
    ],
)
def test_a_process_of_its_own_starts_spark_or_goes_on_without(option: str, why: str, tmp_path: Path) -> None:
    rows = backlog(tmp_path / "shop")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, option], env=kept, cwd=tmp_path, capture_output=True, text=True, timeout=170,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    failed, commits = map(json.loads, done.stdout.splitlines()[-2:])
    assert failed == []
    assert commits[0][0] == "local"
    assert commits[-1][0] == ("local" if why else "spark")
    assert why in commits[-1][1]
    assert table_rows(tmp_path / "shop", "t") == table_rows(tmp_path / "shop", "u") == rows
