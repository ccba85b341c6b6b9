"""Which batches can be taken as they are, and the statistics that go with them."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror.delta.schema import Column
from lakemirror.delta.statistics import Tally, statistics, statistics_told
from lakemirror.engines.kernels.add_files import adopt, adoptable
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.column_types import file_columns
from lakemirror.replication.batch import Batch, BatchFile
from lakemirror.storage import Entry

UTC = datetime.timezone.utc
PLAIN: dict[str, Any] = {"configuration": {}, "schemaString": "{}", "partitionColumns": []}


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
    assert adoptable(batch(pa.nulls(3, kind), type_), PLAIN) is None


@pytest.mark.parametrize(
    ("kind", "type_", "options"),
    [(pa.int32(), "bigint", {}), (pa.int8(), "smallint", {}), (pa.uint32(), "bigint", {}),
     (pa.timestamp("us"), "timestamp", {}), (pa.timestamp("ms", "UTC"), "timestamp", {}),
     (pa.timestamp("ns", "UTC"), "timestamp", {}), (pa.time64("us"), "string", {}),
     (pa.list_(pa.int32()), "string", {}), (pa.decimal128(10, 2), "decimal(20,2)", {}),
     (pa.timestamp("us", "UTC"), "timestamp", {"use_deprecated_int96_timestamps": True})],
)  # fmt: skip
def test_types_that_need_a_conversion(kind: pa.DataType, type_: str, options: dict[str, Any]) -> None:
    assert "does not lie" in str(adoptable(batch(pa.nulls(3, kind), type_, **options), PLAIN))


def test_what_else_speaks_against_it() -> None:
    ints = pa.array([0, 0])
    assert "insert" in str(adoptable(batch(ints, "bigint", append=False), PLAIN))
    assert "small" in str(adoptable(batch(ints, "bigint", size=1000), PLAIN))
    few = batch(ints, "bigint", size=2 << 20)
    assert adoptable(few, PLAIN) is None
    assert "small" in str(adoptable(replace(few, files=few.files * 5), PLAIN))
    assert "marker" in str(adoptable(batch(ints, "bigint", name="__rowMarker__"), PLAIN))
    assert "does not lie" in str(adoptable(batch(ints, "bigint", name="A"), PLAIN))
    assert "compressed" in str(adoptable(batch(ints, "bigint", compression="brotli"), PLAIN))
    for found, word in (
        ({"configuration": {"delta.columnMapping.mode": "name"}}, "maps"),
        ({"configuration": {"delta.constraints.c": "a > 0"}}, "constraints"),
        ({"partitionColumns": ["a"]}, "partitioned"),
        ({"schemaString": '{"nullable":false}'}, "rules"),
    ):
        assert word in str(adoptable(batch(ints, "bigint"), {**PLAIN, **found}))


def test_statistics_hold_every_value_and_leave_out_what_is_not_safe(tmp_path: Path) -> None:
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
    path = tmp_path / "f.parquet"
    pq.write_table(table, path, row_group_size=1, write_statistics=False)
    assert statistics(path, [Column(n, t) for n, t in types.items()], 3) == {
        "numRecords": 3,
        "minValues": {"i": -3, "d": "2020-01-02", "t": "2020-01-01T00:00:00.001Z", "s": "a"},
        "maxValues": {"i": 5, "d": "2020-01-02", "t": "2020-01-01T00:00:00.003Z", "s": "c"},
        "nullCount": {"i": 1, "d": 2, "t": 0, "f": 0, "long": 0, "s": 0, "n": 3, "new": 3},
        "tightBounds": True,
    }
    with pytest.raises(ValueError, match="3 rows where the footer says 4"):
        statistics(path, [], 4)


@pytest.mark.parametrize("told", [{"a": range(5, 15)}, {"d": range(1, 11)}, {"s": range(9, -1, -1)}])
def test_a_footer_that_says_what_is_not_so(tmp_path: Path, told: dict[str, Any]) -> None:
    """Readers, and the engine's own look-ups, skip row groups by it."""
    types = {"a": "bigint", "d": "date", "t": "timestamp", "s": "string", "n": "bigint"}

    def written(name: str, values: dict[str, Any]) -> bytes:
        columns = {
            "a": pa.array(values["a"], pa.int64()),
            "d": pa.array(values["d"], pa.int32()).cast(pa.date32()),
            "t": pa.array(values["a"], pa.int64()).cast(pa.timestamp("us", "UTC")),
            "s": [chr(65 + value) for value in values["s"]],
            "n": pa.array(values["n"], pa.int64()),
        }
        path = tmp_path / name
        pq.write_table(pa.table(columns), path, row_group_size=5, compression="none", use_dictionary=False)
        return path.read_bytes()

    plain = {"a": range(10), "d": range(10), "s": range(10), "n": [1] * 10}
    true, lie = written("true", plain), written("lie", {**plain, **told})
    columns = [Column(name, type_) for name, type_ in types.items()]
    assert statistics(tmp_path / "true", columns, 10)["maxValues"]["a"] == 9
    assert len(true) == len(lie), "so that the footer of one fits the pages of the other"
    size = int.from_bytes(true[-8:-4], "little") + 8
    (tmp_path / "mixed").write_bytes(true[:-size] + lie[-size:])
    with pytest.raises(ValueError, match="what its footer says of column"):
        statistics(tmp_path / "mixed", columns, 10)


@pytest.mark.parametrize("values", [[None, None], [1, None]])
def test_a_footer_that_counts_too_few_nulls(values: list[int | None]) -> None:
    tally = Tally([Column("n", "bigint")])
    tally.add(pa.record_batch({"n": pa.array(values, pa.int64())}))
    for nulls in (0, values.count(None)):
        told = SimpleNamespace(has_min_max=False, has_null_count=True, null_count=nulls)
        chunk = SimpleNamespace(path_in_schema="n", statistics=told)
        group: Any = SimpleNamespace(num_columns=1, column=lambda place, chunk=chunk: chunk)
        with pytest.raises(ValueError, match="what its footer says") if not nulls else contextlib.nullcontext():
            tally.check(group, 0)


def test_a_copy_that_cannot_be_read_is_gone_again(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array(range(1000)), "s": [str(n) for n in range(1000)]})
    good, bad = tmp_path / "good.parquet", tmp_path / "bad.parquet"
    pq.write_table(rows.slice(1), tmp_path / "rows")
    pq.write_table(rows, good)
    data = bytearray(good.read_bytes())
    data[100:300] = bytes(200)
    bad.write_bytes(data)
    files = []
    for path in (good, bad):
        found = pq.read_metadata(path)
        entry = Entry(path.name, path.stat().st_size, 1)
        files.append(BatchFile(ChangeFile(entry, 1, found), tuple(file_columns(found))))
    both = Batch(tuple(files), (Column("a", "bigint"), Column("s", "string")), True)
    (tmp_path / "table").mkdir()
    with pytest.raises(TableError) as raised:
        adopt(both, str(tmp_path / "table"), lambda name: str(tmp_path / name))
    assert (raised.value.code, raised.value.file) == ("file-unreadable", "bad.parquet")
    assert list((tmp_path / "table").iterdir()) == []
    one = Batch((files[0],), both.columns, True)
    (action,) = adopt(one, str(tmp_path / "table"), lambda name: str(tmp_path / name))
    assert (tmp_path / "table" / action["path"]).read_bytes() == good.read_bytes()
    assert json.loads(action["stats"])["maxValues"]["a"] == 999
    adds = adopt(both, str(tmp_path / "table"), lambda name: str(tmp_path / name), trust_footers=True)
    assert [add["stats"] for add in adds] == [action["stats"]] * 2, "unread, as it was asked for"
    with pytest.raises(TableError, match="written anew"):
        adopt(both, str(tmp_path / "table"), lambda name: str(tmp_path / "rows"), trust_footers=True)
    good.unlink()
    with pytest.raises(LakemirrorError) as gone:
        adopt(one, str(tmp_path / "table"), lambda name: str(tmp_path / name))
    assert gone.value.code == "concurrent-commit"


def test_what_a_true_footer_says_is_what_the_rows_say(tmp_path: Path) -> None:
    moment = datetime.datetime(2024, 2, 29, 12, 0, 0, 123456, UTC)
    columns: dict[str, tuple[str, pa.DataType, list[Any]]] = {
        "short": ("smallint", pa.int16(), [5, None, -7, 3, None, None]),
        "whole": ("bigint", pa.int64(), [2**63 - 1, 0, -(2**63), 1, 2, None]),
        "day": ("date", pa.date32(), [moment.date()] * 5 + [datetime.date(1, 1, 1)]),
        "moment": ("timestamp", pa.timestamp("us", "UTC"), [None, moment, None, None, None, None]),
        "text": ("string", pa.string(), ["b", "", None, "a", "z" * 31, "~"]),
        "wide": ("string", pa.string(), ["ä", "b", "c", "d", "e", "f"]),
        "real": ("double", pa.float64(), [1.0, float("nan"), None, 4.0, 5.0, 6.0]),
        "yes": ("boolean", pa.bool_(), [True, None, None, None, False, False]),
        "sum": ("decimal(9,2)", pa.decimal128(9, 2), [None, None, None, None, None, None]),
        "raw": ("binary", pa.binary(), [b"", b"\xff", None, b"a", b"b", b"c"]),
        "empty": ("int", pa.int32(), [None] * 6),
    }
    rows = pa.table({name: pa.array(values, kind) for name, (_, kind, values) in columns.items()})
    wanted = [Column(name, type_) for name, (type_, _, _) in columns.items()] + [Column("later", "int")]
    path = tmp_path / "rows.parquet"
    for size in (1, 2, 6):
        pq.write_table(rows, path, row_group_size=size)
        read = statistics(path, wanted, 6)
        assert statistics_told(pq.read_metadata(path), wanted) == read
        assert read["nullCount"]["later"] == 6 and read["minValues"]["short"] == -7
    pq.write_table(rows, path, row_group_size=2, write_statistics=["short", "text"])
    told = statistics_told(pq.read_metadata(path), wanted)
    assert set(told["nullCount"]) == {"short", "text", "later"} and set(told["minValues"]) == {"short", "text"}
    assert told["numRecords"] == 6
