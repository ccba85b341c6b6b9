"""Rows of data files deleted by their numbers: the `remove` and `add` actions, and the vectors that they name.

add + row numbers ─▶ remove + add with a vector that holds the old one too ─▶ or only remove, where no row is left
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


def delete_rows(table: str | Place, files: Mapping[str, Action], rows: Mapping[str, pa.Array]) -> list[Action]:
    """The actions that delete rows of data files. Writes the vectors, all into one file.

    `files`: `add` actions by any name. `rows`: by the same names, numbers of rows in the file from 0 (int64 without
    NULLs); those that the old vector deletes may be among them. A file that loses no further row gives no action. The
    statistics are carried over character by character, but for `tightBounds`, which is false from then on.

    ValueError where an old vector cannot be read, or a file does not say how many rows it has, or a number is beyond
    them. OSError where the vectors cannot be written.
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
                raise ValueError(f"row {gone.max()} of {add['path']}, which has {count}")
            changed.append((add, gone, count))
    left = [gone for _, gone, count in changed if len(gone) < count]
    vectors = iter(write_vectors(table, left) if left else ())
    now = int(time.time() * 1000)
    actions: list[Action] = []
    for add, gone, count in changed:
        actions.append({"remove": removed(add, now, data_change=True)})
        if len(gone) < count:
            stats = with_loose_bounds(add["stats"])
            actions.append({"add": {**add, "dataChange": True, "stats": stats, "deletionVector": next(vectors)}})
    return actions


def remove_files(adds: Iterable[Action], now: int) -> list[Action]:
    """The `remove` actions of data files whose rows leave the table, at `now` in milliseconds since the epoch."""
    return [{"remove": removed(add, now, data_change=True)} for add in adds]
