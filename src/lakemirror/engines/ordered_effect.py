"""The net effect of a batch on a table with options of deletes or order (`kernels/ordered_fold.py`).

    keys of the changes ─▶ look up ─▶ keys, sequences, deaths of the table's rows ─▶ fold ─▶ NetEffect

What does not fit into memory is folded bucket by bucket of keys; an engine may fold many keys in its own way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakemirror.delta.data_files import attempt_id
from lakemirror.engines import unit_kernels
from lakemirror.engines.deleted_rows import deleted_rows
from lakemirror.engines.early_rows import EarlyRows
from lakemirror.engines.held_changes import HeldChanges
from lakemirror.engines.kernels.ordered_fold import FoldedKeys, fold_ordered, value_columns
from lakemirror.engines.kernels.sequence_order import sequence_of
from lakemirror.engines.late_deletes import earlier_deletes
from lakemirror.engines.net_effect import NetEffect, combined, in_buckets, only_live
from lakemirror.engines.old_rows import no_old_rows, with_places
from lakemirror.engines.plain_keys import deleting, need_rows, plain_changes
from lakemirror.engines.row_work import DIED, FILE, MARKER, NAMES, ROW, SEQUENCE, Ordering, RowWork
from lakemirror.engines.sequence_bounds import files_reached, least_of
from lakemirror.engines.unit_carrier import UnitCarrier
from lakemirror.engines.units import Shared, TouchedFile
from lakemirror.engines.write_versions import look_by, units_of_rows
from lakemirror.keys.find_keys import find_keys, kept_among
from lakemirror.keys.key_values import each_once, whole_numbers
from lakemirror.keys.spill import Spill
from lakemirror.keys.wanted_keys import WantedKeys
from lakemirror.landing_zone.reserved_columns import DELETED_AT
from lakemirror.landing_zone.row_markers import INSERT
from lakemirror.storage.own_files import SPILLED, work_folder

_FEW = 32  # keys that are less than one in so many are looked up by themselves


def ordered_effect(
    pipeline: UnitCarrier, work: RowWork, shared: Shared, held: HeldChanges | None, scratch: Path,
    early: EarlyRows | None = None,
) -> NetEffect:  # fmt: skip
    """What the changes do to the table. `scratch`: a folder for keys that do not fit into memory. `early`: of `held`;
    writes the rows of keys whose old rows need not be read."""
    if held is not None:
        return combined(work, _effects(pipeline, work, shared, _held_keys(work, held), early))
    apart = pipeline.fold_apart(work, shared)
    if apart is not None:
        return apart
    with work_folder(scratch, SPILLED, str(attempt_id(work.target.version))) as folder:
        keys = in_buckets(work, pipeline.keys_of(work, shared), folder, pipeline.fold_memory)
        if isinstance(keys, Spill):
            return combined(work, _bucket_by_bucket(pipeline, work, shared, keys, folder))
        if keys is None:
            return combined(work, [])
        return combined(work, _effects(pipeline, work, shared, keys))


def _effects(
    pipeline: UnitCarrier, work: RowWork, shared: Shared, changes: pa.Table, early: EarlyRows | None = None
) -> Iterator[FoldedKeys]:
    """The net effect of changes in memory: of the keys whose rows in the table must be read, and of all others.
    Where they have DIED, deleted rows keep what was read with their keys, as far as it takes little memory."""
    ordering, target, files = work.ordering, work.target, range(len(work.candidates))
    assert ordering is not None
    remembered = _remembered(pipeline, shared, ordering, changes)
    if target.feed:  # it has the old rows of all keys
        yield fold_ordered(target, ordering, changes, _found(pipeline, work, shared, changes, files), remembered)
        return
    near: list[int] = []
    if ordering.sequence:
        near = files_reached(work.candidates, target, ordering.sequence, least_of(changes[SEQUENCE]))
    old = _found(pipeline, work, shared, changes, near)
    held = [table.select(list(target.key_columns)) for table in (old, remembered) if table is not None]
    needs = need_rows(ordering, changes, pa.concat_tables(held))
    far = sorted(set(files) - set(near))
    folded, deletes = plain_changes(changes, needs)
    if early is not None:
        kept = ~needs.rows
        kept[folded.dropped] = False  # in memory, a position is the number of a change
        early.begin(np.flatnonzero(kept))
    its = changes.filter(pa.array(needs.rows))
    reads, rows = _rows_of_both(pipeline, work, each_once(_looked_up(work, its)), deletes, far)
    if needs.rows.any():
        values: dict[int, tuple[np.ndarray, pa.Table]] = {}
        if DIED in changes.column_names:
            shared = shared._replace(names=tuple(json.loads(value_columns(target))))
        old = pa.concat_tables([old, *_old_rows(pipeline, work, shared, reads, values)])
        is_complete = not shared.names or set(old[FILE].unique().to_pylist()) <= values.keys()
        if is_complete and DIED in changes.column_names and not (ordering.sequence or target.constraints):
            deleted, its, old = deleted_rows(target, its, old, values)
            yield deleted
        if its.num_rows:
            yield fold_ordered(target, ordering, its, old, remembered)._replace(values=values)
    if not needs.rows.all():
        if not target.vectors:
            touched = {number: TouchedFile(number, work.candidates[number], rows[number]) for number in rows}
            rows = {number: file.deleted for number, file in only_live(touched, target).items()}
        yield deleting(folded, rows)


def _remembered(pipeline: UnitCarrier, shared: Shared, ordering: Ordering, changes: pa.Table) -> pa.Table | None:
    """The remembered deletes that may act on these changes, as of `fold_ordered`; None if there are none."""
    return None if ordering.memory is None else earlier_deletes(ordering, changes, look_by(pipeline, shared))


def _held_keys(work: RowWork, held: HeldChanges) -> pa.Table:
    """Keys, positions, markers of changes in memory, and what the options ask for; as of `read_keys`."""
    assert work.ordering is not None
    table = held.keys(work.target).append_column(ROW, whole_numbers(np.arange(len(held.markers))))
    markers = unit_kernels.as_upserts(held.markers) if work.inserts_replace else held.markers
    table = table.append_column(MARKER, pa.array(markers))
    if work.ordering.sequence:
        rows = held.columns(work.ordering.sequence)
        table = table.append_column(SEQUENCE, sequence_of(rows, work.ordering.sequence))
    if work.ordering.is_soft:
        table = table.append_column(DIED, held.columns([DELETED_AT])[DELETED_AT])
    return table if held.names is None else table.append_column(NAMES, held.names)


def _found(pipeline: UnitCarrier, work: RowWork, shared: Shared, changes: pa.Table, files: Sequence[int]) -> pa.Table:
    """The live rows in these candidates that have the keys of these changes, as of `with_places`."""
    none = no_old_rows(shared)
    if not files:
        return none
    rows = _rows_of(pipeline, work, each_once(_looked_up(work, changes)), files)
    return pa.concat_tables([none, *_old_rows(pipeline, work, shared, rows)])


def _rows_of(pipeline: UnitCarrier, work: RowWork, keys: pa.Table, files: Sequence[int]) -> dict[int, np.ndarray]:
    """The rows in these candidates that have one of the keys."""
    candidates = [work.candidates[number] for number in files]
    rows = find_keys(candidates, work.target, keys, pipeline.search, pipeline.each, pipeline.index)
    return {files[number]: found for number, found in rows.items()}


def _rows_of_both(
    pipeline: UnitCarrier, work: RowWork, keys: pa.Table, others: pa.Table, files: Sequence[int]
) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """The rows in these candidates that have one of `keys`, and those that have one of `others`.

    Unless `keys` are few, all are looked up together: the key cache tells which are which.
    """
    if not others.num_rows or keys.num_rows * _FEW < others.num_rows:
        return _rows_of(pipeline, work, keys, files), _rows_of(pipeline, work, others, files)
    both = _rows_of(pipeline, work, pa.concat_tables([keys, others]), files)
    its = kept_among([work.candidates[number] for number in both], work.target, [*both.values()], WantedKeys(keys))
    among = dict(zip(both, its, strict=True))
    found = {number: rows for number, rows in among.items() if rows is not None and len(rows)}
    found |= _rows_of(pipeline, work, keys, [number for number, rows in among.items() if rows is None])
    for number, rows in found.items():
        stays = np.ones(len(both[number]), bool)
        stays[np.searchsorted(both[number], rows)] = False
        both[number] = both[number][stays]
    return found, {number: rows for number, rows in both.items() if len(rows)}


def _looked_up(work: RowWork, changes: pa.Table) -> pa.Table:
    """The keys of the changes whose rows in the table matter."""
    assert work.ordering is not None
    keys = changes.select(list(work.target.key_columns))
    if work.ordering.all_keys:
        return keys
    return keys.take(whole_numbers(np.flatnonzero(np.asarray(changes[MARKER].combine_chunks()) != INSERT)))


def _old_rows(
    pipeline: UnitCarrier, work: RowWork, shared: Shared, rows: Mapping[int, np.ndarray],
    values: dict[int, tuple[np.ndarray, pa.Table]] | None = None,
) -> Iterator[pa.Table]:  # fmt: skip
    """The live ones of these rows, as of `with_places`. `values`: gets what they have in the columns `shared.names`."""
    room = pipeline.memory // 8 if values is not None and shared.names else 0
    files = [TouchedFile(number, work.candidates[number], rows[number]) for number in sorted(rows)]
    units = units_of_rows(pipeline, work.target, files, pipeline.parallelism)
    for found in pipeline.carry("read deleted keys", unit_kernels.read_old_keys, shared, units) if units else ():
        for number, live, old in found:
            if values is not None and set(shared.names) <= set(old.column_names):
                room -= old.nbytes
                if room > 0:
                    values[number] = live, old.select(list(shared.names))
            yield with_places(shared, old, number, live)


def _bucket_by_bucket(
    pipeline: UnitCarrier, work: RowWork, shared: Shared, changes: Spill, folder: Path
) -> Iterator[FoldedKeys]:
    """The net effect of the keys of each bucket. `changes`: keys of all changes, as of `read_keys`."""
    assert work.ordering is not None
    names = list(work.target.key_columns)
    rows: Mapping[int, np.ndarray] = {}
    if work.candidates:
        with Spill(folder, changes.buckets, names) as wanted:
            for bucket in range(changes.buckets):
                its = changes.read(bucket)
                if its is not None:
                    wanted.add(_looked_up(work, its))
            rows = pipeline.search_spilled(work.candidates, work.target, wanted)
    with Spill(folder, changes.buckets, names) as old:
        for table in _old_rows(pipeline, work, shared, rows):
            old.add(table)
        none = no_old_rows(shared)
        for bucket in range(changes.buckets):
            its = changes.read(bucket)
            if its is not None:
                remembered = _remembered(pipeline, shared, work.ordering, its)
                yield fold_ordered(work.target, work.ordering, its, old.read(bucket) or none, remembered)
