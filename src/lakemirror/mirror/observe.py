"""The only look at one table: its folder and its Delta table, as one frozen view. No JVM.

    log (position, record) ─▶ metadata ─▶ identity ─▶ checks ─▶ pending files ─▶ View

Nothing is changed but the folder's marker, and a table that another default schema has elsewhere is moved here. From
look to look a `TableObserver` remembers footers, metadata and when a file was seen first, to save time. The Delta table
is read at every look.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from lakemirror import failpoints
from lakemirror.delta.log_folder import Log
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.failures import coded
from lakemirror.landing_zone import archive as cleanup
from lakemirror.landing_zone.change_file import AppliedFiles, TableFiles, ignored
from lakemirror.landing_zone.identity import AppliedSoFar, identify
from lakemirror.landing_zone.metadata import LAST_UPDATE, TableMetadata, Warned, capped
from lakemirror.landing_zone.pending import Pending, SeenFiles, already_applied, not_looked_into, pending
from lakemirror.landing_zone.zone import TableFolder, TableName, check_name, not_files, read_metadata
from lakemirror.mirror.history.history_tables import (
    HistoryObserver,
    HistoryTable,
    ahead_first,
    until_another,
    warnings_of,
)
from lakemirror.mirror.position import (
    Detection,
    Manifest,
    Position,
    applied_files,
    declared,
    from_note,
    parse_detection,
)
from lakemirror.mirror.schema_evolution import check_needed_columns
from lakemirror.mirror.table_log import LogCache, TableLog, read_sequences, read_table_log
from lakemirror.mirror.table_places import check_no_table_around, move_here
from lakemirror.settings.settings import Settings
from lakemirror.status.status import format_time
from lakemirror.storage import Storage
from lakemirror.storage.durable import POWER


@dataclass(frozen=True)
class View:
    """What one look at a table folder and its Delta table has found.

    `table`: what the log says, None where there is no table; `log`: the log as it was listed, None where it must be
    listed to be read; `log_time`: when its folder was changed, in nanoseconds, before it was read; 0 where there is
    none, and where folders have no time. `identity`: of the table folder, empty where the look ended before it was
    known. `detection`: how files are found from now on; `applied`: which are applied, none in a folder that was made
    again. `failure`: why nothing can be applied, from the look itself or from a caller. `history`: the history tables
    that the options ask for.
    """

    files: TableFiles
    table: TableLog | None = None
    log: Log | None = field(default=None, repr=False)
    log_time: int = 0
    identity: str = ""
    detection: Detection = field(default_factory=Detection)
    applied: AppliedFiles = field(default_factory=AppliedFiles)
    pending: Pending = field(default_factory=Pending)
    warnings: tuple[Warned, ...] = ()
    failure: LakemirrorError | None = None
    history: tuple[HistoryTable, ...] = ()

    @cached_property
    def at(self) -> Position | None:
        """The position that the Delta table records, also one of a folder that was there before."""
        return self.table.position if self.table is not None else None

    @cached_property
    def is_recreated(self) -> bool:
        """True where the folder was made again, so that its files replace the rows of the table."""
        return self.at is not None and self.identity not in ("", self.at.identity)

    @cached_property
    def manifest(self) -> Manifest | None:
        """What the last apply of this folder recorded."""
        return self.table.manifest if self.table is not None and not self.is_recreated else None

    @cached_property
    def position(self) -> int:
        """The number of the last applied file; 0 where none is, or where the folder was made again."""
        return 0 if self.at is None or self.is_recreated else self.at.number

    @cached_property
    def has_work(self) -> bool:
        """True where files can be applied, or a history table is to begin."""
        return bool(self.pending.files or self.to_begin) and self.failure is None and self.files.folder.paused is None

    @cached_property
    def to_begin(self) -> tuple[HistoryTable, ...]:
        """The history tables that begin at the position of the mirrored table before anything else is applied."""
        if not self.history or self.at is None or self.is_recreated:
            return ()
        return tuple(table for table in self.history if table.is_behind(self.at))

    @cached_property
    def error(self) -> LakemirrorError | None:
        """Why nothing can be applied: the failure of the look, or the file that would be next."""
        if self.failure is not None or self.pending.rejected is None or self.pending.files or self.files.folder.paused:
            return self.failure
        return self.pending.rejected.error()

    @property
    def has_files_to_archive(self) -> bool:
        """True where applied files but the newest are still in the table folder."""
        return bool(cleanup.to_archive(self.files, self.applied))

    def failed(self, failure: LakemirrorError) -> View:
        """The same view of a table to which nothing is applied for this reason."""
        return replace(self, failure=failure)


class TableObserver:
    """Looks at one table folder and its Delta table."""

    def __init__(self, storage: Storage, name: TableName, settings: Settings, log: LogCache) -> None:
        """`log`: of the Delta table; shared with who commits to it."""
        self.name = name
        self.target = name.target(settings.default_schema)
        self._path = storage.uri(self.target)
        self._storage = storage
        self._settings = settings
        self._log = log
        self._seen = SeenFiles(storage, settings.settle)
        self._sequences: tuple[Position, dict[str, int]] | None = None
        self._reasons: dict[str, str] = {}
        self._metadata: tuple[str, TableMetadata] = ("", TableMetadata())

    @cached_property
    def history(self) -> HistoryObserver:
        """Looks at the history tables; made once a table has some."""
        return HistoryObserver(self._storage, self.name, self.target)

    @property
    def history_targets(self) -> list[str]:
        """The history tables that were looked at."""
        return self.history.targets if "history" in self.__dict__ else []

    def forget(self) -> None:
        """The next look lists the logs."""
        self._log.forget()
        if "history" in self.__dict__:
            self.history.forget()

    def observe(self, folder: TableFolder, *, now: float | None = None, mark: bool = True) -> View:
        """What there is to do. With `mark`, a folder without an identity marker gets one.

        Errors of this table alone are in the view, not raised. `now`: seconds since the epoch.
        """
        now = time.time() if now is None else now
        view = View(TableFiles(folder, self._metadata[1]))
        try:
            view = self._with_table(view, mark)
            view = self._with_metadata(view)
            view = self._with_identity(view, now, mark)
            view = self._checked(view)
            view = self._with_detection(view)
            view = self._with_pending(view, now)
        except Exception as failure:  # the boundary around one table: no error leaves it
            self.forget()
            view = self._failed(view, failure)
        return replace(view, warnings=(*view.warnings, *not_files(folder.others))) if folder.others else view

    def _failed(self, view: View, failure: Exception) -> View:
        """The view so far, with the files counted that wait."""
        waiting = view.pending
        if not waiting.count:
            with suppress(Exception):  # the failure matters, not the number of files that wait
                detection = parse_detection(view.table.detection if view.table else "", self.target)
                waiting = not_looked_into(view.files, self._applied(view, detection, view.at))
        return replace(view, pending=waiting, failure=coded(failure, table=str(self.name)))

    def _with_table(self, view: View, mark: bool) -> View:
        check_name(self.name)
        if self._storage.capabilities.folder_times:  # `path-refused` where a link leads out of the database
            log_folder = self._storage.stat(f"{self.target}/_delta_log")
            view = replace(view, log_time=log_folder.modified if log_folder is not None else 0)
        try:
            table, log = self._read_log()
        except LakemirrorError as error:
            if error.code == "concurrent-commit" and mark:
                self._storage.finish_move(self.target)
            raise
        if table is None and mark and move_here(self._storage, self.name, self.target):
            table, log = self._read_log()
        if table is None and view.files.folder.files:
            check_no_table_around(self._storage, self.target)
        return replace(view, table=table, log=log)

    def _read_log(self) -> tuple[TableLog | None, Log | None]:
        log = self._log.read()
        if log is None and self._storage.capabilities.waits:
            return None, None
        return read_table_log(self._path, log), log

    def _with_metadata(self, view: View) -> View:
        """The view with what the publisher declares. TableError where the Delta table is not ours, or not any more."""
        folder = view.files.folder
        if folder.error is not None:
            raise folder.error
        etag = folder.metadata.etag if folder.metadata else ""
        if self._metadata[0] != etag or not etag:
            self._metadata = (etag, read_metadata(self._storage, folder, self._settings.tables))
        metadata = self._metadata[1]
        files = view.files if metadata is view.files.metadata else TableFiles(folder, metadata)
        view = replace(view, files=files, warnings=metadata.warnings)
        if view.table is not None and view.table.identity:
            raise TableError(
                "table-restored",
                f"{self.target}: another program removed the position, so it is unknown which files are applied",
                hint=f"Move {self.target} away, delete the table folder, and publish it again.",
                file=self.target,
            )
        if view.table is not None and view.table.history:
            message = f"{self.target} is the history table of {view.table.history.partition(':')[2]}"
            raise TableError("table-name-ambiguous", message, file=self.target)
        if view.table is not None and view.at is None:
            message = f"{self.target} holds a Delta table that lakemirror did not make"
            raise TableError("target-foreign", message, file=self.target)
        return view

    def _with_identity(self, view: View, now: float, mark: bool) -> View:
        """The view with which files are applied, and the id of the table folder; if it differs from the table's, the
        folder was made again."""
        before = parse_detection(view.table.detection if view.table else "", self.target)
        view = replace(view, detection=before, applied=self._applied(view, before, view.at))
        so_far = None
        if view.table is not None and view.at is not None:
            last = view.table.manifest.last_file if view.table.manifest else None
            so_far = AppliedSoFar(view.at.identity, view.at.number, last, view.applied)
        if view.files.metadata.options.targets and view.files.folder.marker is None:
            so_far = self._by_history(view, so_far)
        failpoints.reach("identity.before-marker")
        durable = self._settings.durability == POWER
        decided = identify(self._storage, view.files, so_far, write=mark, durable=durable)
        view = replace(view, identity=decided.id)
        if view.files.metadata.options.targets:
            history = self.history.observe(view.files.metadata, decided.id, decided.marker.resync_of)
            view = _warned(replace(view, history=history), warnings_of(history))
        if decided.warning is None:
            return view
        happened = now if decided.kind == "marker-lost" else 0.0
        return _warned(view, [decided.warning._replace(since=happened)])

    def _by_history(self, view: View, so_far: AppliedSoFar | None) -> AppliedSoFar | None:
        """What a history table knows of a folder without a marker, where it is newer than what the table knows."""
        found = self.history.newest(view.files.metadata)
        if found is None or found[0].position is None or found[0].manifest is None:
            return so_far
        (log, applied), at = found, found[0].position
        if view.table is not None and log.applied_at <= view.table.applied_at:
            return so_far
        return AppliedSoFar(at.identity, at.number, found[0].manifest.last_file, applied)

    def _checked(self, view: View) -> View:
        """The view with a warning for what other writers changed. TableError where nothing can be applied on top."""
        if view.is_recreated or view.table is None:
            return view
        self._check_keys(view, view.table.key_columns)
        if view.table.foreign.restored is not None:
            raise TableError(
                "table-restored",
                f"{self.target}: {view.table.foreign.restored} took rows back; nothing is applied on top of them",
                table=self.target,
            )
        check_needed_columns(view.table.missing, self.target)
        return _warned(view, capped(view.table.foreign.warnings)) if view.table.foreign.changes else view

    def _with_detection(self, view: View) -> View:
        """The view with how files are found from now on, and which are applied: none in a folder made again."""
        before = view.detection
        detection = Detection() if view.is_recreated else before
        detection = declared(detection, view.files.metadata, view.position, self.name)
        if detection is before:
            return view
        applied = self._applied(view, detection, None if view.is_recreated else view.at)
        return replace(view, detection=detection, applied=applied)

    def _check_keys(self, view: View, before: tuple[str, ...]) -> None:
        after, file = view.files.metadata.key_columns, view.files.metadata.file
        if before and {key.lower() for key in before} != {key.lower() for key in after}:
            raise TableError(
                "key-columns-changed",
                f"{self.name}: key columns were [{', '.join(before)}] and are now [{', '.join(after)}]"
                + (f" in {file}" if file else ""),
                table=str(self.name),
                file=file or None,
            )

    def _applied(self, view: View, detection: Detection, at: Position | None) -> AppliedFiles:
        sequences: dict[str, int] | None = None
        if detection.partitioned and detection.strategy != LAST_UPDATE:
            sequences = {}
            if at is not None:
                if self._sequences is None or self._sequences[0] != at:
                    self._sequences = (at, read_sequences(self._path, at, view.log))
                sequences = self._sequences[1]
        return applied_files(detection, at, view.table.manifest if view.table else None, sequences, self._path)

    def _with_pending(self, view: View, now: float) -> View:
        """The view with the files that may be applied now, and all its warnings."""
        folder = view.files.folder
        self._seen.fetch_footers(view.files, view.applied, self._settings.batch_files)
        is_behind = bool(view.history) and any(table.applied.count > view.applied.count for table in view.history)
        limit = None if is_behind and not view.detection.is_plain else self._settings.batch_files
        with self._storage.holding_folders():
            chosen = pending(view.files, view.applied, self._seen.readiness(now), limit)
        if is_behind:
            chosen = ahead_first(chosen, view.history)
            chosen = until_another(chosen, view.files, view.applied, view.history, view.identity)
        self._seen.keep(folder.files)
        warnings = self._quarantined(folder)
        warnings += already_applied(view.files, view.applied, self._last_applied(view))
        warnings += ignored(view.files)
        if view.manifest is not None:
            warnings += [from_note(note) for note in view.manifest.notes]
        if folder.paused is not None:
            since = format_time(folder.paused.modified / 1e9)[:19]
            message = f"paused since {since}Z; `lakemirror resume DB {self.name}` ends it"
            warnings.append(Warned("table-paused", message, folder.paused.path))
        return _warned(replace(view, pending=chosen), warnings)

    def _last_applied(self, view: View) -> dict[str, str]:
        """The etag of the newest applied file, which stays in the folder, by its path there.

        Empty where the folder was copied and the file has the same size: a copy has new times. The marker is written
        before the first apply, so in a copied folder it is newer than the last one.
        """
        last, marker = view.manifest.last_file if view.manifest else None, view.files.folder.marker
        if view.table is None or last is None:
            return {}
        if marker is not None and 0 < view.table.applied_at < marker.modified / 1e9:
            path = f"{view.files.folder.name.folder}/{last.path}"
            if any(entry.path == path and entry.size == last.size for entry in view.files.folder.files):
                return {}
        return {last.path: last.etag}

    def _quarantined(self, folder: TableFolder) -> list[Warned]:
        warnings = []
        for entry in folder.quarantined:
            if not entry.name.endswith(cleanup.REASON_SUFFIX):
                if entry.path not in self._reasons:
                    self._reasons[entry.path] = cleanup.quarantine_reason(self._storage, entry.path)
                warnings.append(Warned("file-quarantined", f"quarantined: {self._reasons[entry.path]}", entry.path))
        return capped(warnings) if warnings else []


def _warned(view: View, warnings: list[Warned]) -> View:
    return replace(view, warnings=(*view.warnings, *warnings)) if warnings else view
