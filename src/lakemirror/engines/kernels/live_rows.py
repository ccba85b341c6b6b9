"""Reads the live rows of data files (those that no deletion vector deletes): all but given rows, or only given rows.

add action + deleted rows ─▶ live_rows ─▶ a new file without them (tables without deletion vectors, compaction)
                         └─▶ chosen_rows ─▶ their old content (change data feed)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lakemirror.delta.deletion_vectors import read_row_numbers
from lakemirror.engines.kernels.data_rows import DataFile, opened, rows_of
from lakemirror.engines.row_work import Action, Target, TargetColumn
from lakemirror.keys.look_up import row_groups


def live_rows(add: Action, target: Target, gone: np.ndarray | None = None) -> Iterator[pa.Table]:
    """The live rows of a data file, in the table's columns, without the rows in `gone` (row numbers, ascending).

    Errors: ValueError if its deletion vector cannot be read, ArrowException, FileNotFoundError.
    """
    deleted = deleted_rows(add, target)
    for begin, rows in _rows(add, target, target.columns):
        keep = np.ones(rows.num_rows, bool)
        for numbers in (deleted, gone):
            if numbers is not None and len(numbers):
                low, high = np.searchsorted(numbers, [begin, begin + rows.num_rows])
                keep[numbers[low:high] - begin] = False
        yield rows if keep.all() else rows.filter(pa.array(keep))


def chosen_rows(
    add: Action, target: Target, numbers: np.ndarray, columns: Sequence[TargetColumn]
) -> Iterator[pa.Table]:
    """The live rows among those with these numbers (ascending), in these columns."""
    deleted = deleted_rows(add, target)
    wanted = numbers if deleted is None else np.setdiff1d(numbers, deleted, assume_unique=True)
    for begin, rows in _rows(add, target, columns, wanted):
        low, high = np.searchsorted(wanted, [begin, begin + rows.num_rows])
        if high > low:
            yield rows.take(pa.array(wanted[low:high] - begin))


def deleted_rows(add: Action, target: Target) -> np.ndarray | None:
    """The row numbers (int64, ascending) that a file's deletion vector deletes; None if it has no vector."""
    vector = add.get("deletionVector")
    if not vector:
        return None
    return read_row_numbers(target.path, vector)


def _rows(
    add: Action, target: Target, columns: Sequence[TargetColumn], wanted: np.ndarray | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """The rows in parts, each with the number of its first row. `wanted`: only row groups with one of them are read."""
    with opened(DataFile.of(add, target)) as parquet:
        for group in row_groups(add, target, None, parquet.metadata):
            if wanted is not None:
                low, high = np.searchsorted(wanted, [group.first_row, group.first_row + group.rows])
                if low == high:
                    continue
            begin = group.first_row
            for rows in rows_of(parquet, group, columns):
                yield begin, rows
                begin += rows.num_rows
