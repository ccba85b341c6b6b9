"""History tables beside a mirrored table, and the rows that they must have: every change of every file, once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.history_model import Change, ChangeFile, HistoryModel, hashable
from tests.landing import MARKER, folder, put
from tests.model import canonical
from tests.table_rows import read_table

OPERATIONS = {0: "insert", 1: "update", 2: "delete", 4: "upsert"}
UNCHANGED = "__unchangedColumns__"
BEGUN = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(days=1)


def expected(database: Path, table: str, *, default: int = 0, since: int = 1) -> Counter[tuple[Any, ...]]:
    """The rows of all change files from a number on, as the files have them: file, row, operation, columns."""
    found = Counter[tuple[Any, ...]]()
    place = folder(database, table)
    paths = {path.name: path for path in [*place.glob("_ProcessedFiles/*.parquet"), *place.glob("*.parquet")]}
    for name, path in paths.items():
        if int(name[:20]) < since:
            continue
        for number, row in enumerate(pq.read_table(path).to_pylist()):
            marker = row.pop(MARKER, None)
            left_out = row.pop(UNCHANGED, None) or None
            for column in left_out or ():
                row[column] = None
            found[_row(name, number, OPERATIONS[default if marker is None else marker], row, left_out)] += 1
    return found


def held(database: Path, table: str) -> Counter[tuple[Any, ...]]:
    """The rows of the table of changes, in the same form."""
    found = Counter[tuple[Any, ...]]()
    for row in read_table(database / "Tables" / table.replace(".", "/")).to_pylist():
        assert row.pop("__applied_at").year >= 2020
        name, number, operation = row.pop("__file"), row.pop("__row"), row.pop("__operation")
        found[_row(name, number, operation, row, row.pop("__unchanged"))] += 1
    return found


def expected_versions(
    database: Path, table: str, keys: Sequence[str], options: Mapping[str, Any]
) -> Counter[tuple[Any, ...]]:
    """The versions of all change files, of `put_at`, as the model has them: columns by their names, then both ends."""
    model = HistoryModel(keys, options)
    place = folder(database, table)
    paths = {path.name: path for path in [*place.glob("_ProcessedFiles/*.parquet"), *place.glob("*.parquet")]}
    for name, path in sorted(paths.items()):
        rows = pq.read_table(path)
        names = tuple(each for each in rows.column_names if each not in (MARKER, UNCHANGED))
        changes = [
            Change(row.get(MARKER), {each: row[each] for each in names}, tuple(row.get(UNCHANGED) or ()))
            for row in rows.to_pylist()
        ]
        modified = BEGUN.replace(tzinfo=None) + timedelta(minutes=int(name[:20]))
        model.apply(ChangeFile(name, names, tuple(changes), modified))
    found = Counter[tuple[Any, ...]]()
    for row, count in model.versions().items():
        *values, start, end = row
        found[(*(value for _, value in sorted(zip(model.columns, values, strict=True))), start, end)] += count
    return found


def held_versions(database: Path, table: str) -> Counter[tuple[Any, ...]]:
    """The rows of the table of versions, in the same form."""
    found = Counter[tuple[Any, ...]]()
    for row in read_table(database / "Tables" / table.replace(".", "/")).to_pylist():
        both = row.pop("__START_AT"), row.pop("__END_AT")
        ends = [hashable(at.replace(tzinfo=None) if isinstance(at, datetime) else at) for at in both]
        found[(*(hashable(row[name]) for name in sorted(row)), *ends)] += 1
    return found


def _row(name: str, number: int, operation: str, row: dict[str, Any], left_out: Any) -> tuple[Any, ...]:
    values = tuple(sorted((column, canonical(value)) for column, value in row.items() if value is not None))
    return (name, number, operation, tuple(sorted(left_out)) if left_out else None, values)


def put_at(database: Path, table: str, number: int, rows: Any, minutes: int = 0, **options: Any) -> Path:
    """A change file that was written so many minutes after BEGUN; where nothing is said, as its number says."""
    path = put(database, table, number, rows, **options)
    moment = (BEGUN + timedelta(minutes=minutes or number)).timestamp()
    os.utime(path, (moment, moment))
    return path


def marked(markers: list[int], **columns: Any) -> pa.Table:
    """Rows of a change file with markers."""
    return pa.table({**columns, MARKER: pa.array(markers, pa.int32())})
