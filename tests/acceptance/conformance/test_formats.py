"""Conformance: formats, types, metadata, detection, partitions (cases 13, 19 to 24, 36 to 39, 47)."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from tests.landing import declare, put
from world import World, marked, put_at, put_text, raw_metadata, step

UTC = dt.timezone.utc
MOMENT = dt.datetime(2024, 2, 29, 12, 34, 56, 789123, tzinfo=UTC)


@step(1)
def columns(db: Path) -> None:
    declare(db, "c13", ["id"])
    put(db, "c13", 1, {"id": [1], "gone": ["a"]})
    put(db, "c13", 2, {"id": [2], "New": [2.5]})
    put(db, "c13", 3, {"id": [3], "new": [3.5], "gone": ["c"]})


def test_13_columns_come_and_go(world: World) -> None:
    """The vendor drops no column either: it stays, and new rows have NULL."""
    assert world.types("c13") == {"id": "bigint", "gone": "string", "New": "double"}
    assert world.rows("c13") == {(1, "a", None): 1, (2, None, 2.5): 1, (3, "c", 3.5): 1}


LONE_BACKSLASH = """{
  "KeyColumns": ["id"],
  "SchemaDefinition": {"Columns": [
    {"Name": "id", "DataType": "Int32"},
    {"Name": "name", "DataType": "String", "IsNullable": true},
    {"Name": "age", "DataType": "Int32", "IsNullable": true}]},
  "FileFormat": "DelimitedText",
  "FileExtension": "tsv",
  "FileFormatTypeProperties": {
    "FirstRowAsHeader": true, "RowSeparator": "\\r\\n", "ColumnSeparator": ",",
    "QuoteCharacter": "'", "EscapeCharacter": "\\", "NullValue": "N/A", "Encoding": "UTF-8"}
}"""


@step(1)
def metadata(db: Path) -> None:
    raw_metadata(db, "c19", b'\xef\xbb\xbf{"KeyColumns": ["id"], "IsUpsertDefaultRowMarker": "True", "Unknown": 1,}')
    put(db, "c19", 1, {"id": [1, 1], "v": ["a", "b"]})
    raw_metadata(db, "c19_vendor", LONE_BACKSLASH)
    put_text(db, "c19_vendor", f"{1:020}.tsv", "id,name,age\r\n1,'it\\'s',7\r\n2,N/A,\r\n")
    raw_metadata(db, "c19_broken", '{"keyColumns": ["id"')
    put(db, "c19_broken", 1, {"id": [1]})


def test_19_metadata_as_people_write_it(world: World) -> None:
    assert world.rows("c19", after=1) == {(1, "b"): 1}
    assert {"metadata-lenient", "property-unknown"} <= world.warnings("c19")
    assert world.rows("c19_vendor", after=1) == {(1, "it's", 7): 1, (2, None, None): 1}
    assert "metadata-lenient" in world.warnings("c19_vendor")
    assert world.error("c19_broken") == "metadata-invalid"
    assert "line 1, column" in world.status[0]["c19_broken"]["errorMessage"]


COLUMNS = {"Columns": [{"Name": "id", "DataType": "Int64"}, {"Name": "v", "DataType": "String"}]}


@step(1)
def delimited(db: Path) -> None:
    properties = {"columnSeparator": "\t", "nullValue": "N/A", "encoding": "utf-16", "escapeCharacter": "/"}
    declare(
        db, "c20", ["id"], fileFormat="DelimitedText", fileExtension="tsv", SchemaDefinition=COLUMNS,
        fileFormatTypeProperties=properties,
    )  # fmt: skip
    text = 'id\tv\r\n1\t"tab\t, /"quote/" and\r\nline"\r\n2\tN/A\r\n3\t""\r\n4\tlast'
    put_text(db, "c20", f"{1:020}.tsv", text.encode("utf-16"))
    declare(db, "c21", ["id"], fileFormat="csv", SchemaDefinition=COLUMNS)
    put_text(db, "c21", 1, "id,v\n1,a\n2,b\n3,c\n")
    put_text(db, "c21", 2, "id,v,__rowMarker__\n1,,2\n2,B,1\n4,d,4\n")
    put_text(db, "c21", 3, "__rowMarker__,id\n2,3\n")
    declare(db, "c21_bad", ["id"], fileFormat="csv", SchemaDefinition=COLUMNS)
    put_text(db, "c21_bad", 1, "id,v\n1,a\nx,b\n")


def test_20_delimited_text_in_another_form(world: World) -> None:
    assert world.rows("c20") == {(1, 'tab\t, "quote" and\r\nline'): 1, (2, None): 1, (3, ""): 1, (4, "last"): 1}


def test_21_changes_as_csv(world: World) -> None:
    assert world.rows("c21") == {(2, "B"): 1, (4, "d"): 1}
    assert world.error("c21_bad") == "value-invalid"
    assert "line 3, column id: 'x'" in world.status[0]["c21_bad"]["errorMessage"]


@step(1)
def business_central(db: Path) -> None:
    names = ("timestamp-0", "systemId-2000000000", "$Company", "Price-4")
    kinds = ("Int64", "String", "String", "Double")
    raw_metadata(db, "c22", json.dumps({
        "keyColumns": ["systemId-2000000000", "$Company"], "fileDetectionStrategy": "LastUpdateTimeFileDetection",
        "SchemaDefinition": {"Columns": [
            {"Name": name, "DataType": kind, "IsNullable": True} for name, kind in zip(names, kinds, strict=True)
        ]},
        "fileFormat": "csv",
    }))  # fmt: skip
    header = ",".join([*names, "__rowMarker__"]) + "\r\n"
    put_text(
        db, "c22", "8f14e45f.csv", header + '1,"{A1}","Cronus ""UK""",1.5,4\r\n2,"{A2}","Cronus ""UK""",2.5,4\r\n', 1e9
    )
    put_text(
        db, "c22", "03c7c0ac.csv", header + '3,"{A1}","Cronus ""UK""",9,4\r\n4,"{A2}","Cronus ""UK""",,2\r\n', 1e9 + 5
    )


def test_22_business_central(world: World) -> None:
    """Names that are GUIDs, found by their time; the columns' names need no column mapping."""
    assert world.rows("c22") == {(3, "{A1}", 'Cronus "UK"', 9.0): 1}
    assert world.status[0]["c22"]["position"] == 2


@step(1)
def by_time(db: Path) -> None:
    for table in ("c23", "c24"):
        declare(db, table, ["id"], fileDetectionStrategy="LastUpdateTimeFileDetection")
    for name, value in (("c", 3), ("a", 1), ("b", 2)):
        put_at(db, "c23", f"{name}.parquet", {"id": [1], "v": [value], **marked(4)}, at=1e9)
    put_at(db, "c24", "first.parquet", {"id": [1], "v": [1], **marked(4)}, at=1e9)
    put_at(db, "c24", "second.parquet", {"id": [1], "v": [2], **marked(4)}, at=1e9 + 9)


@step(2)
def late(db: Path) -> None:
    put_at(db, "c24", "late.parquet", {"id": [1], "v": [3], **marked(4)}, at=1e9 + 1)


@step(3)
def applied_paths_again(db: Path) -> None:
    put_at(db, "c24", "first.parquet", {"id": [1], "v": [4], **marked(4)}, at=1e9 + 99)


def test_23_equal_times_are_ordered_by_path(world: World) -> None:
    """The vendor leaves ties undefined."""
    assert world.rows("c23", after=1) == {(1, 3): 1}


def test_24_a_late_file_is_applied_late_and_a_path_once(world: World) -> None:
    assert world.rows("c24", after=1) == {(1, 2): 1}
    assert world.rows("c24", after=2) == {(1, 3): 1}
    assert world.rows("c24", after=3) == {(1, 3): 1}
    assert "already-applied" in world.warnings("c24", after=3)


@step(1)
def types(db: Path) -> None:
    put(db, "c36", 1, {
        "dec": pa.array([Decimal("12345678901234567890.123")], pa.decimal128(38, 3)),
        "day": [dt.date(1890, 5, 6)],
        "ns": pa.array([1_709_210_096_789_123_999], pa.timestamp("ns")),
        "ms": pa.array([MOMENT.replace(microsecond=789000)], pa.timestamp("ms", "UTC")),
        "naive": pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("us")),
        "u8": pa.array([255], pa.uint8()), "u64": pa.array([2**64 - 1], pa.uint64()), "bin": [b"\x00\xff"],
    })  # fmt: skip
    put(db, "c37", 1, {"list": [[1, None]], "struct": [{"a": 1, "b": "x"}]})
    put(db, "c38", 1, {"at": pa.array([MOMENT], pa.timestamp("us", "UTC"))}, use_deprecated_int96_timestamps=True)
    for codec in ("none", "snappy", "gzip", "zstd"):
        put(db, f"c39_{codec}", 1, {"id": [1, 2]}, compression=codec)
    declare(db, "c39_csv", ["id"], fileFormat="CSV", SchemaDefinition=COLUMNS)
    put_text(db, "c39_csv", 1, "id,v\n1,a\n")
    put_text(db, "c39_csv", f"{2:020}.csv.gz", gzip.compress(b"id,v\n2,b\n"))
    put_text(db, "c39_csv", f"{3:020}.csv.zst", bytes(pa.compress(b"id,v\n3,c\n", "zstd")))
    put_text(db, "c39_csv", f"{4:020}.csv.snappy", bytes(pa.compress(b"id,v\n4,d\n", "snappy")))


def test_36_types(world: World) -> None:
    assert world.types("c36") == {
        "dec": "decimal(38,3)", "day": "date", "ns": "timestamp", "ms": "timestamp", "naive": "timestamp",
        "u8": "smallint", "u64": "decimal(20,0)", "bin": "binary",
    }  # fmt: skip
    (row,) = world.frame("c36").selectExpr("dec", "day", "unix_micros(ns)", "unix_micros(naive)", "u8", "u64").collect()
    micros = 1_709_210_096_789_123
    assert tuple(row) == (
        Decimal("12345678901234567890.123"),
        dt.date(1890, 5, 6),
        micros,
        micros,
        255,
        Decimal(2**64 - 1),
    )
    assert "value-converted" in world.warnings("c36")


def test_37_nested_values_as_json(world: World) -> None:
    assert world.rows("c37") == {("[1,null]", '{"a":1,"b":"x"}'): 1}


def test_38_timestamps_as_old_spark_writes_them(world: World) -> None:
    assert [tuple(row) for row in world.frame("c38").selectExpr("unix_micros(at)").collect()] == [
        (1_709_210_096_789_123,)
    ]


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd"])
def test_39_codecs_of_parquet(world: World, codec: str) -> None:
    assert world.rows(f"c39_{codec}") == {(1,): 1, (2,): 1}


def test_39_compressed_text(world: World) -> None:
    """The vendor promises compression and names no suffix; here it follows the extension."""
    assert world.rows("c39_csv") == {(1, "a"): 1, (2, "b"): 1, (3, "c"): 1, (4, "d"): 1}


@step(1)
def partitions(db: Path) -> None:
    declare(db, "c47", ["id"], isPartitionEnabled="true")
    put_at(db, "c47", f"Date=20260128/Region=global/{1:020}.parquet", {"id": [1], **marked(4)})
    put_at(db, "c47", f"Date=20260128/Region=global/{3:020}.parquet", {"id": [3], **marked(4)})
    put_at(db, "c47", f"Date=20260128/Region=eu/{1:020}.parquet", {"id": [2], **marked(4)})
    declare(db, "c47_time", [], isPartitionEnabled="true", fileDetectionStrategy="LastUpdateTimeFileDetection")
    put_at(db, "c47_time", "YearMonthDate=20260128/Region=global/5f2b.parquet", {"id": [1]})


@step(2)
def partition_goes_on(db: Path) -> None:
    put_at(db, "c47", f"Date=20260128/Region=global/{2:020}.parquet", {"id": [1], **marked(2)})


def test_47_partition_folders(world: World) -> None:
    """Undocumented by the vendor: each partition is a sequence, and its folders give columns."""
    assert world.rows("c47", after=1) == {(1, "20260128", "global"): 1, (2, "20260128", "eu"): 1}
    assert world.waits_for("c47", after=1) == "number 2 in Date=20260128/Region=global"
    assert world.rows("c47", after=2) == {(2, "20260128", "eu"): 1, (3, "20260128", "global"): 1}
    assert world.rows("c47_time") == {(1, "20260128", "global"): 1}
