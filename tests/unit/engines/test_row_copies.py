"""Copies of old rows: what is read of one is what the data file has, or nothing is."""

from __future__ import annotations

import datetime
import decimal
import json
import logging
import os
import random
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.mirror import target_of
from tests.unit.engines.change_units import target

from lakemirror.engines.kernels.data_rows import rows_of as data_rows_of
from lakemirror.engines.kernels.data_rows import stored_arrow_type
from lakemirror.engines.kernels.live_rows import chosen_rows
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.row_work import Target, TargetColumn
from lakemirror.engines.units import TouchedFile
from lakemirror.engines.write_versions import units_of_rows
from lakemirror.errors import LakemirrorError
from lakemirror.keys import index_folder, key_index, look_up, row_copies, write_row_file
from lakemirror.keys.find_keys import find_keys
from lakemirror.keys.key_file import Replaced
from lakemirror.keys.key_format import Damaged
from lakemirror.keys.key_index import KeyIndex
from lakemirror.keys.row_copies import ROWS_AT_ONCE, copied_rows
from lakemirror.keys.row_file import HEADER, SUM, RowFile, can_hold
from lakemirror.landing_zone.reserved_columns import DELETED

TYPES = (
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp", "timestamp_ntz",
    "string", "binary", "decimal(9,2)", "decimal(38,5)",
)  # fmt: skip


def value(kind: str, rng: random.Random) -> Any:
    if rng.random() < 0.3:
        return None
    size = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}.get(kind)
    if size:
        return rng.choice([-(1 << size), (1 << size) - 1, rng.randint(-(1 << size), (1 << size) - 1)])
    if kind in ("timestamp", "timestamp_ntz"):
        zone = datetime.timezone.utc if kind == "timestamp" else None
        return datetime.datetime(1, 1, 1, tzinfo=zone) + datetime.timedelta(seconds=rng.randint(0, 10**11))
    return {
        "boolean": lambda: rng.random() < 0.5,
        "float": lambda: rng.choice([float(np.float32(rng.random())), -0.0, float("inf")]),
        "double": lambda: rng.choice([rng.random(), -0.0, float("-inf")]),
        "date": lambda: datetime.date(1, 1, 1) + datetime.timedelta(days=rng.randint(0, 10**6)),
        "string": lambda: rng.choice(["ä", "€"]) * rng.randint(0, 20),
        "binary": lambda: rng.randbytes(rng.randint(0, 50)),
        "decimal(9,2)": lambda: decimal.Decimal(rng.randint(1 - 10**9, 10**9 - 1)).scaleb(-2),
        "decimal(38,5)": lambda: decimal.Decimal(rng.randint(-(10**38) + 1, 10**38 - 1)).scaleb(-5),
    }[kind]()


def columns_of(kinds: tuple[str, ...]) -> list[TargetColumn]:
    return [TargetColumn(f"c{number}", f"c{number}", kind) for number, kind in enumerate(kinds)]


def rows_of(columns: list[TargetColumn], count: int) -> pa.Table:
    rng = random.Random(7)
    schema = pa.schema([(column.name, stored_arrow_type(column)) for column in columns])
    return pa.table(
        [pa.array([value(c.type, rng) for _ in range(count)], stored_arrow_type(c)) for c in columns], schema
    )


def written(path: Path, columns: list[TargetColumn], rows: pa.Table, step: int, **bounds: tuple[int, int]) -> RowFile:
    parts = (rows.slice(begin, step) for begin in range(0, rows.num_rows, step))
    write_row_file.write_row_file(path, "it", rows.num_rows, columns, parts, bounds)
    return RowFile(path)


@pytest.fixture(params=[0, 4 << 20], ids=["texts read each time", "texts in memory"])
def texts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bytes of texts a copy may have that stay in memory once they were read."""
    monkeypatch.setattr("lakemirror.keys.row_file._FEW_TEXTS", request.param)
    return int(request.param)


@pytest.mark.usefixtures("texts")
@pytest.mark.parametrize("mapped", [0, 64 << 10])
def test_rows_of_every_type_come_back_as_they_were(
    mapped: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakemirror.storage.many_pieces._A_PIECE", mapped)
    monkeypatch.setattr("lakemirror.storage.many_pieces._GAP", 300)
    columns = columns_of(TYPES)
    rows = rows_of(columns, 2000)
    file = written(tmp_path / "x", columns, rows, 333)
    for count in (0, 1, 37, 900, 2000, 37):
        numbers = np.sort(np.random.default_rng(count).choice(2000, count, replace=False))
        found = file.chosen(numbers, columns[::-1])
        found.validate(full=True)
        assert found.equals(rows.take(pa.array(numbers)).select(found.column_names))


@pytest.mark.parametrize(
    ("low", "high"), [(0, 0), (-5, 250), (-(1 << 63), (1 << 63) - 1), (1 << 62, (1 << 62) + 65535)]
)
def test_whole_numbers_take_as_many_bytes_as_their_bounds_need(tmp_path: Path, low: int, high: int) -> None:
    columns = columns_of(("bigint",))
    rows = pa.table({"c0": pa.array([low, None, high, low], pa.int64())})
    assert written(tmp_path / "x", columns, rows, 3, c0=(low, high)).chosen(np.arange(4), columns).equals(rows)
    for beyond in (low - 1, high + (1 << 32)):
        if -(1 << 63) <= beyond < 1 << 63:
            with pytest.raises(ValueError, match="bounds"):
                written(tmp_path / "y", columns, pa.table({"c0": pa.array([low, beyond])}), 3, c0=(low, high))


@pytest.mark.usefixtures("texts")
def test_texts_that_are_forgotten_while_a_copy_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemirror.keys.write_row_file._MOST_TEXTS", 4)
    columns = columns_of(("string", "binary", "string"))
    texts = [f"{number % 9}" * (number % 9) for number in range(500)]
    rows = pa.table({"c0": texts, "c1": pa.array([text.encode() for text in texts]), "c2": texts[::-1]})
    file = written(tmp_path / "x", columns, rows, 7)
    assert file.chosen(np.arange(0, 500, 3), columns).equals(rows.take(pa.array(np.arange(0, 500, 3))))


@pytest.mark.usefixtures("texts")
def test_no_damage_gives_other_rows(tmp_path: Path) -> None:
    columns = columns_of(TYPES)
    rows, rng = rows_of(columns, 150), random.Random(3)
    written(tmp_path / "x", columns, rows, 64)
    content, refused = (tmp_path / "x").read_bytes(), 0
    used = [place for place in range(len(content)) if place < 2000 or place >= 64 << 10]
    for _ in range(300):
        broken, place = bytearray(content), rng.choice(used)
        what = rng.choice(["bit", "cut", "zeros", "swap"])
        if what == "bit":
            broken[place] ^= 1 << rng.randrange(8)
        elif what == "cut":
            del broken[place:]
        elif what == "zeros":
            broken[place : place + 64] = bytes(len(broken[place : place + 64]))
        else:
            other = rng.choice(used)
            low, high = broken[place : place + 8], broken[other : other + 8]
            broken[place : place + 8], broken[other : other + 8] = high, low
        (tmp_path / "x").write_bytes(broken)
        try:
            assert RowFile(tmp_path / "x").chosen(np.arange(150), columns).equals(rows)
        except Damaged:
            refused += 1
    assert refused > 150


def test_texts_are_read_and_checked_once_if_they_are_few(texts: int, tmp_path: Path) -> None:
    """A text that was checked stays right, whatever becomes of its bytes; the cache counts what is kept."""
    columns = columns_of(("string",))
    rows = pa.table({"c0": [f"a text {number % 5}" for number in range(100)]})
    file = written(tmp_path / "x", columns, rows, 64)
    assert file.chosen(np.arange(50), columns).equals(rows.slice(0, 50))
    with (tmp_path / "x").open("r+b") as content:
        content.seek(file._end)
        content.write(bytes(file._texts))
    assert file.nbytes == 2048 + (3 * file._texts if texts else 0)
    if texts:
        assert file.chosen(np.arange(100), columns).equals(rows)
    for each in (RowFile(tmp_path / "x"), *([] if texts else [file])):
        with pytest.raises(Damaged):
            each.chosen(np.arange(100), columns)


def test_a_row_that_tells_another_length_of_a_known_text_is_damaged(tmp_path: Path) -> None:
    columns = columns_of(("string",))
    file = written(tmp_path / "x", columns, pa.table({"c0": ["a text"] * 3}), 64)
    file.chosen(np.arange(2), columns)
    rows = file._records(os.open(tmp_path / "x", os.O_RDONLY), np.arange(3))
    rows["c0"]["size"][2] = 3
    rows[SUM] = file._shape.sums(rows, np.arange(3))
    with (tmp_path / "x").open("r+b") as content:
        content.seek(HEADER)
        content.write(rows.tobytes())
    with pytest.raises(Damaged, match="another length"):
        file.chosen(np.arange(3), columns)


def test_a_file_that_is_replaced_while_it_is_open_is_not_read(tmp_path: Path) -> None:
    columns = columns_of(("int", "string"))
    file = written(tmp_path / "x", columns, rows_of(columns, 20), 64)
    written(tmp_path / "y", columns, rows_of(columns, 30), 64)
    (tmp_path / "y").replace(tmp_path / "x")
    with pytest.raises(Replaced):
        file.chosen(np.arange(3), columns)


def test_rows_of_another_copy_are_not_believed(tmp_path: Path) -> None:
    """Its bytes are in the open file: the inode of a file that was removed is used again."""
    columns = columns_of(("int", "string"))
    rows = rows_of(columns, 20)
    file = written(tmp_path / "x", columns, rows, 64)
    for identity, other in (("other", rows), ("it", rows)):
        write_row_file.write_row_file(tmp_path / "y", identity, 20, columns, [other], {})
        (tmp_path / "x").write_bytes((tmp_path / "y").read_bytes().ljust(file._end + file._texts))
        if identity == "it":
            assert file.chosen(np.arange(20), columns).equals(rows)
        else:
            with pytest.raises(Damaged):
                file.chosen(np.arange(20), columns)


def test_nested_columns_have_no_copy() -> None:
    assert can_hold(columns_of(TYPES))
    assert not can_hold(columns_of(("int", '{"type":"array","elementType":"long","containsNull":true}')))


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Target, dict[str, Any], pa.Table]:
    """A table with soft deletes, with one data file, in which every file is worth a copy."""
    monkeypatch.setattr(row_copies, "FEWEST_ROWS", 1)
    monkeypatch.setattr(row_copies, "_WIDEST", 1 << 20)
    monkeypatch.setattr(key_index, "FEWEST_ROWS", 1 << 30)
    look_up.LATELY_READ.clear()
    rows = pa.table(
        {"k": pa.array(range(100), pa.int64()), "v": [f"v{n % 7}" for n in range(100)], DELETED: [False] * 100}
    )
    return (*stored(tmp_path, rows), rows)


def stored(place: Path, rows: pa.Table) -> tuple[Target, dict[str, Any]]:
    folder = place / "t"
    folder.mkdir(exist_ok=True)
    pq.write_table(rows, folder / "a.parquet")
    stats = {"numRecords": rows.num_rows, "minValues": {"k": 0}, "maxValues": {"k": 10**9}}
    add = {"path": "a.parquet", "size": (folder / "a.parquet").stat().st_size, "stats": json.dumps(stats)}
    return target_of(folder, {field.name: field.type for field in rows.schema}, ("k",)), add


def opened(place: Path, add: dict[str, Any], target: Target, most_bytes: int = 1 << 30) -> KeyIndex:
    """The index after a look-up in the data file, and after what that has requested."""
    index = KeyIndex(place / "keys", most_bytes)
    index.rows.open([add], target)
    index.wait()
    index.rows.open([add], target)
    return index


def read(add: dict[str, Any], target: Target) -> tuple[bool, pa.Table]:
    """Whether there is a copy, and some rows, as an apply reads them."""
    numbers = np.array([3, 50, 99])
    copied = copied_rows(add, target, numbers, target.columns)
    return copied is not None, pa.concat_tables(chosen_rows(add, target, numbers, target.columns))


def test_a_look_up_makes_the_copy_that_the_next_one_reads(tmp_path: Path, table: tuple[Any, Any, pa.Table]) -> None:
    target, add, rows = table
    expected = rows.take(pa.array([3, 50, 99]))
    index = KeyIndex(tmp_path / "keys", 1 << 30)
    index.rows.open([add], target)
    assert read(add, target) == (False, expected)
    index.wait()
    index.rows.open([add], target)
    assert read(add, target) == (True, expected)
    (tmp_path / "t/a.parquet").rename(tmp_path / "t/b.parquet")
    assert read(add, target) == (True, expected), "the data file is not opened"


def test_many_rows_come_in_parts_and_what_a_copy_cannot_give_from_pages(
    tmp_path: Path, table: tuple[Any, Any, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, add, rows = table
    opened(tmp_path, add, target)
    monkeypatch.setattr("lakemirror.engines.kernels.live_rows.ROWS_AT_ONCE", 30)
    read, chosen = [], RowFile.chosen

    def limited(file: RowFile, numbers: Any, columns: Any) -> pa.Table:
        read.append(len(numbers))
        if len(read) == 6:
            raise pa.ArrowInvalid("input array too large")
        return chosen(file, numbers, columns)

    monkeypatch.setattr(RowFile, "chosen", limited)
    parts = list(chosen_rows(add, target, np.arange(100), target.columns))
    assert read == [part.num_rows for part in parts] == [30, 30, 30, 10]
    assert pa.concat_tables(parts) == rows
    assert pa.concat_tables(chosen_rows(add, target, np.arange(100), target.columns)) == rows
    assert read == [30, 30, 30, 10, 30, 30], "the rest is read from pages"
    assert not list(chosen_rows(add, target, np.arange(0), target.columns))


def test_tables_without_such_options_have_no_copy(tmp_path: Path, table: tuple[Any, Any, pa.Table]) -> None:
    _, add, rows = table
    for names, has_copy in ((["k", "v", "d"], False), (["k", "v", DELETED], True), (["k", "v", "__START_AT"], True)):
        target, add = stored(tmp_path, rows.rename_columns(names))
        index = KeyIndex(tmp_path / names[-1], 1 << 30)
        one = (LocalEngine(threads=1, index=index), target, rows.select(["k"]).slice(3, 1))
        assert find_keys([add], *one[1:], one[0].search, map, index)[0].tolist() == [3]
        index.wait()
        assert bool(list((tmp_path / names[-1]).glob("*/*.rows"))) is has_copy


@pytest.mark.parametrize("what", ["damage", "cut", "empty", "other columns", "older file", "index"])
def test_what_is_no_copy_of_this_file_is_made_again(
    tmp_path: Path, table: tuple[Any, Any, pa.Table], what: str
) -> None:
    target, add, rows = table
    opened(tmp_path, add, target)
    (path,) = (tmp_path / "keys").glob("*/*.rows")
    content = path.read_bytes()
    if what == "older file":
        rows = rows.set_column(1, "v", pa.array(["new"] * 100))
        target, add = stored(tmp_path, rows)
        os.utime(tmp_path / "t/a.parquet", (1, 1))
    elif what == "other columns":
        rows = rows.append_column("w", pa.array(range(100)))
        target, add = stored(tmp_path, rows)
    else:
        broken = {"damage": content[:-9] + b"?" + content[-8:], "cut": content[:-1], "empty": bytes(len(content))}
        path.write_bytes(broken.get(what, b"LMKEYS04"))
        look_up.LATELY_READ.clear()
    expected = rows.take(pa.array([3, 50, 99]))
    index = KeyIndex(tmp_path / "keys", 1 << 30)
    index.rows.open([add], target)
    assert read(add, target)[1] == expected
    index.wait()  # its copy would replace the next one's, under a reader
    opened(tmp_path, add, target)
    assert read(add, target) == (True, expected)


def test_a_file_in_the_place_of_a_copy_stays(tmp_path: Path, table: tuple[Any, Any, pa.Table]) -> None:
    target, add, rows = table
    opened(tmp_path, add, target)
    (path,) = (tmp_path / "keys").glob("*/*.rows")
    path.write_bytes(b"somebody's rows")
    look_up.LATELY_READ.clear()
    index = opened(tmp_path, add, target)
    with pytest.raises(ValueError, match="stays"):
        index.rows.build(add, target)
    assert path.read_bytes() == b"somebody's rows"
    assert read(add, target) == (False, rows.take(pa.array([3, 50, 99])))


def test_copies_have_half_of_the_room_and_give_it_up_for_keys(
    tmp_path: Path, table: tuple[Any, Any, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, add, _ = table
    index = opened(tmp_path, add, target)
    (path,) = (tmp_path / "keys").glob("*/*.rows")
    size = path.stat().st_size
    path.unlink()
    look_up.LATELY_READ.clear()
    opened(tmp_path, add, target, 2 * size - 1)
    assert not path.exists() and not list((tmp_path / "keys").glob("*/*"))
    opened(tmp_path, add, target, 2 * size)
    assert path.exists()
    index._folder.most_bytes = 2 * size
    assert index._folder.make_room(size) and path.exists()
    keys = path.with_name(f"{'0' * 32}.keys")
    keys.write_bytes(path.read_bytes().replace(b"LMROWS", b"LMKEYS"))
    for each in (keys, path):
        os.utime(each, (1, 1))
    monkeypatch.setattr(index_folder, "_is_orphan", lambda path: False)
    assert not index._folder.make_room(size + 1, of_rows=True) and keys.exists() and not path.exists()
    keys.unlink()
    look_up.LATELY_READ.clear()
    opened(tmp_path, add, target, 2 * size)
    assert index._folder.make_room(size + 1) and not path.exists(), "though it was used just now"


def test_a_copy_goes_with_its_data_file(tmp_path: Path, table: tuple[Any, Any, pa.Table]) -> None:
    target, add, _ = table
    opened(tmp_path, add, target)
    (path,) = (tmp_path / "keys").glob("*/*.rows")
    KeyIndex(tmp_path / "keys", 1 << 30)._folder.make_room(0)
    assert path.exists()
    (tmp_path / "t/a.parquet").unlink()
    KeyIndex(tmp_path / "keys", 1 << 30)._folder.make_room(0)
    assert not path.exists()


def test_a_file_of_ended_versions_has_no_copy(tmp_path: Path, table: tuple[Any, Any, pa.Table]) -> None:
    _, add, rows = table
    rows = rows.rename_columns(["k", "v", "__START_AT"]).append_column("__END_AT", pa.array(range(100)))
    for nulls, has_copy in ((0, False), (3, True)):
        target, add = stored(tmp_path, rows)
        add["stats"] = json.dumps(json.loads(add["stats"]) | {"nullCount": {"__END_AT": nulls}})
        opened(tmp_path, add, target)
        assert read(add, target)[0] is has_copy


def test_damage_that_is_seen_when_rows_are_read_costs_the_copy(
    tmp_path: Path, table: tuple[Any, Any, pa.Table]
) -> None:
    target, add, rows = table
    opened(tmp_path, add, target)
    (path,) = (tmp_path / "keys").glob("*/*.rows")
    content = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(64 << 10)
        file.write(bytes(len(content) - (64 << 10)))
    assert read(add, target) == (False, rows.take(pa.array([3, 50, 99])))
    assert not path.exists()


@pytest.fixture
def wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Target, dict[str, Any], pa.Table, list[int]]:
    """A data file of 4 MB that is stored in few bytes, and the bytes of the parts in which a copy of it is made."""
    monkeypatch.setattr(row_copies, "FEWEST_ROWS", 1)
    monkeypatch.setattr(key_index, "FEWEST_ROWS", 1)
    monkeypatch.setattr(key_index, "_READ_NUMBERS", 0)
    monkeypatch.setattr(row_copies, "_BYTES_AT_ONCE", 1 << 17)
    look_up.LATELY_READ.clear()
    texts = [f"{number % 3}" * 1000 for number in range(2000)]
    rows = pa.table({"k": texts, "v": [text.encode() for text in texts], DELETED: [False] * 2000})
    parts: list[int] = []

    def counted(*given: Any, **more: Any) -> Any:
        for table in data_rows_of(*given, **more):
            parts.append(table.nbytes)
            yield table

    for module in (row_copies, key_index):
        monkeypatch.setattr(module, "rows_of", counted)
    return (*stored(tmp_path, rows), rows, parts)


def test_a_copy_of_rows_that_unfold_is_made_in_small_parts_or_not_at_all(
    tmp_path: Path, wide: tuple[Target, dict[str, Any], pa.Table, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, add, rows, parts = wide
    assert add["size"] < 10_000
    opened(tmp_path, add, target)
    assert not list((tmp_path / "keys").glob("*/*")) and sum(parts) < 2 * row_copies._WIDEST * 2000
    monkeypatch.setattr(row_copies, "_WIDEST", 1 << 20)
    opened(tmp_path, add, target)
    assert copied_rows(add, target, np.arange(2000), target.columns) == rows
    assert max(parts) <= 1 << 17


def test_an_index_of_keys_that_unfold_is_made_in_small_parts(
    tmp_path: Path, wide: tuple[Target, dict[str, Any], pa.Table, list[int]]
) -> None:
    target, add, _, parts = wide
    KeyIndex(tmp_path / "keys", 1 << 30).build(add, target)
    assert parts and max(parts) <= 1 << 17


def test_texts_that_repeat_each_other_have_no_copy(
    tmp_path: Path, wide: tuple[Target, dict[str, Any], pa.Table, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, add, rows, parts = wide
    path = tmp_path / "t/a.parquet"
    encoding = {"k": "DELTA_BYTE_ARRAY"}
    pq.write_table(rows.drop_columns(["v"]), path, use_dictionary=False, column_encoding=encoding)
    monkeypatch.setattr(row_copies, "_WIDEST", 1 << 20)
    opened(tmp_path, add | {"size": path.stat().st_size}, target)
    assert not parts and not list((tmp_path / "keys").glob("*/*"))


@pytest.mark.parametrize("long", [1 << 20, (1 << 20) + 1])
def test_rows_are_written_in_pieces_and_long_texts_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long: int
) -> None:
    monkeypatch.setattr(write_row_file, "_PIECE", 1 << 12)
    written_rows, encoded = [], write_row_file._encoded
    monkeypatch.setattr(
        write_row_file, "_encoded", lambda shape, table, *more: [
            written_rows.append((table.num_rows, table.nbytes)), encoded(shape, table, *more)][1],
    )  # fmt: skip
    columns = columns_of(("string", "int"))
    texts = [f"{number}" * 100 for number in range(99)] + ["x" * long]
    rows = pa.table({"c0": texts, "c1": pa.array(range(100), pa.int32())})
    if long > 1 << 20:
        with pytest.raises(ValueError, match="long"):
            written(tmp_path / "x", columns, rows, 50)
    else:
        assert written(tmp_path / "x", columns, rows, 50).chosen(np.arange(100), columns) == rows
    assert all(count == 1 or size <= 1 << 12 for count, size in written_rows) and len(written_rows) < 30


def test_a_full_disk_costs_speed_alone(
    tmp_path: Path, table: tuple[Any, Any, pa.Table], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "lakemirror")
    target, add, rows = table
    expected, index = rows.take(pa.array([3, 50, 99])), KeyIndex(tmp_path / "keys", 1 << 30)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        for _ in range(3):
            index.builder._not_before = 0.0  # as if ten minutes had passed
            index.rows.open([add], target)
            assert read(add, target) == (False, expected)
            index.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [each.levelname for each in caplog.records] == ["WARNING"], "said once"
    assert not list((tmp_path / "keys").glob("*/*")), "nothing half written is left"
    index.rows.open([add], target)
    index.wait()
    assert not list((tmp_path / "keys").glob("*/*")), "not tried again at once"
    index.builder._not_before = 0.0
    index.rows.open([add], target)
    index.wait()
    index.rows.open([add], target)
    assert read(add, target) == (True, expected)


def test_without_room_the_data_file_is_looked_at_once(
    tmp_path: Path, table: tuple[Any, Any, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, add, _ = table
    opens, index = [], KeyIndex(tmp_path / "keys", 0)
    opened = row_copies.opened
    monkeypatch.setattr(row_copies, "opened", lambda *given: [opens.append(given), opened(*given)][1])
    for _ in range(3):
        index.rows.open([add], target)
        index.wait()
    assert len(opens) == 1


def test_a_store_that_does_not_answer_is_asked_again(
    tmp_path: Path, table: tuple[Any, Any, pa.Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: Any) -> None:
        raise LakemirrorError("storage-unavailable", "no answer")

    target, add, rows = table
    with monkeypatch.context() as down:
        down.setattr(row_copies, "opened", fails)
        index = KeyIndex(tmp_path / "keys", 1 << 30)
        index.rows.open([add], target)
        index.wait()
    for _ in range(2):
        index.rows.open([add], target)
        index.wait()
    assert read(add, target) == (True, rows.take(pa.array([3, 50, 99])))


@pytest.mark.parametrize(("rows", "units"), [(ROWS_AT_ONCE // 2, 1), (ROWS_AT_ONCE, 2)])
def test_few_rows_that_have_copies_are_read_by_one_unit(rows: int, units: int) -> None:
    engine = SimpleNamespace(index=SimpleNamespace(rows=SimpleNamespace(are_read=lambda *_: True)))
    files = [TouchedFile(number, {"size": 64 << 20}, np.arange(rows)) for number in range(2)]
    assert len(units_of_rows(engine, target(id="bigint"), files, 2)) == units  # type: ignore[arg-type]
