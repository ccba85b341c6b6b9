"""What Spark tasks run: kernels on their units. This module runs on executors and imports no PySpark.

    results    units ─▶ kernel ─▶ pickled results                          rows      units ─▶ kernel ─▶ record batches
    blobs      units ─▶ kernel ─▶ tables, split by the bucket of their keys
    gathered   blobs of some buckets ─▶ kernel ─▶ pickled results

Kernels are those of all engines (`unit_kernels`), and the three here. Errors in a row or a file are returned as values
(`Rejected`, `LakemirrorError`), so that Spark does not repeat the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lakemirror.engines.bad_changes import named_errors
from lakemirror.engines.kernels.data_rows import opened, rows_of
from lakemirror.engines.kernels.fold import fold_places
from lakemirror.engines.kernels.live_rows import deleted_rows
from lakemirror.engines.kernels.ordered_fold import FoldedKeys, fold_ordered
from lakemirror.engines.kernels.partial_rows import PartialRows, partial_rows, together, with_keys
from lakemirror.engines.old_rows import no_old_rows, old_columns, with_places
from lakemirror.engines.row_work import MARKER, NAMES, PLACES, ROW
from lakemirror.engines.spark.messages import dumps, loads, stream, unstream
from lakemirror.engines.unit_kernels import kept_rows
from lakemirror.engines.units import ChangeFiles, DataFiles, Shared
from lakemirror.errors import Bad, LakemirrorError, Rejected
from lakemirror.keys.find_keys import rows_by_file
from lakemirror.keys.key_values import comparable, key_bucket, order_of, whole_numbers
from lakemirror.keys.look_up import read_footer, row_groups
from lakemirror.keys.wanted_keys import is_among
from lakemirror.landing_zone.reserved_columns import DELETED_AT

CHANGES, TABLE, REMEMBERED, FAILED = 0, 1, 2, 3
"""Kinds of blobs: keys of changes, keys of the table's rows, remembered deletes, a Rejected or LakemirrorError."""

Shares: TypeAlias = Sequence[Mapping[int, bytes]]
"""The units of each task, by their numbers."""

# The entry points, which `mapInArrow` calls with batches


def results(batches: Iterable[pa.RecordBatch], work: bytes, shares: Shares) -> Iterator[pa.RecordBatch]:
    """One row for each result of a unit: the unit's number and the pickled result."""
    for number, result in _of_units(batches, work, shares):
        yield _result(number, result)


def blobs(
    batches: Iterable[pa.RecordBatch], work: bytes, shares: Shares, kind: int, buckets: int
) -> Iterator[pa.RecordBatch]:
    """The tables that a unit makes, split by the bucket of their keys. `kind`: CHANGES, TABLE or REMEMBERED."""
    for _, table in _of_units(batches, work, shares):
        if isinstance(table, Rejected | LakemirrorError):
            yield _blob(0, FAILED, dumps(table))
            continue
        others = PLACES if kind != REMEMBERED else (*PLACES, DELETED_AT)
        bucket = key_bucket(table.select([name for name in table.column_names if name not in others]), buckets)
        order = order_of(bucket)
        ordered = table.take(whole_numbers(order)).combine_chunks()
        begins = np.flatnonzero(np.diff(bucket[order], prepend=-1))
        for begin, end in zip(begins, [*begins[1:], len(order)], strict=True):
            yield _blob(int(bucket[order[begin]]), kind, stream(ordered.slice(begin, end - begin)))


def gathered(batches: Iterable[pa.RecordBatch], work: bytes) -> Iterator[pa.RecordBatch]:
    """One row for each result that the kernel makes of a partition's blobs: tables by bucket and kind."""
    kernel, shared = loads(work)
    tables: dict[tuple[int, int], list[pa.Table]] = {}
    for batch in batches:
        for bucket, kind, payload in zip(*(batch.column(place).to_pylist() for place in range(3)), strict=True):
            if kind == FAILED:
                yield _result(0, loads(payload))
            else:
                tables.setdefault((bucket, kind), []).append(unstream(payload))
    for result in _guarded(partial(kernel, shared, tables)):
        yield _result(0, result)


def rows(batches: Iterable[pa.RecordBatch], work: bytes, shares: Shares) -> Iterator[pa.RecordBatch]:
    """The record batches that a unit makes, unchanged, until its first error."""
    for _, result in _of_units(batches, work, shares):
        if isinstance(result, pa.RecordBatch):
            yield result


# The kernels that only Spark tasks run


def read_table_keys(shared: Shared, unit: DataFiles) -> Iterator[pa.Table]:
    """Keys of data files, with the file's number as FILE, the row number as ROW and, as MARKER, whether it is live.

    If nobody needs to know, all rows are live.
    """
    target, columns = shared.target, old_columns(shared)
    needs_live = target.feed or not target.vectors or shared.partial or shared.ordering is not None
    for file in unit.files:
        deleted = deleted_rows(file.add, target) if needs_live else None
        footer = read_footer(file.add, target)
        parts = []
        for group in row_groups(file.add, target, None, footer)[unit.part :: unit.parts]:
            begin = group.first_row
            with opened(group.file, footer) as parquet:
                for keys in rows_of(parquet, group, columns):
                    numbers = np.arange(begin, begin + keys.num_rows)
                    live = np.ones(len(numbers), np.int8) if deleted is None else ~np.isin(numbers, deleted)
                    table = with_places(shared, keys, file.number, numbers)
                    parts.append(table.append_column(MARKER, pa.array(live.astype(np.int8))))
                    begin += keys.num_rows
        if parts:
            yield pa.concat_tables(parts)


def fold_buckets(shared: Shared, tables: Mapping[tuple[int, int], Sequence[pa.Table]]) -> Iterator[FoldedKeys]:
    """The net effect of the keys of some buckets, and the rows of these keys in the table."""
    target, names = shared.target, list(shared.target.key_columns)
    if shared.ordering is not None:
        yield from _fold_ordered(shared, tables)
        return
    dropped, updates = [], []
    deleted: dict[int, list[np.ndarray]] = {}
    updated: dict[int, list[np.ndarray]] = {}
    partial: list[PartialRows] = []
    found: list[pa.Table] = []
    for (bucket, kind), changes in tables.items():
        if kind != CHANGES:
            continue
        table = pa.concat_tables(changes).sort_by(ROW)
        positions, keys = np.asarray(table[ROW].combine_chunks()), table.select(names).combine_chunks()
        effect = fold_places(keys, np.asarray(table[MARKER].combine_chunks()), with_firsts=target.feed)
        drop = np.ones(len(positions), bool)
        drop[effect.kept] = False
        dropped.append(positions[drop])
        part = None
        if shared.partial and table[NAMES].null_count < table.num_rows:
            markers = np.asarray(table[MARKER].combine_chunks())
            part = partial_rows(keys, markers, table[NAMES], effect.kept, positions)
            partial.append(part)
        of_table = tables.get((bucket, TABLE))
        if of_table is None or not len(effect.deletes):
            continue
        old = pa.concat_tables(of_table)
        hits = is_among(comparable(old.select(names)), comparable(keys.take(whole_numbers(effect.deletes))))
        hits = hits[np.asarray(old[MARKER].combine_chunks())[hits] != 0]
        old = old.take(whole_numbers(hits))
        if part is not None and part.firsts.num_rows:
            found.append(with_keys(part.firsts, old))
        for number, numbers in rows_by_file(old):
            deleted.setdefault(number, []).append(numbers)
        if target.feed:
            old_keys, new_keys = comparable(old.select(names)), comparable(keys.take(whole_numbers(effect.firsts)))
            updates.append(positions[effect.firsts[is_among(new_keys, old_keys)]])
            for number, numbers in rows_by_file(old.take(whole_numbers(is_among(old_keys, new_keys)))):
                updated.setdefault(number, []).append(numbers)
    files = [(number, _ascending(parts), _ascending(updated.get(number, []))) for number, parts in deleted.items()]
    yield FoldedKeys(
        _ascending(dropped), _ascending(updates), files,
        together(partial) if partial else None, pa.concat_tables(found) if found else None,
    )  # fmt: skip


def _fold_ordered(shared: Shared, tables: Mapping[tuple[int, int], Sequence[pa.Table]]) -> Iterator[FoldedKeys]:
    """`fold_buckets` of a table with options of deletes or order, bucket by bucket."""
    names = list(shared.target.key_columns)
    assert shared.ordering is not None
    for (bucket, kind), parts in tables.items():
        if kind == CHANGES:
            changes = pa.concat_tables(parts).sort_by(ROW)
            old, of_table = no_old_rows(shared), tables.get((bucket, TABLE))
            if of_table is not None:
                old = pa.concat_tables(of_table)
                hits = is_among(comparable(old.select(names)), comparable(changes.select(names)))
                old = old.take(whole_numbers(hits[np.asarray(old[MARKER].combine_chunks())[hits] != 0]))
            remembered = tables.get((bucket, REMEMBERED))
            deletes = None
            if remembered is not None:
                deletes = pa.concat_tables(remembered)
                hits = is_among(comparable(deletes.select(names)), comparable(changes.select(names)))
                deletes = deletes.take(whole_numbers(hits))
            yield fold_ordered(shared.target, shared.ordering, changes, old, deletes)


def check_rows(shared: Shared, unit: ChangeFiles) -> Iterator[pa.RecordBatch]:
    """The rows to insert, with the position of each among all changes as ROW. NULL is allowed in all columns."""
    for batch, positions in kept_rows(shared, unit, checked=False):
        names = [*batch.schema.names, ROW]
        yield _record(names, *batch.columns, whole_numbers(unit.begin + positions))


# Parts of these functions


def _of_units(batches: Iterable[pa.RecordBatch], work: bytes, shares: Shares) -> Iterator[tuple[int, Any]]:
    """The numbers of the units of this task, each with a result. `batches`: the number of the task."""
    kernel, shared = loads(work)
    for batch in batches:
        for task in batch.column(0).to_pylist():
            for number, unit in shares[task].items():
                for result in _guarded(partial(kernel, shared, loads(unit))):
                    yield number, result


def _guarded(act: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """What `act` yields. An error in a row or a file is the last item."""
    try:
        with named_errors("the table"):
            yield from act()
    except Bad as bad:
        yield bad.rejected
    except LakemirrorError as error:
        yield error


def _ascending(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)


def _result(number: int, result: Any) -> pa.RecordBatch:
    return _record(["unit", "result"], pa.array([number], pa.int64()), pa.array([dumps(result)], pa.binary()))


def _blob(bucket: int, kind: int, payload: bytes) -> pa.RecordBatch:
    return _record(
        ["bucket", "kind", "payload"],
        pa.array([bucket], pa.int32()), pa.array([kind], pa.int32()), pa.array([payload], pa.binary()),
    )  # fmt: skip


def _record(names: list[str], *arrays: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(arrays), names=names)
