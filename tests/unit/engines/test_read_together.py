"""Small change files that are read as one batch: the same rows as one by one, and nothing unusual is read so."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemirror.engines import held_changes
from lakemirror.engines.kernels import read as together
from lakemirror.engines.kernels.decode import DEFAULT, MemoryBudget
from lakemirror.engines.kernels.read import read_changes, read_together
from lakemirror.engines.kernels.row_reader import Changes
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.row_work import ChangeUnit, RowWork, Target, TargetColumn
from lakemirror.engines.units import Shared
from lakemirror.errors import Bad
from lakemirror.landing_zone.column_types import file_columns
from lakemirror.landing_zone.row_markers import ROW_MARKER

COLUMNS = {
    "id": "bigint", "small": "smallint", "amount": "decimal(9,2)", "price": "double", "name": "string",
    "day": "date", "changed": "timestamp", "flag": "boolean", "raw": "binary", "absent": "int",
}  # fmt: skip


def target(place: Path, **columns: str) -> Target:
    wanted = columns or COLUMNS
    return Target(str(place), tuple(TargetColumn(name, name, kind) for name, kind in wanted.items()),
                  key_columns=("id",))  # fmt: skip


def rows(number: int, count: int = 7) -> pa.Table:
    """Rows of every type that is not nested, with NULLs, some of which conversion changes."""
    random = np.random.default_rng(number)
    when = datetime.datetime(2024, 1, number, tzinfo=datetime.timezone.utc)
    names = [None if n % 3 == 0 else f"name {number} {n % 2}" for n in range(count)]
    return pa.table(
        {
            "id": random.integers(0, 1 << 40, count),
            "small": pa.array(random.integers(0, 99, count), pa.int8()),
            "amount": pa.array([decimal.Decimal(n * number) for n in range(count)], pa.decimal128(5, 0)),
            "price": pa.array(random.random(count), pa.float32()).cast(pa.float64()),
            "name": pa.array(names),
            "day": pa.array([datetime.date(2024, 2, number)] * count),
            "changed": pa.array([when + datetime.timedelta(hours=n) for n in range(count)], pa.timestamp("ns", "UTC")),
            "flag": pa.array([n % 2 == 0 for n in range(count)]),
            "raw": pa.array([bytes([n, number]) for n in range(count)]),
            ROW_MARKER: pa.array(random.choice([0, 1, 2, 4], count), pa.int32()),
        }
    )


def unit(place: Path, number: int, content: pa.Table, **options: Any) -> ChangeUnit:
    path = place / f"{number:020}.parquet"
    pq.write_table(content, path, **options)
    footer = pq.read_metadata(path)
    return ChangeUnit(str(path), path.name, number, file_columns(footer), footer.num_rows, path.stat().st_size)


def read(
    units: Sequence[ChangeUnit], to: Target, *, budget: int = DEFAULT, append_only: bool = False
) -> Changes | None:
    return read_together(units, Shared(to, MemoryBudget(budget), append_only, 4))


def one_by_one(units: Sequence[ChangeUnit], to: Target) -> tuple[pa.Table, list[int]]:
    """The rows and markers as `read_changes` gives them."""
    found = [each for one in units for each in read_changes(one, Shared(to, MemoryBudget(DEFAULT), default_marker=4))]
    parts = [each for each in found if isinstance(each, Changes)]
    assert len(parts) == len(found)
    markers = [marker for each in parts for marker in each.marker.tolist()]
    return pa.Table.from_batches([each.rows for each in parts]).combine_chunks(), markers


@pytest.mark.parametrize(
    "options",
    [{}, {"compression": "zstd"}, {"use_dictionary": False}, {"data_page_version": "2.0"}, {"data_page_size": 1}],
)
def test_they_are_the_rows_that_reading_one_by_one_gives(tmp_path: Path, options: dict[str, Any]) -> None:
    units = [unit(tmp_path, number, rows(number, 3 + number * 7), **options) for number in range(1, 6)]
    to = target(tmp_path)
    found = read(units, to)
    expected, markers = one_by_one(units, to)
    assert found is not None and found.marker.tolist() == markers
    assert pa.Table.from_batches([found.rows]).equals(expected) and found.rows.schema.equals(expected.schema)


def test_constants_and_files_without_markers(tmp_path: Path) -> None:
    units = [
        replace(unit(tmp_path, number, rows(number).drop_columns([ROW_MARKER])), constants=(("absent", "5"),))
        for number in (1, 2)
    ]
    found = read(units, target(tmp_path))
    assert found is not None and found.rows["absent"].to_pylist() == [5] * 14
    assert found.marker.tolist() == [4] * 14
    other = replace(units[1], constants=(("absent", "6"),))
    assert read([units[0], other], target(tmp_path)) is None, "other constants are not those of the first"


def broken_count(place: Path, number: int) -> ChangeUnit:
    """A file of two row groups whose footer is that of another file of one."""
    return unit(place, number, rows(number), row_group_size=4)


def with_other_content(place: Path, number: int) -> ChangeUnit:
    """A file that was replaced by one with another column after it was listed."""
    told = unit(place, number, rows(number))
    unit(place, number, rows(number).append_column("more", pa.array(range(7))))
    return told


def with_fewer_rows(place: Path, number: int) -> ChangeUnit:
    told = unit(place, number, rows(number))
    unit(place, number, rows(number, 6))
    return told


def damaged(place: Path, number: int) -> ChangeUnit:
    told = unit(place, number, rows(number), use_dictionary=False, compression="none")
    content = bytearray(Path(told.path).read_bytes())
    content[4:30] = bytes(26)
    Path(told.path).write_bytes(content)
    return told


def gone(place: Path, number: int) -> ChangeUnit:
    told = unit(place, number, rows(number))
    Path(told.path).unlink()
    return told


def changed(place: Path, number: int, name: str, values: pa.Array, **options: Any) -> ChangeUnit:
    content = rows(number)
    return unit(place, number, content.set_column(content.column_names.index(name), name, values), **options)


UNUSUAL = {
    "two row groups": broken_count,
    "another schema": with_other_content,
    "another number of rows": with_fewer_rows,
    "damaged pages": damaged,
    "gone": gone,
    "no row": lambda place, number: unit(place, number, rows(number, 0)),
    "a marker that is none": lambda p, n: changed(p, n, ROW_MARKER, pa.array([0, 1, 2, 3, 4, 4, 4], pa.int32())),
    "another type": lambda p, n: changed(p, n, "price", pa.array([1] * 7, pa.int64())),
    "a column less": lambda place, number: unit(place, number, rows(number).drop_columns(["raw"])),
    "another time zone": lambda p, n: unit(
        p, n, rows(n).replace_schema_metadata({"org.apache.spark.timeZone": "Europe/Berlin"})
    ),
}


@pytest.mark.parametrize("what", UNUSUAL)
@pytest.mark.parametrize("place", [0, 1, 3])
def test_what_is_unusual_is_read_one_by_one(tmp_path: Path, what: str, place: int) -> None:
    units = [unit(tmp_path, number, rows(number)) for number in range(1, 5)]
    to = target(tmp_path)
    assert read(units, to) is not None
    units[place] = UNUSUAL[what](tmp_path, place + 1)
    assert read(units, to) is None


def test_values_that_grow_are_read_one_by_one(tmp_path: Path) -> None:
    """A dictionary of one long value that every row repeats, nested values, and a budget that is too small."""
    long = pa.table({"id": range(5000), "name": pa.array(["x" * 20_000] * 5000)})
    to = target(tmp_path, id="bigint", name="string")
    assert read([unit(tmp_path, 1, long), unit(tmp_path, 2, long)], to) is None
    nested = pa.table({"id": [1], "name": [{"a": 1}]})
    assert read([unit(tmp_path, 3, nested), unit(tmp_path, 4, nested)], to) is None
    kept = pa.table({"id": [1], "name": pa.array(["x"]).dictionary_encode()})
    assert read([unit(tmp_path, 5, kept), unit(tmp_path, 6, kept)], to) is None
    units = [unit(tmp_path, number, rows(number, 40)) for number in (7, 8)]
    assert read(units, target(tmp_path)) is not None and read(units, target(tmp_path), budget=4096) is None


def test_a_row_that_is_no_insert_is_not_taken_as_one(tmp_path: Path) -> None:
    units = [unit(tmp_path, number, rows(number)) for number in (1, 2)]
    assert read(units, target(tmp_path), append_only=True) is None


def test_the_engine_names_the_bad_file_and_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading together only says that something is wrong; what, is said by reading one by one."""
    asked: list[Changes | None] = []

    def noted(*given: Any, **options: Any) -> Changes | None:
        asked.append(together.read_together(*given, **options))
        return asked[-1]

    monkeypatch.setattr(held_changes, "read_together", noted)
    units = [unit(tmp_path, number, rows(number)) for number in (1, 2, 3)]
    units[1] = UNUSUAL["a marker that is none"](tmp_path, 2)
    (tmp_path / "t").mkdir()
    work = RowWork(target(tmp_path / "t"), tuple(units), False, 4, ())
    with pytest.raises(Bad) as bad:
        LocalEngine(threads=1).run(work)
    error = bad.value.rejected
    assert (error.code, error.file, error.row) == ("row-marker-invalid", units[1].name, 4)
    assert asked == [None]
    result = LocalEngine(threads=1).run(replace(work, changes=(units[0], units[2])))
    assert asked[1] is not None
    assert sum(json.loads(add["stats"])["numRecords"] for add in result.adds) == sum(asked[1].marker != 2)
