"""Which batches can be taken as they are, and the statistics that go with them."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import math
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror.delta.data_files import data_file
from lakemirror.delta.schema import Column
from lakemirror.delta.statistics import Tally, statistics, statistics_of_own, statistics_told
from lakemirror.engines.kernels.add_files import add_file, large_enough, unsupported_reason
from lakemirror.engines.kernels.data_rows import rows_of
from lakemirror.engines.row_work import ChangeUnit, Target, TargetColumn
from lakemirror.errors import Bad, LakemirrorError
from lakemirror.keys import look_up
from lakemirror.keys.look_up import Cache
from lakemirror.keys.wanted_keys import WantedKeys
from lakemirror.landing_zone.column_types import FileColumn, file_columns

UTC = datetime.timezone.utc


def footer(table: pa.Table, **options: Any) -> pq.FileMetaData:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return pq.read_metadata(io.BytesIO(out.getvalue()))


def unit(found: pq.FileMetaData, path: str = "1.parquet", **options: Any) -> ChangeUnit:
    return ChangeUnit(path, Path(path).name, 1, tuple(file_columns(found)), found.num_rows, 1 << 25, **options)


def target(types: dict[str, str], path: Path = Path("/t"), **options: Any) -> Target:
    """A table with these columns; its folder is there, unless it is nobody\'s."""
    if path != Path("/t"):
        path.mkdir(exist_ok=True)
    return Target(str(path), tuple(TargetColumn(name, name, type_) for name, type_ in types.items()), **options)


def reason(array: pa.Array, type_: str, *, name: str = "a", **options: Any) -> str | None:
    found = footer(pa.table({name: array}), **options)
    return unsupported_reason(unit(found), target({"a": type_}), found)


@pytest.mark.parametrize(
    ("kind", "type_"),
    [(pa.int16(), "smallint"), (pa.int64(), "bigint"), (pa.string(), "string"), (pa.date32(), "date"),
     (pa.decimal128(20, 2), "decimal(20,2)"), (pa.timestamp("us", "UTC"), "timestamp"), (pa.float32(), "float"),
     (pa.bool_(), "boolean"), (pa.binary(), "binary")],
)  # fmt: skip
def test_types_that_are_as_the_table_needs_them(kind: pa.DataType, type_: str) -> None:
    assert reason(pa.nulls(3, kind), type_) is None
    assert reason(pa.nulls(3, kind), type_, data_page_version="2.0") is None


@pytest.mark.parametrize(
    ("kind", "type_", "options"),
    [(pa.int32(), "bigint", {}), (pa.int8(), "smallint", {}), (pa.uint32(), "bigint", {}),
     (pa.timestamp("us"), "timestamp", {}), (pa.timestamp("ms", "UTC"), "timestamp", {}),
     (pa.timestamp("ns", "UTC"), "timestamp", {}), (pa.time64("us"), "string", {}),
     (pa.list_(pa.int32()), "string", {}), (pa.decimal128(10, 2), "decimal(20,2)", {}),
     (pa.timestamp("us", "UTC"), "timestamp", {"use_deprecated_int96_timestamps": True})],
)  # fmt: skip
def test_types_that_need_a_conversion(kind: pa.DataType, type_: str, options: dict[str, Any]) -> None:
    assert "has another form than the table needs" in str(reason(pa.nulls(3, kind), type_, **options))


@pytest.mark.parametrize(
    ("array", "type_", "options", "word"),
    [(pa.array([1.0]), "double", {"column_encoding": "BYTE_STREAM_SPLIT"}, "BYTE_STREAM_SPLIT"),
     (pa.array([1]), "bigint", {"column_encoding": "DELTA_BINARY_PACKED"}, "DELTA_BINARY_PACKED"),
     (pa.array(["a"]), "string", {"column_encoding": "DELTA_BYTE_ARRAY"}, "DELTA_BYTE_ARRAY"),
     (pa.array([1]), "bigint", {"compression": "brotli", "use_dictionary": True}, "BROTLI"),
     (pa.array([1]), "bigint", {"compression": "lz4", "use_dictionary": True}, "LZ4"),
     (pa.array([1]), "bigint", {"write_page_index": True, "use_dictionary": True}, "page index"),
     (pa.array(range(100)), "bigint", {"row_group_size": 2}, "small row groups"),
     (pa.array([1]), "bigint", {"name": "A"}, "has another form than the table needs"),
     (pa.array([1]), "bigint", {"name": "__rowMarker__"}, "the column __rowMarker__"),
     (pa.array(["a"]), "string", {"name": "__unchangedColumns__"}, "the column __unchangedColumns__")],
)  # fmt: skip
def test_what_not_every_reader_reads(array: pa.Array, type_: str, options: dict[str, Any], word: str) -> None:
    assert word in str(reason(array, type_, **{"use_dictionary": False, **options}))


def test_what_of_the_table_speaks_against_it() -> None:
    found = footer(pa.table({"a": [1]}))
    plain = target({"a": "bigint"})
    mapped = replace(plain, columns=(TargetColumn("a", "col-1", "bigint", 1),))
    strict = replace(plain, columns=(TargetColumn("a", "a", "bigint", nullable=False),))
    assert unsupported_reason(unit(found), plain, found) is None
    assert "maps" in str(unsupported_reason(unit(found), mapped, found))
    assert "NOT NULL" in str(unsupported_reason(unit(found), strict, found))
    assert "parts" in str(unsupported_reason(unit(found, row_groups=(0,)), plain, found))
    assert large_enough([2 << 20]) and not large_enough([2 << 20] * 5) and not large_enough([])


@pytest.mark.parametrize(
    ("keys", "kind", "is_cached"),
    [
        (range(1_000), "bigint", True),
        ([*range(500), *range(500)], "bigint", False),
        ([*range(500), 499, *range(501, 1_000)], "bigint", False),
        ([*range(999), None], "bigint", False),
        ([f"{n:04}" for n in range(1_000)], "string", False),
    ],
)
def test_rising_keys_of_an_added_file_are_not_read_again(
    keys: Any, kind: str, is_cached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_up, "LATELY_READ", Cache(1 << 20))
    rows, path = pa.table({"id": list(keys), "v": range(1_000)}), tmp_path / "1.parquet"
    pq.write_table(rows, path, row_group_size=600)
    found = pq.read_metadata(path)
    table = target({"id": kind, "v": "bigint"}, tmp_path / "table", key_columns=("id",))
    add = add_file(unit(found, str(path)), table, found)
    assert isinstance(add, dict)
    reads = []
    monkeypatch.setattr(look_up, "rows_of", lambda *a, **k: reads.append(a) or rows_of(*a, **k))
    asked = [rows["id"][n].as_py() for n in (3, 599, 600, 998)]
    wanted = WantedKeys(pa.table({"id": pa.array(sorted(set(asked)), rows["id"].type)}))
    groups = look_up.row_groups(add, table, None, found)
    places = [
        p for each in groups for p in look_up.find(each, table, wanted, version=look_up.version_of(add)).to_pylist()
    ]
    assert places == [n for n, key in enumerate(rows["id"].to_pylist()) if key in asked]
    assert (not reads) is is_cached


def test_a_file_without_the_key_column_is_added(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    pq.write_table(pa.table({"v": [1, 2]}), path)
    found = pq.read_metadata(path)
    table = target({"id": "bigint", "v": "bigint"}, tmp_path / "table", key_columns=("id",))
    assert isinstance(add_file(unit(found, str(path)), table, found), dict)


def test_a_file_in_a_partition_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    pq.write_table(pa.table({"a": [1, 2]}), path)
    found = pq.read_metadata(path)
    table = target({"a": "bigint", "region": "string"}, tmp_path / "table", partition_columns=("region",))
    given = FileColumn("region", pa.string(), "string", encoding="constant")
    one = unit(found, str(path), constants=(("region", "a/b"),))
    one = replace(one, columns=(*one.columns, given))
    assert unsupported_reason(one, table, found) is None
    add = add_file(one, table, found)
    assert isinstance(add, dict) and add["partitionValues"] == {"region": "a/b"}
    assert data_file(table.path, add["path"]).read_bytes() == path.read_bytes()
    assert json.loads(add["stats"])["nullCount"] == {"a": 0}
    assert "in no folder" in str(unsupported_reason(unit(found), table, found))
    held = footer(pa.table({"a": [1], "region": ["x"]}))
    assert "contains the partition column" in str(
        unsupported_reason(unit(held, constants=(("region", "x"),)), table, held)
    )
    plain = target({"a": "bigint", "region": "string"})
    assert "not a partition column" in str(unsupported_reason(one, plain, found))


@pytest.mark.parametrize(
    ("values", "options", "added"),
    [([1.0, float("nan")], {}, False), ([1.0, float("nan")], {"write_statistics": False}, True),
     ([-0.0, 1.0], {}, False), ([-0.0, 1.0], {"use_dictionary": False}, True), ([0.0, -0.0], {}, True),
     ([0.0, 1.0], {}, True), ([-1.0, float("inf")], {}, True)],
)  # fmt: skip
def test_floating_point_that_readers_would_skip(
    tmp_path: Path, values: list[float], options: dict[str, Any], added: bool
) -> None:
    path = tmp_path / "1.parquet"
    pq.write_table(pa.table({"a": values}), path, **options)
    found = pq.read_metadata(path)
    table = target({"a": "double"}, tmp_path / "table")
    if added:
        add_file(unit(found, str(path)), table, found)
    else:
        with pytest.raises(Bad) as bad:
            add_file(unit(found, str(path)), table, found)
        assert bad.value.rejected.try_as == "rows"
    assert len(list((tmp_path / "table").iterdir())) == added


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
        "minValues": {"i": -3, "d": "2020-01-02", "t": "2020-01-01T00:00:00.001Z", "long": "a", "s": "a"},
        "maxValues": {
            "i": 5, "d": "2020-01-02", "t": "2020-01-01T00:00:00.003Z", "long": "x" * 32 + "\x7f", "s": "c",
        },
        "nullCount": {"i": 1, "d": 2, "t": 0, "f": 0, "long": 0, "s": 0, "n": 3, "new": 3},
        "tightBounds": True,
    }  # fmt: skip
    with pytest.raises(ValueError, match="3 rows, but the footer says 4"):
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
    with pytest.raises(ValueError, match="the footer is wrong about column"):
        statistics(tmp_path / "mixed", columns, 10)


@pytest.mark.parametrize("values", [[None, None], [1, None]])
def test_a_footer_that_counts_too_few_nulls(values: list[int | None]) -> None:
    tally = Tally([Column("n", "bigint")])
    tally.add(pa.record_batch({"n": pa.array(values, pa.int64())}))
    for nulls in (0, values.count(None)):
        told = SimpleNamespace(has_min_max=False, has_null_count=True, null_count=nulls)
        chunk = SimpleNamespace(path_in_schema="n", statistics=told, num_values=2, encodings=())
        group: Any = SimpleNamespace(num_rows=2, num_columns=1, column=lambda place, chunk=chunk: chunk)
        with pytest.raises(ValueError, match="the footer is wrong") if not nulls else contextlib.nullcontext():
            tally.check(group, 0)


def test_a_copy_that_cannot_be_read_is_gone_again(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array(range(1000)), "s": [str(n) for n in range(1000)]})
    good, bad = tmp_path / "good.parquet", tmp_path / "bad.parquet"
    pq.write_table(rows.slice(1), tmp_path / "rows")
    pq.write_table(rows, good)
    data = bytearray(good.read_bytes())
    data[100:300] = bytes(200)
    bad.write_bytes(data)
    table = target({"a": "bigint", "s": "string"}, tmp_path / "table")
    found = pq.read_metadata(good)
    with pytest.raises(Bad) as raised:
        add_file(unit(found, str(bad)), table, found)
    damaged = raised.value.rejected
    assert (damaged.code, damaged.file, damaged.try_as) == ("file-unreadable", "bad.parquet", None)
    assert list((tmp_path / "table").iterdir()) == []
    add = add_file(unit(found, str(good)), table, found)
    assert isinstance(add, dict) and (tmp_path / "table" / add["path"]).read_bytes() == good.read_bytes()
    assert json.loads(add["stats"])["maxValues"]["a"] == 999
    believed = add_file(unit(found, str(bad)), table, found, trust_footer=True)
    assert isinstance(believed, dict) and believed["stats"] == add["stats"], "unread, as it was asked for"
    for trusted in (False, True):
        with pytest.raises(LakemirrorError, match="was replaced by another file") as changed:
            add_file(unit(found, str(tmp_path / "rows")), table, found, trust_footer=trusted)
        assert changed.value.code == "concurrent-commit"
    good.unlink()
    with pytest.raises(LakemirrorError) as gone:
        add_file(unit(found, str(good)), table, found)
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
        "real": ("double", pa.float64(), [math.nan, math.nan, None, math.nan, math.nan, math.nan]),
        "yes": ("boolean", pa.bool_(), [True, None, None, None, False, False]),
        "sum": ("decimal(9,2)", pa.decimal128(9, 2), [Decimal("-1.25"), None, None, Decimal("9.5"), None, Decimal(0)]),
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
        floats = rows.append_column("rate", pa.array([1.5, None, -2.0, 0.0, 7.25, None]))
        pq.write_table(floats.append_column("inf", pa.array([1.0, math.inf, 2.0, 3.0, 4.0, 5.0])), path,
                       row_group_size=size, use_dictionary=False)  # fmt: skip
        rated = [*wanted, Column("rate", "double"), Column("inf", "float")]
        own = statistics_of_own(path, rated)
        assert own == statistics(path, rated, 6) and own["maxValues"]["rate"] == 7.25 and "inf" not in own["maxValues"]
        pq.write_table(rows, path, row_group_size=size)
        assert read["nullCount"]["later"] == 6 and read["minValues"]["short"] == -7
    pq.write_table(rows, path, row_group_size=2, write_statistics=["short", "text"])
    told = statistics_told(pq.read_metadata(path), wanted)
    assert set(told["nullCount"]) == {"short", "text", "later"} and set(told["minValues"]) == {"short", "text"}
    assert told["numRecords"] == 6
