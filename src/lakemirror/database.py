"""A mirrored database: what `import lakemirror` and the command line both offer.

MirroredDatabase("shop").sync()     one pass: everything that is there is applied
MirroredDatabase("shop").run()      until stopped
MirroredDatabase("shop").status()   without a JVM
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lakemirror import failpoints
from lakemirror import status as monitoring
from lakemirror.declared_readers import UNMET, DeclaredReaders, allowed
from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.landing_zone.partner_events import read_partner
from lakemirror.landing_zone.zone import LANDING_ZONE, TableName, scan
from lakemirror.maintenance.idle_work import Maintenance
from lakemirror.replication.apply_work import Applied
from lakemirror.replication.replicator import Replicator
from lakemirror.replication.scheduler import Observer, Scheduler, skipped_warnings
from lakemirror.replication.table_status import status_now, table_status
from lakemirror.settings import Settings, parse_definition, resolve
from lakemirror.storage import LocalStorage, Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakemirror")

DEFINITION = "mirroring.json"

_SHORT_RUN_BYTES = 256 * 1024**2  # up to here a JVM that starts fast beats one that computes fast
_WAITED_FOR = ("database-missing", "definition-invalid", "setting-invalid")
_LONGEST_SECOND_LOOK = 2.0  # seconds that a pass waits to see a delimited file unchanged
_LOOK = 0.05  # seconds between two looks of `run` while files arrive
_REFRESH = 30.0  # seconds after which the status files are written again though nothing changed


@dataclass
class TableResult:
    """What one pass did to one table: commits, change files, changes and bytes applied; the error it stands at."""

    commits: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    error: LakemirrorError | None = None


@dataclass
class SyncResult:
    """What one pass did, by table name; only tables that did something or need attention are in it."""

    tables: dict[str, TableResult] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    seconds: float = 0.0
    started_spark: bool = False

    @property
    def failed(self) -> dict[str, LakemirrorError]:
        """The tables that need attention."""
        return {name: t.error for name, t in self.tables.items() if t.error is not None}


class MirroredDatabase:
    """A folder with a landing zone, and the Delta tables that mirror it (contract section 1)."""

    def __init__(
        self, path: str | os.PathLike[str], *, spark: SparkSession | None = None, storage: Storage | None = None,
        **settings: Any,
    ) -> None:  # fmt: skip
        """`settings` are those of `lakemirror.settings.Settings`, by name; they win over environment and definition.

        `spark`: a session to use as it is. LakemirrorError `definition-invalid`, `setting-invalid`.
        """
        self.storage: Storage = storage or LocalStorage(path)
        self._given = spark
        self.flags = settings
        self.settings: Settings = self._resolve()

    def sync(self, observer: Observer | None = None) -> SyncResult:
        """One pass: applies every complete, contiguous change file that is there now, and returns what it did.

        Starts Spark only where something needs it. Never raises for a single table's sake. LakemirrorError
        `database-missing`. Where Spark cannot start, the tables that need it have a SetupError as theirs.
        """
        begun = time.monotonic()
        collected = _Collector(observer)
        scheduler = Scheduler(self.storage, self.settings, self._start_spark, collected, self._given)
        try:
            self._tick(scheduler)
            scheduler.wait()
            # delimited text is complete once it has been seen twice
            for _ in range(3):
                until = [s.waiting.until for s in scheduler.states.values() if s.waiting and s.waiting.until]
                if not until or min(until) > time.time() + _LONGEST_SECOND_LOOK:
                    break
                time.sleep(max(0.0, max(u for u in until if u <= time.time() + _LONGEST_SECOND_LOOK) - time.time()))
                self._tick(scheduler)
                scheduler.wait()
            # what may pass by itself gets a few more tries before the pass ends
            for pause in (0.5, 1.0, 2.0):
                if not any(s.error is not None and s.error.retry for s in scheduler.states.values()):
                    break
                time.sleep(pause)
                self._tick(scheduler)
                scheduler.wait()
            readers = DeclaredReaders(self.settings.readers, self.storage.uri)
            readers.step(scheduler, scheduler.need_spark, again=True)
            _StatusWriter(self.storage, scheduler, readers).write("Stopped")
        finally:
            scheduler.stop()
        started = scheduler.spark is not self._given
        result = SyncResult(collected.tables, collected.gone, time.monotonic() - begun, started)
        for name, state in scheduler.states.items():
            if state.error is not None:
                result.tables.setdefault(str(name), TableResult()).error = state.error
        return result

    def run(self, stop: threading.Event | None = None, observer: Observer | None = None) -> None:
        """Applies what arrives until `stop` is set; then finishes the commits at work and returns.

        Reacts at once while files arrive, and within `settings.poll_idle` after a rest. Errors as for `sync`; a store
        that does not answer is waited for. A `mirroring.json` that changes is read again, but for what concerns Spark;
        while it is invalid, nothing is applied and the status says so.
        """
        stop = stop or threading.Event()
        start_spark = partial(self._start_spark, long_lived=True)
        scheduler = Scheduler(self.storage, self.settings, start_spark, observer, self._given, self.settings.poll)
        maintenance = Maintenance(self.storage.uri, self.settings.retention_in_days)
        readers = DeclaredReaders(self.settings.readers, self.storage.uri)
        dropping = ThreadPoolExecutor(1, thread_name_prefix="readers")
        at_work: Future[int] | None = None
        writer = _StatusWriter(self.storage, scheduler, readers)
        idle_since = time.monotonic()
        definition = self._definition()
        trouble = 0
        try:
            self._require_zone()
            while not stop.is_set():
                begun = time.monotonic()
                try:
                    if definition != (now_defined := self._definition()):
                        self.settings = self._resolve()
                        definition = now_defined
                        if at_work is not None:
                            wait([at_work])
                        scheduler.stop()
                        spark = scheduler.spark
                        readers = DeclaredReaders(self.settings.readers, self.storage.uri)
                        scheduler = Scheduler(
                            self.storage, self.settings, start_spark, observer, spark, self.settings.poll
                        )
                        maintenance.retain(self.settings.retention_in_days)
                        writer.scheduler, writer.readers = scheduler, readers
                        log.info("%s has changed: its settings hold from now on, but those of Spark", DEFINITION)
                    worked = self._tick(scheduler)
                    trouble = 0
                    if self.settings.readers and (at_work is None or at_work.done()):
                        at_work = dropping.submit(readers.step, scheduler, scheduler.need_spark)
                except LakemirrorError as error:
                    if not error.retry and error.code not in _WAITED_FOR:
                        raise
                    worked, trouble = 0, trouble + 1
                    writer.error = error
                else:
                    writer.error = None
                writer.write("Running")
                now = time.monotonic()
                if worked or scheduler.at_work:
                    idle_since = now
                elif self.settings.maintenance:
                    _maintain(maintenance, scheduler)
                quiet = now - idle_since > 10
                pause = max(self.settings.poll_idle, 5 * (now - begun)) if quiet else max(_LOOK, now - begun)
                pause = max(pause, min(30.0, 2.0**trouble) if trouble else 0.0)
                stop.wait(pause)
        finally:
            maintenance.stop()
            dropping.shutdown(wait=True)
            scheduler.stop()
            writer.write("Stopped")

    def status(self) -> monitoring.DatabaseStatus:
        """Every table's state as the landing zone, the tables and the last pass show it; no JVM, nothing changed.

        LakemirrorError `database-missing`.
        """
        self._require_zone()
        zone = scan(self.storage)
        stored = monitoring.read_status(self.storage) or monitoring.DatabaseStatus("Stopped")
        last = {table.name: table for table in stored.tables}
        tables = []
        for name, folder in zone.tables.items():
            look = Replicator(self.storage, name, self.settings).inspect(folder, mark=False)
            tables.append(status_now(name, look, last.get(str(name))))
        partner, warned = read_partner(self.storage, zone)
        warnings = (*skipped_warnings(zone), *([warned] if warned else ()))
        unmet = tuple(warned for warned in stored.warnings if warned.code == UNMET)
        return replace(stored, tables=tuple(tables), warnings=warnings + unmet, partner=partner)

    def register(self, spark: SparkSession, schema: str = "") -> dict[str, str]:
        """Makes the tables known to a session's catalog, and returns its name for each; see `reading.register`.

        `schema`: the catalog's; empty: the name of the database's folder. LakemirrorError `database-missing`.
        """
        from lakemirror import reading

        folder = self.storage.uri()
        return reading.register(spark, reading.readable_tables(folder), schema or folder.rstrip("/").rpartition("/")[2])

    def _tick(self, scheduler: Scheduler) -> int:
        if scheduler.broken:
            raise SetupError("spark-failed", "Spark's process ended; nothing is half done, start again")
        try:
            return scheduler.tick()
        except FileNotFoundError as error:
            raise self._missing() from error

    def _require_zone(self) -> None:
        if not self.storage.exists(LANDING_ZONE):
            raise self._missing()

    def _missing(self) -> LakemirrorError:
        return LakemirrorError("database-missing", f"{self.storage.uri()} has no {LANDING_ZONE}")

    def _definition(self) -> str:
        """Changes whenever `mirroring.json` does."""
        entry = self.storage.stat(DEFINITION)
        return entry.etag if entry else ""

    def _resolve(self) -> Settings:
        try:
            definition = parse_definition(self.storage.read(DEFINITION))
        except FileNotFoundError:
            definition = {}
        return allowed(resolve(definition, **self.flags))

    def _start_spark(self, pending_bytes: int, *, long_lived: bool = False) -> SparkSession:
        from lakemirror.spark_session import session as spark

        return spark.start(self.settings, short=pending_bytes <= _SHORT_RUN_BYTES and not long_lived)


def _maintain(maintenance: Maintenance, scheduler: Scheduler) -> None:
    """What is to be done while nothing arrives."""
    names = {target: name for name, target in scheduler.targets().items()}
    maintenance.step(scheduler.need_spark, names, lambda target: scheduler.held_back(names[target]))


class _Collector:
    """Adds up what a pass did, and passes it on."""

    def __init__(self, observer: Observer | None) -> None:
        self.tables: dict[str, TableResult] = {}
        self.gone: list[str] = []
        self._observer = observer
        self._lock = threading.Lock()

    def applied(self, name: TableName, applied: Applied) -> None:
        with self._lock:
            result = self.tables.setdefault(str(name), TableResult())
            result.commits += 1
            result.files += len(applied.batch.files)
            result.rows += applied.batch.rows
            result.bytes += applied.batch.bytes
        if self._observer is not None:
            self._observer.applied(name, applied)

    def failed(self, name: TableName, error: LakemirrorError) -> None:
        if self._observer is not None:
            self._observer.failed(name, error)

    def dropped(self, target: str) -> None:
        self.gone.append(target)
        if self._observer is not None:
            self._observer.dropped(target)


class _StatusWriter:
    """Writes the status files when something changed, and now and then when nothing did."""

    def __init__(self, storage: Storage, scheduler: Scheduler, readers: DeclaredReaders) -> None:
        self.readers = readers
        self.error: LakemirrorError | None = None
        self._storage = storage
        self.scheduler = scheduler
        self._written: monitoring.DatabaseStatus | None = None
        self._when = 0.0

    def write(self, status: str) -> None:
        """A store that does not take it now gets it next time: the status is nobody's truth."""
        partner, warned = read_partner(self._storage, self.scheduler.zone)
        now = monitoring.DatabaseStatus(
            status,
            self.error.code if self.error else "",
            self.error.message if self.error else "",
            tuple(table_status(name, state) for name, state in list(self.scheduler.states.items())),
            (
                *skipped_warnings(self.scheduler.zone),
                *([warned] if warned else ()),
                *list(self.readers.warnings.values()),
            ),
            partner,
        )
        if now == self._written and time.monotonic() - self._when < _REFRESH:
            return
        failpoints.reach("status.before-write")
        with contextlib.suppress(LakemirrorError, OSError):
            monitoring.write_status(self._storage, now)
            self._written, self._when = now, time.monotonic()
