"""Where the rows with given keys lie: always where a plain look at every row finds them."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.model import canonical
from tests.rounds import rounds

from lakemirror.engines.kernels.data_rows import arrow_type
from lakemirror.engines.kernels.decode import MemoryBudget
from lakemirror.engines.row_work import Target, TargetColumn
from lakemirror.keys import find_keys
from lakemirror.keys import look_up as kept_keys
from lakemirror.keys import look_up as key_lookup
from lakemirror.keys.look_up import Cache, find, may_hold, read_footer, row_groups
from lakemirror.keys.wanted_keys import WantedColumn, WantedKeys
from lakemirror.landing_zone.column_types import table_type

NAN = float("nan")
DAYS = [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(2020, 5, 1), datetime.date(9999, 12, 31)]
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "whole": (pa.int64(), st.integers(-30, 30) | st.sampled_from([-(2**63), 2**63 - 1])),
    "short": (pa.int16(), st.integers(-5, 5) | st.sampled_from([-(2**15), 2**15 - 1])),
    "day": (pa.date32(), st.sampled_from(DAYS)),
    "text": (pa.string(), st.sampled_from(["", "a", "B", "ä"])),
    "bytes": (pa.binary(), st.sampled_from([b"", b"\0", b"\xff"])),
    "double": (pa.float64(), st.sampled_from([0.0, -0.0, NAN, -NAN, math.inf, 1.5])),
    "float": (pa.float32(), st.sampled_from([0.0, -0.0, NAN, math.inf, 1.5])),
    "money": (pa.decimal128(38, 2), st.sampled_from([decimal.Decimal(x) for x in ("1.10", "-1.10", "9" * 36 + ".99")])),
    "moment": (pa.timestamp("us", "UTC"), st.sampled_from([-1, 0, 1, 2**55])),
    "truth": (pa.bool_(), st.booleans()),
}


def as_key(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The key as the contract compares it."""
    return tuple(canonical(value) for value in row)


def target_of(folder: str, keys: pa.Table, **more: Any) -> Target:
    columns = tuple(TargetColumn(f.name, f.name, str(table_type(f.type))) for f in keys.schema)
    return Target(folder, columns, key_columns=tuple(keys.column_names), **more)


def positions(folder: str, adds: dict[str, Any], keys: pa.Table) -> dict[str, pa.Array]:
    """Row numbers by file names, as an engine asks for them."""
    target, wanted = target_of(str(folder), keys), WantedKeys(keys)
    room = MemoryBudget(key_lookup.LATELY_READ.most_bytes // 2)
    found: dict[str, list[int]] = {}
    for name, add in adds.items():
        if may_hold(add, target, wanted):
            for group in row_groups(add, target, wanted, read_footer(add, target)):
                version = (add.get("size"), add.get("modificationTime"))
                rows = find(group, target, wanted, version=version, room=room).to_pylist()
                if rows:
                    found.setdefault(name, []).extend(rows)
    return {name: pa.array(rows, pa.int64()) for name, rows in found.items()}


@pytest.fixture(autouse=True)
def nothing_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_lookup, "LATELY_READ", Cache(1 << 20))


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row groups that are read from now on."""
    read: list[int] = []
    true = pq.ParquetFile.iter_batches

    def iter_batches(self: Any, *args: Any, row_groups: list[int], **more: Any) -> Any:
        read.extend(row_groups)
        return true(self, *args, row_groups=row_groups, **more)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", iter_batches)
    return read


def adds(*names: str) -> dict[str, Any]:
    return {name: {"path": name} for name in names}


@settings(max_examples=rounds(50, 200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_rows_are_found_where_a_look_at_every_row_finds_them(monkeypatch: pytest.MonkeyPatch, data: Any) -> None:
    monkeypatch.setattr(kept_keys, "_WORTH_IT", data.draw(st.sampled_from([1, 8])))
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=2))
    schema = pa.schema([(f"K{place}", VALUES[kind][0]) for place, kind in enumerate(kinds)])
    nullable = data.draw(st.booleans())
    row = st.tuples(*(VALUES[kind][1] | (st.none() if nullable else st.nothing()) for kind in kinds))
    expected: dict[str, list[int]] = {}
    keys = list({as_key(each): each for each in data.draw(st.lists(row, max_size=12))}.values())
    wanted = {as_key(each) for each in keys}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(data.draw(st.integers(1, 3))):
            rows = data.draw(st.lists(row, max_size=30))
            if data.draw(st.booleans()):
                with contextlib.suppress(TypeError):
                    rows.sort()
            columns = list(zip(*rows, strict=True)) or [()] * len(kinds)
            held = {
                name.lower(): pa.array(list(values), kind)
                for name, kind, values in zip(schema.names, schema.types, columns, strict=True)
            }
            nested = pa.array([[{"k0": 1}]] * len(rows), pa.list_(pa.struct([("k0", pa.int64())])))
            path = Path(folder) / f"{number}.parquet"
            pq.write_table(pa.table({"x": nested, **held}), path, row_group_size=data.draw(st.integers(1, 31)))
            if found := [place for place, each in enumerate(rows) if as_key(each) in wanted]:
                expected[path.name] = found
        wanted = pa.table(
            [pa.array([key[place] for key in keys], kind) for place, kind in enumerate(schema.types)], schema=schema
        )
        found_rows = positions(folder, adds(*(path.name for path in Path(folder).iterdir())), wanted)
        again = positions(folder, adds(*(path.name for path in Path(folder).iterdir())), wanted)
    assert again == found_rows
    assert {name: sorted(places.to_pylist()) for name, places in found_rows.items()} == expected


def test_a_column_that_a_file_does_not_hold_is_null_in_it(tmp_path: Path) -> None:
    pq.write_table(pa.table({"other": [1, 2]}), tmp_path / "old.parquet")
    wanted = pa.table({"id": pa.array([None, 5], pa.int64())})
    found = positions(str(tmp_path), adds("old.parquet"), wanted)
    assert found is not None and found["old.parquet"].to_pylist() == [0, 1]
    assert positions(str(tmp_path), adds("old.parquet"), wanted.slice(1)) == {}


def test_only_row_groups_that_may_hold_a_key_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"id": list(range(1000))}), tmp_path / "data.parquet", row_group_size=100)
    read = count_reads(monkeypatch)
    found = positions(str(tmp_path), adds("data.parquet"), pa.table({"id": [5000, 205, 799, 800]}))
    assert found is not None and found["data.parquet"].to_pylist() == [205, 799, 800]
    assert sorted(read) == [2, 7, 8]  # no range from the smallest to the largest key


def test_a_nested_column_of_the_same_path_is_another_one(tmp_path: Path) -> None:
    nested = pa.array([{"b": 1}, {"b": 1}])
    pq.write_table(pa.table({"a": nested, "a.b": [5, 7]}), tmp_path / "data.parquet")
    found = positions(str(tmp_path), adds("data.parquet"), pa.table({"a.b": [7]}))
    assert found is not None and found["data.parquet"].to_pylist() == [1]


def test_row_groups_without_rows_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"id": ["a", "b"]})
    with pq.ParquetWriter(tmp_path / "data.parquet", rows.schema) as writer:
        for part in (rows.slice(0, 0), rows, rows.slice(0, 0)):
            writer.write_table(part)
    footer = pq.read_metadata(tmp_path / "data.parquet")
    assert [footer.row_group(group).num_rows for group in range(footer.num_row_groups)] == [0, 2, 0]
    read = count_reads(monkeypatch)
    found = positions(str(tmp_path), adds("data.parquet"), pa.table({"id": ["b"]}))
    assert found is not None and found["data.parquet"].to_pylist() == [1] and read == [1]


def test_a_long_run_of_narrow_numbers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array(range(-20_000, 20_001), pa.int16())}), tmp_path / "data.parquet")
    found = positions(str(tmp_path), adds("data.parquet"), pa.table({"id": pa.array([15_000, -20_000], pa.int16())}))
    assert found is not None and found["data.parquet"].to_pylist() == [0, 35_000]


def test_what_was_read_lately_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"id": [0, 10]}), tmp_path / "data.parquet")
    read = count_reads(monkeypatch)

    def look(**add: Any) -> int:
        """How many row groups were read."""
        read.clear()
        found = positions(str(tmp_path), {"x": {"path": "data.parquet", **add}}, pa.table({"id": [10]}))
        assert found is not None and found["x"].to_pylist() == [1]
        return len(read)

    assert [look(), look(), look(size=1), look(size=1, modificationTime=2), look()] == [1, 0, 1, 1, 0]
    monkeypatch.setattr(key_lookup, "LATELY_READ", Cache(2 * 2048 + 15))
    assert [look(), look()] == [1, 1], "one look takes half of it at most"
    monkeypatch.setattr(key_lookup, "LATELY_READ", Cache(4 * 2048 + 32))
    assert [look(), look(size=3), look(), look(size=3)] == [1, 1, 0, 0], "and drives out no more"


def test_a_column_that_was_widened_is_compared_as_wide(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([1, 2, 3], pa.int16())}), tmp_path / "data.parquet")
    for kind, key in ((pa.int64(), 2), (pa.decimal128(10, 0), decimal.Decimal(2)), (pa.float64(), 2.0)):
        found = positions(str(tmp_path), adds("data.parquet"), pa.table({"id": pa.array([key], kind)}))
        assert found["data.parquet"].to_pylist() == [1]


def test_int96_and_nanoseconds_are_microseconds(tmp_path: Path) -> None:
    moments = pa.array([-1, 1999, 86_400_000_000_000_123], pa.timestamp("ns"))
    pq.write_table(pa.table({"id": moments}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(pa.table({"id": moments}), tmp_path / "b.parquet")
    keys = pa.table({"id": pa.array([-1, 1, 86_400_000_000_000], pa.timestamp("us", "UTC"))})
    found = positions(str(tmp_path), adds("a.parquet", "b.parquet"), keys)
    assert {name: rows.to_pylist() for name, rows in found.items()} == {
        n: [0, 1, 2] for n in ("a.parquet", "b.parquet")
    }


def test_values_of_partitions_and_physical_names(tmp_path: Path) -> None:
    pq.write_table(pa.table({"col-1": [1, 2]}), tmp_path / "data%20x.parquet")
    columns = (TargetColumn("id", "col-1", "bigint"), TargetColumn("day", "col-2", "date"))
    target = Target(str(tmp_path), columns, ("day",), ("id", "day"))
    day = datetime.date(2026, 1, 1)
    for key, expected in ((day, [1]), (None, [])):
        keys = pa.table({"id": [2], "day": pa.array([key], pa.date32())})
        add = {"path": "data%2520x.parquet", "partitionValues": {"col-2": "2026-01-01"}}
        wanted = WantedKeys(keys)
        assert may_hold(add, target, wanted) is bool(expected)
        (group,) = row_groups(add, target, wanted, read_footer(add, target))
        assert find(group, target, wanted).to_pylist() == expected


@pytest.mark.parametrize(
    ("type_", "key", "low", "high", "holds"),
    [
        ("bigint", 5, 1, 4, False),
        ("bigint", 5, 1, 5, True),
        ("bigint", 5, 9, 1, True),
        ("date", datetime.date(2026, 1, 2), "2026-01-01", "2026-01-01", False),
        ("timestamp", 1_500, "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.001Z", True),
        ("timestamp", 9_000, "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.001Z", False),
        ("string", "b", "c", "d", False),
        ("string", "dx", "c", "d", True),
        ("decimal(10,2)", decimal.Decimal("5.00"), decimal.Decimal("1.00"), decimal.Decimal("4.99"), False),
        ("decimal(38,2)", decimal.Decimal("5.00"), decimal.Decimal("1.00"), decimal.Decimal("4.99"), True),
        ("double", 5.0, 1.0, 2.0, True),
    ],
)
def test_bounds_in_the_log(type_: str, key: Any, low: Any, high: Any, holds: bool) -> None:
    keys = pa.table({"id": pa.array([key], arrow_type(type_))})
    target = Target("t", (TargetColumn("id", "id", type_),), key_columns=("id",))
    stats = json.dumps({"minValues": {"id": low}, "maxValues": {"id": high}, "nullCount": {"id": 0}}, default=float)
    assert may_hold({"path": "x", "stats": stats}, target, WantedKeys(keys)) is holds


def test_only_null_is_sought() -> None:
    target = Target("t", (TargetColumn("id", "id", "double"),), key_columns=("id",))
    wanted = WantedKeys(pa.table({"id": pa.array([None], pa.float64())}))
    for nulls in (0, 1):
        stats = json.dumps({"minValues": {"id": 1.0}, "maxValues": {"id": 2.0}, "nullCount": {"id": nulls}})
        assert may_hold({"path": "x", "stats": stats}, target, wanted)


@pytest.mark.parametrize("wanted", [[5, 7, 2000, -3], [5, 1 << 62, -(1 << 63)]])
def test_numbers_that_do_not_rise_are_found_also_at_the_ends_of_their_type(tmp_path: Path, wanted: list[int]) -> None:
    """The first wanted ones are dense: a map has them."""
    rows = [7, (1 << 63) - 1, -(1 << 63), 5, 6, 1 << 62, -4, -3, 2001, 2000, 5]
    pq.write_table(pa.table({"k0": rows}), tmp_path / "a.parquet")
    found = positions(str(tmp_path), adds("a.parquet"), pa.table({"K0": wanted}))
    assert found["a.parquet"].to_pylist() == [place for place, row in enumerate(rows) if row in wanted]


@pytest.mark.parametrize(
    ("type_", "lowest"), [(pa.int8(), -128), (pa.int64(), -(1 << 63)), (pa.uint8(), 155), (pa.uint64(), 1 << 63)]
)
def test_numbers_rise_once_each_also_at_the_ends_of_their_type(type_: pa.DataType, lowest: int) -> None:
    column = WantedColumn(pa.chunked_array([pa.array([lowest + each for each in (3, 100, 0, 3, 1)] * 20, type_)]))
    assert column.numbers.tolist() == [lowest + each for each in (0, 1, 3, 100)]


def test_footers_that_are_not_known_are_opened_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, begun = pa.table({"id": [10]}), list[str]()
    monkeypatch.setattr(find_keys, "_FEW", 0)
    files = []
    for number in range(2):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"id": [0, 10]}), path)
        files.append((number, {"path": path.name, "size": path.stat().st_size}))

    def each(act: Any, items: Any) -> Any:
        begun.append(act.__name__)
        return map(act, items)

    for expected in (["groups_of", "rows_in"], ["rows_in"]):
        begun.clear()
        target = target_of(str(tmp_path), keys)
        found = find_keys.search_files(files, target, WantedKeys(keys), 1 << 20, each)
        assert [(number, rows.tolist()) for number, rows in found] == [(0, [1]), (1, [1])]
        assert begun[: len(expected)] == expected
