"""Drops with rewrites that are killed, or that others write beside."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import read_snapshot
from lakemirror.features.drop import drop
from lakemirror.features.plan import Wish


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


def features(table: Path) -> frozenset[str]:
    found = read_snapshot(table)
    assert found is not None
    return features_of(found.protocol)


def ids(spark: SparkSession, table: Path) -> list[int]:
    return sorted(row[0] for row in spark.sql(f"SELECT id FROM delta.`{table}`").collect())


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Path:
    path = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT) USING delta TBLPROPERTIES ('delta.enableDeletionVectors'='true')"
    )
    for start in (0, 50):
        spark.sql(f"INSERT INTO delta.`{path}` SELECT id FROM range({start}, {start + 50}, 1, 1)")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id IN (3, 4)")
    return path


@pytest.mark.full
def test_only_files_with_vectors_are_rewritten(spark: SparkSession, table: Path) -> None:
    before = read_snapshot(table)
    assert before is not None
    drop(table, Wish(("deletionVectors",)), session=lambda: spark)
    after = read_snapshot(table)
    assert after is not None
    untouched = {path for (path, vector) in before.files if not vector}
    assert len(untouched) == 1 and untouched <= {path for path, _ in after.files}
    tombstones = [path for path, _ in after.tombstones if "deletion_vector_" in path]
    assert [(table / path).exists() for path in tombstones] == [True]


@pytest.mark.full
def test_killed_around_the_rewrite(spark: SparkSession, table: Path) -> None:
    rows = ids(spark, table)
    for point in ("after prepare", "before rewrite", "after rewrite", "after barrier 2", "after protected-drop"):

        def at(reached: str, point: str = point) -> None:
            if reached == point:
                raise Killed

        with pytest.raises(Killed):
            drop(table, Wish(("deletionVectors",)), session=lambda: spark, at=at)
        assert ids(spark, table) == rows
    drop(table, Wish(("deletionVectors",)), session=lambda: spark)
    assert "deletionVectors" not in features(table) and ids(spark, table) == rows


@pytest.mark.full
def test_appends_beside_a_rewrite(spark: SparkSession, table: Path) -> None:
    rows, stop, failed = ids(spark, table), threading.Event(), list[BaseException]()
    appended: list[int] = []

    def append() -> None:
        session = spark.newSession()
        number = 1000
        while not stop.is_set():
            try:
                session.sql(f"INSERT INTO delta.`{table}` VALUES ({number})")
                appended.append(number)
            except Exception as error:
                if "PROTOCOL_CHANGED" not in str(error) and "METADATA_CHANGED" not in str(error):
                    failed.append(error)
            number += 1

    thread = threading.Thread(target=append)
    thread.start()
    try:
        drop(table, Wish(("deletionVectors",)), session=lambda: spark)
    finally:
        stop.set()
        thread.join()
    assert not failed and appended
    assert "deletionVectors" not in features(table)
    assert ids(spark, table) == sorted(rows + appended)
