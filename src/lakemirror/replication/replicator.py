"""One table: the loop that applies each change exactly once.

    position = the table's own `txn` action            the only record of what is applied
    files    = complete, contiguous files after it     landing zone, in order
    plan     = what one commit will do                 pure; made once
    result   = engine.run(plan)                        files written, nothing committed
    commit   = version N+1, if it is still free        taken: the table is planned again
    archive  (applied files)                           may fail or repeat without harm

Between turns it remembers only footers and failures, to save time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import pyarrow.parquet as pq

from lakemirror import failpoints
from lakemirror.delta.commit import make_durable
from lakemirror.delta.log import read_snapshot
from lakemirror.engines.engine import Engine, Preference
from lakemirror.engines.kernels.add_files import NotAdded
from lakemirror.engines.kernels.compact import compact
from lakemirror.engines.row_work import Action, RewriteWork, Target
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.failures import coded
from lakemirror.landing_zone import archive as cleanup
from lakemirror.landing_zone.applied_files import AppliedFiles
from lakemirror.landing_zone.change_file import ChangeFile, change_files, partition_of, path_below
from lakemirror.landing_zone.footer import read_footer
from lakemirror.landing_zone.identity import AppliedSoFar, LastFile, identify, parse_marker, read_marker
from lakemirror.landing_zone.metadata import LAST_UPDATE, TableMetadata, Warned, capped
from lakemirror.landing_zone.metadata_file import check_name, not_files, read_metadata
from lakemirror.landing_zone.pending import Pending, not_looked_into, pending
from lakemirror.landing_zone.staging import Staging, needs_staging
from lakemirror.landing_zone.zone import MARKER, TableFolder, TableName
from lakemirror.maintenance import compaction as small_files
from lakemirror.replication import table_commit
from lakemirror.replication.applied_record import Detection, declared, parse_detection
from lakemirror.replication.apply import apply
from lakemirror.replication.apply_plan import Applied, ApplyPlan, ApplyStart, Limits
from lakemirror.replication.known_log import KnownLog
from lakemirror.replication.moved_tables import move_here
from lakemirror.replication.planner import plan
from lakemirror.replication.position import Manifest, Position, from_note
from lakemirror.replication.table_log import TableLog, read_sequences, read_table_log
from lakemirror.replication.table_plan import TablePlan, applied_files
from lakemirror.replication.table_rules import column_rules, table_properties
from lakemirror.settings import Settings
from lakemirror.status import format_time
from lakemirror.storage import Entry, Storage, place
from lakemirror.storage.durable import POWER, sync_each
from lakemirror.storage.place import is_in_store

log = logging.getLogger("lakemirror")

_REQUESTS_AT_ONCE = 8
_STEADY = 1.0  # seconds between two looks that make a delimited file complete
_WORTH_A_LOOK = 32 << 20  # bytes of change files: before so much work, the log is read for other commits


@dataclass(frozen=True)
class Attempt:
    """What an apply assumes about its files: that footers are right about row markers, and that files can become data
    files as they are."""

    trust_statistics: bool = True
    as_they_are: bool = True


class Replicator:
    """Brings one table folder's changes into its Delta table."""

    def __init__(self, storage: Storage, name: TableName, settings: Settings, *, spark_given: bool = False) -> None:
        """`spark_given`: a Spark session runs already."""
        self.name = name
        given = spark_given or bool(settings.master or settings.spark_remote)
        self._preference = Preference(settings.engine, given, settings.spark_from_bytes)
        self.target = name.target(settings.default_schema)
        self._storage = storage
        self._settings = settings
        self._footers: dict[str, tuple[str, pq.FileMetaData]] = {}
        self._first_seen: dict[str, tuple[str, float]] = {}
        self._sequences: tuple[Position, dict[str, int]] | None = None
        self._reasons: dict[str, str] = {}
        self._staging = Staging(storage, settings.memory)
        self._metadata: tuple[str, TableMetadata] | None = None
        self._merged_at: int | None = None
        self._synced: Position | None = None  # of the last apply that this process made durable
        self._log = KnownLog(self._table, storage.look_again)

    @property
    def _table(self) -> str:
        return self._storage.uri(self.target)

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
        if folder.error is not None:
            raise folder.error
        found.metadata = self._read_metadata(folder)
        found.warnings += found.metadata.warnings
        at = found.table_log.position if found.table_log else None
        if found.table_log is not None and found.table_log.identity:
            raise TableError(
                "table-restored",
                f"{self.target}: another writer has left the position out, so that nobody knows which files are in it",
                hint=f"Move {self.target} away, delete the table folder, and publish it again.",
                file=self.target,
            )
        if found.table_log is not None and at is None:
            raise TableError(
                "target-foreign", f"{self.target} holds a Delta table that lakemirror did not make", file=self.target
            )
        found.detection = parse_detection(found.table_log.detection if found.table_log else "", self.target)
        found.applied = self._applied(found.detection, at, found.table_log)
        found.identity = known = self._identify(found, at, mark)
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

    def apply(self, engine: Callable[[str], Engine], found: TablePlan) -> tuple[Applied | None, LakemirrorError | None]:
        """One commit from what a look found: what was applied, and the error of the next file, if any.

        `engine` gives the engine of a name. A batch ends before a file that cannot be applied. LakemirrorError is
        raised for errors of the whole attempt; `concurrent-commit` means that another look is needed.
        """
        assert found.start is not None
        files, error = self._staged(found)
        staged = list(files)
        attempt = Attempt()
        try:
            while files:
                planned = self._plan(found, found.start, files, attempt)
                if isinstance(planned, TableError):
                    self._log.forget()
                    self._check_still_there(files[:1])
                    return None, planned
                log.debug("%s: %s: %s", self.name, planned.choice.engine, planned.choice.reason)
                trust = self._settings.trust_footers
                done = apply(
                    planned,
                    self._table,
                    engine,
                    path_of=self._storage.uri,
                    trust_footers=trust,
                    durability=self._settings.durability,
                    check_unchanged=self._check_unchanged,
                )
                if isinstance(done, Applied):
                    self._synced = done.position
                    if self._merged_at is None:
                        self._merged_at = max(0, done.version - 1)
                    return done, planned.error or error or found.pending.error
                if isinstance(done, NotAdded):
                    attempt = replace(attempt, as_they_are=False)
                elif done.code == "marker-statistics":
                    attempt = replace(attempt, trust_statistics=False)
                else:
                    place = _index(files, done.file)
                    self._check_still_there(files[place : place + 1])
                    error = TableError(done.code, done.message, file=done.file, row=done.row, column=done.column)
                    files = files[:place]
            return None, error or found.pending.error
        except BaseException:
            self._log.forget()
            raise
        finally:
            self._staging.clear(staged)

    def _read_table_log(self) -> TableLog | None:
        known = self._log.read()
        if known is None and self._storage.look_again:
            return None
        return read_table_log(self._table, known=known)

    def _plan(
        self, found: TablePlan, start: ApplyStart, files: list[ChangeFile], attempt: Attempt
    ) -> ApplyPlan | TableError:
        """The plan of the next commit. `concurrent-commit` where others changed data since the look: that must be
        reported, and our commit would hide theirs from the next look."""
        if sum(file.entry.size for file in files) > _WORTH_A_LOOK:
            self._log.forget()
        snapshot, table_log = read_snapshot(self._table, known=self._log.read()), None
        if snapshot is not None:
            table_log = read_table_log(self._table, snapshot.version, known=snapshot.log)
        if snapshot is not None and table_log is not None:
            snapshot = table_commit.with_position(snapshot, table_log.position)
            if not start.replaces:
                table_commit.check_not_restored(table_log, self.target)
                seen = found.table_log.foreign.changes if found.table_log is not None else ()
                if not set(seen).issuperset(table_log.foreign.changes):
                    newest = table_log.foreign.changes[-1]
                    raise LakemirrorError("concurrent-commit", f"{self.target}: another writer made {newest}")
        return plan(
            start,
            files,
            snapshot,
            self._table,
            path_of=self._storage.uri,
            limits=Limits(self._settings.batch_files, self._settings.batch_bytes),
            preference=self._preference,
            trust_statistics=attempt.trust_statistics,
            trust_footers=self._settings.trust_footers,
            as_they_are=attempt.as_they_are,
        )

    def tidy_up(self, version: int, on_written: Callable[[Target, Sequence[Action]], None]) -> None:
        """Merges the table's small files if that is due after these commits; `version` is that of the last commit.

        `on_written` gets the written files.
        """
        before, self._merged_at = self._merged_at or 0, version
        if not self._settings.maintenance:
            return

        def rewrite(work: RewriteWork) -> list[Action]:
            adds = compact(work)
            on_written(work.target, adds)
            return adds

        merged = 0
        if small_files.is_due(before, version):
            merged = small_files.merge_small_files(self._table, durability=self._settings.durability, rewrite=rewrite)
        if not merged and small_files.is_due_sooner(self._table, before, version):
            merged = small_files.merge_few(self._table, durability=self._settings.durability, rewrite=rewrite)
        log.debug("%s: %d small files became one", self.name, merged)

    def _staged(self, found: TablePlan) -> tuple[list[ChangeFile], TableError | None]:
        """The files of one batch as Parquet, and the error of the next one."""
        if not needs_staging(found.metadata):
            return list(found.pending.files), None
        chosen: list[ChangeFile] = []
        size = 0
        for file in found.pending.files[: self._settings.batch_files]:
            size += file.entry.size
            if chosen and size > self._settings.batch_bytes:
                break
            chosen.append(file)
        staged, error = self._staging.stage_all(chosen, found.metadata, undeclared=self._settings.undeclared_columns)
        if error is not None:
            self._check_still_there([chosen[len(staged)]])
        return staged, error

    def quarantine(self, found: TablePlan, error: LakemirrorError | None) -> bool:
        """Sets a bad file aside if `on_bad_file` says so; True if the table can go on."""
        if error is None or self._settings.on_bad_file != "quarantine" or error.code not in cleanup.QUARANTINABLE:
            return False
        entry = next((each for each in found.folder.files if each.path == error.file), None)
        if entry is None:
            return False
        place = cleanup.quarantine(self._storage, found.folder, entry, error)
        if place is not None:
            log.warning("%s: %s was set aside: %s", self.name, entry.path, error)
        return place is not None

    def retire(self, found: TablePlan) -> int:
        """Moves applied files aside and returns their number. Never raises: a file that cannot be moved now is moved in
        a later pass.

        Before, it syncs the commits that applied them (contract section 9), also those of another process.
        """
        try:
            if not self._is_marked(found):
                return 0  # a resync has just brought them back, or the folder was recreated
            position = found.table_log.position if found.table_log else None
            if self._settings.durability == POWER and position != self._synced:
                make_durable(self._storage.uri(self.target))
                self._synced = position
            failpoints.reach("retire.before-move")
            moved = cleanup.retire(self._storage, found.folder, found.metadata, found.applied)
            if self._settings.durability == POWER:
                self._sync_moves(found.folder, moved)
            return len(moved)
        except (OSError, LakemirrorError) as error:
            log.warning("%s: applied files could not be moved yet: %s", self.name, error)
            return 0

    def _sync_moves(self, folder: TableFolder, moved: Sequence[tuple[str, str]]) -> None:
        """Syncs the folders that received files, then those that lost them: after a power cut each file is in at least
        one.
        """
        home = folder.name.folder
        into = {target.rpartition("/")[0] for _, target in moved}
        for inner in sorted(into):
            while (inner := inner.rpartition("/")[0]) != home:
                into.add(inner)
        left = {source.rpartition("/")[0] for source, _ in moved} | ({home} if moved else set())
        for places in (into, left):
            sync_each(place(self._storage.uri(each)) for each in sorted(places, reverse=True))

    def _is_marked(self, found: TablePlan) -> bool:
        """True if the folder's marker is now that of the table."""
        path = f"{found.folder.name.folder}/{MARKER}"
        now = self._storage.stat(path)
        content = read_marker(self._storage, path, now) if now is not None else None
        marker = parse_marker(content) if content is not None else None
        return marker is not None and marker.id == found.identity

    def _read_metadata(self, folder: TableFolder) -> TableMetadata:
        etag = folder.metadata.etag if folder.metadata else ""
        if self._metadata is None or self._metadata[0] != etag or not etag:
            self._metadata = (etag, read_metadata(self._storage, folder))
        return self._metadata[1]

    def _fetch_footers(self, found: TablePlan) -> None:
        """Reads the footers of the files that wait, side by side where each is a request. What fails is read again."""
        if not self._storage.look_again or found.metadata.file_format != "Parquet":
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

    def _identify(self, found: TablePlan, at: Position | None, mark: bool) -> str:
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
            found.warnings.append(decided.warning)
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
        """TableError `table-restored`; a warning for other changes by other writers (contract section 10)."""
        if found.table_log is not None:
            table_commit.check_not_restored(found.table_log, self.target)
            found.warnings += capped(found.table_log.foreign.warnings)

    def _last_applied(self, found: TablePlan) -> dict[str, str]:
        """The etag of the newest applied file, which stays in the folder, by its path there."""
        manifest = found.table_log.manifest if found.table_log and not found.reseeding else None
        return {manifest.file: Entry("", manifest.size, manifest.modified, manifest.tag).etag} if manifest else {}

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
                    self._sequences = (at, read_sequences(self._table, at))
                sequences = self._sequences[1]
        manifest = table_log.manifest if table_log else None
        table = self._table
        return applied_files(detection, at.number if at else 0, manifest, sequences, table)

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
                found.append(Warned("file-quarantined", f"set aside: {self._reasons[entry.path]}", entry.path))
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

    def _check_unchanged(self, files: Sequence[ChangeFile]) -> None:
        """`_check_still_there` for local files. An object is read with its listed ETag, or copied at once."""
        if not is_in_store(self._table):
            with self._storage.holding_folders():
                self._check_still_there(files)

    def _check_still_there(self, files: Sequence[ChangeFile]) -> None:
        """LakemirrorError `concurrent-commit` if a file is missing: a publisher may delete it at any time."""
        for file in files:
            entry = self._storage.stat(file.entry.path)
            if entry is None or entry.etag != file.entry.etag:
                raise LakemirrorError("concurrent-commit", f"{file.entry.path} changed while it was read")


def _index(files: list[ChangeFile], path: str) -> int:
    return next((i for i, f in enumerate(files) if f.entry.path == path), 0)


def _listed(names: tuple[str, ...]) -> str:
    return "[" + ", ".join(names) + "]"
