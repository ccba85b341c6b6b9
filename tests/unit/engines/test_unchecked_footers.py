"""Footers that say what nobody checks, although readers act on it: such files are not copied whole."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.landing import declare, put
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase
from lakemirror.engines.kernels.add_files import add_file, unsupported_reason
from lakemirror.engines.row_work import ChangeUnit, Target, TargetColumn
from lakemirror.errors import Bad
from lakemirror.landing_zone.column_types import file_columns
from lakemirror.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, behind, struct, varint
from lakemirror.parquet.thrift_bytes import encoded_fields, list_bytes, struct_bytes

Fields = dict[int, tuple[int, Any]]
TYPES = {"k": "bigint", "s": "string", "d": "decimal(10,2)"}
ROWS = pa.table({
    "k": pa.array([n * 7919 % 10_000 for n in range(10_000)], pa.int64()),
    "s": [f"text {n % 50}" for n in range(10_000)],
    "d": pa.array([Decimal(n) / 4 for n in range(10_000)], pa.decimal128(10, 2)),
})  # fmt: skip


def encoded(fields: Fields) -> bytes:
    return struct_bytes(*((number, kind, value) for number, (kind, value) in sorted(fields.items())))


def decoded(data: bytes) -> Fields:
    """The fields of an encoded struct, each still encoded; bytes without their length."""
    fields = encoded_fields(data).items()
    return {n: (kind, value[varint(value, 0)[1] :] if kind == BINARY else value) for n, (kind, value) in fields}


def items(data: bytes) -> list[bytes]:
    """The encoded structs of a list."""
    size, at = (data[0] >> 4, 1) if data[0] >> 4 < 15 else varint(data, 1)
    found = []
    for _ in range(size):
        end = behind(data, at, STRUCT)
        found.append(data[at:end])
        at = end
    return found


def inside(number: int, place: int, change: Callable[[Fields], None]) -> Callable[[Fields], None]:
    """A change of the struct at a place of a list, or of a struct (place -1), that a field holds."""

    def changed(fields: Fields) -> None:
        kind, value = fields[number]
        held = [value] if place < 0 else items(value)
        inner = decoded(held[place])
        change(inner)
        held[place] = encoded(inner)
        fields[number] = kind, held[0] if place < 0 else list_bytes(STRUCT, held)

    return changed


def forged(data: bytes, change: Callable[[Fields], None]) -> bytes:
    """A file with another footer."""
    size = int.from_bytes(data[-8:-4], "little")
    fields = decoded(data[-8 - size : -8])
    change(fields)
    footer = encoded(fields)
    return b"".join((data[: -8 - size], footer, len(footer).to_bytes(4, "little"), b"PAR1"))


def written(**options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(ROWS, sink, **options)
    return sink.getvalue()


def planned(data: bytes, folder_: Path) -> tuple[ChangeUnit, Target, pq.FileMetaData]:
    path = folder_ / "1.parquet"
    path.write_bytes(data)
    (folder_ / "table").mkdir(exist_ok=True)
    footer = pq.read_metadata(path)
    unit = ChangeUnit(str(path), "1.parquet", 1, tuple(file_columns(footer)), footer.num_rows, 1 << 25)
    return unit, Target(str(folder_ / "table"), tuple(TargetColumn(n, n, t) for n, t in TYPES.items())), footer


def group(change: Callable[[Fields], None]) -> Callable[[Fields], None]:
    return inside(4, 0, change)


def values(place: int, change: Callable[[Fields], None]) -> Callable[[Fields], None]:
    return group(inside(1, place, inside(3, -1, change)))


def given(number: int, kind: int, value: Any) -> Callable[[Fields], None]:
    return lambda fields: fields.__setitem__(number, (kind, value))


def without(number: int) -> Callable[[Fields], None]:
    return lambda fields: fields.pop(number) and None


def bounds(**told: bytes) -> bytes:
    numbers = {"max": 1, "min": 2, "max_value": 5, "min_value": 6}
    return encoded({numbers[name]: (BINARY, value) for name, value in told.items()})


LEAST, MOST, LESS = (n.to_bytes(8, "little") for n in (0, 9_999, 50))
NEW = {"max_value": MOST, "min_value": LEAST}


@pytest.mark.parametrize(
    ("change", "word"),
    [(values(0, given(14, I64, 4)), "a Bloom filter"), (values(0, given(15, I32, 32)), "a Bloom filter"),
     (group(inside(1, 0, given(4, I64, 4))), "a page index"), (group(inside(1, 0, given(6, I64, 4))), "a page index"),
     (group(given(4, LIST, list_bytes(STRUCT, [encoded({1: (I32, 0), 2: (2, b""), 3: (1, b"")})]))), "sorting columns"),
     (group(given(6, I64, 1 << 40)), "says that a row group has 1099511627776 bytes"),
     (values(0, given(12, STRUCT, bounds(**NEW, max=LESS, min=LEAST))), "bounds"),
     (values(0, given(12, STRUCT, bounds(max=LESS, min=LEAST))), "bounds"),
     (values(0, given(12, STRUCT, bounds(max_value=MOST))), "bounds"), (without(7), "bounds"),
     (inside(2, 3, given(7, I32, 3)), "twice"), (inside(2, 3, given(8, I32, 9)), "twice"),
     (inside(2, 2, given(6, I32, 4)), "twice"), (values(1, given(11, I64, 1 << 30)), "behind its values")],
)  # fmt: skip
def test_what_nobody_checks(change: Callable[[Fields], None], word: str, tmp_path: Path) -> None:
    unit, target, footer = planned(forged(written(), change), tmp_path)
    assert word in str(unsupported_reason(unit, target, footer))
    assert unsupported_reason(unit, target, footer, trust_footer=True) is None


@pytest.mark.parametrize(
    "change",
    [lambda fields: None, values(0, given(12, STRUCT, bounds(**NEW))), values(0, without(12)), group(without(6)),
     values(0, given(12, STRUCT, bounds(**NEW, max=MOST, min=LEAST))), values(0, without(13))],
)  # fmt: skip
def test_what_is_checked_is_copied_whole(change: Callable[[Fields], None], tmp_path: Path) -> None:
    data = forged(written(), change)
    unit, target, footer = planned(data, tmp_path)
    assert unsupported_reason(unit, target, footer) is None
    add = add_file(unit, target, footer)
    assert isinstance(add, dict) and (tmp_path / "table" / add["path"]).read_bytes() == data


POINTS = list_bytes(I32, [3, 8])  # of levels, and of places in a dictionary
COUNTS = [{1: (I32, kind), 2: (I32, encoding), 3: (I32, 1)} for kind, encoding in ((2, 0), (0, 8))]
COUNTED = list_bytes(STRUCT, [encoded(each) for each in COUNTS])


@pytest.mark.parametrize(
    "change",
    [given(99, I64, 1), group(given(9, I64, 1)), values(0, given(2, LIST, POINTS)),
     values(0, given(13, LIST, COUNTED))],
)  # fmt: skip
def test_what_only_the_bytes_show_is_written_again(change: Callable[[Fields], None], tmp_path: Path) -> None:
    unit, target, footer = planned(forged(written(use_dictionary=False), change), tmp_path)
    assert unsupported_reason(unit, target, footer) is None
    with pytest.raises(Bad) as bad:
        add_file(unit, target, footer)
    assert bad.value.rejected.try_as == "rows", bad.value
    assert list((tmp_path / "table").iterdir()) == []


def test_a_changed_bit_of_a_footer_is_noticed_or_harmless(tmp_path: Path) -> None:
    """A field number, a type or a size that is not what it was: what is copied still has the same rows for Arrow."""
    random_, data, true = random.Random(5), written(), sorted(zip(*ROWS.to_pydict().values(), strict=True))
    size, copied = int.from_bytes(data[-8:-4], "little"), 0
    for _ in range(150):
        bad = bytearray(data)
        bad[random_.randrange(len(data) - 8 - size, len(data) - 8)] ^= 1 << random_.randrange(8)
        try:
            unit, target, footer = planned(bytes(bad), tmp_path)
            if footer.num_columns != 3 or unsupported_reason(unit, target, footer) is not None:
                continue
            outcome = add_file(unit, target, footer)
        except Exception as error:  # Arrow's own
            assert not isinstance(error, AssertionError)
            continue
        copied += 1
        found = pq.read_table(tmp_path / "table" / outcome["path"])
        assert sorted(zip(*found.to_pydict().values(), strict=True)) == true
    assert copied < 75


@pytest.mark.parametrize("way", ["Bloom filter", "sorting columns"])
def test_a_table_has_no_row_that_a_reader_misses(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemirror.engines.kernels.add_files._SMALLEST_OF_FEW", 0)
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    declare(tmp_path, "t", [])
    path = put(tmp_path, "t", 1, ROWS, sorting_columns=[pq.SortingColumn(0)] if way == "sorting columns" else None)
    if way == "Bloom filter":
        few = pa.table({"k": pa.array([n % 100 * 2 for n in range(40_000)], pa.int64())})
        duckdb.sql(f"COPY few TO '{path}' (FORMAT parquet)")
        chunk = struct(footer_bytes(path.read_bytes()))[0][4][0][1][0][3]
        data = bytearray(path.read_bytes())
        assert chunk[15] > 64
        data[chunk[14] + 32 : chunk[14] + chunk[15]] = bytes(chunk[15] - 32)
        path.write_bytes(data)
        assert len(few)

    def missed(files: str) -> bool:
        by_duckdb = duckdb.sql(f"SELECT k FROM read_parquet('{files}') WHERE k = 2").fetchall()
        return not by_duckdb or not polars.read_parquet(files).filter(polars.col("k") == 2).height

    assert missed(str(path)), "a reader acts on it"
    assert not MirroredDatabase(tmp_path).sync().failed
    assert not missed(str(tmp_path / "Tables/t/*.parquet"))
    assert sum(table_rows(tmp_path, "t").values()) == pq.read_metadata(path).num_rows


def footer_bytes(data: bytes) -> bytes:
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
