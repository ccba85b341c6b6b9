"""The archived files as the other side of a comparison, for the mirrored table and for its history tables.

archived files ─▶ changes ┬▶ hashes, folded as they are compared (a table without options)
                          ├▶ each change as a row (a table of changes, or those that are remembered)
                          └▶ buckets by key ─▶ the rows that must be there (deletes, order and versions)
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lakemirror.landing_zone.metadata import TableMetadata
from lakemirror.landing_zone.row_markers import DELETE, INSERT, UPDATE, UPSERT
from lakemirror.landing_zone.table_options import CHANGES, IGNORE, LATE, HistoryOptions
from lakemirror.storage import Storage
from lakemirror.verify import archived_files
from lakemirror.verify.archived_files import AppliedFile, Changes, NotComparable
from lakemirror.verify.columns import TableColumn
from lakemirror.verify.comparison import Compared, Side, choose
from lakemirror.verify.expected_rows import (
    DELETED,
    DELETED_AT,
    END_AT,
    MARK,
    PLACE,
    START_AT,
    TIME,
    Memory,
    current_rows,
    version_rows,
    with_left_out,
)
from lakemirror.verify.option_phases import FILE_BITS, Phase, fewest_late_days, phases_of
from lakemirror.verify.row_hashes import row_hashes
from lakemirror.verify.row_store import RowStore, buckets_for

NAME = "the archived files"
_OPERATIONS = {INSERT: "insert", UPDATE: "update", DELETE: "delete", UPSERT: "upsert"}
_OURS = frozenset(
    {"__operation", "__file", "__row", "__applied_at", "__unchanged", "__deleted", "__deleted_at", START_AT, END_AT}
)
_BUCKET = 5  # the seed of a hash
_ROWS_AT_ONCE = 64 * 1024
_DAY = 86_400_000_000  # microseconds
_APPLY = 3_600_000_000  # so long an apply may take


@dataclass(frozen=True)
class Archive:
    """The applied files of a table folder, in order, and the table that is compared with them.

    `properties`: those of the table. `rows`: so many changes at least. `history`: None for the mirrored table.
    `living`: reads the rows of the table. `applied`: when each file was applied, in microseconds since the epoch.
    """

    storage: Storage
    metadata: TableMetadata
    files: Sequence[AppliedFile]
    columns: tuple[TableColumn, ...]
    properties: Mapping[str, str]
    keys: tuple[str, ...]
    rows: int
    applied: Sequence[int]
    history: HistoryOptions | None = None
    living: Callable[[], Iterator[pa.RecordBatch]] = lambda: iter(())

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """By which options the files were applied. NotComparable where that is not known."""
        spelled = {column.name.lower(): column.name for column in self.columns}
        in_order = not self.metadata.partitioned and not archived_files.is_any_order(self.metadata)
        return phases_of(self.properties, self.files, self.keys, spelled, in_order=in_order)

    @property
    def has_partial_rows(self) -> bool:
        return archived_files.has_partial_rows(self.storage, self.files, self.metadata)

    def phase_of(self, index: int) -> Phase:
        return next(phase for phase in self.phases if index << FILE_BITS < phase.end)

    def changes_of(self, index: int, columns: Sequence[TableColumn]) -> Iterator[Changes]:
        metadata = replace(self.metadata, upsert_by_default=self.phase_of(index).meaning.upsert_by_default)
        return archived_files.read_changes(self.storage, index, self.files[index], metadata, columns)

    def each(self, threads: int, action: Callable[[int], None]) -> None:
        """Calls the action for each file, in threads."""
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(action, range(len(self.files))):
                pass


def archive_side(archive: Archive, note: Callable[[str], None], again: Callable[[], Side | None]) -> Side:
    """The side. `note`: takes what is not compared. `again`: as in `Side`. NotComparable, with the reason."""
    sources = tuple(column for column in archive.columns if column.name not in _OURS)
    left_out = archived_files.not_compared(archive.storage, archive.files, archive.metadata, sources)
    for column, why in left_out.items():
        note(f"column {column!r} is not compared with {NAME}: {why}")
    mode = archive.history.mode if archive.history is not None else ""
    lower = {name.lower() for name in left_out}
    for key in lower & {key.lower() for key in archive.keys if mode not in (CHANGES, LATE)}:
        raise NotComparable(f"which changes have one key depends on column {key!r}")
    phases = archive.phases  # NotComparable before anything is read
    if mode in (CHANGES, LATE):
        return _log_side(archive, left_out, again)
    if archive.history is None and all(phase.meaning.is_plain for phase in phases):
        return _folded_side(archive, left_out, again)
    return _expected_side(archive, left_out, note, again)


def _folded_side(archive: Archive, left_out: Iterable[str], again: Callable[[], Side | None]) -> Side:
    """The changes as they are, to be folded by their hashes."""
    compared = _chosen(archive, left_out)
    partial = archive.has_partial_rows

    def fill(store: RowStore, threads: int) -> None:
        def take(index: int) -> None:
            for part in archive.changes_of(index, compared.columns):
                more = compared.parts(part.rows, part.left_out) if partial else ()
                compared.take(store, part.rows, part.places, part.markers, *more)

        archive.each(threads, take)

    def read() -> Iterator[pa.RecordBatch]:
        for index in range(len(archive.files)):
            for part in archive.changes_of(index, compared.columns):
                yield part.rows

    any_order = archived_files.is_any_order(archive.metadata)
    return Side(NAME, compared, buckets_for(archive.rows), fill, read, True, any_order, again, partial)


def _log_side(archive: Archive, left_out: Iterable[str], again: Callable[[], Side | None]) -> Side:
    """Each change as a row of a table of changes, or those that a table remembers for late ones."""
    is_late = archive.history is not None and archive.history.mode == LATE
    without = [*left_out, "__applied_at", "__unchanged"]
    if is_late:
        if archive.metadata.partitioned or archived_files.is_any_order(archive.metadata):
            raise NotComparable("the archive does not show in which order the files came")
        without += [DELETED_AT, *_completed_columns(archive)]
        known = [_remembered_of(archive, archive.phase_of(index)) for index in range(len(archive.files))]
    given = choose(archive.columns, (), without).columns
    compared = Compared(given, ("__file", "__row"))
    sources = tuple(column for column in given if column.name not in _OURS)
    remembered = _places(archive.living()) if is_late else None

    def rows_of(index: int) -> Iterator[pa.RecordBatch]:
        file = archive.files[index]
        for part in archive.changes_of(index, sources):
            count = part.rows.num_rows
            held = dict(zip(part.rows.schema.names, part.rows.columns, strict=True))
            held["__operation"] = pa.array([_OPERATIONS[marker] for marker in part.markers.tolist()], pa.string())
            rows = (part.places & np.uint64((1 << 40) - 1)).astype(np.int64)
            held["__row"] = pa.array(rows)
            if remembered is None:
                held["__file"] = pa.array([file.below] * count, pa.string())
                yield pa.RecordBatch.from_pydict(held)
                continue
            names, markers = known[index]
            for name in held.keys() & {column.name for column in sources} - names:
                held[name] = pa.nulls(count, held[name].type)
            held["__file"] = pa.array(np.full(count, file.number))
            chosen = np.isin((file.number << 40) + rows, remembered) & np.isin(part.markers, markers)
            yield pa.RecordBatch.from_pydict(held).filter(pa.array(chosen))

    def fill(store: RowStore, threads: int) -> None:
        def take(index: int) -> None:
            for batch in rows_of(index):
                compared.take(store, batch)

        archive.each(threads, take)

    def read() -> Iterator[pa.RecordBatch]:
        for index in range(len(archive.files)):
            yield from rows_of(index)

    return Side(NAME, compared, buckets_for(archive.rows), fill, read, again=again)


def _completed_columns(archive: Archive) -> list[str]:
    """The columns of remembered changes that may have values from elsewhere: all but those of key and sequence."""
    if not archive.has_partial_rows:
        return []
    own = set.intersection(*({*phase.meaning.keys, *phase.meaning.sequence} for phase in archive.phases))
    return [column.name for column in archive.columns if column.name not in {*_OURS, *own}]


def _remembered_of(archive: Archive, phase: Phase) -> tuple[set[str], tuple[int, ...]]:
    """Which columns of a file are remembered, of changes with which markers."""
    columns = {column.name for column in archive.columns} if phase.remembered is None else {*phase.remembered}
    if not phase.meaning.versions:
        return columns, (DELETE,)
    events = (INSERT, UPDATE, UPSERT)
    return columns, events if phase.meaning.deletes == IGNORE else (*events, DELETE)


def _places(batches: Iterator[pa.RecordBatch]) -> np.ndarray[Any, Any]:
    """The changes that a table remembers: number of the file and row in it, as one number each."""
    if_none = [np.zeros(0, np.int64)]
    found = [(np.asarray(each["__file"]).astype(np.int64) << 40) + np.asarray(each["__row"]) for each in batches]
    return np.unique(np.concatenate(if_none + found))


def _expected_side(
    archive: Archive, left_out: dict[str, str], note: Callable[[str], None], again: Callable[[], Side | None]
) -> Side:
    """The rows that must be there, computed from all changes of their keys."""
    if archived_files.is_any_order(archive.metadata):
        raise NotComparable("the archive does not show in which order the files came")
    phases, partial = archive.phases, archive.has_partial_rows
    depends = {name for phase in phases for name in (*phase.meaning.sequence, *phase.meaning.track)}
    if archive.history is not None and not all(phase.meaning.track for phase in phases):
        depends |= left_out.keys()
    for name in sorted(depends & left_out.keys()):
        raise NotComparable(f"the rows depend on column {name!r}, which is not compared")
    is_versions, marks_deleted = archive.history is not None, any(each.name == DELETED for each in archive.columns)
    if is_versions and partial and len({phase.meaning.is_soft for phase in phases}) > 1:
        raise NotComparable("what partial rows leave out depends on deletes, which were soft for some files only")
    timeless: tuple[str, ...] = (
        () if archived_files.has_all_times(archive.storage, archive.files, archive.metadata) else (DELETED_AT,)
    )
    if timeless and is_versions:
        timeless = () if phases[-1].meaning.sequence else (START_AT, END_AT)
    for name in timeless:
        if any(column.name == name for column in archive.columns):
            note(f"column {name!r} is not compared with {NAME}: they do not keep the time of every change")
    compared = _chosen(archive, [*left_out, *timeless])
    memory = Memory(np.array(archive.applied, np.int64), fewest_late_days(archive.properties) * _DAY - _APPLY)

    def read(threads: int = 1) -> Iterator[pa.RecordBatch]:
        with _KeyBuckets(archive, phases[-1].meaning.keys, partial, left_out) as buckets:
            archive.each(threads, buckets.take)
            for changes in buckets.read():
                if is_versions:
                    rows = version_rows(changes, phases)
                else:
                    rows = current_rows(changes, phases, memory, marks_deleted=marks_deleted)
                yield from rows.combine_chunks().to_batches(_ROWS_AT_ONCE)

    def fill(store: RowStore, threads: int) -> None:
        for batch in read(threads):
            compared.take(store, batch)

    return Side(NAME, compared, buckets_for(archive.rows), fill, read, again=again)


def _chosen(archive: Archive, left_out: Iterable[str]) -> Compared:
    compared = choose(archive.columns, archive.keys, left_out)
    if not compared.columns:
        raise NotComparable("no column can be compared")
    return compared


class _KeyBuckets:
    """The changes of all files on disk, those of one key in one bucket."""

    def __init__(self, archive: Archive, keys: Sequence[str], partial: bool, left_out: Iterable[str]) -> None:
        names = {*_OURS, *left_out}
        self._columns = [c for c in archive.columns if c.type is not None and c.name not in names]
        self._archive, self._keys, self._partial = archive, keys, partial
        self._folder = tempfile.TemporaryDirectory(prefix="lakemirror-verify-")
        self._count = buckets_for(archive.rows)
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> _KeyBuckets:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()
        self._folder.cleanup()

    def take(self, index: int) -> None:
        """Adds the changes of a file."""
        for part in self._archive.changes_of(index, self._columns):
            rows = pa.Table.from_batches([part.rows])
            rows = rows.append_column(PLACE, pa.array(part.places)).append_column(MARK, pa.array(part.markers))
            rows = rows.append_column(TIME, part.times)
            if self._partial:
                none = np.zeros(rows.num_rows, bool)
                names = [column.name for column in self._columns if column.name not in self._keys]
                rows = with_left_out(rows, {name: part.left_out.get(name.lower(), none) for name in names})
            keys = [rows[name].combine_chunks() for name in self._keys]
            bucket = row_hashes(keys, rows.num_rows, _BUCKET) % np.uint64(self._count)
            with self._lock:
                for number in np.unique(bucket).tolist():
                    self._add(number, rows.filter(pa.array(bucket == number)))

    def read(self) -> Iterator[pa.Table]:
        """The changes of each bucket."""
        for number, writer in self._writers.items():
            writer.close()
            with pa.memory_map(str(self._path(number))) as file:
                yield pa.ipc.open_stream(file).read_all()

    def _add(self, number: int, rows: pa.Table) -> None:
        if number not in self._writers:
            self._writers[number] = pa.ipc.new_stream(str(self._path(number)), rows.schema)
        self._writers[number].write_table(rows)

    def _path(self, number: int) -> Path:
        return Path(self._folder.name) / str(number)
