"""A drop is killed while data files are rewritten: the table reads as before, and the next run ends the drop.

The kernels rewrite these tables; with row tracking, Delta Spark does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import read_snapshot
from lakemirror.features.drop import drop
from lakemirror.features.plan import Wish

ROWS = "SELECT id, concat('s', id) AS s FROM range({start}, {start} + 100000, 1, 1)"
WITH_VECTORS = [
    *[f"INSERT INTO {{t}} {ROWS.format(start=start)}" for start in (0, 100_000, 200_000)],
    "DELETE FROM {t} WHERE id % 1000 = 7",
]
MADE = {
    "deletionVectors": [
        "CREATE TABLE {t} (id INT, s STRING) USING delta TBLPROPERTIES ('delta.enableDeletionVectors'='true')",
        *WITH_VECTORS,
    ],
    "deletionVectors beside rowTracking": [
        "CREATE TABLE {t} (id INT, s STRING) USING delta TBLPROPERTIES ('delta.enableDeletionVectors'='true', "
        "'delta.enableRowTracking'='true')",
        *WITH_VECTORS,
    ],
    "columnMapping": [
        "CREATE TABLE {t} (id INT, old STRING) USING delta TBLPROPERTIES ('delta.columnMapping.mode'='name')",
        *[f"INSERT INTO {{t}} {ROWS.format(start=start)}" for start in (0, 100_000)],
        "ALTER TABLE {t} RENAME COLUMN old TO s",
    ],
    "typeWidening": [
        "CREATE TABLE {t} (id INT, s STRING) USING delta TBLPROPERTIES ('delta.enableTypeWidening'='true')",
        *[f"INSERT INTO {{t}} {ROWS.format(start=start)}" for start in (0, 100_000)],
        "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
    ],
}


def data_files(table: Path) -> set[Path]:
    return {path for path in table.glob("*.parquet") if path.stat().st_size}


def commits(table: Path) -> set[Path]:
    return set((table / "_delta_log").glob("*.json"))


def rows(spark: SparkSession, table: Path) -> Counter[tuple[int, str]]:
    return Counter((row[0], row[1]) for row in spark.sql(f"SELECT id, s FROM delta.`{table}`").collect())


def dropped_until(table: Path, feature: str, seen: Callable[[], bool]) -> bool:
    """Drops a feature in a process of its own killed once something is seen; False where it ended first."""
    words = ["features", "drop", str(table), feature, "--yes"]
    process = subprocess.Popen(
        [sys.executable, "-m", "lakemirror.cli", *words],
        env={**os.environ, "LAKEMIRROR_MASTER": "local[2]"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if seen():
                return True
            time.sleep(0.002)
        assert process.poll() == 0, "it neither came by nor ended"
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.full
@pytest.mark.parametrize("made", MADE)
def test_killed_while_files_are_rewritten(spark: SparkSession, tmp_path: Path, made: str) -> None:
    table, feature = tmp_path / "t", made.partition(" ")[0]
    for statement in MADE[made]:
        spark.sql(statement.format(t=f"delta.`{table}`"))
    before, killed = rows(spark, table), 0
    for watched in (data_files, data_files, commits):
        known = watched(table)
        if watched is commits:  # past the one that switches the feature off: the rewrite's own
            files = data_files(table)
            killed += dropped_until(
                table, feature, lambda f=files, k=known: data_files(table) != f and commits(table) != k
            )
        else:
            killed += dropped_until(table, feature, lambda k=known: data_files(table) != k)
        spark.sql(f"REFRESH TABLE delta.`{table}`")
        assert rows(spark, table) == before
    assert killed >= 2, "the kills came too late to show anything"
    drop(table, Wish((feature,)), session=lambda: spark)
    found = read_snapshot(table)
    assert found is not None and feature not in features_of(found.protocol)
    assert rows(spark, table) == before
