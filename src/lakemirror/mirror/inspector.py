"""One table: what a look at its folder and its Delta table finds to do. No JVM, and nothing is changed but a marker.

    log (position, record) ─▶ metadata ─▶ identity ─▶ checks ─▶ pending files ─▶ TablePlan

Between looks it remembers footers, metadata and the time at which a file was first seen, to save time. The destination
is read at every look.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pyarrow.parquet as pq

from lakemirror import failpoints
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.failures import coded
from lakemirror.landing_zone import archive as cleanup
from lakemirror.landing_zone.applied_files import AppliedFiles
from lakemirror.landing_zone.change_file import change_files, partition_of, path_below
from lakemirror.landing_zone.identity import AppliedSoFar, LastFile, identify
from lakemirror.landing_zone.metadata import LAST_UPDATE, TableMetadata, Warned, capped
from lakemirror.landing_zone.metadata_file import check_name, not_files, read_metadata
from lakemirror.landing_zone.pending import Pending, not_looked_into, pending
from lakemirror.landing_zone.zone import TableFolder, TableName
from lakemirror.mirror import table_commit
from lakemirror.mirror.applied_record import Detection, declared, parse_detection
from lakemirror.mirror.apply_plan import ApplyStart
from lakemirror.mirror.log_cache import KnownLog
from lakemirror.mirror.moved_tables import move_here
from lakemirror.mirror.nested_tables import check_no_table_around
from lakemirror.mirror.position import Manifest, Position, from_note
from lakemirror.mirror.stored_columns import check_key_columns
from lakemirror.mirror.table_log import TableLog, read_sequences, read_table_log
from lakemirror.mirror.table_plan import TablePlan, applied_files
from lakemirror.mirror.table_rules import column_rules, table_properties
from lakemirror.parquet.footer import read_footer
from lakemirror.settings import Settings
from lakemirror.status import format_time
from lakemirror.storage import Entry, Storage
from lakemirror.storage.durable import POWER

_REQUESTS_AT_ONCE = 8
_STEADY = 1.0  # seconds between two looks that make a delimited file complete


class Inspector:
    """Looks at one table folder and its Delta table."""

    def __init__(self, storage: Storage, name: TableName, settings: Settings, log: KnownLog) -> None:
        """`log`: what the process knows of the Delta table's log; shared with who commits to it."""
        self.name = name
        self.target = name.target(settings.default_schema)
        self._storage = storage
        self._settings = settings
        self._log = log
        self._footers: dict[str, tuple[str, pq.FileMetaData]] = {}
        self._first_seen: dict[str, tuple[str, float]] = {}
        self._sequences: tuple[Position, dict[str, int]] | None = None
        self._reasons: dict[str, str] = {}
        self._metadata: tuple[str, TableMetadata] | None = None

    def inspect(self, folder: TableFolder, *, now: float | None = None, mark: bool = True) -> TablePlan:
        """What there is to do. With `mark`, a folder without an identity marker gets one.

        Errors of this table alone are in the result, not raised.
        """
        found = TablePlan(folder, TableMetadata())
        try:
            self._inspect(found, time.time() if now is None else now, mark)
        except Exception as failure:  # the boundary around one table: no error leaves it
            self._log.forget()
            found.start = None
            found.error = coded(failure, table=str(self.name))
            if not found.pending.count:
                with suppress(Exception):  # the error matters, not the number of files that wait
                    found.pending = self._not_looked_into(found)
        found.warnings += not_files(folder.others)
        return found

    def _inspect(self, found: TablePlan, now: float, mark: bool) -> None:
        folder = found.folder
        check_name(self.name)
        self._storage.check(f"{self.target}/_delta_log")  # `path-refused` where a link leads out of the database
        try:
            found.table_log = self._read_table_log()
        except LakemirrorError as error:
            if error.code == "concurrent-commit" and mark:
                self._storage.finish_move(self.target)
            raise
        if found.table_log is None and mark and move_here(self._storage, self.name, self.target):
            found.table_log = self._read_table_log()
        if found.table_log is None and folder.files:
            check_no_table_around(self._storage, self.target)
        if folder.error is not None:
            raise folder.error
        found.metadata = self._read_metadata(folder)
        found.warnings += found.metadata.warnings
        at = found.table_log.position if found.table_log else None
        if found.table_log is not None and found.table_log.identity:
            raise TableError(
                "table-restored",
                f"{self.target}: another program removed the position, so it is unknown which files are applied",
                hint=f"Move {self.target} away, delete the table folder, and publish it again.",
                file=self.target,
            )
        if found.table_log is not None and at is None:
            raise TableError(
                "target-foreign", f"{self.target} holds a Delta table that lakemirror did not make", file=self.target
            )
        found.detection = parse_detection(found.table_log.detection if found.table_log else "", self.target)
        found.applied = self._applied(found.detection, at, found.table_log)
        found.identity = known = self._identify(found, at, mark, now)
        found.reseeding = at is not None and known != at.identity
        if not found.reseeding:
            self._check_keys(found)
            self._check_other_writers(found)
        self._read_progress(found)
        self._fetch_footers(found)
        with self._storage.holding_folders():
            found.pending = pending(
                folder,
                found.metadata,
                found.applied,
                now=now,
                settle=self._settings.settle,
                read_footer=self._footer,
                steady_at=partial(self._steady_at, now),
                limit=self._settings.batch_files,
                etags=self._last_applied(found),
            )
        found.warnings += self._quarantined(folder)
        found.warnings += found.pending.warnings
        found.waiting = found.waiting or found.pending.waiting
        if found.table_log is not None and found.table_log.manifest is not None and not found.reseeding:
            found.warnings += [from_note(note) for note in found.table_log.manifest.notes]
        if folder.paused is not None:
            since = format_time(folder.paused.modified / 1e9)[:19]
            message = f"paused since {since}Z; `lakemirror resume DB {self.name}` ends it"
            found.warnings.append(Warned("table-paused", message, folder.paused.path))
        elif found.pending.files:
            found.start = self._start(found, at, known)
        else:
            found.error = found.pending.error

    def _not_looked_into(self, found: TablePlan) -> Pending:
        """The files of a folder whose look ended with an error, counted by the metadata that was read last."""
        at = found.table_log.position if found.table_log else None
        detection = parse_detection(found.table_log.detection if found.table_log else "", self.target)
        metadata = self._metadata[1] if self._metadata is not None else found.metadata
        return not_looked_into(found.folder, metadata, self._applied(detection, at, found.table_log))

    def _read_table_log(self) -> TableLog | None:
        known = self._log.read()
        if known is None and self._storage.capabilities.waits:
            return None
        return read_table_log(self._storage.uri(self.target), known=known)

    def _read_metadata(self, folder: TableFolder) -> TableMetadata:
        etag = folder.metadata.etag if folder.metadata else ""
        if self._metadata is None or self._metadata[0] != etag or not etag:
            self._metadata = (etag, read_metadata(self._storage, folder))
        return self._metadata[1]

    def _fetch_footers(self, found: TablePlan) -> None:
        """Reads the footers of the files that wait, side by side where each is a request. What fails is read again."""
        if not self._storage.capabilities.waits or found.metadata.file_format != "Parquet":
            return
        wanted = [
            entry
            for number, entry in change_files(found.folder, found.metadata)
            if self._footers.get(entry.path, ("",))[0] != entry.etag
            and not found.applied.holds(path_below(entry, found.folder), number, partition_of(entry, found.folder))
        ][: self._settings.batch_files]

        def fetch(entry: Entry) -> None:
            with suppress(Exception):
                self._footer(entry)

        if len(wanted) > 1:
            with ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix="footers") as pool:
                list(pool.map(fetch, wanted))

    def _footer(self, entry: Entry) -> pq.FileMetaData:
        cached = self._footers.get(entry.path)
        if cached is not None and cached[0] == entry.etag:
            return cached[1]
        with self._storage.open(entry.path, entry) as file:
            footer = read_footer(file)
        self._footers[entry.path] = (entry.etag, footer)
        return footer

    def _identify(self, found: TablePlan, at: Position | None, mark: bool, now: float) -> str:
        """The id of the table folder; if it differs from the table's, the folder was recreated."""
        so_far = None
        if at is not None:
            manifest = found.table_log.manifest if found.table_log else None
            last = LastFile(manifest.file, manifest.size, manifest.modified, manifest.tag) if manifest else None
            so_far = AppliedSoFar(at.identity, at.number, last, found.applied)
        failpoints.reach("identity.before-marker")
        durable = self._settings.durability == POWER
        decided = identify(self._storage, found.folder, found.metadata, so_far, write=mark, durable=durable)
        if decided.warning is not None:
            happened = now if decided.kind == "marker-lost" else 0.0
            found.warnings.append(decided.warning._replace(since=happened))
        return decided.id

    def _check_keys(self, found: TablePlan) -> None:
        before = found.table_log.key_columns if found.table_log else ()
        now = found.metadata.key_columns
        if before and {k.lower() for k in before} != {k.lower() for k in now}:
            raise TableError(
                "key-columns-changed",
                f"{self.name}: key columns were {_listed(before)} and are now {_listed(now)}",
                table=str(self.name),
                file=found.folder.metadata.path if found.folder.metadata else None,
            )

    def _check_other_writers(self, found: TablePlan) -> None:
        """TableError `table-restored`, `key-columns-missing-in-table`; a warning for other changes (section 10)."""
        if found.table_log is not None:
            table_commit.check_not_restored(found.table_log, self.target)
            check_key_columns(found.table_log.missing_keys, self.target)
            found.warnings += capped(found.table_log.foreign.warnings)

    def _read_progress(self, found: TablePlan) -> None:
        """How files are found from now on, and which are applied; none in a recreated folder."""
        before = Detection() if found.reseeding else found.detection
        found.detection = declared(before, found.metadata, found.position, str(self.name))
        at = found.table_log.position if found.table_log and not found.reseeding else None
        found.applied = self._applied(found.detection, at, found.table_log)

    def _applied(self, detection: Detection, at: Position | None, table_log: TableLog | None) -> AppliedFiles:
        sequences: dict[str, int] | None = None
        if detection.partitioned and detection.strategy != LAST_UPDATE:
            sequences = {}
            if at is not None:
                if self._sequences is None or self._sequences[0] != at:
                    self._sequences = (at, read_sequences(self._storage.uri(self.target), at, self._log.read()))
                sequences = self._sequences[1]
        manifest = table_log.manifest if table_log else None
        table = self._storage.uri(self.target)
        return applied_files(detection, at.number if at else 0, manifest, sequences, table)

    def _last_applied(self, found: TablePlan) -> dict[str, str]:
        """The etag of the newest applied file, which stays in the folder, by its path there.

        Empty where the folder was copied and the file has the same size: a copy has new times. The marker is written
        before the first apply, so in a copied folder it is newer than the last one.
        """
        log, marker = found.table_log, found.folder.marker
        manifest = log.manifest if log is not None and not found.reseeding else None
        if log is None or manifest is None:
            return {}
        if marker is not None and 0 < log.applied_at < marker.modified / 1e9:
            path = f"{found.folder.name.folder}/{manifest.file}"
            if any(entry.path == path and entry.size == manifest.size for entry in found.folder.files):
                return {}
        return {manifest.file: Entry("", manifest.size, manifest.modified, manifest.tag).etag}

    def _steady_at(self, now: float, entry: Entry) -> float:
        """When a delimited file counts as complete: seen unchanged for a second, or earlier if settled (section 4)."""
        settled = entry.modified / 1e9 + self._settings.settle
        if now >= settled:
            return settled
        etag, since = self._first_seen.get(entry.path, ("", now))
        if etag != entry.etag:
            since = now
            self._first_seen[entry.path] = (entry.etag, now)
        return min(settled, since + _STEADY)

    def _quarantined(self, folder: TableFolder) -> list[Warned]:
        found = []
        for entry in folder.quarantined:
            if not entry.name.endswith(cleanup.REASON_SUFFIX):
                if entry.path not in self._reasons:
                    self._reasons[entry.path] = cleanup.quarantine_reason(self._storage, entry.path)
                found.append(Warned("file-quarantined", f"quarantined: {self._reasons[entry.path]}", entry.path))
        return capped(found)

    def _start(self, found: TablePlan, at: Position | None, known: str) -> ApplyStart:
        manifest: Manifest | None = None if found.reseeding or not found.table_log else found.table_log.manifest
        return ApplyStart(
            expected=at,
            identity=known,
            generation=1 if at is None else at.generation + (1 if found.reseeding else 0),
            key_columns=found.metadata.key_columns,
            upsert_by_default=found.metadata.upsert_by_default,
            properties=table_properties(self._settings),
            rows_before=manifest.rows if manifest else 0,
            bytes_before=manifest.bytes if manifest else 0,
            notes_before=manifest.notes if manifest else (),
            detection=found.detection,
            rules=column_rules(self._settings),
        )


def _listed(names: tuple[str, ...]) -> str:
    return "[" + ", ".join(names) + "]"
