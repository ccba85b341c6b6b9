"""Reads the live rows of data files (those that no deletion vector deletes): all but given rows, or only given rows.

add action + deleted rows ─▶ live_rows ─▶ a new file without them (tables without deletion vectors, compaction)
                         └─▶ chosen_rows ─▶ their old content (change data feed)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.delta.deletion_vectors import VectorReader, read_row_numbers
from lakemirror.engines.kernels.data_rows import DataFile, opened, rows_of
from lakemirror.engines.kernels.given_rows import Given, are_many, given_rows, kept_pages
from lakemirror.engines.row_work import Action, Target, TargetColumn
from lakemirror.keys.look_up import keys_at, row_groups, version_of
from lakemirror.keys.row_copies import ROWS_AT_ONCE, copied_rows
from lakemirror.keys.written_rows import written_rows
from lakemirror.landing_zone.reserved_columns import DELETED


def live_rows(add: Action, target: Target, gone: np.ndarray | None = None) -> Iterator[pa.Table]:
    """The live rows of a data file, in the table's columns, without the rows in `gone` (row numbers, ascending).

    Errors: ValueError if its deletion vector cannot be read, ArrowException, FileNotFoundError.
    """
    deleted = deleted_rows(add, target)
    for begin, rows in _rows(add, target):
        keep = np.ones(rows.num_rows, bool)
        for numbers in (deleted, gone):
            if numbers is not None and len(numbers):
                low, high = np.searchsorted(numbers, [begin, begin + rows.num_rows])
                keep[numbers[low:high] - begin] = False
        yield rows if keep.all() else rows.filter(pa.array(keep))


def undeleted_rows(add: Action, target: Target) -> Iterator[pa.Table]:
    """The live rows of a data file without the deleted rows that soft deletes keep. Errors: as of `live_rows`."""
    for rows in live_rows(add, target):
        yield rows.filter(pc.invert(pc.fill_null(rows[DELETED], False))) if DELETED in rows.column_names else rows


def chosen_rows(add: Action, target: Target, wanted: np.ndarray, columns: Sequence[TargetColumn]) -> Iterator[pa.Table]:
    """The rows with these numbers (ascending, as from `live_of`), in these columns, deleted or not. Keys in the cache
    are not read; nor is the file, if it has a copy there."""
    while len(wanted):
        copied = copied_rows(add, target, wanted[:ROWS_AT_ONCE], columns)
        if copied is None:
            break
        yield copied
        wanted = wanted[ROWS_AT_ONCE:]
        del copied  # before the next ones are read
    else:
        return
    with opened(DataFile.of(add, target)) as parquet:
        given = []
        for group in row_groups(add, target, None, parquet.metadata):
            low, high = np.searchsorted(wanted, [group.first_row, group.first_row + group.rows])
            if high > low:
                places = wanted[low:high] - group.first_row
                given.append(Given(group, places, keys_at(group, target, version_of(add), places)))
        if given:
            version, pages = version_of(add), None
            if not are_many(given):
                pages = kept_pages(given[0].group.file, version, parquet.metadata)
            yield from given_rows(parquet, pages, given, columns)


def live_of(add: Action, target: Target, numbers: np.ndarray) -> np.ndarray:
    """Those of the rows with these numbers (ascending) that no deletion vector deletes."""
    vector = add.get("deletionVector")
    if not vector or not len(numbers):
        return numbers
    with VectorReader(target.path) as reader:
        live: np.ndarray = numbers[~reader.deletes(vector, numbers)]
    return live


def deleted_rows(add: Action, target: Target) -> np.ndarray | None:
    """The row numbers (int64, ascending) that a file's deletion vector deletes; None if it has no vector."""
    vector = add.get("deletionVector")
    if not vector:
        return None
    return read_row_numbers(target.path, vector)


def _rows(add: Action, target: Target) -> Iterator[tuple[int, pa.Table]]:
    """All rows in parts, each with the number of its first row."""
    written = written_rows(add, target, None, target.columns)
    if written is not None:
        yield 0, written
        return
    with opened(DataFile.of(add, target)) as parquet:
        for group in row_groups(add, target, None, parquet.metadata):
            begin = group.first_row
            for rows in rows_of(parquet, group, target.columns):
                yield begin, rows
                begin += rows.num_rows
