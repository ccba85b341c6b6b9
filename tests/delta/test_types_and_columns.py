"""Section 6 on real tables: every Parquet type, its table type and its exact values."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.landing import MARKER, declare, folder, put, put_broken, table_bag
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase

UTC = dt.timezone.utc
MOMENT = dt.datetime(2024, 2, 29, 12, 34, 56, 789123, tzinfo=UTC)

# column: (file's values, table type, table's values)
TYPES: dict[str, tuple[pa.Array, str, list[Any]]] = {
    "i8": (pa.array([-128, None], pa.int8()), "smallint", [-128, None]),
    "i16": (pa.array([-32768, 1], pa.int16()), "smallint", [-32768, 1]),
    "i32": (pa.array([2**31 - 1, 1], pa.int32()), "int", [2**31 - 1, 1]),
    "i64": (pa.array([2**63 - 1, 1], pa.int64()), "bigint", [2**63 - 1, 1]),
    "u8": (pa.array([255, 0], pa.uint8()), "smallint", [255, 0]),
    "u16": (pa.array([65535, 0], pa.uint16()), "int", [65535, 0]),
    "u32": (pa.array([2**32 - 1, 0], pa.uint32()), "bigint", [2**32 - 1, 0]),
    "u64": (pa.array([2**64 - 1, 0], pa.uint64()), "decimal(20,0)", [Decimal(2**64 - 1), Decimal(0)]),
    "f32": (pa.array([1.5, None], pa.float32()), "float", [1.5, None]),
    "f64": (pa.array([1e300, -0.5], pa.float64()), "double", [1e300, -0.5]),
    "bool": (pa.array([True, False]), "boolean", [True, False]),
    "dec": (pa.array([Decimal("12345678901234567890.123"), None], pa.decimal128(38, 3)), "decimal(38,3)",
            [Decimal("12345678901234567890.123"), None]),
    "text": (pa.array(["ä\n", ""]), "string", ["ä\n", ""]),
    "large": (pa.array(["x", None], pa.large_string()), "string", ["x", None]),
    "dict": (pa.array(["x", "y"]).dictionary_encode(), "string", ["x", "y"]),
    "bin": (pa.array([b"\x00\xff", None], pa.binary()), "binary", [b"\x00\xff", None]),
    "fixed": (pa.array([b"abc", b"xyz"], pa.binary(3)), "binary", [b"abc", b"xyz"]),
    "day": (pa.array([dt.date(1890, 5, 6), None], pa.date32()), "date", [dt.date(1890, 5, 6), None]),
    "ms": (pa.array([MOMENT.replace(microsecond=789000), None], pa.timestamp("ms", "UTC")), "timestamp",
           [MOMENT.replace(microsecond=789000), None]),
    "us": (pa.array([MOMENT, None], pa.timestamp("us", "Europe/Paris")), "timestamp", [MOMENT, None]),
    "naive": (pa.array([MOMENT.replace(tzinfo=None), None], pa.timestamp("us")), "timestamp", [MOMENT, None]),
    "ns": (pa.array([1_709_210_096_789_123_999, -1], pa.timestamp("ns", "UTC")), "timestamp",
           [MOMENT, dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)]),
    "ns_naive": (pa.array([1_709_210_096_789_123_999, None], pa.timestamp("ns")), "timestamp", [MOMENT, None]),
    "t32": (pa.array([3_723_004, 0], pa.time32("ms")), "string", ["01:02:03.004000", "00:00:00"]),
    "t64": (pa.array([86_399_999_999, 1_000_000], pa.time64("us")), "string", ["23:59:59.999999", "00:00:01"]),
    "t64ns": (pa.array([1_999, 60_000_000_000], pa.time64("ns")), "string", ["00:00:00.000001", "00:01:00"]),
    "list": (pa.array([[1, None], None], pa.list_(pa.int32())), "string", ["[1,null]", None]),
    "struct": (pa.array([{"a": 1, "b": None}, None]), "string", ['{"a":1,"b":null}', None]),
    "map": (pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())), "string", ['{"k":1}', None]),
    "nothing": (pa.nulls(2), "", []),
}  # fmt: skip


def described(spark: Any, database: Path, table: str) -> dict[str, str]:
    schema = spark.read.format("delta").load(str(database / "Tables" / table)).schema
    assert all(f.nullable for f in schema)
    return {f.name: f.dataType.simpleString() for f in schema}


def test_every_type(spark: Any, tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {name: values for name, (values, _, _) in TYPES.items()})
    result = MirroredDatabase(tmp_path, spark=spark).sync()
    assert not result.failed, result.failed
    wanted = {name: type_ for name, (_, type_, _) in TYPES.items() if type_}
    assert described(spark, tmp_path, "t") == wanted
    # seconds and micros of timestamps apart: the driver's own zone must not matter
    asked = [f"unix_micros(`{name}`)" if type_ == "timestamp" else f"`{name}`" for name, type_ in wanted.items()]
    rows = spark.read.format("delta").load(str(tmp_path / "Tables/t")).selectExpr(*asked).collect()
    epoch = dt.datetime(1970, 1, 1, tzinfo=UTC)
    for place, (name, type_) in enumerate(wanted.items()):
        found = [bytes(row[place]) if isinstance(row[place], bytearray) else row[place] for row in rows]
        values = TYPES[name][2]
        if type_ == "timestamp":
            values = [None if v is None else (v - epoch) // dt.timedelta(microseconds=1) for v in values]
        assert sorted(found, key=str) == sorted(values, key=str), name
    warned = {w.message.split(":")[0] for t in MirroredDatabase(tmp_path).status().tables for w in t.warnings}
    assert warned == {f"column {n}" for n in ("naive", "ns", "ns_naive", "t64ns", "list", "struct", "map")}


def test_files_of_spark_itself(spark: Any, tmp_path: Path) -> None:
    """INT96 timestamps, and a file with more than one row group."""
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        spark.sql("select id, timestamp_micros(1709210096789123 + id) at from range(1000)").coalesce(1).write.parquet(
            str(tmp_path / "out")
        )
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    (written,) = (tmp_path / "out").glob("*.parquet")
    place = folder(tmp_path, "t")
    place.mkdir(parents=True)
    written.rename(place / f"{1:020}.parquet")
    result = MirroredDatabase(tmp_path, spark=spark).sync()
    assert not result.failed, result.failed
    wrong = f"select count(*) from delta.`{tmp_path}/Tables/t` where unix_micros(at) != 1709210096789123 + id"
    assert spark.sql(wrong).collect()[0][0] == 0
    assert described(spark, tmp_path, "t") == {"id": "bigint", "at": "timestamp"}


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd"])
def test_codecs(spark: Any, tmp_path: Path, codec: str) -> None:
    put(tmp_path, "t", 1, {"id": [1, 2], "v": ["a" * 1000, None]}, compression=codec)
    assert not MirroredDatabase(tmp_path, spark=spark).sync().failed
    assert table_rows(tmp_path, "t") == {(1, "a" * 1000): 1, (2, None): 1}


def test_columns_come_and_stay(spark: Any, tmp_path: Path) -> None:
    declare(tmp_path, "t", ["ID"])
    put(tmp_path, "t", 1, {"Id": pa.array([1, 2], pa.int64()), "late": pa.nulls(2), "a": ["x", "y"]})
    put(tmp_path, "t", 2, {"id": pa.array([3], pa.int32()), "Late": [1.5], "B": [True]})
    put(tmp_path, "t", 3, {"A": ["z"], "ID": [2], MARKER: pa.array([1], pa.int8())})
    assert not MirroredDatabase(tmp_path, spark=spark, batch_files=2).sync().failed
    assert list(described(spark, tmp_path, "t").items()) == [
        ("Id", "bigint"), ("a", "string"), ("Late", "double"), ("B", "boolean")
    ]  # fmt: skip
    assert table_rows(tmp_path, "t") == {
        (1, "x", None, None): 1,
        (2, "z", None, None): 1,
        (3, None, 1.5, True): 1,
    }


def test_a_key_column_that_comes_later(spark: Any, tmp_path: Path) -> None:
    """Older rows have NULL there, and NULL equals NULL."""
    put(tmp_path, "t", 1, {"v": ["a", "b"]})
    MirroredDatabase(tmp_path, spark=spark).sync()
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 2, {"id": [1, None], "v": ["c", "d"], MARKER: pa.array([4, 1], pa.int32())})
    assert not MirroredDatabase(tmp_path, spark=spark).sync().failed
    assert table_rows(tmp_path, "t", ["id", "v"]) == {(1, "c"): 1, (None, "d"): 1}


def test_names_that_ask_for_trouble(spark: Any, tmp_path: Path) -> None:
    columns = {"a.b": [1], "select": [2], "Ünï": [3], "`": [4], "x'y": [5], "_metadata_": [6], "%s": [7]}
    for table in ("it's", "a b", "100%", "x[0]", "ü"):
        declare(tmp_path, table, ["a.b", "`"])
        put(tmp_path, table, 1, columns)
        put(tmp_path, table, 2, {**columns, "select": [20], MARKER: pa.array([4], pa.int32())})
    result = MirroredDatabase(tmp_path, spark=spark, batch_files=1).sync()
    assert not result.failed, result.failed
    for table in ("it's", "a b", "100%", "x[0]", "ü"):
        assert table_bag(spark, tmp_path, table) == {(1, 20, 3, 4, 5, 6, 7): 1}, table


def test_a_file_without_rows_makes_the_table(spark: Any, tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"id": pa.array([], pa.int64()), MARKER: pa.array([], pa.int32())})
    assert not MirroredDatabase(tmp_path, spark=spark).sync().failed
    assert described(spark, tmp_path, "t") == {"id": "bigint"}
    assert table_rows(tmp_path, "t") == {}


def test_failures_that_only_reading_shows(spark: Any, tmp_path: Path) -> None:
    good = {"id": [1], "v": ["a"]}
    for table in ("marker", "keyless", "absent", "page"):
        declare(tmp_path, table, [] if table == "keyless" else ["id"])
        put(tmp_path, table, 1, good)
        put(tmp_path, table, 2, {"id": [2], "v": ["b"]})
    put(tmp_path, "marker", 3, {"id": [1, 2, 3], "v": ["c"] * 3, MARKER: ["1", "x>y", "2"]})
    put(tmp_path, "keyless", 3, {"id": [1, 2], "v": ["c"] * 2, MARKER: [0, 2]})
    put(tmp_path, "absent", 3, {"v": ["c", "d"], MARKER: [0, 4]})
    torn = put(
        tmp_path, "page", 3, {"id": list(range(1000)), "v": ["c"] * 1000}, compression="none", use_dictionary=False
    )
    data = bytearray(torn.read_bytes())
    data[4:400] = b"\xff" * 396
    put_broken(tmp_path, "page", 3, bytes(data))
    failed = MirroredDatabase(tmp_path, spark=spark).sync().failed
    assert {t: e.code for t, e in failed.items()} == {
        "marker": "row-marker-invalid", "keyless": "key-columns-missing", "absent": "key-column-absent",
        "page": "file-unreadable",
    }  # fmt: skip
    assert failed["marker"].row == 2
    assert "'x?y'" in failed["marker"].message
    assert (failed["keyless"].row, failed["absent"].row) == (2, 2)
    for table in failed:
        assert failed[table].file == f"Files/LandingZone/{table}/{3:020}.parquet"
        assert table_rows(tmp_path, table) == {(1, "a"): 1, (2, "b"): 1}, "what lies before is applied"


def test_a_table_of_somebody_else_is_left_alone(spark: Any, tmp_path: Path) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path / "Tables/t"))
    put(tmp_path, "t", 1, {"id": [1]})
    put(tmp_path, "u", 1, {"id": [1]})
    failed = MirroredDatabase(tmp_path, spark=spark).sync().failed
    assert {t: e.code for t, e in failed.items()} == {"t": "target-foreign"}
    assert spark.read.format("delta").load(str(tmp_path / "Tables/t")).count() == 3
    assert table_rows(tmp_path, "u") == {(1,): 1}


def test_two_folders_for_one_table_stop_both(spark: Any, tmp_path: Path) -> None:
    for table in ("orders", "dbo.orders", "other"):
        put(tmp_path, table, 1, {"id": [1]})
    failed = MirroredDatabase(tmp_path, spark=spark, default_schema="dbo").sync().failed
    assert {t: e.code for t, e in failed.items()} == {
        "orders": "table-name-ambiguous",
        "dbo.orders": "table-name-ambiguous",
    }
    assert table_rows(tmp_path, "dbo.other") == {(1,): 1}


def test_the_manifest_and_the_position_are_in_the_commit(spark: Any, tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1]})
    put(tmp_path, "t", 2, {"id": [1], MARKER: pa.array([2], pa.int32())})
    MirroredDatabase(tmp_path, spark=spark).sync()
    (log,) = (tmp_path / "Tables/t/_delta_log").glob("*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    manifest = json.loads(next(a for a in actions if "commitInfo" in a)["commitInfo"]["userMetadata"])["lakemirror"]
    assert (manifest["first"], manifest["last"], manifest["key_columns"], manifest["rows"]) == (1, 2, ["id"], 2)
    (txn,) = [a["txn"] for a in actions if "txn" in a]
    assert txn["version"] == 2
    assert txn["appId"] == f"lakemirror:1:{manifest['identity']}"
