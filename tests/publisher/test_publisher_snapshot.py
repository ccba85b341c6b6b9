"""`publish_snapshot`: after every content the mirrored table equals it, and no more is written than differs."""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_contents import MARKER, change_files, changes, comparable, fold, retire
from tests.rounds import rounds

from lakemirror.errors import LakemirrorError
from lakemirror.keys.key_values import key_bucket
from lakemirror.publisher import Landing, LandingTable, disk_rows, published_rows, row_keys
from lakemirror.publisher.row_keys import distinct, positions

pytestmark = pytest.mark.usefixtures("door")


@pytest.fixture
def stock(tmp_path: Path) -> LandingTable:
    return Landing(tmp_path).table("stock", ["id"])


def table_of(rows: dict[int, Any]) -> pa.Table:
    return pa.table({"id": pa.array(rows.keys(), pa.int64()), "v": pa.array(rows.values(), pa.string())})


def counts(table: LandingTable, number: int) -> dict[int, int]:
    """How many rows with which marker a file has."""
    found = pq.read_table(change_files(table.folder)[number], partitioning=None)[MARKER].to_pylist()
    return {marker: found.count(marker) for marker in sorted(set(found))}


def mirrored(table: LandingTable) -> dict[int, Any]:
    rows = fold(changes(table.folder), ["id"])
    assert len({row["id"] for row in rows}) == len(rows), rows
    return {row["id"]: row["v"] for row in rows}


def test_only_the_difference_is_published(stock: LandingTable) -> None:
    first = stock.publish_snapshot(table_of({1: "a", 2: "b", 3: None}))
    assert first is not None and MARKER not in pq.read_schema(first.path).names
    second = stock.publish_snapshot(table_of({2: "B", 3: None, 4: "d"}))
    assert second is not None and (second.number, second.rows) == (2, 3)
    assert counts(stock, 2) == {0: 1, 1: 1, 2: 1}
    assert stock.publish_snapshot(table_of({4: "d", 3: None, 2: "B"})) is None
    assert mirrored(stock) == {2: "B", 3: None, 4: "d"}


def test_to_nothing_and_back(stock: LandingTable) -> None:
    for content in ({}, {1: "a", 2: "b"}, {}, {2: "b"}):
        stock.publish_snapshot(table_of(content))
        assert mirrored(stock) == content
    assert pq.read_schema(change_files(stock.folder)[1]).names == ["id", "v"]


def test_another_process_goes_on(tmp_path: Path, stock: LandingTable) -> None:
    stock.publish_snapshot(table_of({1: "a"}))
    retire(stock.folder)
    published = Landing(tmp_path).table("stock").publish_snapshot(table_of({1: "a", 2: "b"}))
    assert published is not None and published.rows == 1


def test_a_table_filled_by_hand_first(stock: LandingTable) -> None:
    stock.load(table_of({1: "a", 2: "b"}))
    stock.insert(table_of({2: "again", 3: "c"}))  # 2 is there twice now
    stock.publish_snapshot(table_of({2: "b", 4: "d"}))
    assert mirrored(stock) == {2: "b", 4: "d"}
    assert counts(stock, 3) == {0: 1, 1: 1, 2: 2}


def test_files_of_other_writers_in_between(stock: LandingTable) -> None:
    content = dict.fromkeys(range(100), "x")
    stock.publish_snapshot(table_of(content))
    stock.upsert(table_of({5: "strange", 500: "new"}))
    stock.delete([{"id": 7}])
    stock.publish_snapshot(table_of(content))
    assert mirrored(stock) == content
    assert counts(stock, 4) == {1: 2, 2: 1}
    assert stock.publish_snapshot(table_of(content)) is None


def test_a_lost_state_is_made_good_from_the_files(stock: LandingTable) -> None:
    stock.publish_snapshot(table_of({1: "a", 2: "b"}))
    retire(stock.folder)
    for path in stock.folder.glob("_snapshot*"):
        path.unlink()
    stock.publish_snapshot(table_of({2: "b", 3: "c"}))
    assert mirrored(stock) == {2: "b", 3: "c"}


@pytest.mark.parametrize("name", ["_snapshot.arrow", "_snapshot_patch.arrow"])
def test_a_damaged_state_is_made_good_from_the_files(stock: LandingTable, name: str) -> None:
    many = dict.fromkeys(range(20000), "x")
    stock.publish_snapshot(table_of(many))
    stock.publish_snapshot(table_of({**many, 1: "y"}))
    (stock.folder / name).write_bytes((stock.folder / name).read_bytes()[:100])
    stock.publish_snapshot(table_of({**many, 2: "z"}))
    assert mirrored(stock) == {**many, 2: "z"}


def test_a_lost_state_and_lost_files_are_an_error(stock: LandingTable) -> None:
    stock.publish_snapshot(table_of({1: "a"}))
    stock.publish_snapshot(table_of({2: "a"}))
    retire(stock.folder)
    shutil.rmtree(stock.folder / "_ProcessedFiles")
    stock.publish_snapshot(table_of({3: "a"}))  # the state is enough
    (stock.folder / "_snapshot.arrow").unlink()
    with pytest.raises(LakemirrorError, match=r"00000000000000000001\.parquet is gone") as caught:
        stock.publish_snapshot(table_of({4: "a"}))
    assert caught.value.code == "snapshot-state-lost"
    stock.recreate()
    stock.publish_snapshot(table_of({4: "a"}))
    assert mirrored(stock) == {4: "a"}


def test_a_published_file_deleted_by_hand_is_published_again(stock: LandingTable) -> None:
    stock.publish_snapshot(table_of({1: "a"}))
    last = stock.publish_snapshot(table_of({1: "b", 2: "c"}))
    assert last is not None
    last.path.unlink()  # the state speaks of number 2, which nobody will ever apply
    stock.publish_snapshot(table_of({1: "b", 2: "c"}))
    assert mirrored(stock) == {1: "b", 2: "c"}


def test_a_folder_filled_anew_by_another_publisher(stock: LandingTable) -> None:
    stock.publish_snapshot(table_of({1: "a", 2: "b"}))
    change_files(stock.folder)[1].unlink()
    pq.write_table(table_of({7: "other"}), stock.folder / f"{1:020d}.parquet")
    stock.publish_snapshot(table_of({1: "a", 2: "b"}))
    assert mirrored(stock) == {1: "a", 2: "b"}


def test_another_writer_takes_the_number(stock: LandingTable, monkeypatch: pytest.MonkeyPatch) -> None:
    stock.publish_snapshot(table_of({1: "a"}))
    real: Callable[..., Any] = LandingTable.publish
    racing = [True]

    def publish(self: LandingTable, *args: Any, **named: Any) -> Any:
        if racing.pop() if racing else False:
            Landing(self.folder.parents[2]).table("stock", ["id"]).upsert([{"id": 9, "v": "racer"}])
        return real(self, *args, **named)

    monkeypatch.setattr(LandingTable, "publish", publish)
    published = stock.publish_snapshot(table_of({1: "b"}))
    assert published is not None and published.number == 3
    assert mirrored(stock) == {1: "b"}


def test_repeated_keys_are_refused(stock: LandingTable) -> None:
    def refused(ids: list[int | None]) -> None:
        with pytest.raises(LakemirrorError) as caught:
            stock.publish_snapshot(pa.table({"id": pa.array(ids, pa.int64()), "v": ["x"] * len(ids)}))
        assert caught.value.code == "keys-not-unique"

    refused([1, 1])
    assert not list(stock.folder.glob("*.parquet"))
    stock.publish_snapshot(table_of({1: "a", 2: "b", 3: "c"}))
    refused([1, 2, 3, 1])  # again a key of the equal front
    refused([1, 2, 2])
    refused([4, 4, 1])
    refused([None, None])
    assert len(change_files(stock.folder)) == 1


def test_a_new_column_and_one_that_is_gone(stock: LandingTable) -> None:
    stock.publish_snapshot(table_of({1: "a", 2: None}))
    stock.publish_snapshot(pa.table({"id": [1, 2], "w": pa.array([None, 5], pa.int32())}))
    assert fold(changes(stock.folder), ["id"]) == [{"id": 1, "w": None}, {"id": 2, "w": 5}]
    assert counts(stock, 2) == {1: 2}
    assert stock.publish_snapshot(pa.table({"id": [1, 2], "w": pa.array([None, 5], pa.int32())})) is None


def test_a_column_changes_its_type(stock: LandingTable) -> None:
    stock.publish_snapshot(pa.table({"id": [1, 2], "x": [1.5, 2.0]}))
    wide = pa.table({"id": pa.array([1, 2], pa.int32()), "x": [1, 2]})  # CSV readers guess from what they see
    stock.publish_snapshot(wide)
    assert counts(stock, 2) == {1: 1}
    assert pq.read_schema(change_files(stock.folder)[2]).types[:2] == [pa.int64(), pa.float64()]
    with pytest.raises(LakemirrorError) as caught:
        stock.publish_snapshot(pa.table({"id": [1], "x": ["text"]}))
    assert (caught.value.code, caught.value.column) == ("type-changed", "x")
    whole = Landing(stock.folder.parents[2]).table("whole", ["id"])
    whole.publish_snapshot(pa.table({"id": [1], "x": [1]}))
    for wrong in ([1.5], ["1"], [dt.date(2026, 1, 1)]):
        with pytest.raises(LakemirrorError, match="type-changed"):
            whole.publish_snapshot(pa.table({"id": [1], "x": wrong}))


def test_floats_are_told_apart_by_their_bits(stock: LandingTable) -> None:
    nan = float("nan")
    stock.publish_snapshot(pa.table({"id": [1, 2, 3], "x": [nan, 0.0, None]}))
    assert stock.publish_snapshot(pa.table({"id": [1, 2, 3], "x": [nan, 0.0, None]})) is None
    published = stock.publish_snapshot(pa.table({"id": [1, 2, 3], "x": [nan, -0.0, nan]}))
    assert published is not None and published.rows == 2


def test_keys_of_floats_compare_as_the_contract_says(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("t", ["k"])
    table.publish_snapshot(pa.table({"k": [0.0, float("nan"), None], "v": [1, 2, 3]}))
    table.publish_snapshot(pa.table({"k": [None, float("nan"), -0.0], "v": [3, 2, 1]}))
    assert list(change_files(table.folder)) == [1]  # the same three keys: nothing differs
    table.publish_snapshot(pa.table({"k": pa.array([float("nan")]), "v": [2]}))
    assert counts(table, 2) == {2: 2}


def test_keys_in_another_spelling(stock: LandingTable) -> None:
    stock.publish_snapshot(pa.table({"ID": [1], "v": ["a"]}))
    stock.publish_snapshot(pa.table({"id": [1], "v": ["b"]}))
    assert counts(stock, 2) == {1: 1}


def test_a_small_change_of_a_large_table_writes_little(stock: LandingTable) -> None:
    many = dict.fromkeys(range(50000), "some text")
    stock.publish_snapshot(table_of(many))
    before = (stock.folder / "_snapshot.arrow").stat().st_mtime_ns
    for step in range(1, 4):
        many = {number: text for number, text in many.items() if number % 100 != step}
        many[50] = f"changed {step}"
        many[50_000 + step] = "new"
        published = stock.publish_snapshot(table_of(many))
        assert published is not None and published.rows == 502
        assert (stock.folder / "_snapshot.arrow").stat().st_mtime_ns == before
    assert (stock.folder / "_snapshot_patch.arrow").stat().st_size < 100_000
    assert mirrored(stock) == many
    stock.publish_snapshot(table_of(dict.fromkeys(range(50000), "all new")))
    assert (stock.folder / "_snapshot.arrow").stat().st_mtime_ns != before
    assert not (stock.folder / "_snapshot_patch.arrow").exists()


@contextlib.contextmanager
def ways_for_many_rows() -> Iterator[None]:
    """What is done for many rows, done for few as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_keys, "MANY", 0)
        patch.setattr(published_rows, "ROWS_AT_ONCE", 2)
        patch.setattr(disk_rows, "IN_MEMORY_BYTES", 0)
        yield


KEY_VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [None, 0, 1, 2, -1, (1 << 63) - 1, -(1 << 63)]),
    "narrow": (pa.int16(), [0, 1, 2, 300]),
    "unsigned": (pa.uint64(), [None, 0, 1, (1 << 64) - 1]),
    "text": (pa.string(), [None, "", "a", "A", "b"]),
    "float": (pa.float64(), [None, 0.0, -0.0, float("nan"), 1.5]),
    "date": (pa.date32(), [dt.date(2026, 1, 1), dt.date(2026, 1, 2)]),
    "time": (pa.timestamp("us", "UTC"), [None, *(dt.datetime(2026, 1, 1, h, tzinfo=dt.timezone.utc) for h in (0, 1))]),
    "bool": (pa.bool_(), [None, True, False]),
    "bytes": (pa.binary(), [None, b"", b"\0"]),
}


@st.composite
def contents(draw: st.DrawFn) -> tuple[list[str], pa.Schema, list[list[dict[str, Any]]]]:
    """Key columns, and several contents with unique keys in any order."""
    kinds = draw(st.lists(st.sampled_from(list(KEY_VALUES)), min_size=1, max_size=3))
    keys = [f"k{at}" for at in range(len(kinds))]
    schema = pa.schema(
        [(name, KEY_VALUES[kind][0]) for name, kind in zip(keys, kinds, strict=True)] + [("v", pa.string())]
    )
    one_row = st.fixed_dictionaries(
        {name: st.sampled_from(KEY_VALUES[kind][1]) for name, kind in zip(keys, kinds, strict=True)}
        | {"v": st.sampled_from([None, "x", "y"])}
    )
    unique = st.lists(one_row, max_size=8, unique_by=lambda row: key_of(row, keys))
    return keys, schema, draw(st.lists(unique, min_size=2, max_size=5))


def key_of(row: dict[str, Any], keys: list[str]) -> tuple[Any, ...]:
    # True == 1 in Python; a column holds one type, so that this never mixes two keys
    return tuple(comparable(row[name]) for name in keys)


@given(contents(), st.booleans())
@settings(max_examples=rounds(20, 60), deadline=None)
def test_any_contents(drawn: tuple[list[str], pa.Schema, list[list[dict[str, Any]]]], lose_state: bool) -> None:
    keys, schema, many = drawn
    with tempfile.TemporaryDirectory() as folder, ways_for_many_rows():
        table = Landing(folder).table("t", keys)
        for rows in many:
            before = {key_of(row, keys): row for row in _published(table, keys)}
            published = table.publish_snapshot(pa.Table.from_pylist(rows, schema))
            after = {key_of(row, keys): row for row in _published(table, keys)}
            assert {key: row["v"] for key, row in after.items()} == {key_of(row, keys): row["v"] for row in rows}
            if before and not lose_state:  # nothing is published that was there already
                changed = {key for key in before.keys() | after.keys() if _v(before, key) != _v(after, key)}
                assert (published.rows if published else 0) == len(changed)
            if lose_state:
                (table.folder / "_snapshot.arrow").unlink(missing_ok=True)


def _published(table: LandingTable, keys: list[str]) -> list[dict[str, Any]]:
    rows = fold(changes(table.folder), keys) if table.folder.is_dir() else []
    assert len({key_of(row, keys) for row in rows}) == len(rows), rows
    return rows


def _v(rows: dict[tuple[Any, ...], dict[str, Any]], key: tuple[Any, ...]) -> object:
    return rows[key]["v"] if key in rows else "absent"


@given(contents())
@settings(max_examples=rounds(30, 100), deadline=None)
def test_positions_agree_with_python(drawn: tuple[list[str], pa.Schema, list[list[dict[str, Any]]]]) -> None:
    keys, schema, many = drawn
    wanted, known = many[0] + many[1], many[-1]
    place = {key_of(row, keys): at for at, row in enumerate(known)}
    tables = [pa.Table.from_pylist(rows, schema) for rows in (wanted, known)]
    expected = [place.get(key_of(row, keys)) for row in wanted]
    assert positions(tables[0], tables[1], keys).to_pylist() == expected
    assert distinct(tables[0], keys) == len({key_of(row, keys) for row in wanted})
    with ways_for_many_rows():
        assert positions(tables[0], tables[1], keys).to_pylist() == expected


@given(contents(), st.integers(2, 5))
@settings(max_examples=rounds(30, 100), deadline=None)
def test_rows_with_the_same_key_are_in_the_same_part(
    drawn: tuple[list[str], pa.Schema, list[list[dict[str, Any]]]], count: int
) -> None:
    keys, schema, many = drawn
    part: dict[tuple[Any, ...], int] = {}
    for rows in many:
        numbers = key_bucket(pa.Table.from_pylist(rows, schema).select(keys), count)
        for row, number in zip(rows, numbers, strict=True):
            assert part.setdefault(key_of(row, keys), number) == number < count


@pytest.mark.parametrize(
    "value",
    [
        int,
        "{:07}".format,
        lambda number: dt.date(2000, 1, 1) + dt.timedelta(number),
        lambda number: number / 8,
        Decimal,
    ],
)
def test_parts_are_of_about_the_same_size(value: Callable[[int], Any]) -> None:
    values = [value(number) for number in range(9000)]
    numbers = key_bucket(pa.table({"k": pa.array(values)}), 8).tolist()
    assert all(900 < numbers.count(part) < 1350 for part in range(8))


NUMBERS = [None, -1, 0, 1, 2, 3, 40, (1 << 63) - 1, -(1 << 63)]
OTHERS = [None, float("nan"), 0.0, -0.0, 1.0]


@given(
    st.lists(st.tuples(st.sampled_from(NUMBERS), st.sampled_from(OTHERS)), max_size=12),
    st.lists(st.tuples(st.integers(0, 12), st.sampled_from(OTHERS)), unique_by=lambda row: row[0], max_size=12),
)
@settings(max_examples=rounds(50, 200), deadline=None)
def test_positions_by_a_dense_column(wanted: list[tuple[Any, Any]], known: list[tuple[Any, Any]]) -> None:
    """One column whose values are close together finds the row; the other decides whether it is the one."""
    schema = pa.schema([("other", pa.float64()), ("number", pa.int64())])
    rows = [[{"number": number, "other": other} for number, other in table] for table in (wanted, known)]
    tables = [pa.Table.from_pylist(table, schema) for table in rows]
    for keys in (["number"], ["other", "number"]):
        place = {key_of(row, keys): at for at, row in enumerate(rows[1])}
        with ways_for_many_rows():
            found = positions(tables[0], tables[1], keys).to_pylist()
        assert found == [place.get(key_of(row, keys)) for row in rows[0]]


def test_positions_of_many_rows_with_wide_keys() -> None:
    """Codes of three columns of full range need to be numbered anew on the way."""
    count = 3000
    spread = [((number * 0x9E3779B97F4A7C15) % (1 << 64)) - (1 << 63) for number in range(count)]
    known = pa.table({"a": spread, "b": spread[::-1], "c": [struct.pack(">q", value) for value in spread]})
    order = [(number * 7) % count for number in range(count)]
    wanted = known.take(order)
    assert positions(wanted, known, ["a", "b", "c"]).to_pylist() == order
    shuffled = wanted.set_column(2, "c", known["c"])
    expected = [at if at == number else None for number, at in enumerate(order)]
    assert positions(shuffled, known, ["a", "b", "c"]).to_pylist() == expected
    assert distinct(pa.concat_tables([known, wanted]), ["a", "b", "c"]) == count


def test_nan_is_one_value_here() -> None:
    assert comparable(float("nan")) == comparable(-math.nan)


def test_a_snapshot_of_no_rows_deletes_all(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("t", ["id"])
    table.publish_snapshot([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    published = table.publish_snapshot([])
    assert published is not None and published.rows == 2
    assert [(marker, row["id"]) for marker, row in changes(table.folder)][-2:] == [(2, 1), (2, 2)]
    assert table.publish_snapshot([]) is None
