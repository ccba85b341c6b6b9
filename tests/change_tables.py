"""A table of changes beside a mirrored table, and the rows that it must have: every change of every file, once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.landing import MARKER, folder
from tests.model import canonical
from tests.table_rows import read_table

OPERATIONS = {0: "insert", 1: "update", 2: "delete", 4: "upsert"}
UNCHANGED = "__unchangedColumns__"


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


def _row(name: str, number: int, operation: str, row: dict[str, Any], left_out: Any) -> tuple[Any, ...]:
    values = tuple(sorted((column, canonical(value)) for column, value in row.items() if value is not None))
    return (name, number, operation, tuple(sorted(left_out)) if left_out else None, values)


def marked(markers: list[int], **columns: Any) -> pa.Table:
    """Rows of a change file with markers."""
    return pa.table({**columns, MARKER: pa.array(markers, pa.int32())})
