"""The Spark engine: units are carried by the tasks of a Spark session, classic or Connect, of PySpark 3.5 or later.

    few keys     as in `pipeline`: tasks read keys ─▶ fold in this process ─▶ tasks look up ─▶ tasks write
    many keys    tasks: read keys of changes and table ─▶ shuffle by bucket ─▶ tasks: fold, join ─▶ tasks: write
    small work   threads of this process: tasks do only what is large
    local mode   keys by threads of this process, spilled if they are many: tasks on the same cores gain nothing

Only keys and positions are shuffled, never complete rows. This process receives only small results: actions, row
numbers, and errors as values. If Spark repeats a task, its files are written twice; only files that a collected result
names are used.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakemirror.delta.statistics import record_count
from lakemirror.engines import unit_kernels
from lakemirror.engines.bad_changes import drop_written
from lakemirror.engines.held_changes import HeldChanges
from lakemirror.engines.kernels.data_rows import work_schema
from lakemirror.engines.kernels.decode import DEFAULT
from lakemirror.engines.kernels.fill_values import FillRequest, Fills
from lakemirror.engines.late_deletes import read_deletes
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.net_effect import NetEffect, combined
from lakemirror.engines.pipeline import Pipeline, TooManyKeys
from lakemirror.engines.row_work import FILE, Action, RewriteWork, RowResult, RowWork, Target
from lakemirror.engines.spark import tasks
from lakemirror.engines.spark.constraints import check_constraints
from lakemirror.engines.spark.jobs import Jobs, Stage
from lakemirror.engines.unit_kernels import Kernel, counted
from lakemirror.engines.units import (
    SMALL_BYTES,
    UNIT_BYTES,
    DataFiles,
    Shared,
    TouchedFile,
    change_units,
    data_units,
    shared_out,
    weight_of,
    without_statistics,
)
from lakemirror.errors import Bad, LakemirrorError, Rejected
from lakemirror.keys.find_keys import Numbered
from lakemirror.keys.key_index import KeyIndex, is_large
from lakemirror.keys.look_up import LATELY_READ, are_kept
from lakemirror.keys.spill import Spill
from lakemirror.keys.wanted_keys import WantedKeys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEYS_BYTES = 48 << 20  # keys that are sent with every look-up task; a Connect message holds at most 128 MB
_BUCKET_BYTES = 64 << 20  # keys that one task folds
_BUCKETS_A_PARTITION = 4  # several buckets per partition make partitions of similar size
_TEXT_WIDTH = 40  # estimated bytes of a text key
_MORE_KEYS = 4  # times so many bytes of the changes' keys are read here: they come here anyway
_FEW_FILES = 64  # the keys of so many small data files are read here as fast as by tasks


class SparkGone(Exception):
    """The connection to Spark is lost. It wraps the error, which is not one of the table's storage."""

    def __init__(self, error: ConnectionError) -> None:
        super().__init__(str(error))
        self.error = error


class SparkEngine(Pipeline):
    """Row work by the tasks of a Spark session.

    `memory`: the bytes that a task may decode at once. `driver_keys`: up to so many bytes of keys are folded in the
    driver, more are shuffled; None: a quarter of `memory`. `few_bytes`: changes, and steps of an apply, of so many
    bytes are done in the driver. `keys_here`: the driver reads, folds and looks up all keys. `index`: the driver looks
    keys up in it before tasks read keys. `interpreter`: as for `Jobs`.
    """

    name = "spark"
    unit_bytes = key_unit_bytes = UNIT_BYTES

    def __init__(
        self, session: SparkSession, memory: int = DEFAULT, *, driver_keys: int | None = None,
        few_bytes: int = SMALL_BYTES, keys_here: bool = False, index: KeyIndex | None = None, interpreter: str = "",
    ) -> None:  # fmt: skip
        super().__init__(memory, index=index)
        self.session = session
        self._jobs = Jobs(session, interpreter)
        self._driver_keys = memory // 4 if driver_keys is None else driver_keys
        if not keys_here:  # more keys than estimated are spilled, and then shuffled
            self.fold_memory = 16 * max(1, self._driver_keys)
        self._few_bytes = few_bytes
        self._keys_here = keys_here
        self._here = LocalEngine(memory)

    @property
    def parallelism(self) -> int:  # type: ignore[override]
        """The number of tasks that run at once."""
        with _spark_may_go():
            return self._jobs.parallelism

    def run(self, work: RowWork) -> RowResult:
        """Computes the net effect of a batch and writes its files. Errors as in `Engine`, and `spark-job-failed`."""
        try:
            return super().run(work)
        except SparkGone as gone:
            raise gone.error from None

    def rewrite(self, work: RewriteWork) -> Sequence[Action]:
        """Writes the live rows of `work.files` to new files. Returns their `add` actions, with `dataChange` false."""
        written: list[Action] = []
        most = max(1, sum(counted(add) for add in work.files))
        shared = Shared(work.target, self.budget, sizes=replace(self.sizes, rows_a_file=most))
        files = [TouchedFile(number, add) for number, add in enumerate(work.files)]
        groups = shared_out(files, max(1, work.into), lambda file: counted(file.add))
        units = [DataFiles(tuple(group)) for group in groups]
        try:
            adds = self.write_units("compact", unit_kernels.write_together, shared, units, written)
        except BaseException as error:
            drop_written(work.target.path, written)
            if isinstance(error, SparkGone):
                raise error.error from None
            raise
        return [{**add, "dataChange": False} for add in adds]

    def each(self, act: Any, items: Sequence[Any]) -> Iterable[Any]:
        """A `map` by threads of this process."""
        return self._here.each(act, items)

    @contextlib.contextmanager
    def held(self, work: RowWork, shared: Shared) -> Iterator[HeldChanges | None]:
        """All changes in memory, while the block runs; None if they are not few, or tasks do more with them than write:
        they check constraints, and read the values of partial rows and of soft deletes, which may be large."""
        is_soft = work.ordering is not None and work.ordering.is_soft
        for_tasks = not self._few_bytes or work.partial or is_soft or work.target.constraints
        yield None if for_tasks else self._here.read_small(work, shared, self._few_bytes)

    def carry(self, step: str, kernel: Kernel, shared: Shared, units: Sequence[Any]) -> Iterator[Any]:
        """The results of the units, in their order. Tasks make them; threads of this process if the units are small."""
        if kernel is unit_kernels.read_keys:
            weight = 0 if self._keys_here else sum(unit.rows for unit in units) * _width_of(shared) // _MORE_KEYS
        else:
            weight = sum(map(weight_of, units))
        if weight <= self._few_bytes and self._few_bytes:
            yield from self._here.carry(step, kernel, shared, units)
            return
        first: Bad | LakemirrorError | None = None
        with _spark_may_go():
            by_unit = self._jobs.run(_named(shared.target, step), Stage(kernel, shared, units))
        for result in chain.from_iterable(by_unit):
            if isinstance(result, Rejected | LakemirrorError):
                first = first or (Bad(result) if isinstance(result, Rejected) else result)
            else:
                yield result
        if first is not None:
            raise first

    def search(self, files: Sequence[Numbered], target: Target, wanted: WantedKeys) -> Iterator[tuple[int, np.ndarray]]:
        """Finds the wanted keys: here where few bytes of keys are read, in the other files by tasks."""
        if wanted.keys.nbytes > _KEYS_BYTES and not self._keys_here:
            raise TooManyKeys
        here = {number for number, _ in files} if self._keys_here else self._read_here(files, target, wanted)
        large = [TouchedFile(*file) for file in files if file[0] not in here]
        if self.index is not None:
            for number, add in files:
                if number not in here or not are_kept(add, target, wanted):
                    self.index.want(add, target)
        units, shared = data_units(large, self.parallelism, in_parts=True), Shared(target, self.budget, wanted=wanted)
        for found in self.carry("look keys up", unit_kernels.find_rows, shared, units):
            yield from found
        yield from self._here.search([file for file in files if file[0] in here], target, wanted) if here else ()

    def _read_here(self, files: Sequence[Numbered], target: Target, wanted: WantedKeys) -> set[int]:
        """The numbers of the files in which this process looks keys up: those whose keys are cached, and the smallest
        of the others. Their keys are then cached, so the next apply reads none of them, and asks no task.
        """
        if not self._few_bytes:
            return set()
        here = {number for number, add in files if are_kept(add, target, wanted)}
        width = _key_width(target)
        rows = sorted((record_count(add) or sys.maxsize, number) for number, add in files if number not in here)
        fits = sum(count for count, _ in rows) * width <= LATELY_READ.most_bytes
        left = self._few_bytes
        for count, number in rows[:_FEW_FILES]:
            left -= count * width
            if left < 0 or (is_large(count) and not fits):
                break
            here.add(number)
        return here

    def search_spilled(self, candidates: Sequence[Action], target: Target, deletes: Spill) -> dict[int, np.ndarray]:
        """As `find_spilled`, or raises TooManyKeys: tasks find them."""
        if self._keys_here:
            return super().search_spilled(candidates, target, deletes)
        raise TooManyKeys

    def fold_apart(self, work: RowWork, shared: Shared, *, must: bool = False) -> NetEffect | None:
        """Folds and joins the keys of changes and table in tasks, by buckets of keys, if they are many."""
        target = work.target
        width = _key_width(target) + 9
        if self._keys_here or (work.rows * width <= self._driver_keys and not must):
            return None
        files = [TouchedFile(number, add) for number, add in enumerate(work.candidates)]
        stages = [
            Stage(unit_kernels.read_keys, shared, change_units(work, None, self.parallelism, self.key_unit_bytes)),
            Stage(tasks.read_table_keys, shared, data_units(files, self.parallelism, in_parts=True)),
        ]
        memory = work.ordering.memory if work.ordering is not None else None
        if memory is not None:
            deletes = [TouchedFile(number, add) for number, add in enumerate(memory.files)]
            stages.append(Stage(read_deletes, shared, data_units(deletes, self.parallelism)))
        size = work.rows * width + sum(counted(add) for add in work.candidates) * (width + 4)
        partitions = max(self.parallelism, -(-size // _BUCKET_BYTES))
        step, buckets = _named(target, "fold keys"), _BUCKETS_A_PARTITION * partitions
        with _spark_may_go():
            results = self._jobs.run_by_bucket(step, stages, buckets, partitions, tasks.fold_buckets, shared)
        self._raise_first(work, shared, results)
        return combined(work, results)

    def fills_of(self, work: RowWork, shared: Shared, held: Any, effect: NetEffect, newest: pa.Table) -> FillRequest:
        """What tasks read for the rows that they write: values are not collected in the driver."""
        needed = set(newest[FILE].unique().to_pylist())
        adds = {number: without_statistics(work.candidates[number]) for number in needed}
        assert effect.partial is not None
        return FillRequest(effect.partial, newest, adds)

    def check_constraints(
        self, work: RowWork, shared: Shared, flags: np.ndarray | None, fills: Fills | FillRequest | None = None
    ) -> None:
        """Raises Bad for the first inserted row that breaks a CHECK constraint or NOT NULL."""
        stage = Stage(tasks.check_rows, shared, change_units(work, flags, self.parallelism, self.unit_bytes, fills))
        with _spark_may_go():
            check_constraints(self._jobs, _named(work.target, "check constraints"), work, stage)

    def _raise_first(self, work: RowWork, shared: Shared, results: Sequence[Any]) -> None:
        """Raises the first error among results that have no order."""
        for result in results:
            if isinstance(result, LakemirrorError):
                raise result
        order = {unit.name: place for place, unit in reversed(list(enumerate(work.changes)))}
        rejected = [result for result in results if isinstance(result, Rejected)]
        if rejected:
            bad = Bad(min(rejected, key=lambda one: (order.get(one.file, 0), one.row or 0)))
            raise self.first_bad(work, shared, bad)


@contextlib.contextmanager
def _spark_may_go() -> Iterator[None]:
    try:
        yield
    except ConnectionError as error:
        raise SparkGone(error) from error


def _key_width(target: Target) -> int:
    """The approximate bytes of a key in Arrow."""
    kinds = [field.type for field in work_schema(target, target.keys)]
    return sum(kind.bit_width // 8 or 1 if _is_fixed(kind) else _TEXT_WIDTH for kind in kinds)


def _width_of(shared: Shared) -> int:
    """The approximate bytes of what is read of a change for the fold: its key, marker and position, and what options
    need.
    """
    sequence = len(shared.ordering.sequence) if shared.ordering is not None else 0
    return _key_width(shared.target) + 9 + _TEXT_WIDTH * (sequence + shared.partial)


def _named(target: Target, step: str) -> str:
    """A job's description for Spark's pages."""
    table = target.path.rstrip("/")
    name = table.rpartition("/Tables/")[2] if "/Tables/" in table else table.rpartition("/")[2]
    return f"lakemirror: {name}: {step}"


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


__all__ = ["SparkEngine"]
