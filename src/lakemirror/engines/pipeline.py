"""The row work of an apply, for every engine: which units, in which order, what is combined, which errors count.

    inserts only           change files ─▶ read, write
    held in memory         change files ─▶ read once ─▶ fold ─▶ look up ─▶ write
    many changes           read keys ─▶ fold ─▶ look up ─▶ read again, write the kept rows
    more keys than fit     `fold_apart`: the engine folds and joins them by buckets ─▶ read again, write the kept rows

An engine says how units are carried to kernels: by threads of this process, or by Spark tasks. It commits nothing.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lakemirror.engines import unit_kernels
from lakemirror.engines.bad_changes import check_nulls, drop_written, named_errors
from lakemirror.engines.complete_rows import completed, rows_to_complete, values_of
from lakemirror.engines.early_rows import EarlyRows, early_rows
from lakemirror.engines.held_changes import HeldChanges, may_share, slices
from lakemirror.engines.kernels.change_rows import logged, origin_of
from lakemirror.engines.kernels.decode import MemoryBudget
from lakemirror.engines.kernels.fill_values import FillRequest, Fills
from lakemirror.engines.kernels.write import SIZES, FileSizes
from lakemirror.engines.net_effect import Folded, NetEffect, fold, fold_in_passes, only_live
from lakemirror.engines.row_work import ROW, Action, RowResult, RowWork, Target
from lakemirror.engines.unit_carrier import UnitCarrier
from lakemirror.engines.unit_kernels import Kernel, new_rows
from lakemirror.engines.units import (
    UPDATE,
    ChangeFiles,
    DataFiles,
    Shared,
    TouchedFile,
    change_units,
    data_units,
    is_short,
    split,
)
from lakemirror.errors import Bad
from lakemirror.keys.find_keys import find_keys, find_spilled
from lakemirror.keys.key_index import KeyIndex
from lakemirror.keys.key_values import comparable, whole_numbers
from lakemirror.keys.spill import Spill
from lakemirror.keys.wanted_keys import is_among
from lakemirror.keys.written_rows import keep_files
from lakemirror.landing_zone.table_options import LATE, SCD2
from lakemirror.storage.place import local_path


class TooManyKeys(Exception):
    """There are more keys to look up than the engine sends to its units: `fold_apart` folds them."""


class Pipeline(UnitCarrier):
    """What all engines do; each engine adds how units are carried.

    `memory`: the bytes that all running batches may hold together. `index`: the key index of large files. `sizes`: of
    the files that it writes.
    """

    unit_bytes = sys.maxsize
    """A change file with more than two times so many bytes becomes several units, and no unit of writing has more."""
    key_unit_bytes = sys.maxsize
    """The same for units that read keys."""

    def __init__(self, memory: int, *, index: KeyIndex | None = None, sizes: FileSizes = SIZES) -> None:
        self.memory = memory
        self.fold_memory = memory // 2
        self.index = index
        self.budget = MemoryBudget(memory)
        self.sizes = sizes

    def search_spilled(self, candidates: Sequence[Action], target: Target, deletes: Spill) -> dict[int, np.ndarray]:
        """As `find_spilled`. Error: TooManyKeys."""
        return find_spilled(candidates, target, deletes, self.each, self.index)

    def spill_folder(self, target: Target) -> Path | None:
        return None

    @contextlib.contextmanager
    def held(self, work: RowWork, shared: Shared) -> Iterator[HeldChanges | None]:
        """All changes in memory, while the block runs; None if they are read in passes."""
        yield None

    def fold_apart(self, work: RowWork, shared: Shared, *, must: bool = False) -> NetEffect | None:
        """The net effect of more keys than this process folds; None if it can fold them, unless it `must`."""
        return None

    def check_constraints(
        self, work: RowWork, shared: Shared, flags: np.ndarray | None, fills: Fills | FillRequest | None = None
    ) -> None:
        """Raises Bad for the first inserted row that breaks a CHECK constraint, if this engine can evaluate them."""
        return

    def run(self, work: RowWork) -> RowResult:
        """Computes the net effect of a batch (contract section 3) and writes its files. Errors as in `Engine`."""
        written: list[Action] = []  # removed if the attempt fails
        try:
            index_waits = self.index.at_work() if self.index is not None else contextlib.nullcontext()
            with index_waits, named_errors(work.target.path):
                result = self._result(work, written)
        except BaseException:
            drop_written(work.target.path, written)
            raise
        if self.index is not None:
            self.index.want_lasting(result.adds, work.target)
        return result

    def _result(self, work: RowWork, written: list[Action]) -> RowResult:
        if any(unit.bytes > 2 * self.unit_bytes for unit in work.changes):
            work = replace(work, changes=tuple(p for unit in work.changes for p in split(unit, self.unit_bytes)))
        target = work.target
        shared = Shared(
            target, self.budget, work.append_only, work.default_marker, self.sizes, partial=work.partial,
            ordering=work.ordering, inserts_replace=work.inserts_replace,
        )  # fmt: skip
        if work.history is not None:
            shared = shared._replace(target=target.sources)
        if work.ordering is not None and work.ordering.memory is not None:  # units do not look deletes up
            memory = work.ordering.memory._replace(files=())
            shared = shared._replace(ordering=replace(work.ordering, memory=memory))
        with self.held(work, shared) as held:
            own = self._mirrored if work.history is None else self._write_history
            if work.also:
                return self._with_others(partial(own, work, shared, held, written), work, shared, held)
            return own(work, shared, held, written)

    def _with_others(
        self, own: Callable[[], RowResult], work: RowWork, shared: Shared, held: HeldChanges | None
    ) -> RowResult:
        """`own` and the other targets: side by side if many changes are in memory. If one fails, none is kept."""
        theirs: list[list[Action]] = [[] for _ in work.also]
        acts: list[Callable[[], RowResult]] = [own]
        acts += [partial(self._other, *each, work, shared, held) for each in zip(work.also, theirs, strict=True)]
        is_alone = held is None or is_short(held.nbytes, work.target)
        carried: Iterable[RowResult] = (map if is_alone else self.each)(lambda act: act(), acts)
        try:
            result, *others = carried
        except BaseException:
            for other, its in zip(work.also, theirs, strict=True):
                drop_written(other.target.path, its)
            raise
        return replace(result, also=tuple(others))

    def _other(
        self, other: RowWork, written: list[Action], work: RowWork, shared: Shared, held: HeldChanges | None
    ) -> RowResult:
        """What the changes of a work do to another target."""
        its = shared._replace(target=other.target.sources)
        shares = held if held is not None and may_share(shared.target, its.target) else None
        with named_errors(other.target.path):
            return self._write_history(replace(other, changes=work.changes), its, shares, written)

    def _mirrored(self, work: RowWork, shared: Shared, held: HeldChanges | None, written: list[Action]) -> RowResult:
        """The net effect of the changes on the mirrored table, and its files."""
        target = work.target
        if work.append_only or not target.key_columns:
            return RowResult(adds=tuple(self._write_new(work, shared, held, None, written)))
        if work.ordering is not None:
            with early_rows(shared, held) as early:
                effect = self._ordered_effect(work, shared, held, early).after(early)
                result = self._write(work, shared, held, effect, written)
                adds = early.close()
            written += adds
            if self.index is not None and target.reads_old_rows:
                keep_files(adds, target, early.rows())
            return replace(result, adds=(*result.adds, *adds), ignored=effect.ignored, late=effect.late)
        if held is not None:
            markers = unit_kernels.as_upserts(held.markers) if work.inserts_replace else held.markers
            effect = self._net_effect(work, shared, fold(work, held.keys(target), markers, held.names))
            return self._write(work, shared, held, effect, written)
        if (apart := self.fold_apart(work, shared)) is not None:
            return self._write(work, shared, None, apart, written)
        with fold_in_passes(work, self.keys_of(work, shared), self._scratch_of(target), self.fold_memory) as folded:
            return self._write(work, shared, None, self._net_effect(work, shared, folded), written)

    def _write_history(
        self, work: RowWork, shared: Shared, held: HeldChanges | None, written: list[Action]
    ) -> RowResult:
        """Writes what the changes do to a history target. `shared`: to read them."""
        from lakemirror.engines.completed_changes import write_completed  # few tables have a history
        from lakemirror.engines.late_deletes import held_deletes, write_deletes
        from lakemirror.engines.write_versions import write_versions

        step, history, target = "write changes", work.history, work.target
        assert history is not None
        shared = shared._replace(target=target, history=history)
        if history.mode == SCD2:
            return write_versions(self, work, shared, held, written)
        if history.versions is not None:
            return write_completed(self, work, shared, held, written)
        if held is None:
            kernel = write_deletes if history.mode == LATE else unit_kernels.write_changes
            units = change_units(work, None, self.parallelism, self.unit_bytes)
            return RowResult(adds=tuple(self.write_units(step, kernel, shared, units, written)))
        if history.mode == LATE:
            parts = [part for rows in held_deletes(work, held) for part in slices(rows)]
            return RowResult(adds=tuple(self.write_units(step, unit_kernels.write_held, shared, parts, written)))
        rows = held.rows(None)
        check_nulls(work.changes, target.sources, rows, None)
        origin = origin_of(((unit, unit.first_row, unit.rows) for unit in work.changes), history)
        rows = logged(rows, held.markers, held.names, origin, history)
        return RowResult(adds=tuple(self.write_units(step, unit_kernels.write_held, shared, slices(rows), written)))

    def _scratch_of(self, target: Target) -> Path:
        """The folder of keys and values that do not fit into memory."""
        return local_path(target.path) or Path(tempfile.gettempdir())

    # the net effect

    def keys_of(self, work: RowWork, shared: Shared) -> Iterator[pa.Table]:
        """Keys, positions and markers of all changes. Raises Bad for the first bad row."""
        units = change_units(work, None, self.parallelism, self.key_unit_bytes)
        try:
            yield from self.carry("read keys", unit_kernels.read_keys, shared, units)
        except Bad as bad:
            raise self.first_bad(work, shared, bad) from bad

    def first_bad(self, work: RowWork, shared: Shared, bad: Bad) -> Bad:
        """The error of the first bad row of all. `bad`: the first one that keys alone show.

        The files up to that one are read again with all columns, because other columns may have an error before it.
        """
        last = max(place for place, unit in enumerate(work.changes) if unit.name == bad.rejected.file)
        before = replace(work, changes=work.changes[: last + 1])
        units = change_units(before, None, self.parallelism, self.key_unit_bytes)
        try:
            list(self.carry("find the first bad row", unit_kernels.read_rows, shared, units))
        except Bad as first:
            return first
        return bad

    def _ordered_effect(self, work: RowWork, shared: Shared, held: HeldChanges | None, early: EarlyRows) -> NetEffect:
        """The same for a table with options of deletes or order."""
        from lakemirror.engines.ordered_effect import ordered_effect  # few tables have them

        try:
            return ordered_effect(self, work, shared, held, self._scratch_of(work.target), early)
        except TooManyKeys:
            effect = self.fold_apart(work, shared, must=True)
            assert effect is not None
            return effect

    def _net_effect(self, work: RowWork, shared: Shared, folded: Folded) -> NetEffect:
        """What the changes do to the table: the rows that have the keys, and which of them are updates."""
        target = work.target
        try:
            if isinstance(folded.deletes, Spill):
                rows = self.search_spilled(work.candidates, target, folded.deletes)
            else:
                rows = find_keys(work.candidates, target, folded.deletes, self.search, self.each, self.index)
        except TooManyKeys:
            effect = self.fold_apart(work, shared, must=True)
            assert effect is not None
            return effect
        touched = {number: TouchedFile(number, work.candidates[number], rows[number]) for number in sorted(rows)}
        found = rows_to_complete(self, shared, folded.partial, touched) if folded.partial is not None else None
        if touched and target.feed:
            touched = self._with_updates(shared, folded, touched)
        elif touched and not target.vectors:
            touched = only_live(touched, target)
        return NetEffect(folded.flags, touched, folded.partial, found)

    def _with_updates(self, shared: Shared, folded: Folded, touched: dict[int, TouchedFile]) -> dict[int, TouchedFile]:
        """The live rows among the deleted ones, and which of them are updates. Sets the flags of their new rows.

        A deleted row is an update if the batch also inserts a row of its key; the first such row is the new one.
        """
        units = data_units(list(touched.values()), self.parallelism)
        replaced = comparable(folded.replaced.drop_columns([ROW]))
        live: dict[int, TouchedFile] = {}
        keys: list[pa.Table] = []
        for files in self.carry("read deleted keys", unit_kernels.read_old_keys, shared, units):
            for number, rows, old in files:
                keys.append(comparable(old))
                live[number] = touched[number]._replace(deleted=rows, updated=rows[is_among(keys[-1], replaced)])
        if keys:
            positions = np.asarray(folded.replaced[ROW].combine_chunks())
            folded.flags[positions[is_among(replaced, pa.concat_tables(keys))]] = UPDATE
        return live

    # the files

    def _write(
        self, work: RowWork, shared: Shared, held: HeldChanges | None, effect: NetEffect, written: list[Action]
    ) -> RowResult:
        if effect.fills is None and (effect.partial is not None or effect.dead is not None):
            return self._write_partial(work, shared, held, effect, written)
        target, touched = work.target, list(effect.touched.values())
        adds = self._write_new(work, shared, held, effect, written)
        if not touched:
            return RowResult(adds=tuple(adds))
        changes = self._write_feed(work, shared, held, effect, written) if target.feed else []
        if target.vectors:
            deleted = {file.add["path"]: whole_numbers(file.deleted) for file in touched}
            return RowResult(adds=tuple(adds), deleted=deleted, changes=tuple(changes))
        units = data_units(touched, self.parallelism)
        step = "write files without deleted rows"
        older = self.write_units(step, unit_kernels.write_without, shared, units, written)
        return RowResult(
            adds=(*older, *adds), rewritten=tuple(file.add["path"] for file in touched), changes=tuple(changes)
        )

    def _write_partial(
        self, work: RowWork, shared: Shared, held: HeldChanges | None, effect: NetEffect, written: list[Action]
    ) -> RowResult:
        """Completes the partial rows, then writes all."""
        fills, missing = completed(self, work, shared, held, effect)
        if isinstance(fills, FillRequest):
            shared = shared._replace(changes=ChangeFiles(0, work.changes))
        elif held is not None and fills.size > self.memory // 8:
            held = None
        result = self._write(work, shared, held, replace(effect, fills=fills), written)
        return replace(result, missing=missing)

    def fills_of(
        self, work: RowWork, shared: Shared, held: HeldChanges | None, effect: NetEffect, newest: pa.Table
    ) -> Fills | FillRequest:
        """What inserted rows take from earlier changes and from the table, or what units read for them."""
        return values_of(self, work, shared, held, effect, newest, self._scratch_of(work.target))

    def _write_new(
        self, work: RowWork, shared: Shared, held: HeldChanges | None, effect: NetEffect | None, written: list[Action]
    ) -> list[Action]:
        """Writes the inserted rows (without an effect all): those that are held, or else all changes are read again."""
        step = "write rows"
        flags, fills = (None, None) if effect is None else (effect.flags, effect.fills)
        if work.target.constraints:
            self.check_constraints(work, shared, flags, fills)
        if held is None:
            some = None if flags is None or flags.all() else flags
            units = change_units(work, some, self.parallelism, self.unit_bytes, fills)
            adds = self.write_units(step, unit_kernels.write_kept, shared, units, written)
            more = [] if effect is None or effect.rows is None else slices(effect.rows)
            return adds + self.write_units(step, unit_kernels.write_held, shared, more, written)
        assert not isinstance(fills, FillRequest)
        rows, kept = held.inserted(flags, fills)
        check_nulls(work.changes, work.target, rows, kept)
        if effect is not None and effect.rows is not None:
            rows = pa.concat_tables([rows, effect.rows.cast(rows.schema)])
        if effect is not None and effect.early is not None:
            effect.early.add(rows)
            return []
        parts = slices(rows)
        return self.write_units(step, unit_kernels.write_held, shared, parts, written, len(parts))

    def _write_feed(
        self, work: RowWork, shared: Shared, held: HeldChanges | None, effect: NetEffect, written: list[Action]
    ) -> list[Action]:
        """Writes the change data feed: the deleted rows and the inserted ones."""
        step = "write the change feed"
        if held is not None:
            assert not isinstance(effect.fills, FillRequest)
            rows, kept = held.inserted(effect.flags, effect.fills)
            unit = DataFiles(tuple(effect.touched.values())), new_rows(rows, effect.flags, kept)
            return self.write_units(step, unit_kernels.feed_held, shared, [unit], written)
        old_units = data_units(list(effect.touched.values()), self.parallelism)
        changes = self.write_units(step, unit_kernels.feed_old, shared, old_units, written)
        units = change_units(work, effect.flags, self.parallelism, self.unit_bytes, effect.fills)
        return changes + self.write_units(step, unit_kernels.feed_kept, shared, units, written)

    def write_units(
        self, step: str, kernel: Kernel, shared: Shared, units: Sequence[Any], written: list[Action], kept: int = 0
    ) -> list[Action]:
        """The actions of the files that the units write, in the order of the units. Adds them to `written`, too.
        `kept`: so many of the units, from the first on, are rows that stay in memory if the next applies read them."""
        begin = len(written)
        for number, actions in enumerate(self.carry(step, kernel, shared, units)):
            written += actions
            if number < kept and self.index is not None and shared.target.reads_old_rows:
                keep_files(actions, shared.target, units[number : number + 1])
        return written[begin:]
