"""Wider types, names that need column mapping, properties that change, on real tables (contract sections 6, 9, 10)."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.landing import MARKER, declare, put, table_bag
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase
from lakemirror.delta.log import read_snapshot

BIG = Decimal("1234567.25")


def sync(spark: Any, database: Path, **options: Any) -> Any:
    return MirroredDatabase(database, spark=spark, **options).sync()


def markers(*values: int) -> pa.Array:
    return pa.array(values, pa.int32())


def types(spark: Any, database: Path, table: str) -> dict[str, str]:
    schema = spark.read.format("delta").load(str(database / "Tables" / table)).schema
    return {field.name: field.dataType.simpleString() for field in schema}


@pytest.mark.parametrize(("vectors", "feed"), [(True, False), (True, True), (False, False)])
def test_columns_widen_keys_too_and_old_rows_stay(spark: Any, tmp_path: Path, vectors: bool, feed: bool) -> None:
    options = {"on_type_change": "widen", "deletion_vectors": vectors, "change_data_feed": feed}
    declare(tmp_path, "t", ["k"])
    small = {"k": pa.array([1, 2, 3], pa.int16()), "d": pa.array([Decimal("1.5")] * 3, pa.decimal128(5, 1))}
    put(tmp_path, "t", 1, {**small, "f": pa.array([0.5, 1.5, 2.5], pa.float32())})
    assert not sync(spark, tmp_path, **options).failed
    put(tmp_path, "t", 2, {"k": pa.array([2, 2**40]), "d": pa.array([BIG] * 2), MARKER: markers(4, 4)})
    put(tmp_path, "t", 3, {"k": pa.array([3], pa.int16()), MARKER: markers(2)})
    put(tmp_path, "t", 4, {"k": pa.array([1], pa.int32()), "f": pa.array([1e300]), MARKER: markers(1)})
    assert not sync(spark, tmp_path, **options).failed
    assert types(spark, tmp_path, "t") == {"k": "bigint", "d": "decimal(9,2)", "f": "double"}
    assert table_rows(tmp_path, "t") == {(1, None, 1e300): 1, (2, BIG, None): 1, (2**40, BIG, None): 1}
    put(tmp_path, "t", 5, {"k": pa.array([1, 2**40], pa.int64()), MARKER: markers(2, 2)})
    assert not sync(spark, tmp_path, **options).failed
    assert table_rows(tmp_path, "t") == {(2, BIG, None): 1}
    if feed:
        changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
        rows = changes.load(str(tmp_path / "Tables/t")).select("k", "_change_type").collect()
        assert sorted((row[0], row[1]) for row in rows) == [
            (1, "delete"), (1, "update_postimage"), (1, "update_preimage"), (2, "update_postimage"),
            (2, "update_preimage"), (3, "delete"), (2**40, "delete"), (2**40, "insert"),
        ]  # fmt: skip


def test_without_the_option_a_wider_type_stops_the_table(spark: Any, tmp_path: Path) -> None:
    declare(tmp_path, "t", [])
    put(tmp_path, "t", 1, {"k": pa.array([1], pa.int32())})
    put(tmp_path, "t", 2, {"k": pa.array([2**40])})
    assert {e.code for e in sync(spark, tmp_path).failed.values()} == {"type-changed"}
    assert not sync(spark, tmp_path, on_type_change="widen").failed
    assert table_rows(tmp_path, "t") == {(1,): 1, (2**40,): 1}


ODD = ["a b", "x,y;{z}", "(q)=1", "line\nbreak\ttab", "dot.ted", "back`tick", "qu'o\"te", "ünï", " lead", "L" * 300]


@pytest.mark.parametrize("feed", [False, True])
def test_any_column_name_also_as_key_also_later(spark: Any, tmp_path: Path, feed: bool) -> None:
    options = {"change_data_feed": feed}
    declare(tmp_path, "t", ["id", "the key"])
    declare(tmp_path, "plain", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2], "the key": ["a", "b"], **{name: [1, 2] for name in ODD}})
    put(tmp_path, "plain", 1, {"id": [1, 2], "v": [1, 2]})
    assert not sync(spark, tmp_path, **options).failed
    put(
        tmp_path,
        "t",
        2,
        {"id": [1, 1], "the key": ["a", "c"], ODD[0]: [7, 8], "new col": [1, 1], MARKER: markers(4, 4)},
    )
    put(tmp_path, "t", 3, {"id": [2], "the key": ["b"], MARKER: markers(2)})
    put(tmp_path, "plain", 2, {"id": [2], "v": [9], "a new one": [5], MARKER: markers(4)})
    assert not sync(spark, tmp_path, **options).failed
    assert table_rows(tmp_path, "t", ["id", "the key", ODD[0], ODD[1], "new col"]) == {
        (1, "a", 7, None, 1): 1, (1, "c", 8, None, 1): 1,
    }  # fmt: skip
    assert table_rows(tmp_path, "plain") == table_bag(spark, tmp_path, "plain") == {(1, 1, None): 1, (2, 9, 5): 1}
    for table in ("t", "plain"):
        snapshot = read_snapshot(str(tmp_path / "Tables" / table))
        assert snapshot is not None
        assert snapshot.metadata.configuration["delta.columnMapping.mode"] == "name"
    warned = {t.name: {w.code for w in t.warnings} for t in MirroredDatabase(tmp_path).status().tables}
    assert "column-mapping" in warned["t"] and "column-mapping" in warned["plain"]


def test_names_of_the_feed_are_refused_while_it_is_on(spark: Any, tmp_path: Path) -> None:
    declare(tmp_path, "t", [])
    put(tmp_path, "t", 1, {"id": [1], "_change_type": ["x"]})
    failed = sync(spark, tmp_path, change_data_feed=True).failed
    assert {e.code for e in failed.values()} == {"column-name-invalid"}
    assert not sync(spark, tmp_path).failed


def test_the_feed_and_the_retention_follow_the_definition(spark: Any, tmp_path: Path) -> None:
    def definition(feed: bool, days: int) -> None:
        properties = {"enableDeltaChangeDataFeed": feed, "retentionInDays": days}
        content = {"properties": {"target": {"typeProperties": properties}}}
        (tmp_path / "mirroring.json").write_text(json.dumps(content))

    def properties() -> tuple[str | None, str | None]:
        snapshot = read_snapshot(str(tmp_path / "Tables/t"))
        assert snapshot is not None
        found = snapshot.metadata.configuration
        return found.get("delta.enableChangeDataFeed"), found.get("delta.deletedFileRetentionDuration")

    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1]})
    sync(spark, tmp_path)
    assert properties() == (None, "interval 168 hours")
    for number, feed, days in ((2, True, 3), (3, False, 3), (4, False, 5)):
        definition(feed, days)
        put(tmp_path, "t", number, {"id": [1], MARKER: markers(4)})
        assert not sync(spark, tmp_path).failed
        assert properties() == ("true" if feed else "false", f"interval {days * 24} hours")
    spark.sql(f"ALTER TABLE delta.`{tmp_path / 'Tables/t'}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    put(tmp_path, "t", 5, {"id": [1], MARKER: markers(4)})
    sync(spark, tmp_path)
    assert properties()[0] == "true", "somebody else has switched it on"


def test_a_widened_table_is_read_by_others(spark: Any, tmp_path: Path) -> None:
    declare(tmp_path, "t", [])
    put(tmp_path, "t", 1, {"k": pa.array([1], pa.int32()), "day": [dt.date(2024, 1, 1)]})
    put(tmp_path, "t", 2, {"k": pa.array([2**40]), "day": [dt.date(2024, 1, 2)]})
    assert not sync(spark, tmp_path, on_type_change="widen", deletion_vectors=False).failed
    deltalake = pytest.importorskip("deltalake")
    try:
        found = deltalake.DeltaTable(str(tmp_path / "Tables/t")).to_pyarrow_table()
    except Exception as error:  # a reader may refuse, and says why
        assert (
            "widening" in str(error).lower() or "unsupported" in str(error).lower() or "features" in str(error).lower()
        )
    else:
        assert sorted(found.column("k").to_pylist()) == [1, 2**40]
