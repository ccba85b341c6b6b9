"""Spark runs a slow task a second time: both attempts write their file, and the table has the rows of one of them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.databases import Database
from tests.landing import MARKER
from tests.model import ModelTable
from tests.spark_cluster import PATIENCE, QUICK, Cluster, quick_cluster

SLOW = """
import os, shutil, time
import pyarrow.parquet as pq

close = pq.ParquetWriter.close

def slow_once(writer):
    close(writer)
    try:
        reached = os.open(os.environ["SLOW_ONCE"], os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return
    os.write(reached, str(writer.where).encode())
    os.close(reached)
    shutil.copyfile(writer.where, os.environ["SLOW_ONCE"] + ".parquet")
    time.sleep(180)

pq.ParquetWriter.close = slow_once
"""
"""Makes the first task of a cluster that has written a data file wait, as on a machine that hangs.

It tells which file, and keeps a copy.
"""

SPECULATION = {"spark.speculation": "true", "spark.speculation.task.duration.threshold": "10s"}
"""Of a stage of one task, Spark makes a second attempt after so long."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with quick_cluster(tmp_path / "cluster", hosts=("127.0.0.1", "127.0.0.2")) as started:
        yield started


def published(database: Database) -> ModelTable:
    """Change files in the landing zone of an existing table, and what the table must hold."""
    chance, model = random.Random(5), ModelTable(["id"])
    database.declare("orders", ["id"])
    for number in range(1, 6):
        rows = {"id": [chance.randrange(500) for _ in range(200)], "v": [f"{number}-{place}" for place in range(200)]}
        markers = [chance.choice([2, 4, 4]) for _ in range(200)]
        database.put("orders", number, {**rows, MARKER: markers})
        model.apply(rows, [(m, {"id": rows["id"][n], "v": rows["v"][n]}) for n, m in enumerate(markers)])
        if number == 1:
            database.sync()
    return model


def task_events(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The starts or ends of tasks in Spark's event log."""
    lines = [line for log in folder.rglob("*events*") if log.is_file() for line in log.read_text().splitlines()]
    return [event for line in lines if (event := json.loads(line))["Event"] == f"SparkListenerTask{kind}"]


def is_second(event: dict[str, Any]) -> bool:
    return bool(event["Task Info"]["Speculative"])


def is_success(event: dict[str, Any]) -> bool:
    return bool(event["Task End Reason"]["Reason"] == "Success")


def adds(commit: Path) -> list[dict[str, Any]]:
    """The `add` actions of a commit."""
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    return [action["add"] for action in actions if "add" in action]


def rows_of(file: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return rows


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a second loopback address, 127.0.0.2")
def test_a_task_that_runs_twice_adds_its_rows_once(cluster: Cluster, tmp_path: Path) -> None:
    events, slow = tmp_path / "events", tmp_path / "slow"
    events.mkdir()
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(SLOW)
    options = {
        **SPECULATION, "spark.executorEnv.PYTHONPATH": str(slow), "spark.executorEnv.SLOW_ONCE": str(slow / "reached"),
        "spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.eventLog.compress": "false",
        "spark.executor.extraJavaOptions": QUICK, "spark.pyspark.python": sys.executable,
    }  # fmt: skip
    (tmp_path / "db").mkdir()
    database = Database(str(tmp_path / "db"), {})
    model = published(database)
    table = Path(database.table("orders"))
    words = [f"--spark={key}={value}" for key, value in options.items()]
    done = subprocess.run(
        [sys.executable, "-m", "lakemirror.cli", "sync", database.address, "--engine", "spark", "--master",
         cluster.master, *words],
        env={**cluster.environment, "PYTHONPATH": os.environ.get("PYTHONPATH", ""), "LAKEMIRROR_SPARK_FROM_BYTES": "1"},
        capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert (slow / "reached").exists(), "one attempt wrote its file and hung"
    again = [event["Stage ID"] for event in task_events(events, "End") if is_second(event) and is_success(event)]
    first = [event["Stage ID"] for event in task_events(events, "Start") if not is_second(event)]
    assert again and set(again) <= set(first), "Spark ran one task twice; its second attempt was done first"

    assert database.bag("orders") == model.bag()
    named = {add["path"] for commit in table.glob("_delta_log/*.json") for add in adds(commit)}
    lost = Path((slow / "reached").read_text())
    assert lost.parent == table and lost.name not in named, "the file of the attempt that hung"
    copies = [rows_of(table / name) for name in named]
    assert copies.count(rows_of(slow / "reached.parquet")) == 1, "the same rows as in one file that was committed"
    left = {path.name for path in table.glob("*.parquet")}
    assert left == named, "the file that nobody can commit any more went with the first look at leftovers"
