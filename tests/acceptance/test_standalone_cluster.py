"""A Spark cluster with two workers makes the same tables as the local engine, also if a worker is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.landing import MARKER, declare, put, table_bag
from tests.spark_cluster import PATIENCE, Cluster, quick_cluster

TASKS = {"LAKEMIRROR_SPARK_FROM_BYTES": "1"}  # so tasks do everything, however little it is


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[Cluster]:
    with quick_cluster(tmp_path / "cluster") as started:
        yield started


def first(database: Path) -> None:
    for table in ("orders", "sales.customers"):
        declare(database, table, ["id"])
        put(database, table, 1, {"id": [float(i) for i in range(1000)], "name": [f"n{i}" for i in range(1000)]})


def second(database: Path) -> None:
    """Updates, deletes, upserts, inserts of deleted keys, a new column, over files; keys that Spark compares."""
    for table in ("orders", "sales.customers"):
        for number in range(2, 6):
            ids = [float(n) for n in (number, number + 100, number + 200, 2000 + number, number + 200)]
            markers = pa.array([1, 2, 2, 4, 0], pa.int32())
            rows = {"id": ids, "name": ["x"] * 5, "extra": [number] * 5, MARKER: markers}
            put(database, table, number, rows)


def sync(database: Path, environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "lakemirror.cli", "sync", str(database), *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> None:
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, (out, err)


@pytest.mark.full
def test_a_standalone_cluster_gives_the_same_tables(spark: Any, tmp_path: Path, spark_cluster: Cluster) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    mine = {**spark_cluster.environment, "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **TASKS}
    for step in (first, second):
        step(here)
        step(there)
        ended(sync(here, mine, "--engine", "local"))
        ended(sync(there, mine, "--engine", "spark", "--master", spark_cluster.master))
        for table in ("orders", "sales.customers"):
            rows = table_bag(spark, here, table)
            assert len(rows) == 1000  # of which the second step deletes four and adds four
            assert table_bag(spark, there, table) == rows
    assert len({Path(path).name for path in spark_cluster.executors()}) == 2, "both workers did the work"
    assert list((there / "Tables").rglob("deletion_vector_*.bin"))


@pytest.mark.full
def test_a_worker_is_killed_in_the_middle(spark: Any, tmp_path: Path, spark_cluster: Cluster) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    mine = {
        **spark_cluster.environment,
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "LAKEMIRROR_BATCH_FILES": "4",
    } | TASKS
    for database in (here, there):
        declare(database, "orders", ["id"])
        for number in range(1, 25):
            ids = [(number * 7919 + i * 31) % 50_000 for i in range(20_000)]
            markers = pa.array([2 if i % 7 == 0 else 4 for i in range(20_000)], pa.int32())
            put(database, "orders", number, {"id": ids, "name": [f"{number}-{i}" for i in ids], MARKER: markers})
    ended(sync(here, mine, "--engine", "local"))
    running = sync(there, mine, "--engine", "spark", "--master", spark_cluster.master)
    log = there / "Tables" / "orders" / "_delta_log"
    deadline = time.monotonic() + PATIENCE
    while len(list(log.glob("*.json"))) < 3 and running.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running.poll() is None, "it was through before a worker could be killed"
    spark_cluster.kill_a_worker()
    ended(running)
    assert table_bag(spark, there, "orders") == table_bag(spark, here, "orders")
