"""The local engine: row work by threads of this process, within a memory budget.

    few rows       read all columns at once ─▶ fold ─▶ write, look up
    inserts only   read ─▶ write, one stream per thread
    many changes   read keys and markers ─▶ fold (`fold_passes`) ─▶ look up ─▶ read all again, write the kept rows

Work that does not fit into the memory is done in smaller parts. No batch is refused for its size.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from lakemirror.engines.change_feed import FeedRows
from lakemirror.engines.change_rows import (
    Bad,
    Written,
    changes_of,
    check_nulls,
    kept_batches,
    named_errors,
    work_schema,
)
from lakemirror.engines.fold_passes import FoldedBatch, Narrow, fold_in_passes, look_up_keys
from lakemirror.engines.kernels.compact import compact
from lakemirror.engines.kernels.fold import fold_places
from lakemirror.engines.kernels.live_rows import living_rows, only_living
from lakemirror.engines.kernels.read_together import read_together
from lakemirror.engines.kernels.write import ROWS_A_GROUP, SIZES, FileSizes, file_count, write_change_feed, write_rows
from lakemirror.engines.memory_budget import MemoryBudget
from lakemirror.engines.row_work import Action, ChangeUnit, RewriteWork, RowResult, RowWork
from lakemirror.keys.key_index import KeyIndex
from lakemirror.keys.key_values import whole_numbers
from lakemirror.storage.place import local_path
from lakemirror.worker_pool import worker_pool

MEMORY = 512 << 20
_SMALL = 256 << 10  # up to so many bytes of changes, one thread is faster than several

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class TooMuch(Exception):
    """The rows do not fit into the given memory. The caller then reads them in passes."""


class LocalEngine:
    """Row work by threads of this process.

    `memory`: the bytes that all running batches may hold together, beside what Python and Arrow need themselves.
    `threads`: the most for one batch. `scratch`: a folder for keys that do not fit into memory; None: the table's own
    folder. `index`: the key index of large files. `sizes`: of the files that it writes.
    """

    name = "local"

    def __init__(
        self, memory: int = MEMORY, *, threads: int | None = None, scratch: Path | None = None,
        index: KeyIndex | None = None, sizes: FileSizes = SIZES,
    ) -> None:  # fmt: skip
        self.memory = memory
        self._index = index
        self._budget = MemoryBudget(memory)
        self._threads = threads or max(1, min(4, os.cpu_count() or 1))
        self._scratch = scratch
        self._sizes = sizes
        self._one_large = threading.Lock()  # small batches share half of the memory; one large batch has the other half

    def run(self, work: RowWork) -> RowResult:
        """Computes the net effect of a batch and writes its files. Errors as in `Engine`."""
        if self._index is None:
            return self._run(work)
        with self._index.at_work():
            result = self._run(work)
        for add in result.adds:
            self._index.want(add, work.target)
        return result

    def _run(self, work: RowWork) -> RowResult:
        written = Written(work.target)
        try:
            with named_errors(work.target.path):
                size = sum(unit.bytes for unit in work.changes)
                long = (work.append_only or not work.target.key_columns) and work.rows > ROWS_A_GROUP
                if size <= self.memory // 8 and not long:
                    with contextlib.suppress(TooMuch):
                        return self._at_once(work, written, self.memory // 8)
                with self._one_large:
                    return self._large(work, written, size)
        except Bad as bad:
            written.remove()
            return RowResult(error=bad.rejected)
        except BaseException:
            written.remove()
            raise

    def rewrite(self, work: RewriteWork) -> Sequence[Action]:
        """Writes the living rows of `work.files` to new files. Returns their `add` actions, with `dataChange` false."""
        with named_errors(work.target.path):
            adds = compact(work, memory=self.memory // 2)
        return [{**add, "dataChange": False} for add in adds]

    def _large(self, work: RowWork, written: Written, size: int) -> RowResult:
        if work.append_only or not work.target.key_columns:
            return RowResult(adds=tuple(self._streamed(work, written, None)))
        if size <= self.memory // 3:
            with contextlib.suppress(TooMuch):
                return self._at_once(work, written, self.memory // 3)
        narrow = self._narrow(work, self.memory // 32)
        scratch = self._scratch or _scratch_of(work.target.path)
        with fold_in_passes(work, narrow, scratch, self.memory // 2) as folded:
            found = look_up_keys(work, folded.deletes, self.memory // 2, self._each, self._index)
            feed = FeedRows.of(work, found, folded.replaced_keys)
            adds = self._streamed(work, written, folded)
            changes: list[Action] = []
            if feed is not None:
                changes = written.keep(write_change_feed(feed.old_rows(), work.target.whole, sizes=self._sizes))
                changes += self._streamed(work, written, folded, feed)
            return self._result(work, adds, changes, found, written)

    def _at_once(self, work: RowWork, written: Written, most_bytes: int) -> RowResult:
        """Runs a batch with all its rows in memory. TooMuch if they need more than `most_bytes`."""
        room = _Room(most_bytes)
        read = list(self._each(lambda units: _read_units(units, work, room, self._budget), _shares(work.changes)))
        if not read:
            return RowResult()
        rows = pa.concat_tables([part for part, _ in read])
        markers = np.concatenate([marker for _, marker in read])
        found: dict[str, np.ndarray] = {}
        if work.append_only or not work.target.key_columns:
            kept, feed, firsts = None, None, np.zeros(0, bool)
        else:
            keys = rows.select(list(work.target.key_columns)).combine_chunks()
            places = fold_places(keys, markers, with_firsts=work.target.feed)
            if len(places.deletes) and work.candidates:
                deletes = keys.take(whole_numbers(places.deletes))
                found = look_up_keys(work, deletes, self.memory // 2, self._each, self._index)
            feed = FeedRows.of(work, found, keys.take(whole_numbers(places.firsts)))
            kept = None if len(places.kept) == rows.num_rows else places.kept
            firsts = np.isin(places.kept, places.firsts, assume_unique=True)
        if kept is not None:
            rows = _taken([part for part, _ in read], kept)
        check_nulls(work, rows, kept)
        step = -(-rows.num_rows // max(file_count(rows.num_rows), 1)) or 1
        slices = [rows.slice(begin, step) for begin in range(0, rows.num_rows, step)]

        def write(part: pa.Table) -> list[Action]:
            return written.keep(write_rows(part.to_batches(), work.target, sizes=self._sizes))

        adds = [add for made in self._each(write, slices) for add in made]
        changes: list[Action] = []
        if feed is not None:
            new = feed.new_rows(rows, firsts).to_batches()
            changes = written.keep(write_change_feed(chain(feed.old_rows(), new), work.target.whole, sizes=self._sizes))
        return self._result(work, adds, changes, found, written)

    def _streamed(
        self, work: RowWork, written: Written, folded: FoldedBatch | None, feed: FeedRows | None = None
    ) -> list[Action]:
        """Reads the changes and writes the kept rows, one stream per thread. With `feed`: to the change data feed."""
        begins = np.cumsum([0, *(unit.rows for unit in work.changes)]).tolist()
        share = -(-work.rows // self._threads)
        groups: list[list[tuple[int, ChangeUnit]]] = []
        for begin, unit in zip(begins, work.changes, strict=False):
            if not groups or (begin >= share * len(groups) and len(groups) < self._threads):
                groups.append([])
            groups[-1].append((begin, unit))

        def write(group: list[tuple[int, ChangeUnit]]) -> list[Action]:
            batches = kept_batches(group, work, self._budget, folded, feed)
            rows = sum(unit.rows for _, unit in group)
            step = -(-rows // max(file_count(rows), 1)) or 1
            writer = write_rows if feed is None else write_change_feed
            return written.keep(writer(batches, work.target, sizes=replace(self._sizes, rows_a_file=step)))

        return [add for made in self._each(write, groups) for add in made]

    def _narrow(self, work: RowWork, at_once: int) -> Iterator[Narrow]:
        """Keys and markers of all changes, in order. A unit with more than about `at_once` bytes is read in parts."""
        begins = np.cumsum([0, *(unit.rows for unit in work.changes)])

        def read(item: tuple[int, ChangeUnit]) -> tuple[Narrow | None, Iterator[Narrow]]:
            parts = _narrow_parts(*item, work, self._budget, at_once)
            return next(parts, None), parts

        for first, others in self._each(read, list(zip(begins.tolist(), work.changes, strict=False))):
            if first is not None:
                yield first
            yield from others

    def _result(
        self,
        work: RowWork,
        adds: Sequence[Action],
        changes: Sequence[Action],
        found: dict[str, np.ndarray],
        written: Written,
    ) -> RowResult:
        target = work.target
        if target.vectors:
            deleted = {path: whole_numbers(rows) for path, rows in found.items()}
            return RowResult(adds=tuple(adds), deleted=deleted, changes=tuple(changes))
        found = only_living(found, work.candidates, target)
        touched = [add for add in work.candidates if add["path"] in found]

        def without(add: Action) -> list[Action]:
            rows = living_rows(add, target.whole, found[add["path"]])
            batches = (batch for part in rows for batch in part.to_batches())
            return written.keep(write_rows(batches, target.whole, sizes=self._sizes))

        again = [add for made in self._each(without, touched) for add in made]
        rewritten = tuple(add["path"] for add in touched)
        return RowResult(adds=(*adds, *again), rewritten=rewritten, changes=tuple(changes))

    def _each(self, act: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
        """The results in the order of the items, with several items at work at once. Raises the first error."""
        if len(items) < 2 or self._threads == 1:
            yield from map(act, items)
            return
        with worker_pool(min(self._threads, len(items)), "rows") as pool:
            at_work = deque(pool.submit(act, item) for item in items[: 2 * self._threads])
            left = iter(items[2 * self._threads :])
            try:
                while at_work:
                    yield at_work.popleft().result()
                    at_work.extend(pool.submit(act, item) for item in _first(left))
            finally:
                for future in at_work:
                    future.cancel()


class _Room:
    """Bytes of rows in memory, shared by threads. `take` raises TooMuch if none are left."""

    def __init__(self, most: int) -> None:
        self._left = most
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        with self._lock:
            self._left -= size
            if self._left < 0:
                raise TooMuch


def _shares(units: Sequence[ChangeUnit]) -> list[list[ChangeUnit]]:
    """The units, in order, in runs that are worth a thread."""
    shares: list[list[ChangeUnit]] = []
    size = _SMALL
    for unit in units:
        if size >= _SMALL:
            shares.append([])
            size = 0
        shares[-1].append(unit)
        size += unit.bytes
    return shares


def _read_units(
    units: Sequence[ChangeUnit], work: RowWork, room: _Room, budget: MemoryBudget
) -> tuple[pa.Table, np.ndarray]:
    """The rows of some units and their markers, in order; those of many small units together in one batch."""
    if len(units) > 1:
        found = read_together(
            units, work.target, append_only=work.append_only, default_marker=work.default_marker, budget=budget
        )
        if found is not None:
            room.take(found.rows.nbytes)
            return pa.Table.from_batches([found.rows]), found.marker
    parts, markers = [], [np.zeros(0, np.int8)]
    for unit in units:
        for changes in changes_of(unit, work, budget, waits=True):
            room.take(changes.rows.nbytes)
            parts.append(changes.rows)
            markers.append(changes.marker)
    if not parts:
        return work_schema(work.target).empty_table(), markers[0]
    rows = pa.Table.from_batches(parts)
    return rows.combine_chunks() if len(units) > 1 else rows, np.concatenate(markers)


def _taken(parts: Sequence[pa.Table], places: np.ndarray) -> pa.Table:
    """The rows at these places (ascending) of all parts together."""
    ends = np.cumsum([part.num_rows for part in parts])
    cut = np.searchsorted(places, ends)
    begins, firsts = [0, *cut[:-1]], ends - [part.num_rows for part in parts]
    return pa.concat_tables(
        part.take(whole_numbers(places[begin:end] - first))
        for part, begin, end, first in zip(parts, begins, cut, firsts, strict=True)
    ).combine_chunks()


def _scratch_of(table: str) -> Path:
    """The folder for keys that do not fit into memory: the table's if it has a local path."""
    return local_path(table) or Path(tempfile.gettempdir())


def _narrow_parts(begin: int, unit: ChangeUnit, work: RowWork, budget: MemoryBudget, at_once: int) -> Iterator[Narrow]:
    keys = list(work.target.key_columns)
    parts: list[pa.Table] = []
    markers: list[np.ndarray] = []
    size = 0
    for changes in changes_of(unit, work, budget, keys):
        parts.append(pa.Table.from_batches([changes.rows]).select(keys))
        markers.append(changes.marker)
        size += changes.rows.nbytes + len(changes.marker)
        if size >= at_once:
            part = Narrow(begin, pa.concat_tables(parts), np.concatenate(markers))
            yield part
            begin, parts, markers, size = begin + len(part.markers), [], [], 0
    if parts:
        yield Narrow(begin, pa.concat_tables(parts), np.concatenate(markers))


def _first(left: Iterator[_Item]) -> Iterable[_Item]:
    for item in left:
        return (item,)
    return ()


__all__ = ["MEMORY", "LocalEngine"]
