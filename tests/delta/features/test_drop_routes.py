"""Every droppable feature, dropped from a table that really uses it, read back by three programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.clients.real_tables import PUBLIC, SETUPS

from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import Snapshot, read_snapshot
from lakemirror.features.cleaning import clustering_columns
from lakemirror.features.drop import Dropped, drop
from lakemirror.features.plan import Wish
from lakemirror.features.usage import evidence

deltalake = pytest.importorskip("deltalake")


def rows(spark: SparkSession, table: Path, version: int | None = None) -> Counter[str]:
    source = f"delta.`{table}`" + ("" if version is None else f" VERSION AS OF {version}")
    return Counter(row[0] for row in spark.sql(f"SELECT CAST(struct(*) AS STRING) FROM {source}").collect())


def snapshot(table: Path) -> Snapshot:
    found = read_snapshot(table)
    assert found is not None
    return found


def do(table: Path, spark: SparkSession | None, *features: str, **more: Any) -> Dropped:
    return drop(table, Wish(features, **more), session=(lambda: spark) if spark else None, confirmed=True)  # type: ignore[arg-type, return-value]


def properties(table: Path) -> dict[str, str]:
    return snapshot(table).metadata.configuration


REWRITTEN = {"deletionVectors", "columnMapping", "typeWidening", "typeWidening-preview"}
PROTECTED = {*REWRITTEN, "v2Checkpoint", "vacuumProtocolCheck"}


@pytest.mark.full
@pytest.mark.parametrize("feature", SETUPS)
def test_a_used_feature_goes_and_the_table_stays(spark: SparkSession, tmp_path: Path, feature: str) -> None:
    table = tmp_path / "t"
    for statement in SETUPS[feature]:
        spark.sql(statement.format(t=f"delta.`{table}`"))
    before, old = rows(spark, table), snapshot(table)
    assert before and feature in features_of(old.protocol)
    done = do(table, spark if feature in REWRITTEN else None, feature)
    new = snapshot(table)
    assert feature not in features_of(new.protocol), done
    assert ("checkpointProtection" in features_of(new.protocol)) == (feature in PROTECTED)
    assert rows(spark, table) == before
    assert new.metadata.configuration.get("mine") == old.metadata.configuration.get("mine")
    assert new.metadata.partition_columns == old.metadata.partition_columns
    assert new.checkpoint is not None and new.checkpoint.version == new.version and new.checkpoint.kind == "classic"
    if feature in PROTECTED:
        assert properties(table)["delta.requireCheckpointProtectionBeforeVersion"] == str(new.version)
        assert rows(spark, table, old.version) == before
    # a second run has nothing to do
    assert do(table, None, feature).commits == 0
    # others read it and write to it
    theirs = deltalake.DeltaTable(str(table))
    if "columnMapping" not in features_of(new.protocol):
        assert theirs.to_pyarrow_table().num_rows == sum(before.values())
    spark.sql(f"INSERT INTO delta.`{table}` SELECT * FROM delta.`{table}` LIMIT 1")
    spark.sql(f"OPTIMIZE delta.`{table}`")
    spark.sql(f"UPDATE delta.`{table}` SET id = 1000 WHERE id = 1")
    assert sum(rows(spark, table).values()) == sum(before.values()) + 1
    spark.sql(f"DESCRIBE DETAIL delta.`{table}`").collect()


@pytest.mark.full
@pytest.mark.parametrize("feature", sorted(REWRITTEN | {"v2Checkpoint"}))
def test_with_truncate_history_it_waits_and_then_leaves_nothing(
    spark: SparkSession, tmp_path: Path, feature: str
) -> None:
    table = tmp_path / "t"
    for statement in SETUPS[feature]:
        spark.sql(statement.format(t=f"delta.`{table}`"))
    before = rows(spark, table)
    first = do(table, spark, feature, truncate=True)
    assert first.waiting is not None and feature in features_of(snapshot(table).protocol)
    assert rows(spark, table) == before
    again = do(table, None, feature, truncate=True)
    assert again.commits == 0 and again.waiting == first.waiting
    done = drop(table, Wish((feature,), truncate=True), now=lambda: first.waiting)  # type: ignore[arg-type, return-value]
    assert done.waiting is None
    protocol = snapshot(table).protocol
    assert features_of(protocol) == {"appendOnly", "invariants"} and (protocol.reader, protocol.writer) == (1, 2)
    assert rows(spark, table) == before
    assert min(snapshot(table).log.commits) > 0
    theirs = deltalake.DeltaTable(str(table))
    assert theirs.to_pyarrow_table().num_rows == sum(before.values())
    deltalake.write_deltalake(str(table), theirs.to_pyarrow_table().slice(0, 1), mode="append")
    assert sum(rows(spark, table).values()) == sum(before.values()) + 1


@pytest.mark.full
def test_protection_goes_with_the_history(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "t"
    for statement in SETUPS["v2Checkpoint"]:
        spark.sql(statement.format(t=f"delta.`{table}`"))
    before = rows(spark, table)
    waiting = do(table, None, "v2Checkpoint", unprotect=True).waiting
    assert waiting is not None
    assert "v2Checkpoint" not in features_of(snapshot(table).protocol)
    done = drop(table, Wish(("v2Checkpoint",), unprotect=True), now=lambda: waiting)  # type: ignore[arg-type, return-value]
    assert done.after == "(1, 2)" and rows(spark, table) == before


@pytest.mark.full
def test_delta_spark_takes_over_from_here(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "t"
    for statement in SETUPS["v2Checkpoint"]:
        spark.sql(statement.format(t=f"delta.`{table}`"))
    do(table, None, "v2Checkpoint")
    spark.sql(
        f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES "
        "('delta.dropFeatureTruncateHistory.retentionDuration'='interval 0 hours')"
    )
    import os
    import time

    for file in (table / "_delta_log").iterdir():
        os.utime(file, (time.time() - 7200, time.time() - 7200))
    spark.sql(f"ALTER TABLE delta.`{table}` DROP FEATURE checkpointProtection TRUNCATE HISTORY")
    assert features_of(snapshot(table).protocol) == {"appendOnly", "invariants"}


@pytest.mark.full
def test_clustering_survives_the_loss_of_column_mapping(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id INT, s STRING) USING delta CLUSTER BY (id) "
        "TBLPROPERTIES ('delta.columnMapping.mode'='name')"
    )
    spark.sql(f"INSERT INTO delta.`{table}` SELECT id, 's' || id FROM range(0, 10, 1, 1)")
    before = rows(spark, table)
    done = do(table, spark, "columnMapping")
    assert "cluster-again" in done.steps
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{table}`").collect()[0]
    assert detail["clusteringColumns"] == ["id"]
    spark.sql(f"OPTIMIZE delta.`{table}`")
    assert rows(spark, table) == before
    assert not any(key.startswith("lakemirror.") for key in properties(table))


@pytest.mark.full
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("feature", ["deletionVectors", "typeWidening"])
def test_clustered_files_are_rewritten_too(
    spark: SparkSession, tmp_path: Path, feature: str, truncate: bool, mapped: bool
) -> None:
    """Delta Spark's REORG leaves files alone that are clustered already, or by other columns than the table's."""
    table = tmp_path / "t"
    on = {
        "deletionVectors": "'delta.enableDeletionVectors'='true'",
        "typeWidening": "'delta.enableTypeWidening'='true'",
    }
    more = ", 'delta.columnMapping.mode'='name'" if mapped else ""
    for statement in (
        f"CREATE TABLE {{t}} (id INT, s STRING, n INT) USING delta CLUSTER BY (id, s) TBLPROPERTIES "
        f"({on[feature]}{more})",
        "INSERT INTO {t} SELECT id, 's' || id, id FROM range(0, 100, 1, 4)",
        "OPTIMIZE {t}",
        *(["ALTER TABLE {t} RENAME COLUMN s TO renamed"] if mapped else []),
        "DELETE FROM {t} WHERE id IN (3, 4)"
        if feature == "deletionVectors"
        else "ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT",
        "INSERT INTO {t} VALUES (1000, 'x', 5)",
    ):
        spark.sql(statement.format(t=f"delta.`{table}`"))
    before, old = rows(spark, table), snapshot(table)
    done = do(table, spark, feature, truncate=truncate)
    assert done.steps.count(f"rewrite-{feature}") == 1 and "cluster-again" in done.steps
    if truncate:
        moment = done.waiting
        assert moment is not None and clustering_columns(snapshot(table)) == clustering_columns(old)
        drop(table, Wish((feature,), truncate=True), now=lambda: moment)
    new = snapshot(table)
    assert feature not in features_of(new.protocol) and list(evidence(feature, new)) == []
    assert new.domains["delta.clustering"] == old.domains["delta.clustering"]
    assert not any(key.startswith("lakemirror.") for key in properties(table))
    assert rows(spark, table) == before
    spark.sql(f"OPTIMIZE delta.`{table}` FULL")
    assert rows(spark, table) == before


@pytest.mark.full
def test_three_features_cost_one_rewrite(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id INT, s STRING) USING delta TBLPROPERTIES "
        "('delta.columnMapping.mode'='name', 'delta.enableDeletionVectors'='true', 'delta.enableTypeWidening'='true')"
    )
    for start in (0, 10, 20):
        spark.sql(f"INSERT INTO delta.`{table}` SELECT id, 's' || id FROM range({start}, {start + 10}, 1, 1)")
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id % 10 = 3")
    spark.sql(f"ALTER TABLE delta.`{table}` ALTER COLUMN id TYPE BIGINT")
    before, old = rows(spark, table), snapshot(table)
    size = sum(add["size"] for add in old.files.values())
    done = do(table, spark, "columnMapping", "deletionVectors", "typeWidening")
    assert [step for step in done.steps if step.startswith("rewrite")] == ["rewrite-columnMapping"]
    assert rows(spark, table) == before
    assert features_of(snapshot(table).protocol) == {"appendOnly", "invariants", "checkpointProtection"}
    written = 0
    for version in range(old.version + 1, done.version + 1):
        lines = (table / "_delta_log" / f"{version:020}.json").read_text().splitlines()
        written += sum(json.loads(line)["add"]["size"] for line in lines if line.startswith('{"add"'))
    assert 0 < written <= 1.3 * size


@pytest.mark.full
@pytest.mark.parametrize(("name", "features"), PUBLIC)
def test_public_tables(spark: SparkSession, public_table: Callable[[str], Path], name: str, features: str) -> None:
    table = public_table(name)
    before = rows(spark, table)
    do(table, spark, *features.split(","))
    assert not set(features.split(",")) & features_of(snapshot(table).protocol)
    spark.sql(f"REFRESH TABLE delta.`{table}`")
    assert rows(spark, table) == before
