"""The functions of Spark tasks: they run kernels on their units. This module runs on executors and imports no PySpark.

    read_keys      change files ─▶ keys, markers, positions        find_rows    data files ─▶ row numbers of sought keys
    bucket_keys    the same, as blobs by bucket of keys            bucket_rows  keys of data files, as blobs by bucket
    fold_buckets   blobs of a bucket ─▶ net effect, deleted rows   write_kept   change files ─▶ data files, change feed
    write_without  data files ─▶ data files without deleted rows   write_old    deleted rows ─▶ change feed
    check_rows     change files ─▶ rows to insert, for CHECK constraints

Errors in a row or a file are returned as values (`Rejected`, `Failed`), so that Spark does not repeat the task.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from lakemirror.engines.change_feed import typed
from lakemirror.engines.change_rows import Bad, changes_of, kept_batches, named_errors, work_schema
from lakemirror.engines.fold_passes import FoldedBatch
from lakemirror.engines.kernels.data_rows import opened, rows_of
from lakemirror.engines.kernels.fold import fold_places, key_bucket
from lakemirror.engines.kernels.live_rows import chosen_rows, deleted_rows, living_rows
from lakemirror.engines.kernels.write import FileSizes, write_change_feed, write_rows
from lakemirror.engines.memory_budget import MemoryBudget
from lakemirror.engines.row_work import FILE, MARKER, ROW, Action, ChangeUnit, RowWork, Target
from lakemirror.engines.spark.row_numbers import packed, unpacked
from lakemirror.engines.spark.task_values import DataFiles, Failed, Feed, FoldedKeys, FoundRows, Units
from lakemirror.errors import LakemirrorError, Rejected
from lakemirror.keys.key_values import comparable, whole_numbers
from lakemirror.keys.look_up import find, key_columns, read_footer, row_groups
from lakemirror.keys.wanted_keys import Sought, is_among

CHANGES, TABLE, FAILED = 0, 1, 2
"""Kinds of blobs: keys of changes, keys of the table's rows, a Rejected or Failed."""


# The entry points, which `mapInArrow` calls with batches


def results(
    batches: Iterable[pa.RecordBatch], function: str, shared: bytes, units: Sequence[bytes]
) -> Iterator[pa.RecordBatch]:
    """One row for each result of a unit: the unit's number and the pickled result."""
    for number, found in _of_units(batches, function, shared, units):
        yield _record(["unit", "result"], pa.array([number], pa.int64()), pa.array([pickle.dumps(found)], pa.binary()))


def blobs(
    batches: Iterable[pa.RecordBatch], function: str, shared: bytes, units: Sequence[bytes], buckets: int
) -> Iterator[pa.RecordBatch]:
    """The tables that a unit makes, split by the bucket of their keys."""
    for _, found in _of_units(batches, function, shared, units):
        if isinstance(found, Rejected | Failed):
            yield _blob(0, FAILED, pickle.dumps(found))
            continue
        kind, table = found
        bucket = key_bucket(table.select([name for name in table.column_names if name not in _PLACES]), buckets)
        order = np.argsort(bucket, kind="stable")
        ordered = table.take(whole_numbers(order)).combine_chunks()
        begins = np.flatnonzero(np.diff(bucket[order], prepend=-1))
        for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
            yield _blob(int(bucket[order[begin]]), kind, stream(ordered.slice(begin, end - begin)))


def gathered(batches: Iterable[pa.RecordBatch], function: str, shared: bytes) -> Iterator[pa.RecordBatch]:
    """One row for each result that `function` makes of a partition's blobs."""
    found: list[tuple[int, int, bytes]] = []
    for batch in batches:
        found += zip(*(batch.column(place).to_pylist() for place in range(3)), strict=True)
    act: Callable[..., Iterator[Any]] = globals()[function]
    for result in _guarded(partial(act, pickle.loads(shared), found)):
        yield _record(["unit", "result"], pa.array([0], pa.int64()), pa.array([pickle.dumps(result)], pa.binary()))


def rows(
    batches: Iterable[pa.RecordBatch], function: str, shared: bytes, units: Sequence[bytes]
) -> Iterator[pa.RecordBatch]:
    """The record batches that a unit makes, unchanged, until its first error."""
    for _, found in _of_units(batches, function, shared, units):
        if isinstance(found, pa.RecordBatch):
            yield found


# The functions of the units


def read_keys(shared: tuple[RowWork, int], unit: Units) -> Iterator[bytes]:
    """Keys, markers and positions of the changes, as Arrow streams."""
    for table in _narrow(*shared, unit):
        yield stream(table)


def bucket_keys(shared: tuple[RowWork, int], unit: Units) -> Iterator[tuple[int, pa.Table]]:
    """Keys, markers and positions of the changes as tables, of several change files together."""
    held: list[pa.Table] = []
    for table in _narrow(*shared, unit):
        held.append(table)
        if sum(each.nbytes for each in held) > _HELD_BYTES:
            yield CHANGES, pa.concat_tables(held)
            held = []
    if held:
        yield CHANGES, pa.concat_tables(held)


def read_rows(shared: tuple[RowWork, int], unit: Units) -> Iterator[Any]:
    """Reads all columns. Yields nothing; an error is returned by the caller."""
    work, memory = shared
    for each in unit.units:
        for _ in changes_of(each, work, MemoryBudget(memory)):
            pass
    yield from ()


def bucket_rows(target: Target, unit: DataFiles) -> Iterator[tuple[int, pa.Table]]:
    """Keys of data files, with the file's number, the row number and, as MARKER, whether the row is living."""
    columns = key_columns(target)
    for number, add, _, _ in unit.files:
        deleted = deleted_rows(add, target) if target.feed else None
        footer = read_footer(add, target)
        parts = []
        for group in row_groups(add, target, None, footer)[unit.part :: unit.parts]:
            begin = group.first_row
            with opened(group.file, footer) as parquet:
                for keys in rows_of(parquet, group, columns):
                    places = np.arange(begin, begin + keys.num_rows)
                    living = np.ones(len(places), np.int8) if deleted is None else ~np.isin(places, deleted)
                    table = keys.append_column(FILE, pa.array(np.full(len(places), number, np.int32)))
                    table = table.append_column(ROW, whole_numbers(places))
                    parts.append(table.append_column(MARKER, pa.array(living.astype(np.int8))))
                    begin += keys.num_rows
        if parts:
            yield TABLE, pa.concat_tables(parts)


def fold_buckets(target: Target, found: Sequence[tuple[int, int, bytes]]) -> Iterator[FoldedKeys | Rejected | Failed]:
    """The net effect of the keys of some buckets, and the rows of these keys in the table."""
    yield from (pickle.loads(blob) for _, kind, blob in found if kind == FAILED)
    names = list(target.key_columns)
    dropped, firsts, living = [], [], False
    gone: dict[int, list[np.ndarray]] = {}
    updated: dict[int, list[np.ndarray]] = {}
    for bucket in sorted({bucket for bucket, _, _ in found}):
        changes = [unstream(blob) for each, kind, blob in found if (each, kind) == (bucket, CHANGES)]
        if not changes:
            continue
        table = pa.concat_tables(changes)
        places = np.asarray(table[ROW].combine_chunks())
        order = np.argsort(places, kind="stable")
        table, places = table.take(whole_numbers(order)), places[order]
        keys = table.select(names).combine_chunks()
        effect = fold_places(keys, np.asarray(table[MARKER].combine_chunks()), with_firsts=target.feed)
        drop = np.ones(len(places), bool)
        drop[effect.kept] = False
        dropped.append(places[drop])
        here = [unstream(blob) for each, kind, blob in found if (each, kind) == (bucket, TABLE)]
        if not here or not len(effect.deletes):
            continue
        rows = pa.concat_tables(here)
        its = comparable(rows.select(names))
        hits = is_among(its, comparable(keys.take(whole_numbers(effect.deletes))))
        hit_rows, hit_keys = rows.take(whole_numbers(hits)), its.take(whole_numbers(hits))
        files, numbers = np.asarray(hit_rows[FILE].combine_chunks()), np.asarray(hit_rows[ROW].combine_chunks())
        for number in np.unique(files):
            gone.setdefault(int(number), []).append(numbers[files == number])
        if not target.feed:
            continue
        alive = np.asarray(hit_rows[MARKER].combine_chunks()).astype(bool)
        living = living or bool(alive.any())
        comes = comparable(keys.take(whole_numbers(effect.firsts)))
        had = is_among(comes, hit_keys.filter(pa.array(alive)))
        firsts.append(places[effect.firsts[had]])
        again = np.zeros(len(files), bool)
        again[is_among(hit_keys, comes)] = True
        for number in np.unique(files[again]):
            updated.setdefault(int(number), []).append(numbers[again & (files == number)])
    yield FoldedKeys(
        packed(_ascending(dropped)),
        packed(_ascending(firsts)),
        tuple(
            FoundRows(number, packed(_ascending(parts)), packed(_ascending(updated.get(number, []))))
            for number, parts in gone.items()
        ),
        living,
    )


def find_rows(shared: tuple[Target, bytes, Feed | None], unit: DataFiles) -> Iterator[FoundRows]:
    """The row numbers of the sought keys in data files."""
    target, sought, feed = shared[0], Sought(unstream(shared[1])), shared[2]
    columns = key_columns(target)
    for number, add, _, _ in unit.files:
        footer = read_footer(add, target)
        groups = row_groups(add, target, sought, footer)[unit.part :: unit.parts]
        parts = [np.asarray(find(group, target, sought, footer=footer)) for group in groups]
        found = _ascending(parts)
        if not len(found):
            continue
        if feed is None:
            yield FoundRows(number, packed(found))
            continue
        deleted = deleted_rows(add, target)
        living = found if deleted is None else np.setdiff1d(found, deleted, assume_unique=True)
        keys = pa.concat_tables([work_schema(target, columns).empty_table(), *chosen_rows(add, target, found, columns)])
        comes = is_among(comparable(keys), comparable(unstream(feed.replaced)))
        yield FoundRows(number, packed(found), packed(living[comes]), stream(keys) if len(living) else None)


def write_kept(shared: tuple[RowWork, int], unit: Units) -> Iterator[list[Action]]:
    """Writes the inserted rows as data files of the table or, with `to_feed`, of the change data feed."""
    work, memory = shared
    mine, folded = _folded(work, unit)
    feed = _FlaggedRows() if unit.to_feed else None
    batches = kept_batches(_begins(unit.units), mine, MemoryBudget(memory), folded, feed)
    yield (write_change_feed if unit.to_feed else write_rows)(batches, work.target)


def check_rows(shared: tuple[RowWork, int], unit: Units) -> Iterator[pa.RecordBatch]:
    """The rows to insert, with FILE, the change file's number, and ROW, the row's number in it from 0."""
    work, memory = shared
    flags = _flags(unit)
    for begin, each in _begins(unit.units):
        for changes in changes_of(each, work, MemoryBudget(memory)):
            rows = changes.rows
            places = np.arange(rows.num_rows)
            if flags is not None:
                first = begin + changes.first_row - each.first_row
                places = np.flatnonzero(flags[first : first + rows.num_rows])
                rows = rows.take(whole_numbers(places))
            numbers = pa.array(np.full(len(places), each.number, np.int64))
            names = [*rows.schema.names, FILE, ROW]
            yield _record(names, *rows.columns, numbers, whole_numbers(changes.first_row + places))


def write_without(target: Target, unit: DataFiles) -> Iterator[list[Action]]:
    """Writes data files again, each without the rows of its first set and without those that its vector deletes."""
    for _, add, gone, _ in unit.files:
        parts = living_rows(add, target, unpacked(gone) if gone else None)
        yield write_rows((batch for part in parts for batch in part.to_batches()), target)


def write_together(shared: tuple[Target, int], unit: DataFiles) -> Iterator[list[Action]]:
    """Writes the living rows of several data files to files with a limited number of rows."""
    target, most = shared
    parts = chain.from_iterable(living_rows(add, target) for _, add, _, _ in unit.files)
    batches = (batch for part in parts for batch in part.to_batches())
    yield write_rows(batches, target, sizes=FileSizes(rows_a_file=most))


def write_old(target: Target, unit: DataFiles) -> Iterator[list[Action]]:
    """Writes deleted rows (first set) to the change data feed; those of the second set are updates."""

    def batches() -> Iterator[pa.RecordBatch]:
        for _, add, gone, updated in unit.files:
            changed = unpacked(updated)
            others = np.setdiff1d(unpacked(gone), changed, assume_unique=True)
            for numbers, is_update in ((changed, True), (others, False)):
                for part in chosen_rows(add, target, numbers, target.columns):
                    flags = np.full(part.num_rows, is_update)
                    yield from typed(part, flags, "update_preimage", "delete").to_batches()

    yield write_change_feed(batches(), target)


# Parts of these functions


class _FlaggedRows:
    """Gives inserted rows their type in the change data feed. The flags already say which are updates."""

    def new_rows(self, rows: pa.Table, firsts: np.ndarray) -> pa.Table:
        return typed(rows, firsts, "update_postimage", "insert")


_PLACES = (FILE, ROW, MARKER)
_HELD_BYTES = 64 << 20


def stream(table: pa.Table) -> bytes:
    """A table as a compressed Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def unstream(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


def _of_units(
    batches: Iterable[pa.RecordBatch], function: str, shared: bytes, units: Sequence[bytes]
) -> Iterator[tuple[int, Any]]:
    act: Callable[..., Iterator[Any]] = globals()[function]
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for found in _guarded(partial(act, pickle.loads(shared), pickle.loads(units[number]))):
                yield number, found


def _guarded(act: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """What `act` yields. An error in a row or a file is the last item."""
    try:
        with named_errors("the table"):
            yield from act()
    except Bad as bad:
        yield bad.row
    except LakemirrorError as error:
        yield Failed(error.code, error.message, error.file)


def _narrow(work: RowWork, memory: int, unit: Units) -> Iterator[pa.Table]:
    """Keys, markers, and positions among all changes as ROW. One table per change file, several for a large one."""
    names = list(work.target.key_columns)
    for begin, each in _begins(unit.units):
        parts: list[pa.Table] = []
        for changes in changes_of(each, work, MemoryBudget(memory), names):
            first = unit.begin + begin + changes.first_row - each.first_row
            places = whole_numbers(np.arange(first, first + changes.rows.num_rows))
            table = pa.Table.from_batches([changes.rows]).select(names).append_column(ROW, places)
            parts.append(table.append_column(MARKER, pa.array(changes.marker)))
            if sum(part.nbytes for part in parts) > _HELD_BYTES:
                yield pa.concat_tables(parts)
                parts = []
        if parts:
            yield pa.concat_tables(parts)


def _begins(units: Sequence[ChangeUnit]) -> list[tuple[int, ChangeUnit]]:
    begins = np.cumsum([0, *(unit.rows for unit in units)]).tolist()
    return list(zip(begins, units, strict=False))


def _flags(unit: Units) -> np.ndarray | None:
    if unit.dropped is None:
        return None
    flags = np.full(sum(each.rows for each in unit.units), FoldedBatch.KEPT, np.uint8)
    flags[unpacked(unit.dropped)] = 0
    if unit.firsts:
        flags[unpacked(unit.firsts)] = FoldedBatch.FIRST
    return flags


def _folded(work: RowWork, unit: Units) -> tuple[RowWork, FoldedBatch | None]:
    """The batch with only these units, and its net effect."""
    flags = _flags(unit)
    mine = replace(work, changes=unit.units)
    return mine, None if flags is None else FoldedBatch(flags, pa.table({}), pa.table({}))


def _ascending(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)


def _blob(bucket: int, kind: int, payload: bytes) -> pa.RecordBatch:
    return _record(
        ["bucket", "kind", "payload"],
        pa.array([bucket], pa.int32()), pa.array([kind], pa.int32()), pa.array([payload], pa.binary()),
    )  # fmt: skip


def _record(names: list[str], *arrays: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(arrays), names=names)
