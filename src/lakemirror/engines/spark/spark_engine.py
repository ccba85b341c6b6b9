"""The Spark engine: plans the tasks of a batch and combines their results.

    inserts only     change files ─▶ tasks: read, write
    few keys         tasks: read keys ─▶ collect and fold them in the driver ─▶ tasks: look up ─▶ tasks: read, write
    many keys        tasks: read keys of changes and table ─▶ shuffle by bucket ─▶ tasks: fold, join ─▶ read, write

Only keys and positions are shuffled, never complete rows. The driver receives only small results: actions, packed row
numbers, and errors as values. If Spark repeats a task, its files are written twice; only files that a collected result
names are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakemirror.engines.change_rows import Bad, Written, counted, named_errors, work_schema
from lakemirror.engines.fold_passes import FoldedBatch
from lakemirror.engines.kernels.fold import fold_places
from lakemirror.engines.kernels.live_rows import only_living
from lakemirror.engines.memory_budget import DEFAULT
from lakemirror.engines.row_work import MARKER, ROW, Action, RewriteWork, RowResult, RowWork, Target
from lakemirror.engines.spark import tasks
from lakemirror.engines.spark.constraints import broken_constraint
from lakemirror.engines.spark.jobs import Jobs, Stage
from lakemirror.engines.spark.row_numbers import packed, unpacked
from lakemirror.engines.spark.task_values import DataFiles, Failed, Feed, FoldedKeys, FoundRows, Units
from lakemirror.engines.spark.units import data_file_groups, groups_of, split
from lakemirror.errors import Rejected
from lakemirror.keys.key_index import KeyIndex
from lakemirror.keys.key_values import comparable, whole_numbers
from lakemirror.keys.look_up import key_columns, may_hold
from lakemirror.keys.wanted_keys import Sought, is_among

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEYS_BYTES = 48 << 20  # keys that are sent with every look-up task; a Connect message holds at most 128 MB
_BUCKET_BYTES = 64 << 20  # keys that one task folds
_BUCKETS_A_PARTITION = 4  # several buckets per partition make partitions of similar size
_TEXT_WIDTH = 40  # estimated bytes of a text key


@dataclass(frozen=True)
class Effect:
    """The net effect of a batch.

    `flags`: one byte per change, as in `FoldedBatch`. `gone`: by the candidate's number, its deleted rows, and those
    of them that are updates. `living`: True if a living row is deleted.
    """

    flags: np.ndarray
    gone: dict[int, tuple[np.ndarray, np.ndarray]]
    living: bool


class SparkEngine:
    """Row work by the tasks of a Spark session, classic or Connect, of PySpark 3.5 or later.

    `memory`: the bytes that a task may decode at once. `driver_keys`: up to so many bytes of keys are folded in the
    driver, more are shuffled; None: a quarter of `memory`. `index`: the driver looks keys up in it before tasks read
    keys. `interpreter`: as for `Jobs`.
    """

    name = "spark"

    def __init__(
        self, session: SparkSession, memory: int = DEFAULT, *, driver_keys: int | None = None,
        index: KeyIndex | None = None, interpreter: str = "",
    ) -> None:  # fmt: skip
        self.session = session
        self._index = index
        self._jobs = Jobs(session, interpreter)
        self._memory = memory
        self._driver_keys = memory // 4 if driver_keys is None else driver_keys

    def run(self, work: RowWork) -> RowResult:
        """Computes the net effect of a batch and writes its files. Errors as in `Engine`, and `spark-job-failed`."""
        if self._index is None:
            return self._written(work)
        with self._index.at_work():
            result = self._written(work)
        for add in result.adds:
            self._index.want(add, work.target)
        return result

    def _written(self, work: RowWork) -> RowResult:
        written = Written(work.target)
        try:
            with named_errors(work.target.path):
                changes = tuple(part for unit in work.changes for part in split(unit))
            return self._run(replace(work, changes=changes), written)
        except Bad as bad:
            written.remove()
            return RowResult(error=bad.rejected)
        except BaseException:
            written.remove()
            raise

    def rewrite(self, work: RewriteWork) -> Sequence[Action]:
        """Writes the living rows of `work.files` to new files. Returns their `add` actions, with `dataChange` false."""
        written = Written(work.target)
        most = max(1, sum(counted(add) for add in work.files))
        units = data_file_groups(work.files, max(1, work.into), weight=counted)
        stage = Stage("write_together", (work.target, most), units)
        try:
            return [{**add, "dataChange": False} for add in self._write(work.target, "compact", stage, written)]
        except BaseException:
            written.remove()
            raise

    def _run(self, work: RowWork, written: Written) -> RowResult:
        target = work.target
        effect = None
        if not work.append_only and target.key_columns:
            effect = self._effect(work)
        units = self._units(work, effect)
        head = (replace(work, changes=(), candidates=()), self._memory)
        broken = broken_constraint(
            self._jobs, _named(target, "check constraints"), work, Stage("check_rows", head, units)
        )
        if broken is not None:
            raise Bad(broken)
        adds = self._write(target, "write rows", Stage("write_kept", head, units), written)
        if effect is None or not effect.gone:
            return RowResult(adds=tuple(adds))
        if not target.vectors:
            effect = _of_living(work, effect)
        touched = self._files(work, effect)
        changes: list[Action] = []
        if target.feed and effect.living:
            changes += self._write(
                target, "write old rows to the change feed", Stage("write_old", target.whole, touched), written
            )
            feed = [replace(unit, to_feed=True) for unit in units]
            changes += self._write(target, "write rows to the change feed", Stage("write_kept", head, feed), written)
        paths = {number: work.candidates[number]["path"] for number in effect.gone}
        if target.vectors:
            deleted = {paths[number]: whole_numbers(rows) for number, (rows, _) in effect.gone.items()}
            return RowResult(adds=tuple(adds), deleted=deleted, changes=tuple(changes))
        adds += self._write(
            target, "write files without deleted rows", Stage("write_without", target.whole, touched), written
        )
        return RowResult(adds=tuple(adds), rewritten=tuple(paths.values()), changes=tuple(changes))

    # the net effect

    def _effect(self, work: RowWork) -> Effect:
        width = _key_width(work.target) + 9
        if work.rows * width <= self._driver_keys:
            folded = self._folded_here(work)
            if folded is not None:
                return folded
        return self._folded_by_bucket(work, width)

    def _folded_here(self, work: RowWork) -> Effect | None:
        """Collects the keys and folds them in the driver. None if there are too many deleted keys for one task."""
        target = work.target
        stage = Stage("read_keys", (replace(work, changes=(), candidates=()), self._memory), self._units(work, None))
        found = self._jobs.run(_named(target, "read keys"), stage)
        self._raise_first(work, (each for unit in found for each in unit))
        parts = [tasks.unstream(each) for unit in found for each in unit]
        flags = np.zeros(work.rows, np.uint8)
        if not parts:
            return Effect(flags, {}, False)
        narrow = pa.concat_tables(parts)
        keys = narrow.select(list(target.key_columns)).combine_chunks()
        places = np.asarray(narrow[ROW].combine_chunks())
        net = fold_places(keys, np.asarray(narrow[MARKER].combine_chunks()), with_firsts=target.feed)
        flags[places[net.kept]] = FoldedBatch.KEPT
        deletes = keys.take(whole_numbers(net.deletes)).cast(work_schema(target, key_columns(target)))
        if not deletes.num_rows or not work.candidates:
            return Effect(flags, {}, False)
        if deletes.nbytes > _KEYS_BYTES:
            return None
        firsts = keys.take(whole_numbers(net.firsts))
        rows = self._look_up(work, deletes, firsts)
        gone = _merged(rows)
        had = [tasks.unstream(each.had) for each in rows if each.had]
        if had:
            updates = is_among(comparable(firsts), comparable(pa.concat_tables(had)))
            flags[places[net.firsts[updates]]] = FoldedBatch.FIRST
        return Effect(flags, gone, bool(had))

    def _look_up(self, work: RowWork, deletes: pa.Table, firsts: pa.Table) -> list[FoundRows]:
        target, sought = work.target, Sought(deletes)
        chosen = [(number, add) for number, add in enumerate(work.candidates) if may_hold(add, target, sought)]
        indexed, chosen = self._indexed(work, chosen, sought)
        if not chosen:
            return indexed
        units = self._key_files(chosen)
        feed = Feed(tasks.stream(firsts)) if target.feed else None
        found = self._jobs.run(
            _named(target, "look keys up"), Stage("find_rows", (target, tasks.stream(deletes), feed), units)
        )
        results = [each for unit in found for each in unit]
        self._raise_first(work, results)
        return indexed + results

    def _indexed(
        self, work: RowWork, chosen: list[tuple[int, Action]], sought: Sought
    ) -> tuple[list[FoundRows], list[tuple[int, Action]]]:
        """The rows found in the key index, and the data files whose keys must still be read.

        With a change data feed, all data files are read, because it needs more than the row numbers.
        """
        if self._index is None or work.target.feed:
            return [], chosen
        try:
            found = self._index.find_in([add for _, add in chosen], work.target, sought)
        except (OSError, ValueError, pa.ArrowException):  # the tasks report what is wrong with a data file
            return [], chosen
        known, left = [], []
        for (number, add), rows in zip(chosen, found, strict=True):
            if rows is None:
                left.append((number, add))
                self._index.want(add, work.target)
            elif len(rows):
                known.append(FoundRows(number, packed(rows)))
        return known, left

    def _folded_by_bucket(self, work: RowWork, width: int) -> Effect:
        """Folds and joins the keys of changes and table in tasks, by buckets of keys."""
        target = work.target
        head = (replace(work, changes=(), candidates=()), self._memory)
        stages = [
            Stage("bucket_keys", head, self._units(work, None)),
            Stage("bucket_rows", target, self._key_files(list(enumerate(work.candidates)))),
        ]
        size = work.rows * width + sum(counted(add) for add in work.candidates) * (width + 4)
        partitions = max(self._jobs.parallelism, -(-size // _BUCKET_BYTES))
        buckets = _BUCKETS_A_PARTITION * partitions
        results = self._jobs.run_by_bucket(
            _named(target, "fold keys"), stages, buckets, partitions, "fold_buckets", target
        )
        self._raise_first(work, results)
        folded: list[FoldedKeys] = results
        flags = np.full(work.rows, FoldedBatch.KEPT, np.uint8)
        for each in folded:
            flags[unpacked(each.dropped)] = 0
            flags[unpacked(each.firsts)] = FoldedBatch.FIRST
        gone = _merged([rows for each in folded for rows in each.found])
        return Effect(flags, gone, any(each.living for each in folded))

    def _raise_first(self, work: RowWork, results: Iterable[Any]) -> None:
        """Raises the error of the first bad row, if there is one.

        Tasks that read only keys do not see errors in other columns. So the files up to the first known bad row are
        read again with all columns.
        """
        wrong = _bad_rows(results)
        if not wrong:
            return
        order = {unit.name: place for place, unit in reversed(list(enumerate(work.changes)))}
        first = min(wrong, key=lambda bad: (order.get(bad.file, 0), bad.row or 0))
        last = max(place for place, unit in enumerate(work.changes) if unit.name == first.file)
        before = replace(work, changes=work.changes[: last + 1])
        head = (replace(work, changes=(), candidates=()), self._memory)
        found = self._jobs.run(
            _named(work.target, "find the first bad row"), Stage("read_rows", head, self._units(before, None))
        )
        raise Bad(next(iter(_bad_rows(each for unit in found for each in unit)), first))

    # units

    def _units(self, work: RowWork, effect: Effect | None) -> list[Units]:
        result, begin = [], 0
        for group in groups_of(work.changes, self._jobs.parallelism, weight=lambda unit: unit.bytes + unit.rows):
            rows = sum(unit.rows for unit in group)
            flags = None if effect is None else effect.flags[begin : begin + rows]
            dropped = firsts = None
            if flags is not None and not flags.all():
                dropped = packed(np.flatnonzero(flags == 0))
            if flags is not None and work.target.feed:
                dropped = dropped or packed(np.zeros(0, np.int64))
                firsts = packed(np.flatnonzero(flags == FoldedBatch.FIRST))
            result.append(Units(begin, tuple(group), dropped, firsts))
            begin += rows
        return result

    def _key_files(self, files: Sequence[tuple[int, Action]]) -> list[DataFiles]:
        """The data files whose keys are read, as units: small files together, large files in parts."""
        parallelism = self._jobs.parallelism
        found: list[DataFiles] = []
        for group in groups_of(files, parallelism, weight=lambda item: int(item[1].get("size") or 0)):
            items = tuple((number, _without_statistics(add), b"", b"") for number, add in group)
            parts = -(-int(group[0][1].get("size") or 0) // (256 << 20)) if len(group) == 1 else 1
            found += [DataFiles(items, part, parts) for part in range(max(1, parts))]
        return found

    def _files(self, work: RowWork, effect: Effect) -> list[DataFiles]:
        """The candidates with deleted rows, and these rows, as units."""
        touched = [
            (number, _without_statistics(work.candidates[number]), packed(rows), packed(updated))
            for number, (rows, updated) in sorted(effect.gone.items())
        ]
        groups = groups_of(touched, self._jobs.parallelism, weight=lambda item: int(item[1].get("size") or 0))
        return [DataFiles(tuple(group)) for group in groups]

    # jobs that write

    def _write(self, target: Target, step: str, stage: Stage, written: Written) -> list[Action]:
        """Runs a stage that writes files. Returns their actions, or raises the first error."""
        results = [each for unit in self._jobs.run(_named(target, step), stage) for each in unit]
        actions: list[Action] = []
        for each in results:
            if not isinstance(each, Rejected | Failed):
                actions += written.keep(each)
        for bad in _bad_rows(results):
            raise Bad(bad)
        return actions


def _bad_rows(results: Iterable[Any]) -> list[Rejected]:
    """The bad rows among results. Raises the error of a task that failed."""
    bad: list[Rejected] = []
    for each in results:
        if isinstance(each, Failed):
            raise each.error()
        if isinstance(each, Rejected):
            bad.append(each)
    return bad


def _without_statistics(add: Action) -> Action:
    """An `add` action without its statistics, which only the driver needs."""
    return {name: value for name, value in add.items() if name != "stats"}


def _merged(found: Iterable[FoundRows]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Row numbers (ascending) by candidate, from all tasks together."""
    rows: dict[int, list[np.ndarray]] = {}
    updated: dict[int, list[np.ndarray]] = {}
    for each in found:
        rows.setdefault(each.number, []).append(unpacked(each.rows))
        if each.updated:
            updated.setdefault(each.number, []).append(unpacked(each.updated))
    none = [np.zeros(0, np.int64)]
    return {
        number: (np.sort(np.concatenate(parts)), np.sort(np.concatenate(updated.get(number, none))))
        for number, parts in rows.items()
    }


def _of_living(work: RowWork, effect: Effect) -> Effect:
    """The effect without rows that are already deleted."""
    rows = {work.candidates[number]["path"]: rows for number, (rows, _) in effect.gone.items()}
    living = only_living(rows, work.candidates, work.target)
    paths = {number: work.candidates[number]["path"] for number in effect.gone}
    return replace(effect, gone={n: (living[path], effect.gone[n][1]) for n, path in paths.items() if path in living})


def _key_width(target: Target) -> int:
    """The approximate bytes of a key in Arrow."""
    kinds = [field.type for field in work_schema(target, key_columns(target))]
    return sum(kind.bit_width // 8 or 1 if _is_fixed(kind) else _TEXT_WIDTH for kind in kinds)


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _named(target: Target, step: str) -> str:
    """A job's description for Spark's pages."""
    table = target.path.rstrip("/")
    name = table.rpartition("/Tables/")[2] if "/Tables/" in table else table.rpartition("/")[2]
    return f"lakemirror: {name}: {step}"


__all__ = ["SparkEngine"]
