"""The row work of a table of versions, for every engine (history.md, section 3).

    held in memory    changes ─▶ `changed_versions` ─▶ write open and closed versions, delete what they replace
    more              one unit for each bucket of keys (`version_buckets.py`), which does the same

Open and closed versions are written to files of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakemirror.engines import unit_kernels
from lakemirror.engines.bad_changes import drop_written
from lakemirror.engines.held_changes import HeldChanges, slices
from lakemirror.engines.kernels.data_rows import work_schema
from lakemirror.engines.kernels.live_rows import chosen_rows, live_of
from lakemirror.engines.kernels.read import read_changes
from lakemirror.engines.kernels.version_rows import Changed
from lakemirror.engines.kernels.write import write_change_feed, write_rows
from lakemirror.engines.row_work import (
    FILE,
    ROW,
    Action,
    ChangeUnit,
    HistoryWork,
    Ordering,
    RowResult,
    RowWork,
    Target,
    TargetColumn,
)
from lakemirror.engines.unit_carrier import UnitCarrier
from lakemirror.engines.unit_kernels import typed
from lakemirror.engines.units import ChangeFiles, DataFiles, Shared, TouchedFile, change_units, data_units
from lakemirror.engines.version_buckets import VersionBucket, changes_of_bucket, in_memory, version_buckets
from lakemirror.engines.versions import ChangedVersions, Look, changed_versions
from lakemirror.keys.find_keys import find_keys, search_files
from lakemirror.keys.key_values import whole_numbers
from lakemirror.keys.row_copies import ROWS_AT_ONCE
from lakemirror.landing_zone.reserved_columns import SOURCE_TIME, START_AT

_FARTHEST = 1 << 62  # microseconds, 146,000 years: times beyond it leave no room for later versions
_UNITS = 4  # for each thread: how long a data file takes depends on its rows, copies and deletion vector


@dataclass(frozen=True, eq=False)
class Written:
    """What was done for some keys. `deleted`: rows that go, by the number of their file. `beyond`: as of
    `ChangedVersions`."""

    adds: list[Action] = field(default_factory=list)
    changes: list[Action] = field(default_factory=list)
    deleted: Mapping[int, np.ndarray] = field(default_factory=dict)
    beyond: int = 0


def write_versions(
    engine: UnitCarrier, work: RowWork, shared: Shared, held: HeldChanges | None, written: list[Action]
) -> RowResult:
    """Writes the versions that a batch changes. `shared`: with the table of versions as its target."""
    if held is not None:
        changes = Changed(held.rows(None), held.markers, held.names, _times(engine, work, shared))
        its = changed_versions(*_table(work), changes, look_by(engine, shared))
        open_ones, kernel = slices(its.rows.open), unit_kernels.write_held
        units = [*open_ones, *slices(its.rows.closed)]
        adds = engine.write_units("write versions", kernel, shared, units, written, len(open_ones))
        feed = write_feed(shared, its) if work.target.feed and len(its.rows.removed) else []
        written += feed
        done = [Written(adds, feed, its.deleted, its.beyond)]
    else:
        done = []
        with version_buckets(engine, work, _with_times(shared, work), shared.target) as buckets:
            for each in engine.carry("write versions", write_bucket, shared, buckets):
                written += [*each.adds, *each.changes]
                done.append(each)
    return _result(engine, work, shared, done, written)


@in_memory
def write_bucket(shared: Shared, unit: VersionBucket) -> Iterator[Written]:
    """Writes the versions of one bucket of keys."""
    work = unit.work
    changes = _changes_of_bucket(shared, unit)
    if not len(changes.markers):
        yield Written()
        return
    its = changed_versions(*_table(work), changes, look_here(shared, unit))
    adds: list[Action] = []
    try:
        for rows in (its.rows.open, its.rows.closed):
            adds += write_rows(rows.to_batches(), shared.target, sizes=shared.sizes)
        feed = write_feed(shared, its) if work.target.feed else []
    except BaseException:
        drop_written(shared.target.path, adds)
        raise
    yield Written(adds, feed, its.deleted, its.beyond)


def read_versions(shared: Shared, unit: DataFiles) -> Iterator[list[tuple[int, np.ndarray, pa.Table]]]:
    """Of each data file its number, and the live ones of the chosen rows: their numbers, and all columns."""
    found = []
    for file in unit.files:
        live = live_of(file.add, shared.target, file.deleted)
        if len(live):
            columns = [column for column in shared.target.columns if column.stored]
            parts = list(chosen_rows(file.add, shared.target, live, columns))
            found.append((file.number, live, pa.concat_tables(parts)))
    yield found


def _table(work: RowWork) -> tuple[Target, Any, Sequence[Action]]:
    assert work.history is not None and work.history.versioning is not None
    return work.target, work.history.versioning, work.candidates


def look_by(engine: UnitCarrier, shared: Shared) -> Look:
    """Finds and reads rows with the units of an engine."""

    def look(target: Target, files: Sequence[Action], keys: pa.Table) -> list[tuple[int, np.ndarray, pa.Table]]:
        found = find_keys(files, target, keys, engine.search, engine.each, engine.index)
        touched = [TouchedFile(number, files[number], found[number]) for number in sorted(found)]
        units = units_of_rows(engine, target, touched, _UNITS * engine.parallelism)
        results = engine.carry("read versions", read_versions, shared._replace(target=target), units)
        return [one for result in results for one in result]

    return look


def units_of_rows(engine: UnitCarrier, target: Target, files: Sequence[TouchedFile], count: int) -> list[DataFiles]:
    """Units that read rows of data files, about `count`; one if they are few and have copies or are in memory: threads
    that read those mostly wait for each other."""
    index, few = engine.index, sum(len(file.deleted) for file in files) <= ROWS_AT_ONCE
    if index is not None and few and all(index.rows.are_read(file.add, target) for file in files):
        count = 1
    return data_units(files, count)


def look_here(shared: Shared, unit: VersionBucket | None = None) -> Look:
    """Finds and reads rows in this thread. `unit`: has the index of keys, and room for them, of this process."""
    room, index = (0, None) if unit is None else (unit.room, unit.index)

    def look(target: Target, files: Sequence[Action], keys: pa.Table) -> list[tuple[int, np.ndarray, pa.Table]]:
        def search(chosen: Any, its: Target, wanted: Any) -> list[tuple[int, np.ndarray]]:
            return search_files(chosen, its, wanted, room, map, index)

        found = find_keys(files, target, keys, search, map, index)
        touched = tuple(TouchedFile(number, files[number], found[number]) for number in sorted(found))
        (result,) = read_versions(shared._replace(target=target), DataFiles(touched))
        return result

    return look


def _changes_of_bucket(shared: Shared, unit: VersionBucket) -> Changed:
    """The changes of a bucket, in order."""
    work = unit.work
    reading, moments = _with_times(shared, work), _moments(work.history, work.changes)
    rows, markers, names, times = [work_schema(shared.target.sources).empty_table()], [np.zeros(0, np.int8)], [], []
    for file, its, _ in changes_of_bucket(reading, unit, shared.target):
        rows.append(its.rows.select(rows[0].column_names))
        markers.append(its.markers)
        names.append(its.names)
        times.append(_times_of(its.rows, moments[file.name]))
    partial = pa.chunked_array(names, pa.string()) if work.partial else None
    return Changed(
        pa.concat_tables(rows), np.concatenate(markers), partial, np.concatenate([*times, np.zeros(0, np.int64)])
    )  # fmt: skip


def read_times(shared: Shared, unit: ChangeFiles) -> Iterator[np.ndarray]:
    """The source's time of each change, in microseconds since the epoch."""
    assert shared.history is not None
    moments = _moments(shared.history, unit.files)
    times = [np.zeros(0, np.int64)]
    for file in unit.files:
        for changes in read_changes(file, shared, columns=[START_AT]):
            times.append(_times_of(pa.Table.from_batches([changes.rows]), moments[file.name]))
    yield np.concatenate(times)


def _with_times(shared: Shared, work: RowWork) -> Shared:
    """To read change files, with the source's times as `__START_AT` where they matter."""
    assert work.history is not None and work.history.versioning is not None
    target = shared.target.sources
    has_times = any(column.name == SOURCE_TIME for unit in work.changes for column in unit.columns)
    if has_times and not work.history.versioning.sequence:
        target = replace(target, columns=(*target.columns, TargetColumn(START_AT, START_AT, "timestamp")))
    return shared._replace(target=target, ordering=Ordering())


def _times(engine: UnitCarrier, work: RowWork, shared: Shared) -> np.ndarray:
    """The time of each change where there is no sequence: the source's, else its file's."""
    reading, moments = _with_times(shared, work), _moments(work.history, work.changes)
    if all(column.name != START_AT for column in reading.target.columns):
        return np.repeat([moments[unit.name] for unit in work.changes], [unit.rows for unit in work.changes])
    units = change_units(work, None, engine.parallelism, sys.maxsize)
    return np.concatenate(list(engine.carry("read times", read_times, reading, units)))


def _times_of(rows: pa.Table, moment: int) -> np.ndarray:
    if START_AT not in rows.column_names:
        return np.full(rows.num_rows, moment)
    times = rows[START_AT].combine_chunks().cast(pa.int64()).fill_null(moment)
    return np.asarray(times).clip(-_FARTHEST, _FARTHEST)


def _moments(history: HistoryWork | None, files: Sequence[ChangeUnit]) -> dict[str, int]:
    """When each change file was written, in microseconds since the epoch."""
    assert history is not None and history.versioning is not None
    known = dict(history.versioning.modified)
    return {unit.name: known.get(unit.name, history.applied_at) for unit in files}


def write_feed(shared: Shared, its: ChangedVersions) -> list[Action]:
    """Writes the change data feed: what goes and what comes, of one version as an update."""
    rows, target = its.rows, shared.target.whole
    new = pa.concat_tables([rows.open, rows.closed])
    old = its.known.drop_columns([FILE, ROW]).take(whole_numbers(rows.removed))
    batches = [
        *typed(old, rows.replaced, "update_preimage", "delete"),
        *typed(new, rows.replacing, "update_postimage", "insert"),
    ]
    return write_change_feed(batches, target, sizes=shared.sizes)


def _result(
    engine: UnitCarrier, work: RowWork, shared: Shared, done: Sequence[Written], written: list[Action]
) -> RowResult:
    """What was done for all keys. In a table without deletion vectors, files are written without the rows that go."""
    gone: dict[int, list[np.ndarray]] = {}
    for each in done:
        for number, rows in each.deleted.items():
            gone.setdefault(number, []).append(rows)
    deleted = {number: np.sort(np.concatenate(parts), kind="stable") for number, parts in gone.items()}  # some runs
    adds = [add for each in done for add in each.adds]
    changes = tuple(change for each in done for change in each.changes)
    beyond = sum(each.beyond for each in done)
    if work.target.vectors:
        by_path = {work.candidates[number]["path"]: whole_numbers(rows) for number, rows in deleted.items()}
        return RowResult(adds=tuple(adds), deleted=by_path, changes=changes, beyond=beyond)
    touched = [TouchedFile(number, work.candidates[number], deleted[number]) for number in sorted(deleted)]
    step, units = "write files without deleted rows", data_units(touched, engine.parallelism)
    older = engine.write_units(step, unit_kernels.write_without, shared, units, written)
    paths = tuple(file.add["path"] for file in touched)
    return RowResult(adds=(*older, *adds), rewritten=paths, changes=changes, beyond=beyond)
