"""Verifies a mirror from the outside, table by table. Changes nothing.

landing zone ─▶ table ─▶ log ─▶ data files, in threads ─▶ position ─▶ rows against the other side ─▶ TableReport
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest

import pyarrow as pa

from lakemirror.delta import exact_json
from lakemirror.delta.log import Action
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.change_file import AppliedFiles
from lakemirror.landing_zone.database_folder import missing_database
from lakemirror.landing_zone.identity import parse_marker
from lakemirror.landing_zone.metadata import LAST_UPDATE
from lakemirror.landing_zone.option_patterns import OptionPatterns
from lakemirror.landing_zone.table_options import LATE, HistoryOptions
from lakemirror.landing_zone.zone import TableFolder, TableName, read_metadata, scan, scan_table
from lakemirror.mirror.position import DETECTION_PROPERTY, AppliedPaths, Position, parse_detection, sequences
from lakemirror.storage import Place, Storage, place
from lakemirror.verify import archived_files
from lakemirror.verify.archive_sides import NAME as ARCHIVE
from lakemirror.verify.archive_sides import Archive, archive_side
from lakemirror.verify.check_data_files import FileReport, check_file, living_rows
from lakemirror.verify.columns import TableColumn, table_columns
from lakemirror.verify.comparison import Side, choose, compare
from lakemirror.verify.finding import Finding, Report, TableReport, capped, is_refused
from lakemirror.verify.key_columns import check_key_columns
from lakemirror.verify.log_replay import Replay, real_path, replay
from lakemirror.verify.positions import (
    Folder,
    applied_times,
    begin_of,
    check_not_behind,
    check_positions,
    position_of,
)
from lakemirror.verify.row_store import RowStore, buckets_for
from lakemirror.verify.source_rows import Source
from lakemirror.verify.vectors import shared

Progress = Callable[[str, int, int], None]
"""Table, rows done, rows in all."""

_KEYS_PROPERTY, _HISTORY_PROPERTY = "lakemirror.keyColumns", "lakemirror.history"
_SOURCE = "the source"
_READING = (LakemirrorError, pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError)
_ATTEMPTS = 3  # an engine that runs may move a file while it is read


@dataclass(frozen=True)
class Options:
    """What is verified. `rows`: data files are decoded; without it only presence, size, footer and vector are read.

    `against_files`: rows are compared with the archived files. `source`: rows are compared with these. `threads`: 0 for
    one each core. `cancelled`: the rest is left out once it says True; then the report means nothing.
    `patterns`: options for many tables.
    """

    rows: bool = True
    against_files: bool = False
    source: Source | None = None
    threads: int = 0
    cancelled: Callable[[], bool] = lambda: False
    patterns: OptionPatterns = ()


def verify_database(
    storage: Storage,
    tables: Sequence[str] = (),
    options: Options | None = None,
    *,
    default_schema: str = "",
    progress: Progress | None = None,
) -> Report:
    """The report of every table of the landing zone, or of those named. LakemirrorError `database-missing`,
    `table-unknown` for a name that is not there."""
    try:
        zone = scan(storage)
    except FileNotFoundError as error:
        raise missing_database(storage.uri()) from error
    chosen = {str(name): name for name in sorted(zone.tables) if not tables or str(name) in tables}
    if missing := [name for name in tables if name not in chosen]:
        raise LakemirrorError(
            "table-unknown",
            f"the landing zone has no table {missing[0]}",
            hint="Run `lakemirror status DB` for the names of the tables. History tables are verified with theirs.",
        )
    reports = []
    patterns = options.patterns if options is not None else ()
    for name in chosen.values():
        for history in (None, *_histories(storage, name, patterns)):
            report = verify_table(
                storage, name, options, default_schema=default_schema, progress=progress, history=history
            )
            reports.append(report if history is None else report.of_history(history.mode))
    return Report(tuple(reports))


def verify_table(
    storage: Storage,
    name: TableName,
    options: Options | None = None,
    *,
    default_schema: str = "",
    progress: Progress | None = None,
    history: HistoryOptions | None = None,
) -> TableReport:
    """The report of one table. What cannot be read is a finding; the table raises no error.

    `history`: that history table of the table folder, instead of the mirrored table.
    """
    options = options or Options()
    begun = time.monotonic()
    subject = name if history is None else TableName(name.schema, history.table(name.table))
    mirrored, target = (place(storage.uri(each.target(default_schema))) for each in (name, subject))
    table = str(subject)
    folder = _folder(storage, name)
    try:
        least = None if history is None else replay(mirrored, table)  # history tables are committed first
        state = replay(target, table)
    except _READING as error:
        code = "verify-impossible" if is_refused(error) else "verify-log-unreadable"
        finding = Finding(code, table, str(error), "_delta_log")
        return TableReport(table, findings=(finding,), seconds=time.monotonic() - begun)
    if state is None:
        gone = folder is not None and bool(folder.processed) and history is None
        message = "files were applied, and the Delta table is gone"
        findings = (Finding("verify-log-unreadable", table, message, "_delta_log"),) if gone else ()
        return TableReport(table, findings=findings, seconds=time.monotonic() - begun)
    proof = _TableProof(storage, _Subject(name, table, history), target, state, folder, options, progress)
    if least is not None:
        proof.findings += check_not_behind(state, least, table)
    proof.run()
    return TableReport(
        table, state.version, len(state.files), proof.rows, proof.compared_rows, capped(proof.findings),
        time.monotonic() - begun,
    )  # fmt: skip


@dataclass(frozen=True)
class _Subject:
    """What is verified: a mirrored table, or one of its history tables. `name`: of the table folder. `table`: as
    reports name it."""

    name: TableName
    table: str
    history: HistoryOptions | None


class _TableProof:
    """The verification of one table at one version."""

    def __init__(
        self, storage: Storage, subject: _Subject, place: Place, state: Replay, folder: TableFolder | None,
        options: Options, progress: Progress | None,
    ) -> None:  # fmt: skip
        self.findings: list[Finding] = list(state.findings)
        self.rows = 0
        self.compared_rows: int | None = None
        self._storage, self._name, self._place, self._state = storage, subject.name, place, state
        self._folder, self._options, self._progress = folder, options, progress
        self._table, self._history = subject.table, subject.history
        self._columns: tuple[TableColumn, ...] = ()
        self._threads = options.threads or os.cpu_count() or 1

    def run(self) -> None:
        known = self._known(self._folder)
        self.findings += check_positions(self._state, self._table, known, begins_later=self._history is not None)
        self.findings += shared(self._state.files, self._table)
        try:
            self._columns = table_columns(self._state.metadata)
        except (ValueError, KeyError, TypeError) as error:
            self._found("verify-log-unreadable", f"the schema makes no sense: {error}")
            return
        self.findings += check_key_columns(self._state, self._table)
        sides = [side for side in (self._archived(), self._source()) if side is not None]
        with contextlib.ExitStack() as stack:
            stores = [(side, stack.enter_context(RowStore(3, side.buckets))) for side in sides]
            self._check_files(stores)
            for side, store in stores:
                self._compare(side, store)

    def _check_files(self, stores: Sequence[tuple[Side, RowStore]]) -> None:
        adds = list(self._state.files.values())
        total = sum(_records(add) for add in adds)
        done = 0
        restored = any(str(commit.info.get("operation")) == "RESTORE" for commit in self._state.commits)

        def check(add: Action) -> FileReport:
            if self._options.cancelled():
                return FileReport()

            def sink(batch: pa.RecordBatch) -> None:
                for side, store in stores:
                    side.compared.take(store, batch)

            before = () if restored else self._state.vectors.get(real_path(add["path"]), ())
            return check_file(
                self._place, self._table, add, self._columns,
                sink=sink if stores else None, before=before, rows=self._options.rows,
            )  # fmt: skip

        with ThreadPoolExecutor(self._threads) as pool:
            for report, add in zip(pool.map(check, adds), adds, strict=True):
                done += _records(add)
                self.rows += report.rows
                self.findings += report.findings
                if self._progress is not None:
                    self._progress(self._table, done, total)

    def _compare(self, side: Side, mine: RowStore) -> None:
        unreadable = {"verify-file-missing", "verify-file-unreadable", "verify-impossible"}
        if any(finding.code in unreadable and finding.file for finding in self.findings):
            self._impossible(side.name, "data files cannot be read")
            return
        for attempt in range(_ATTEMPTS):
            try:
                with RowStore(side.width, side.buckets) as theirs:
                    side.fill(theirs, self._threads)
                    self.compared_rows = theirs.rows
                    self.findings += compare(self._table, mine, theirs, side, self._living)
                return
            except FileNotFoundError as error:  # an engine has moved it aside: list again
                again = side.again() if attempt < _ATTEMPTS - 1 else None
                if again is None:
                    self._impossible(side.name, error)
                    return
                side = again
            except (archived_files.NotComparable, *_READING) as error:
                self._impossible(side.name, error)
                return

    def _living(self) -> Iterator[pa.RecordBatch]:
        for add in self._state.files.values():
            yield from living_rows(self._place, add, self._columns)

    def _archived(self) -> Side | None:
        """The archived files as the other side; None if that is not requested, or not possible."""
        if not self._options.against_files:
            return None
        try:
            return self._archive_side()
        except (archived_files.NotComparable, *_READING) as error:
            self._impossible(ARCHIVE, error)
        return None

    def _archive_side(self) -> Side:
        position = position_of(self._state)
        folder = _folder(self._storage, self._name)
        if position is None or folder is None:
            raise archived_files.FilesGone("the table has no position or no folder")
        known = self._known(folder)
        if known is not None and known.identity not in (None, position.identity):
            raise archived_files.FilesGone("the folder was made again, and nothing of it is applied yet")
        metadata = read_metadata(self._storage, folder, self._options.patterns)
        applied = _applied(self._state, position, self._place)
        quarantined = _quarantined(folder)
        files = archived_files.applied_in_order(folder, metadata, applied, position.number, quarantined)
        changed = max((self._manifest_rows(), sum(_records(add) for add in self._state.files.values())))
        keys = self._keys() or metadata.key_columns  # declared ones may have changed, and are refused then
        properties = self._state.metadata.get("configuration") or {}
        if self._history is not None:
            mode = properties.get(_HISTORY_PROPERTY, "none").partition(":")[0]
            if mode != self._history.mode:
                raise archived_files.NotComparable(f"its history is {mode}, and {self._history.mode} is declared")
            begin = 1 if self._history.mode == LATE else begin_of(self._state)  # it begins empty with each folder
            files = archived_files.since(files, begin, metadata, self._history.mode)
        times = [] if metadata.partitioned else applied_times(self._state, [file.number for file in files])
        moments = [time or file.entry.modified // 1000 for file, time in zip_longest(files, times)]
        archive = Archive(
            self._storage, metadata, files, self._columns, properties, keys, changed, moments, self._history,
            self._living,
        )  # fmt: skip
        return archive_side(archive, self._note, self._archived)

    def _source(self) -> Side | None:
        source = self._options.source
        if source is None or self._history is not None:
            return None
        try:
            types = {column.name: column.type for column in self._columns if column.type is not None}
            with source.rows(types) as (names, _):
                pass
        except _READING as error:
            self._impossible(_SOURCE, error)
            return None
        compared = choose(self._columns, self._keys(), (), names)
        mine, theirs = {c.name.lower() for c in self._columns}, {name.lower() for name in names}
        for column in sorted(mine ^ theirs):
            side = "the source" if column in mine else "the table"
            self._note(f"column {column!r} is not compared: {side} does not have it")
        if not compared.columns:
            self._found("verify-impossible", "the source has no column of the table")
            return None

        def read() -> Iterator[pa.RecordBatch]:
            with source.rows(types) as (_, batches):
                for batch in batches:
                    yield compared.cast(batch, source.zone)

        def fill(store: RowStore, threads: int) -> None:
            for batch in read():
                compared.take(store, batch)

        rows = sum(_records(add) for add in self._state.files.values())
        return Side(_SOURCE, compared, buckets_for(rows), fill, read)

    def _known(self, folder: TableFolder | None) -> Folder | None:
        """What the landing zone says of the folder. A resync leaves the rows of a history as they are, so the
        identity is the one by which the history knows the folder."""
        if folder is None:
            return None
        identity = None
        if folder.marker is not None:
            with contextlib.suppress(OSError, LakemirrorError):
                marker = parse_marker(self._storage.read(folder.marker.path))
                identity = marker.id if marker else None
                if marker and self._history is not None and self._history.mode != LATE:
                    at = position_of(self._state)
                    identity = at.identity if at and at.identity in marker.resync_of else identity
        home = len(folder.name.folder) + 1
        files = frozenset((entry.path[home:], entry.size, entry.modified) for entry in folder.files)
        return Folder(identity, files, _quarantined(folder))

    def _keys(self) -> tuple[str, ...]:
        text = (self._state.metadata.get("configuration") or {}).get(_KEYS_PROPERTY, "[]")
        with contextlib.suppress(ValueError):
            return tuple(json.loads(text))
        return ()

    def _manifest_rows(self) -> int:
        for commit in reversed(self._state.commits):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                return int(json.loads(commit.info["userMetadata"])["lakemirror"]["rows"])
        return 0

    def _impossible(self, other: str, why: object) -> None:
        """Adds the finding that rows are not compared. `other`: the name of the other side."""
        self._found("verify-impossible", f"rows are not compared with {other}: {why}")

    def _found(self, code: str, message: str) -> None:
        self.findings.append(Finding(code, self._table, message))

    def _note(self, message: str) -> None:
        self._found("verify-not-compared", message)


def _records(add: Action) -> int:
    try:
        return int(exact_json.read(add["stats"])["numRecords"])
    except (KeyError, ValueError, TypeError):
        return 0


def _folder(storage: Storage, name: TableName) -> TableFolder | None:
    try:
        return scan_table(storage, name)
    except (OSError, LakemirrorError):
        return None


def _histories(storage: Storage, name: TableName, patterns: OptionPatterns) -> tuple[HistoryOptions, ...]:
    folder = _folder(storage, name)
    with contextlib.suppress(OSError, LakemirrorError):  # what is wrong with it, `check` says
        return () if folder is None else read_metadata(storage, folder, patterns).options.targets
    return ()


def _quarantined(folder: TableFolder) -> tuple[int, ...]:
    names = (entry.name for entry in folder.quarantined if not entry.name.endswith(".error.json"))
    return tuple(int(match[1]) for match in map(_NUMBER.match, names) if match)


_NUMBER = re.compile(r"(\d{20})\.")


def _applied(state: Replay, position: Position, place: Place) -> AppliedFiles:
    configuration = state.metadata.get("configuration") or {}
    detection = parse_detection(configuration.get(DETECTION_PROPERTY, ""), str(place))
    paths = AppliedPaths(place, detection.segments) if detection.strategy == LAST_UPDATE else None
    by_partition = None
    if detection.partitioned and detection.strategy != LAST_UPDATE:
        by_partition = sequences(state.transactions, position)
    return AppliedFiles(position.number, by_partition, paths, detection.numbered)
