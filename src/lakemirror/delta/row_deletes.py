"""Deletes rows of data files by row number: the `remove` and `add` actions, and the deletion vectors they name.

add + row numbers ─▶ remove + add whose vector holds the old and the new row numbers
                  └▶ only remove, if no row is left
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import pyarrow as pa

from lakemirror.delta.commit import removed
from lakemirror.delta.deletion_vectors import VectorReader, bitmap, write_vectors
from lakemirror.delta.log import Action
from lakemirror.delta.statistics import record_count, with_loose_bounds
from lakemirror.storage.place import Place


def delete_rows(
    table: str | Place, files: Mapping[str, Action], rows: Mapping[str, pa.Array], version: int | None = None
) -> list[Action]:
    """The actions that delete rows of data files. Writes all new deletion vectors into one file.

    `files`: `add` actions by any name. `rows`: row numbers within the file from 0 (int64 without NULLs), by the same
    names; rows that are already deleted are allowed. A file that loses no further row gets no action. The statistics
    keep every character, except that `tightBounds` becomes false. `version`: as for `write_vectors`.

    Errors: ValueError if an old vector cannot be read, a file does not state its number of rows, or a row number is
    too large; OSError if the vectors cannot be written.
    """
    changed = []
    with VectorReader(table) as vectors_of_table:
        for name, numbers in rows.items():
            add = files[name]
            gone = bitmap(numbers)
            old = add.get("deletionVector")
            if old:
                gone |= vectors_of_table.read(old)
            if len(gone) <= (old["cardinality"] if old else 0):
                continue
            count = record_count(add)
            if count is None:
                raise ValueError(f"the log does not say how many rows {add['path']} has")
            if gone.max() >= count:
                raise ValueError(f"row {gone.max()} of {add['path']} does not exist: the file has {count} rows")
            changed.append((add, gone, count))
    left = [gone for _, gone, count in changed if len(gone) < count]
    vectors = iter(write_vectors(table, left, version) if left else ())
    now = int(time.time() * 1000)
    actions: list[Action] = []
    for add, gone, count in changed:
        actions.append({"remove": removed(add, now, data_change=True)})
        if len(gone) < count:
            stats = with_loose_bounds(add["stats"])
            actions.append({"add": {**add, "dataChange": True, "stats": stats, "deletionVector": next(vectors)}})
    return actions


def remove_files(adds: Iterable[Action], now: int) -> list[Action]:
    """The `remove` actions that delete data files with all their rows. `now`: milliseconds since the epoch."""
    return [{"remove": removed(add, now, data_change=True)} for add in adds]
