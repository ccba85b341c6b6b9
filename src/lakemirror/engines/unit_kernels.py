"""The kernels of all engines: each is a function of what all units share and of one unit. It yields results.

    read_keys      change files ─▶ keys, positions, markers    find_rows      data files ─▶ row numbers of given keys
    read_rows      change files ─▶ nothing, or an error        read_old_keys  deleted rows ─▶ keys of the live ones
    write_kept     change files ─▶ data files                  write_without  data files ─▶ the same, without some rows
    feed_kept      change files ─▶ change feed                 feed_old       deleted rows ─▶ change feed
    read_given     change files ─▶ values of some changes      read_values    data files ─▶ values of some rows
    write_held     rows in memory ─▶ data files                feed_held      both ─▶ change feed
    write_changes  change files ─▶ data files of a table of changes

All kernels but `read_keys` yield one result. A row that cannot be applied ends a kernel with `bad_changes.Bad`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lakemirror.delta.statistics import record_count
from lakemirror.engines.bad_changes import check_nulls, drop_written
from lakemirror.engines.kernels.change_rows import logged, origin_of
from lakemirror.engines.kernels.data_rows import work_schema
from lakemirror.engines.kernels.decode import share_of
from lakemirror.engines.kernels.fill_values import FillRequest, Fills, Rows, read_fills
from lakemirror.engines.kernels.live_rows import chosen_rows, live_of, live_rows
from lakemirror.engines.kernels.read import read_changes
from lakemirror.engines.kernels.row_reader import Changes
from lakemirror.engines.kernels.sequence_order import sequence_of
from lakemirror.engines.kernels.write import CHANGE_TYPE, file_count, write_change_feed, write_rows
from lakemirror.engines.old_rows import old_columns
from lakemirror.engines.row_work import (
    MARKER,
    NAMES,
    ROW,
    SEQUENCE,
    Action,
    Target,
)
from lakemirror.engines.units import KEPT, UPDATE, ChangeFiles, DataFiles, Shared, TouchedFile
from lakemirror.keys.key_values import whole_numbers
from lakemirror.keys.look_up import find, read_footer, row_groups
from lakemirror.landing_zone.row_markers import INSERT, UPSERT

Kernel: TypeAlias = Callable[[Shared, Any], Iterator[Any]]

_PART_OF_MEMORY = 32  # so much of the memory is taken by the keys that are given on together
_VALUES_AT_ONCE = 32 << 20  # bytes of old values that are given on together


def read_keys(shared: Shared, unit: ChangeFiles) -> Iterator[pa.Table]:
    """Keys of the changes, their positions in the batch as ROW, and MARKER. Several tables if there are many."""
    names = list(shared.target.key_columns)
    sequence = shared.ordering.sequence if shared.ordering is not None else ()
    parts: list[pa.Table] = []
    size = 0
    for begin, file in unit.begins():
        for changes in read_changes(file, shared, columns=[*names, *sequence]):
            first = unit.begin + begin + changes.first_row - file.first_row
            positions = whole_numbers(np.arange(first, first + changes.rows.num_rows))
            rows = pa.Table.from_batches([changes.rows])
            markers = as_upserts(changes.marker) if shared.inserts_replace else changes.marker
            table = rows.select(names).append_column(ROW, positions).append_column(MARKER, pa.array(markers))
            if sequence:
                table = table.append_column(SEQUENCE, sequence_of(rows, sequence))
            parts.append(table.append_column(NAMES, names_of(changes)) if shared.partial else table)
            size += parts[-1].nbytes
            if size > shared.budget.size // _PART_OF_MEMORY:
                yield pa.concat_tables(parts)
                parts, size = [], 0
    if parts:
        yield pa.concat_tables(parts)


def read_rows(shared: Shared, unit: ChangeFiles) -> Iterator[Any]:
    """Reads all columns, to find the first bad row. Yields nothing."""
    for _, file in unit.begins():
        for _ in read_changes(file, shared):
            pass
    yield from ()


def find_rows(shared: Shared, unit: DataFiles) -> Iterator[list[tuple[int, np.ndarray]]]:
    """The number of each data file that has rows with the wanted keys, and their row numbers."""
    target, wanted = shared.target, shared.wanted
    assert wanted is not None
    found = []
    for file in unit.files:
        footer = read_footer(file.add, target)
        groups = row_groups(file.add, target, wanted, footer)[unit.part :: unit.parts]
        rows = [np.asarray(find(group, target, wanted, footer=footer)) for group in groups]
        if any(map(len, rows)):
            found.append((file.number, np.sort(np.concatenate(rows))))
    yield found


def read_old_keys(shared: Shared, unit: DataFiles) -> Iterator[list[tuple[int, np.ndarray, pa.Table]]]:
    """Of each data file with live rows among the deleted ones: its number, these rows' numbers, and their keys; in a
    table with options of deletes or order, also what these need. Rows that take little memory also have the columns
    `shared.names`: reading them again would cost as much."""
    target, columns = shared.target, old_columns(shared)
    needed = {column.name for column in columns}
    more = [column for column in target.columns if column.name in shared.names and column.name not in needed]
    room = shared.budget.size // _PART_OF_MEMORY // 2
    found = []
    for file in unit.files:
        live = live_of(file.add, target, file.deleted)
        if not len(live):
            continue
        parts, its = [], (*columns, *more) if room > 0 else columns
        for part in chosen_rows(file.add, target, live, its):
            room -= part.nbytes if more else 0
            parts.append(part)
            if room <= 0:
                its = columns
                parts = [part.select([column.name for column in columns]) for part in parts]
            del part  # before the next ones are read
        found.append((file.number, live, pa.concat_tables([work_schema(target, its).empty_table(), *parts])))
    yield found


def read_given(shared: Shared, unit: ChangeFiles) -> Iterator[pa.Table]:
    """The values of the chosen changes in the columns `shared.names`."""
    for rows, _ in kept_rows(shared, unit, checked=False):
        yield pa.Table.from_batches([rows])


def read_values(shared: Shared, unit: DataFiles) -> Iterator[pa.Table]:
    """The values of the chosen live rows of data files in the columns `shared.names`, by file and row: many at once,
    because an engine makes the first of them at the same time as those of other units."""
    target, columns = shared.target, [column for column in shared.target.columns if column.name in shared.names]
    parts: list[pa.Table] = []
    size = 0
    for file in unit.files:
        for rows in chosen_rows(file.add, target, live_of(file.add, target, file.deleted), columns):
            parts.append(rows)
            size += rows.nbytes
            if size >= _VALUES_AT_ONCE:
                yield pa.concat_tables(parts)
                parts, size = [], 0
            del rows  # before the next ones are read
    if parts:
        yield pa.concat_tables(parts)


def write_kept(shared: Shared, unit: ChangeFiles) -> Iterator[list[Action]]:
    """Writes the inserted rows as data files. If all rows are inserted, column chunks are copied where they can be."""
    step = -(-unit.rows // max(file_count(unit.rows), 1)) or 1
    sizes, adds = replace(shared.sizes, rows_a_file=step), list[Action]()
    try:
        if unit.flags is None and not shared.partial and shared.ordering is None:
            from lakemirror.engines.kernels.copy_chunks import copy_chunks  # few applies come here

            adds, left = copy_chunks(shared, unit.files, sizes)
            unit = replace(unit, files=tuple(left))
        batches = _without_positions(kept_rows(shared, unit, encoded=True))
        adds += write_rows(batches, shared.target, sizes=sizes)
    except BaseException:
        drop_written(shared.target.path, adds)
        raise
    yield adds


def write_changes(shared: Shared, unit: ChangeFiles) -> Iterator[list[Action]]:
    """Writes all changes as rows of a table of changes."""
    step = -(-unit.rows // max(file_count(unit.rows), 1)) or 1
    yield write_rows(_changes(shared, unit), shared.target, sizes=replace(shared.sizes, rows_a_file=step))


def _changes(shared: Shared, unit: ChangeFiles) -> Iterator[pa.RecordBatch]:
    """All changes of a unit, in batches, as rows of a table of changes."""
    history, target = shared.history, shared.target
    assert history is not None
    reading = shared._replace(target=target.sources)
    for _, file in unit.begins():
        for changes in read_changes(file, reading, encoded=True, waits=True):
            rows = pa.Table.from_batches([changes.rows])
            check_nulls([file], target.sources, rows, np.arange(len(rows)) + changes.first_row - file.first_row)
            origin = origin_of([(file, changes.first_row, len(rows))], history)
            yield from logged(rows, changes.marker, changes.unchanged, origin, history).to_batches()
            del changes, rows  # before the next rows are decoded


def _without_positions(kept: Iterator[tuple[pa.RecordBatch, np.ndarray]]) -> Iterator[pa.RecordBatch]:
    for rows, _ in kept:
        yield rows
        del rows  # before the next rows are decoded


def feed_kept(shared: Shared, unit: ChangeFiles) -> Iterator[list[Action]]:
    """Writes the inserted rows to the change data feed."""
    batches = (
        batch
        for rows, positions in kept_rows(shared, unit)
        for batch in new_rows(pa.Table.from_batches([rows]), unit.flags, positions)
    )
    yield write_change_feed(batches, shared.target, sizes=shared.sizes)


def write_held(shared: Shared, rows: pa.Table) -> Iterator[list[Action]]:
    """Writes rows as data files."""
    yield write_rows(rows.to_batches(), shared.target, sizes=shared.sizes)


def feed_held(shared: Shared, unit: tuple[DataFiles, Iterable[pa.RecordBatch]]) -> Iterator[list[Action]]:
    """Writes deleted rows and these rows of the change data feed to one file."""
    files, new = unit
    yield write_change_feed(chain(_old_rows(shared.target, files), new), shared.target.whole, sizes=shared.sizes)


def feed_old(shared: Shared, unit: DataFiles) -> Iterator[list[Action]]:
    """Writes deleted rows to the change data feed."""
    yield write_change_feed(_old_rows(shared.target, unit), shared.target.whole, sizes=shared.sizes)


def write_without(shared: Shared, unit: DataFiles) -> Iterator[list[Action]]:
    """Writes the live rows of data files, each to files of its own, without the rows that are deleted now."""
    target = shared.target.whole
    adds: list[Action] = []
    for file in unit.files:
        parts = live_rows(file.add, target, file.deleted)
        batches = (batch for part in parts for batch in part.to_batches())
        adds += write_rows(batches, target, sizes=shared.sizes)
    yield adds


def write_together(shared: Shared, unit: DataFiles) -> Iterator[list[Action]]:
    """Writes the live rows of several data files together."""
    parts = chain.from_iterable(live_rows(file.add, shared.target) for file in unit.files)
    batches = (batch for part in parts for batch in part.to_batches())
    yield write_rows(batches, shared.target, sizes=shared.sizes)


def kept_rows(
    shared: Shared, unit: ChangeFiles, *, encoded: bool = False, checked: bool = True
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """The rows of a unit that are inserted, in batches, with their positions in the unit.

    `encoded`: as for `read_changes`. `checked`: raises Bad for NULL in a NOT NULL column.
    """
    fills = unit.fills
    if isinstance(fills, FillRequest):
        assert shared.changes is not None
        fills = requested_fills(shared, fills, shared.changes)
    for begin, file in unit.begins():
        for changes in read_changes(file, shared, columns=shared.names or None, encoded=encoded, waits=True):
            rows: pa.RecordBatch = changes.rows
            first = begin + changes.first_row - file.first_row
            positions = np.arange(first, first + rows.num_rows)
            if unit.flags is not None:
                kept = np.flatnonzero(unit.flags[first : first + rows.num_rows])
                if len(kept) < rows.num_rows:
                    rows, positions = rows.take(whole_numbers(kept)), positions[kept]
            for part, its in (
                [(rows, positions)] if fills is None else _filled(rows, positions, unit.begin, fills, shared)
            ):
                if part.num_rows and checked:
                    check_nulls(unit.files, shared.target, pa.Table.from_batches([part]), its)
                if part.num_rows:
                    yield part, its
                del part
            del changes, rows  # before the next rows are decoded


def _filled(
    rows: pa.RecordBatch, positions: np.ndarray, begin: int, fills: Fills, shared: Shared
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """The rows with the values that they take from elsewhere, so many at once that these fit into the memory."""
    step = fills.at_once(share_of(shared.budget.size))
    for first in range(0, rows.num_rows, step):
        its = positions[first : first + step]
        complete = fills.filled(pa.Table.from_batches([rows.slice(first, step)]), begin + its).combine_chunks()
        for batch in complete.to_batches():
            yield batch, its[: batch.num_rows]
            its = its[batch.num_rows :]


def requested_fills(shared: Shared, request: FillRequest, changes: ChangeFiles) -> Fills:
    """The values of a request, read here. `changes`: all change files of the batch."""
    memory = share_of(shared.budget.size)

    def old(files: Sequence[Rows], names: Sequence[str]) -> Iterator[pa.Table]:
        unit = DataFiles(tuple(TouchedFile(number, add, rows) for number, add, rows in files))
        return read_values(shared._replace(names=tuple(names)), unit)

    def given(positions: np.ndarray, names: Sequence[str]) -> Iterator[pa.Table]:
        its = shared._replace(names=tuple(names))
        for begin, file in changes.begins():
            low, high = np.searchsorted(positions, [begin, begin + file.rows])
            if low < high:
                flags = np.zeros(file.rows, np.uint8)
                flags[positions[low:high] - begin] = KEPT
                yield from read_given(its, ChangeFiles(begin, (file,), flags))

    fills = read_fills(request.partial, request.newest, request.adds, old, given, memory)
    return fills.with_dead(request.dead)


def new_rows(rows: pa.Table, flags: np.ndarray | None, positions: np.ndarray | None) -> list[pa.RecordBatch]:
    """Inserted rows for the change data feed: an update if their flag says so, else an insert."""
    updates = np.zeros(rows.num_rows, bool) if flags is None or positions is None else flags[positions] == UPDATE
    return typed(rows, updates, "update_postimage", "insert")


def _old_rows(target: Target, unit: DataFiles) -> Iterator[pa.RecordBatch]:
    """Deleted rows for the change data feed: updates if the apply inserts their key again, else deletes."""
    for file in unit.files:
        updates = np.isin(file.deleted, file.updated, assume_unique=True)
        for rows in chosen_rows(file.add, target, live_of(file.add, target, file.deleted), target.whole.columns):
            yield from typed(rows, updates[: rows.num_rows], "update_preimage", "delete")
            updates = updates[rows.num_rows :]


def typed(rows: pa.Table, chosen: np.ndarray, yes: str, no: str) -> list[pa.RecordBatch]:
    """Rows with CHANGE_TYPE: `yes` where `chosen` is True, else `no`."""
    types = pa.DictionaryArray.from_arrays(pa.array((~chosen).astype(np.int8)), pa.array([yes, no]))
    batches: list[pa.RecordBatch] = rows.append_column(CHANGE_TYPE, types.cast(pa.string())).to_batches()
    return batches


# What kernels and engines use


def as_upserts(markers: np.ndarray) -> np.ndarray:
    """The markers, with upserts in place of inserts."""
    return np.where(markers == INSERT, UPSERT, markers).astype(np.int8)


def names_of(changes: Changes) -> pa.Array:
    """The columns that each change leaves unchanged, NULL for a complete row."""
    return pa.nulls(len(changes.marker), pa.string()) if changes.unchanged is None else changes.unchanged


def counted(add: Action) -> int:
    """The number of live rows according to the statistics of an `add` action; 0 if they do not say."""
    rows = record_count(add) or 0
    vector = add.get("deletionVector")
    return max(0, rows - (vector["cardinality"] if vector else 0))
