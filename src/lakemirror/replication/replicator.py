"""One table: the loop that is the whole exactly-once argument.

    position = the table's own `txn` action            look (no JVM)
    files    = complete, contiguous files after it     look (no JVM)
    batch    = a run of them                           apply
    apply(net effect of batch, position)               apply: one Delta commit
    retire(batch)                                      retire: may fail or repeat without harm

Nothing is remembered from one turn to the next but what only saves time: footers, and what failed and when.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror import failpoints
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.failures import coded
from lakemirror.landing_zone import archive as cleanup
from lakemirror.landing_zone.applied_files import AppliedFiles
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.identity import AppliedSoFar, LastFile, identify
from lakemirror.landing_zone.metadata import LAST_UPDATE, TableMetadata, Warned, capped
from lakemirror.landing_zone.metadata_file import check_name, not_files, read_metadata
from lakemirror.landing_zone.pending import pending
from lakemirror.landing_zone.staging import Staging, needs_staging
from lakemirror.landing_zone.zone import TableFolder, TableName
from lakemirror.maintenance import compaction as small_files
from lakemirror.replication.applied_record import Detection, declared, parse_detection
from lakemirror.replication.apply_work import Applied, Limits, Work
from lakemirror.replication.batch import UntrueStatistics
from lakemirror.replication.direct_table import DirectTable
from lakemirror.replication.moved_tables import move_here
from lakemirror.replication.position import Manifest, Position, from_note
from lakemirror.replication.schema_evolution import Rules
from lakemirror.replication.table_log import TableLog, read_sequences, read_table_log
from lakemirror.replication.table_plan import TablePlan, applied_files
from lakemirror.settings import Settings
from lakemirror.storage import Entry, Storage

if TYPE_CHECKING:  # a look needs no Spark, and importing it takes longer than most looks
    from pyspark.sql import SparkSession

log = logging.getLogger("lakemirror")

_STEADY = 1.0  # seconds between two looks that make a delimited file complete


class Replicator:
    """Brings one table folder's changes into its Delta table."""

    def __init__(self, storage: Storage, name: TableName, settings: Settings) -> None:
        self.name = name
        self.target = name.target(settings.default_schema)
        self._storage = storage
        self._settings = settings
        self._footers: dict[str, tuple[str, pq.FileMetaData]] = {}
        self._first_seen: dict[str, tuple[str, float]] = {}
        self._sequences: tuple[Position, dict[str, int]] | None = None
        self._reasons: dict[str, str] = {}
        self._staging = Staging(storage)
        self._metadata: tuple[str, TableMetadata] | None = None
        self._merged_at: int | None = None

    def inspect(self, folder: TableFolder, *, now: float | None = None, mark: bool = True) -> TablePlan:
        """What there is to do. With `mark` the folder gets its identity marker where it has none.

        Every error that concerns this table alone is in the result, not raised.
        """
        found = TablePlan(folder, TableMetadata())
        try:
            self._inspect(found, time.time() if now is None else now, mark)
        except Exception as failure:  # the boundary around one table: whatever goes wrong concerns it alone
            found.work = None
            found.error = coded(failure, table=str(self.name))
        found.warnings += not_files(folder.others)
        return found

    def _inspect(self, found: TablePlan, now: float, mark: bool) -> None:
        folder = found.folder
        check_name(self.name)
        self._storage.stat(f"{self.target}/_delta_log")  # `path-refused` where a link leads out of the database
        found.table_log = read_table_log(self._storage.uri(self.target))
        if found.table_log is None and mark and move_here(self._storage, self.name, self.target):
            found.table_log = read_table_log(self._storage.uri(self.target))
        if folder.error is not None:
            raise folder.error
        found.metadata = self._read_metadata(folder)
        found.warnings += found.metadata.warnings
        at = found.table_log.position if found.table_log else None
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
        self._read_progress(found)
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
        if found.pending.files:
            found.work = self._work(found, at, known)
        else:
            found.error = found.pending.error

    def apply(
        self, session: Callable[[], SparkSession], found: TablePlan
    ) -> tuple[Applied | None, LakemirrorError | None]:
        """One commit from what a look found: what was applied, and the error of the file behind it, if any.

        `session` gives this thread's Spark session; it is asked for where the batch needs one.

        An apply that fails for one file's sake is repeated with the files before it. LakemirrorError is raised for
        what concerns the attempt as a whole; `concurrent-commit` means that another look is needed.
        """
        assert found.work is not None
        files, bad = self._staged(found)
        error: LakemirrorError | None = bad or found.pending.error
        staged = list(files)
        table = self._storage.uri(self.target)
        limits = Limits(self._settings.batch_files, self._settings.batch_bytes)
        trust = True
        try:
            while files:
                try:
                    given = (found.work, files, self._storage.uri, limits, trust)
                    outcome = DirectTable(table, trust_footers=self._settings.trust_footers).apply(*given)
                    if outcome is None:
                        from lakemirror.replication.mirrored_table import MirroredTable

                        outcome = MirroredTable(session(), table).apply(*given)
                    applied, bad = outcome
                except UntrueStatistics:
                    trust = False
                    continue
                except TableError as refused:
                    if refused.file is None or refused.code == "target-foreign":
                        raise
                    error = refused
                    files = files[: _index(files, refused.file)]
                    continue
                except Exception as failure:
                    if not _is_sparks(failure):
                        raise
                    self._check_still_there(files)
                    if len(files) > 1:
                        # which file it was is not always said: halve until one is left
                        files = files[: len(files) // 2]
                        continue
                    raise _unknown(failure, files[0]) from failure
                if applied is not None and self._merged_at is None:
                    self._merged_at = max(0, applied.version - 1)
                return applied, bad or error
            return None, error
        finally:
            self._staging.clear(staged)

    def tidy_up(self, version: int) -> None:
        """Merges the table's small files every so many commits; `version` is that of the last one."""
        before, self._merged_at = self._merged_at, version
        if not self._settings.maintenance or version // small_files.EVERY == (before or 0) // small_files.EVERY:
            return
        merged = small_files.merge_small_files(self._storage.uri(self.target))
        log.debug("%s: %d small files became one", self.name, merged)

    def made_anew(self, spark: SparkSession) -> None:
        """Tells Delta in a JVM that runs that the table is another one than may have been at its place before."""
        from lakemirror.replication.mirrored_table import MirroredTable

        MirroredTable(spark, self._storage.uri(self.target)).forget()

    def _staged(self, found: TablePlan) -> tuple[list[ChangeFile], TableError | None]:
        """The files of one batch as Spark can read them, and the error of the one behind them."""
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
        """Sets a bad file aside where that is asked for (`on_bad_file`); True where the table can go on."""
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
        """Moves applied files aside; how many. Never raises: what could not be moved is moved in a later pass."""
        try:
            failpoints.reach("retire.before-move")
            return len(cleanup.retire(self._storage, found.folder, found.metadata, found.applied))
        except (OSError, LakemirrorError) as error:
            log.warning("%s: applied files could not be moved yet: %s", self.name, error)
            return 0

    def _read_metadata(self, folder: TableFolder) -> TableMetadata:
        etag = folder.metadata.etag if folder.metadata else ""
        if self._metadata is None or self._metadata[0] != etag or not etag:
            self._metadata = (etag, read_metadata(self._storage, folder))
        return self._metadata[1]

    def _footer(self, entry: Entry) -> pq.FileMetaData:
        cached = self._footers.get(entry.path)
        if cached is not None and cached[0] == entry.etag:
            return cached[1]
        with self._storage.open(entry.path) as file:
            footer = pq.read_metadata(pa.PythonFile(file, mode="r"))
        self._footers[entry.path] = (entry.etag, footer)
        return footer

    def _identify(self, found: TablePlan, at: Position | None, mark: bool) -> str:
        """The id of the table folder; another one than the table's means that the folder was made again."""
        so_far = None
        if at is not None:
            manifest = found.table_log.manifest if found.table_log else None
            last = LastFile(manifest.file, manifest.size, manifest.modified) if manifest else None
            so_far = AppliedSoFar(at.identity, at.number, last, found.applied)
        failpoints.reach("identity.before-marker")
        decided = identify(self._storage, found.folder, found.metadata, so_far, write=mark)
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

    def _last_applied(self, found: TablePlan) -> dict[str, str]:
        """The etag of the newest applied file, which stays in the folder, by its path there."""
        manifest = found.table_log.manifest if found.table_log and not found.reseeding else None
        return {manifest.file: Entry("", manifest.size, manifest.modified).etag} if manifest else {}

    def _read_progress(self, found: TablePlan) -> None:
        """How files are found from here on, and which are applied; nothing is where the folder was made again."""
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
                    self._sequences = (at, read_sequences(self._storage.uri(self.target), at))
                sequences = self._sequences[1]
        manifest = table_log.manifest if table_log else None
        table = self._storage.uri(self.target)
        return applied_files(detection, at.number if at else 0, manifest, sequences, table)

    def _steady_at(self, now: float, entry: Entry) -> float:
        """When a delimited file counts as complete: seen unchanged for a second, or settled before (section 4)."""
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

    def _work(self, found: TablePlan, at: Position | None, known: str) -> Work:
        manifest: Manifest | None = None if found.reseeding or not found.table_log else found.table_log.manifest
        return Work(
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

    def _check_still_there(self, files: list[ChangeFile]) -> None:
        """A publisher may delete at any time; then there is nothing wrong with the file, and another look is due."""
        for file in files:
            entry = self._storage.stat(file.entry.path)
            if entry is None or entry.etag != file.entry.etag:
                raise LakemirrorError("concurrent-commit", f"{file.entry.path} changed while it was read")


def table_properties(settings: Settings) -> Mapping[str, str]:
    """The Delta properties of a new mirrored table."""
    hours = settings.retention_in_days * 24
    # Spark reads fractions of seconds, and of nothing else
    retention = f"interval {hours:g} hours" if hours == int(hours) else f"interval {round(hours * 3600)} seconds"
    properties = {
        "delta.deletedFileRetentionDuration": retention,
        # versions whose files are gone cannot be read: their commits go, too
        "delta.logRetentionDuration": retention,
        "delta.checkpointInterval": "100",  # the others are written without Delta (decision 023)
    }
    if settings.deletion_vectors:
        properties["delta.enableDeletionVectors"] = "true"
    if settings.change_data_feed:
        properties["delta.enableChangeDataFeed"] = "true"
    return properties


def column_rules(settings: Settings) -> Rules:
    """How a mirrored table's columns may grow."""
    feed = {"_change_type", "_commit_version", "_commit_timestamp"} if settings.change_data_feed else set()
    return Rules(settings.on_type_change == "widen", settings.column_mapping, frozenset(feed))


def _is_sparks(failure: Exception) -> bool:
    """True for what Spark throws at a job or a statement, told without importing it."""
    return any(kind.__name__ in ("Py4JJavaError", "PySparkException") for kind in type(failure).__mro__)


def _unknown(failure: Exception, file: ChangeFile) -> LakemirrorError:
    text = str(failure)
    code = "file-unreadable" if "FAILED_READ_FILE" in text or "ParquetDecodingException" in text else "internal"
    sentence = text.strip().splitlines()[0][:300]
    return TableError(code, f"{file.entry.path}: {sentence}", file=file.entry.path)


def _index(files: list[ChangeFile], path: str) -> int:
    return next((i for i, f in enumerate(files) if f.entry.path == path), 0)


def _listed(names: tuple[str, ...]) -> str:
    return "[" + ", ".join(names) + "]"
