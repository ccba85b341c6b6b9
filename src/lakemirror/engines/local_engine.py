"""The local engine: units are carried by threads of this process, within a memory budget.

Changes that fit into memory are read once. Work that does not fit is done in smaller parts. No batch is refused for
its size.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from lakemirror.engines.bad_changes import named_errors
from lakemirror.engines.held_changes import HeldChanges, TooMuch
from lakemirror.engines.kernels.compact import compact
from lakemirror.engines.kernels.decode import DEFAULT
from lakemirror.engines.kernels.write import ROWS_A_GROUP, SIZES, FileSizes
from lakemirror.engines.pipeline import Pipeline
from lakemirror.engines.row_work import Action, RewriteWork, RowWork, Target
from lakemirror.engines.unit_kernels import Kernel
from lakemirror.engines.units import Shared, is_short, weight_of
from lakemirror.keys.find_keys import Numbered, search_files
from lakemirror.keys.key_index import KeyIndex
from lakemirror.keys.wanted_keys import WantedKeys
from lakemirror.worker_pool import worker_pool

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class LocalEngine(Pipeline):
    """Row work by threads of this process.

    `memory`, `index`, `sizes`: as for `Pipeline`; the memory comes beside what Python and Arrow need
    themselves. `threads`: the most for one batch.
    """

    name = "local"

    def __init__(
        self, memory: int = DEFAULT, *, threads: int | None = None,
        index: KeyIndex | None = None, sizes: FileSizes = SIZES,
    ) -> None:  # fmt: skip
        super().__init__(memory, index=index, sizes=sizes)
        self.parallelism = threads or max(1, min(4, os.cpu_count() or 1))
        self.key_unit_bytes = max(1, memory // 32)
        self._one_large = threading.Lock()  # small batches share half of the memory; one large batch has the other half

    def rewrite(self, work: RewriteWork) -> Sequence[Action]:
        """Writes the live rows of `work.files` to new files. Returns their `add` actions, with `dataChange` false."""
        with named_errors(work.target.path):
            adds = compact(work, memory=self.memory // 2)
        return [{**add, "dataChange": False} for add in adds]

    def spill_folder(self, target: Target) -> Path:
        """As of `UnitCarrier`."""
        return self._scratch_of(target)

    @contextlib.contextmanager
    def held(self, work: RowWork, shared: Shared) -> Iterator[HeldChanges | None]:
        """All changes in memory, while the block runs; None for a large batch, of which only one runs at a time."""
        changes = self.read_small(work, shared, self.memory // 8)
        if changes is not None:
            yield changes
            return
        with self._one_large:
            if not work.append_only and work.target.key_columns:
                changes = self.read_small(work, shared, self.memory // 3)
            yield changes

    def read_small(self, work: RowWork, shared: Shared, most_bytes: int) -> HeldChanges | None:
        """All changes in memory; None if they take more than `most_bytes`, or are many inserts: nothing needs those."""
        inserts = work.append_only or not work.target.key_columns
        if sum(unit.bytes for unit in work.changes) > most_bytes or (inserts and work.rows > ROWS_A_GROUP):
            return None
        with contextlib.suppress(TooMuch):
            return HeldChanges.read(work, shared, most_bytes, self.each)
        return None

    def search(self, files: Sequence[Numbered], target: Target, wanted: WantedKeys) -> Sequence[tuple[int, np.ndarray]]:
        """Finds the wanted keys in data files."""
        return search_files(files, target, wanted, self.memory // 8, self.each, self.index)

    def carry(self, step: str, kernel: Kernel, shared: Shared, units: Sequence[Any]) -> Iterator[Any]:
        """The results of the units, in their order. Threads make the first result of each unit, the caller the rest.

        So a unit with many results never holds them all. Errors as in `Pipeline`.
        """
        failed = len(units)

        def begin(item: tuple[int, Any]) -> tuple[list[Any], Iterator[Any], Exception | None]:
            nonlocal failed
            number, unit = item
            results = kernel(shared, unit) if number < failed else iter(())
            try:
                return list(islice(results, 1)), results, None
            except Exception as error:
                failed = min(failed, number)
                return [], iter(()), error

        first: Exception | None = None
        each = map if len(units) > 1 and is_short(sum(map(weight_of, units)), shared.target) else self.each
        for begun, rest, error in each(begin, list(enumerate(units))):
            first = first or error
            yield from begun
            if first is None:
                yield from rest
        if first is not None:
            raise first

    def each(self, act: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
        """The results in the order of the items, with several items at work at once. Raises the first error."""
        if len(items) < 2 or self.parallelism == 1:
            yield from map(act, items)
            return
        with worker_pool(min(self.parallelism, len(items)), "rows") as pool:
            left = iter(items)
            at_work = deque(pool.submit(act, item) for item in islice(left, 2 * self.parallelism))
            try:
                while at_work:
                    yield at_work.popleft().result()
                    at_work.extend(pool.submit(act, item) for item in islice(left, 1))
            finally:
                for future in at_work:
                    future.cancel()
