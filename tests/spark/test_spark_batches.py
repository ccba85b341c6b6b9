"""`publish_each_batch` publishes each batch of a stream once, on every supported PySpark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.batches_scenario import published
from tests.spark.test_spark_engine import ROOT, VERSIONS, clean, connect_server, environment

from lakemirror.spark_session import java, jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCENARIO = Path(__file__).with_name("batches_scenario.py")
CONNECT = Path(__file__).with_name("connect_streams_scenario.py")


def test_a_batch_that_is_run_again_is_published_once(spark: SparkSession, tmp_path: Path) -> None:
    check(json.loads(json.dumps(published(spark, tmp_path), default=str)))


@pytest.mark.full
@pytest.mark.parametrize("version", list(VERSIONS))
def test_other_versions_of_pyspark(version: str, tmp_path: Path) -> None:
    variables = {**clean(), "PYTHONPATH": str(ROOT / "src"), "JAVA_HOME": str(java.find().home)}
    done = subprocess.run(
        [str(environment(version)), str(SCENARIO), str(tmp_path)], env=variables, capture_output=True, text=True,
        timeout=1800, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    check(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.full
def test_two_streams_of_spark_connect(tmp_path: Path) -> None:
    """Tasks do not know their stream there: its name tells. Batch 0 again is published once; of a new checkpoint, it
    is an error."""
    with connect_server(Path(sys.executable), jvm.spark_home(), tmp_path) as address:
        done = subprocess.run(
            [sys.executable, str(CONNECT), str(tmp_path), address], env=clean(), capture_output=True, text=True,
            timeout=600, check=False, cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    once = [[0, 1], [0, 1]]
    assert json.loads(done.stdout.splitlines()[-1]) == [
        {"failed": 0, "ids": once}, {"failed": 0, "ids": once}, {"failed": 2, "ids": once},
    ]  # fmt: skip


def check(files: list[list[dict[str, Any]]]) -> None:
    rows = [row for file in files for row in file]
    assert sorted(row["id"] for row in rows) == list(range(20)), "each row once"
    assert {row["__rowMarker__"] for row in rows} == {4}
    first = next(row for row in rows if row["id"] == 3)
    assert (str(first["at"])[:19], first["amount"]) == ("2023-11-14 22:13:23", "3.00")
    by_file = [{row["id"] // 10 for row in file} for file in files]
    assert all(len(batches) == 1 for batches in by_file) and by_file == sorted(by_file, key=min), "batches in order"
