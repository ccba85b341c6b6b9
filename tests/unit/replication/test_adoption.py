"""Which batches can be taken as they are, and the statistics that go with them."""

from __future__ import annotations

import datetime
import io
import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror.landing_zone.column_types import file_columns
from lakemirror.replication.adoption import adoptable, statistics
from lakemirror.replication.batch import Batch, BatchFile
from lakemirror.replication.schema import Column

UTC = datetime.UTC


def footer(table: pa.Table, **options: Any) -> pq.FileMetaData:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return pq.read_metadata(io.BytesIO(out.getvalue()))


def batch(
    array: pa.Array, type_: str, *, name: str = "a", size: int = 32 << 20, append: bool = True, **options: Any
) -> Batch:
    found = footer(pa.table({name: array}), **options)
    file: Any = SimpleNamespace(entry=SimpleNamespace(path="1.parquet", size=size), footer=found)
    return Batch((BatchFile(file, tuple(file_columns(found))),), (Column("a", type_),), append)


@pytest.mark.parametrize(
    ("kind", "type_"),
    [(pa.int16(), "smallint"), (pa.int64(), "bigint"), (pa.string(), "string"), (pa.date32(), "date"),
     (pa.decimal128(20, 2), "decimal(20,2)"), (pa.timestamp("us", "UTC"), "timestamp")],
)  # fmt: skip
def test_types_that_lie_as_the_table_needs_them(kind: pa.DataType, type_: str) -> None:
    assert adoptable(batch(pa.nulls(3, kind), type_), {}) is None


@pytest.mark.parametrize(
    ("kind", "type_", "options"),
    [(pa.int32(), "bigint", {}), (pa.int8(), "smallint", {}), (pa.uint32(), "bigint", {}),
     (pa.timestamp("us"), "timestamp", {}), (pa.timestamp("ms", "UTC"), "timestamp", {}),
     (pa.timestamp("ns", "UTC"), "timestamp", {}), (pa.time64("us"), "string", {}),
     (pa.list_(pa.int32()), "string", {}), (pa.decimal128(10, 2), "decimal(20,2)", {}),
     (pa.timestamp("us", "UTC"), "timestamp", {"use_deprecated_int96_timestamps": True})],
)  # fmt: skip
def test_types_that_need_a_conversion(kind: pa.DataType, type_: str, options: dict[str, Any]) -> None:
    assert "does not lie" in str(adoptable(batch(pa.nulls(3, kind), type_, **options), {}))


def test_what_else_speaks_against_it() -> None:
    ints = pa.array([0, 0])
    assert "insert" in str(adoptable(batch(ints, "bigint", append=False), {}))
    assert "small" in str(adoptable(batch(ints, "bigint", size=1000), {}))
    assert "marker" in str(adoptable(batch(ints, "bigint", name="__rowMarker__"), {}))
    assert "does not lie" in str(adoptable(batch(ints, "bigint", name="A"), {}))
    assert "compressed" in str(adoptable(batch(ints, "bigint", compression="brotli"), {}))
    assert "partitioned" in str(adoptable(batch(ints, "bigint"), {}, ["a"]))
    assert "maps" in str(adoptable(batch(ints, "bigint"), {"delta.columnMapping.mode": "name"}))
    assert "constraints" in str(adoptable(batch(ints, "bigint"), {"delta.constraints.c": "a > 0"}))


def test_statistics_hold_every_value_and_leave_out_what_is_not_safe() -> None:
    table = pa.table({
        "i": pa.array([5, None, -3], pa.int64()),
        "d": pa.array([None, datetime.date(2020, 1, 2), None]),
        "t": pa.array([datetime.datetime(2020, 1, 1, 0, 0, 0, us, UTC) for us in (1999, 2000, 2001)],
                      pa.timestamp("us", "UTC")),
        "f": [1.0, float("nan"), 2.0],
        "long": ["a", "x" * 33, "b"],
        "s": ["b", "a", "c"],
        "n": pa.nulls(3, pa.string()),
    })  # fmt: skip
    types = {
        "i": "bigint", "d": "date", "t": "timestamp", "f": "double",
        "long": "string", "s": "string", "n": "string", "new": "int",
    }  # fmt: skip
    found = json.loads(statistics(footer(table, row_group_size=1), [Column(n, t) for n, t in types.items()]))
    assert found == {
        "numRecords": 3,
        "minValues": {"i": -3, "d": "2020-01-02", "t": "2020-01-01T00:00:00.001Z", "s": "a"},
        "maxValues": {"i": 5, "d": "2020-01-02", "t": "2020-01-01T00:00:00.003Z", "s": "c"},
        "nullCount": {"i": 1, "d": 2, "t": 0, "f": 0, "long": 0, "s": 0, "n": 3, "new": 3},
    }
    assert json.loads(statistics(footer(table, write_statistics=False), [Column("i", "bigint")]))["nullCount"] == {}
