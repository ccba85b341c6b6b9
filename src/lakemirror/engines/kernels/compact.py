"""Compaction: writes the live rows of data files as fewer files. Commits nothing.

add actions ─▶ live rows, file by file ─▶ sorted by key, if they fit into memory ─▶ `into` files
            │                            └▶ else in the order of the files
            └▶ while changes come: encoded row groups, unsorted, if no row is deleted and the groups are large
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from lakemirror.delta.commit import named_files
from lakemirror.delta.data_files import data_file
from lakemirror.delta.statistics import record_count
from lakemirror.engines.kernels.add_files import legacy_calendar
from lakemirror.engines.kernels.decode import DEFAULT, MemoryBudget
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.kernels.write import FileSizes, write_rows
from lakemirror.engines.row_work import Action, ChangeUnit, RewriteWork, Target
from lakemirror.keys.key_values import is_number, numbers_of, order_of, whole_numbers
from lakemirror.keys.look_up import read_footer
from lakemirror.landing_zone.column_types import file_columns
from lakemirror.landing_zone.row_markers import NEVER_COLUMNS
from lakemirror.storage.place import place

IN_MEMORY = 256 << 20
"""Up to so many bytes of rows are sorted before they are written."""

_AT_ONCE = 4  # files that are written at the same time


class Cancelled(Exception):
    """The work was cancelled, because an apply waits or the engine stops."""


def compact(
    work: RewriteWork,
    *,
    memory: int = IN_MEMORY,
    is_cancelled: Callable[[], bool] = lambda: False,
    may_copy: bool = False,
) -> list[Action]:
    """Writes the live rows of `work.files` to about `work.into` new files per partition. Returns their `add` actions.

    Rows are sorted by key, so that readers can skip row groups by their bounds. More than `memory` bytes of rows keep
    the order of the files. `is_cancelled` is called after each part of the rows. `may_copy`: row groups are copied in
    the order of the files, encoded as they are, if all of them can be (`copy_chunks`).

    Errors: Cancelled; FileNotFoundError if a file does not exist any more; ArrowException or ValueError if a file
    contradicts the log; OSError. Then the new files are removed.
    """
    if may_copy and (adds := _copied(work)):
        return adds
    parts: list[pa.Table] = []
    size = 0
    rest = _live(work, is_cancelled)
    for part in rest:
        parts.append(part)
        size += part.nbytes
        if size > memory:
            return _write_in_order(work, _chain(parts, rest))
    if not parts:
        return []
    rows = _sorted(pa.concat_tables(parts), work.target)
    parts.clear()
    return _write_slices(work.target, rows, work.into)


def _copied(work: RewriteWork) -> list[Action]:
    """Copies the row groups of all files; none if a row is deleted, or a file must be decoded. Errors: OSError."""
    from lakemirror.engines.kernels.copy_chunks import copy_chunks  # few tables come here
    from lakemirror.engines.units import Shared

    target, units = work.target, list[ChangeUnit]()
    is_mapped = any(each.field_id is not None or each.physical_name != each.name for each in target.columns)
    if is_mapped or target.partition_columns or any(add.get("deletionVector") for add in work.files):
        return []
    for number, add in enumerate(work.files):
        footer, rows = read_footer(add, target), record_count(add)
        columns = tuple(file_columns(footer))
        if rows is None or footer.num_rows != rows or NEVER_COLUMNS & {column.name for column in columns}:
            return []
        path = str(data_file(target.path, add["path"]))
        units.append(ChangeUnit(path, add["path"], number, columns, rows, int(add["size"])))
    sizes = FileSizes(rows_a_file=-(-sum(unit.rows for unit in units) // max(1, work.into)) or 1)
    adds, left = copy_chunks(Shared(target, MemoryBudget(DEFAULT), sizes=sizes), units, sizes)
    if not left and len(adds) < len(units):
        return adds
    _remove(work.target, adds)
    return []


def _live(work: RewriteWork, is_cancelled: Callable[[], bool]) -> Iterator[pa.Table]:
    """The live rows of all files. Errors as in `compact`."""
    for add in work.files:
        footer = read_footer(add, work.target)
        if legacy_calendar(footer):
            raise ValueError(f"{add['path']} uses the legacy calendar for dates")
        if footer.num_rows != record_count(add):
            raise ValueError(f"{add['path']} does not have the number of rows that the log says")
        for rows in live_rows(add, work.target):
            if is_cancelled():
                raise Cancelled
            if rows.num_rows:
                yield rows


def _sorted(rows: pa.Table, target: Target) -> pa.Table:
    names = {name.lower(): name for name in rows.column_names}
    keys = [(names[key.lower()], "ascending") for key in target.key_columns if key.lower() in names]
    with contextlib.suppress(pa.ArrowException):  # a type without an order
        if len(keys) == 1 and is_number((column := rows[keys[0][0]]).type) and not column.null_count:
            return rows.take(whole_numbers(order_of(numbers_of(column))))
        return rows.sort_by(keys) if keys else rows
    return rows


def _write_slices(target: Target, rows: pa.Table, files: int) -> list[Action]:
    """Writes the rows as `files` files of about equal size, several at the same time."""
    size = max(1, -(-rows.num_rows // max(files, 1)))
    slices = [rows.slice(begin, size).to_batches() for begin in range(0, rows.num_rows, size)]
    sizes = FileSizes(rows_a_file=size)
    with ThreadPoolExecutor(max(1, min(_AT_ONCE, os.cpu_count() or 1))) as pool:
        begun = [pool.submit(write_rows, each, target, sizes=sizes) for each in slices]
    failed = next((each.exception() for each in begun if each.exception() is not None), None)
    adds = [add for each in begun if each.exception() is None for add in each.result()]
    if failed is not None:
        _remove(target, adds)
        raise failed
    return adds


def _remove(target: Target, adds: Sequence[Action]) -> None:
    for path in (path for add in adds for path in named_files(place(target.path), add)):
        path.unlink(missing_ok=True)


def _write_in_order(work: RewriteWork, parts: Iterator[pa.Table]) -> list[Action]:
    live = sum(int(add["size"]) for add in work.files)
    batches = (batch for part in parts for batch in part.to_batches())
    sizes = FileSizes(rows_a_file=1 << 62, bytes_a_file=int(live // max(work.into, 1)) + 1)
    return write_rows(batches, work.target, sizes=sizes)


def _chain(read: list[pa.Table], rest: Iterator[pa.Table]) -> Iterator[pa.Table]:
    while read:
        yield read.pop(0)
    yield from rest
