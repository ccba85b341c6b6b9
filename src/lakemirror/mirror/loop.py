"""The loop of `run`: applies what arrives in one mirrored database until it is stopped.

    settings as `mirroring.json` has them ─▶ one tick ─▶ declared readers, maintenance ─▶ status ─▶ pause ─▶ …

Several Runners can run in one process: they share nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from lakemirror import status as monitoring
from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.failures import coded
from lakemirror.landing_zone.database_folder import missing_database
from lakemirror.landing_zone.metadata import Warned
from lakemirror.landing_zone.zone import LANDING_ZONE, TableName
from lakemirror.mirror.declared_readers import DeclaredReaders, allowed
from lakemirror.mirror.fair_turns import FairTurns
from lakemirror.mirror.observer import Observer
from lakemirror.mirror.scheduler import Scheduler
from lakemirror.mirror.status_writer import StatusWriter
from lakemirror.mirror.zone_watch import ZoneWatch
from lakemirror.settings import DEFINITION, Settings, read_definition
from lakemirror.settings_spelling import unknown_settings
from lakemirror.status import DatabaseStatus, TableStatus
from lakemirror.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakemirror")

PATIENCE = 8.0  # seconds that commits at work get to end after a stop
_LOOK = 0.05  # seconds between two looks of `run` while files arrive
_QUIET = 10.0  # seconds without work after which looks become rare

StartSpark = Callable[[Settings, int], "SparkSession"]


class Runner:
    """Runs one mirrored database."""

    def __init__(
        self,
        storage: Storage,
        resolve: Callable[[], Settings],
        start_spark: StartSpark,
        *,
        observer: Observer | None = None,
        spark: SparkSession | None = None,
        turns: FairTurns | None = None,
        watch: bool = False,
        warnings_of: Callable[[Mapping[str, Any]], list[Warned]] = unknown_settings,
    ) -> None:
        """`resolve` reads the settings, now and after each change of `mirroring.json`. Its errors are raised here.
        `start_spark(settings, pending_bytes)` returns a session when the first batch needs one. `spark`: a session that
        already runs. `turns`: shared with the other Runners of the process. `watch`: the operating system reports which
        folders change, if it can; `stop` is then checked a few times a second. `warnings_of`: what is wrong with the
        settings of a definition.
        """
        from lakemirror.mirror.idle_time import IdleTime  # here, since a single pass does not need it

        self.settings = resolve()
        self.definition_error: LakemirrorError | None = None
        self._storage = storage
        self._resolve = resolve
        self._start_spark = start_spark
        self._observer = observer
        self._turns = turns
        self._warnings_of = warnings_of
        self._seen = _definition_etag(storage)
        before = status_before(storage)
        self._scheduler = self._new_scheduler(spark, before.tables)
        self._watch = ZoneWatch(storage) if watch else None
        self._readers = DeclaredReaders(self.settings.readers, storage.uri)
        self._idle_time = IdleTime(
            storage, self.settings, lambda target, adds: self._scheduler.index_keys(target, adds)
        )
        self._bringing_down: Future[int] | None = None
        self._dropping = ThreadPoolExecutor(1, thread_name_prefix="readers")
        self._writer = StatusWriter(storage, before.warnings)
        self._idle_since = time.monotonic()
        self._trouble = 0
        self._definition_again = 0.0
        self._round_error: LakemirrorError | None = None

    def run(self, stop: threading.Event) -> None:
        """Applies what arrives until `stop` is set, then waits at most PATIENCE seconds for running commits.

        Reacts at once while files arrive, and within `settings.poll_idle` after a quiet time. Waits for a store that
        does not answer. While `mirroring.json` is invalid, the last valid settings stay in force; status and log report
        it. Errors: `database-missing` at the start; SetupError if Spark's process ended.
        """
        require_zone(self._storage)
        self._storage.probe()
        self._say_unknown_settings()
        try:
            while not stop.is_set():
                begun = time.monotonic()
                self._follow_definition()
                worked = self._round()
                self._write("Running")
                self._wait(stop, self._pause(begun, worked))
        finally:
            self._end()

    @property
    def is_restless(self) -> bool:
        """True if looks must stay frequent: a table waits for a time, something fails, or idle work was recent."""
        fails = bool(self._trouble) or self.definition_error is not None
        waits = bool(self._scheduler.restless or self._scheduler.missing_folders)
        return waits or fails or self._idle_time.was_used_lately

    def sign_of_life(self) -> None:
        """Writes the status during a wait longer than HEARTBEAT. Call it only within `stop.wait`."""
        self._write("Running")

    def abandon(self) -> None:
        """Writes the status `Stopped` while threads still work: for a process that ends without waiting for them.

        Their work ends as if the process were killed, which is safe at any time.
        """
        self._scheduler.request_stop()
        self._write("Stopped")

    def _round(self) -> int:
        """Runs one tick and what follows it. Returns the number of tables that got work. Transient errors are retried
        later.
        """
        try:
            worked = self._tick()
            if self.settings.readers and (self._bringing_down is None or self._bringing_down.done()):
                self._bringing_down = self._dropping.submit(self._bring_down)
            if worked or self._scheduler.at_work:
                self._idle_since = time.monotonic()
            elif self._idle_time.use(self._scheduler, self.settings, verify=self._is_quiet):
                self._writer.verification_warnings = self._idle_time.warnings
        except SetupError:
            raise
        except Exception as failure:
            error = coded(failure)
            if str(error) != str(self._round_error):
                log.error("%s", error)
            self._round_error = error
            self._trouble += 1
            if self._watch is not None:
                self._watch.look_at_all()
            return 0
        self._trouble, self._round_error = 0, None
        return worked

    def _tick(self) -> int:
        if self._watch is None:
            return tick(self._scheduler, self._storage)
        begun = time.monotonic()
        due = self._watch.due(self._scheduler)
        worked = tick(self._scheduler, self._storage, due)
        self._watch.looked(self._scheduler, due, time.monotonic() - begun)
        return worked

    def _bring_down(self) -> int:
        """Drops what the declared readers cannot read. Never raises: no caller could handle an error."""
        try:
            return self._readers.step(self._scheduler, self._scheduler.need_spark)
        except Exception as failure:
            self._scheduler.warn(
                "readers-unmet", f"the check of the declared readers is repeated later: {coded(failure)}"
            )
            return 0

    def _pause(self, begun: float, worked: int) -> float:
        """Seconds until the next tick: few while files arrive, more when none arrive or something does not answer."""
        took = time.monotonic() - begun
        rests = self._is_quiet and not worked
        pause = max(self.settings.poll_idle, 5 * took) if rests else max(_LOOK, took)
        return max(pause, min(30.0, 2.0**self._trouble) if self._trouble else 0.0)

    @property
    def _is_quiet(self) -> bool:
        """True if nothing has arrived for a while."""
        return time.monotonic() - self._idle_since > _QUIET

    def _wait(self, stop: threading.Event, seconds: float) -> None:
        """Waits so long, or until `stop` is set or a folder changes."""
        if self._watch is not None and self._watch.sees_everything and not self._trouble:
            self._watch.wait(self._scheduler, seconds, stop.is_set)
        else:
            stop.wait(seconds)

    def _follow_definition(self) -> None:
        """Uses the settings of a changed `mirroring.json`, except those of Spark."""
        if time.monotonic() < self._definition_again:
            return
        self._definition_again = time.monotonic() + self._storage.capabilities.looks_last / 10
        try:
            seen = _definition_etag(self._storage)
            settings = self.settings if seen == self._seen else self._resolve()
        except Exception as failure:
            error = coded(failure)
            if str(error) != str(self.definition_error):
                log.error("%s; the last valid settings stay in force", error)
            self.definition_error = error
            return
        self.definition_error = None
        if seen == self._seen:
            return
        self._seen = seen
        if settings != self.settings:
            self._change(settings)
        self._say_unknown_settings()

    def _change(self, settings: Settings) -> None:
        readers = DeclaredReaders(settings.readers, self._storage.uri)
        if self._bringing_down is not None:
            self._bringing_down.result()
        self._scheduler.stop()
        self.settings = settings
        self._readers = readers
        self._scheduler = self._new_scheduler(self._scheduler.spark, self._scheduler.rows())
        if self._watch is not None:
            self._watch.look_at_all()
        self._idle_time.retain(settings.retention_in_days)
        log.warning("%s has changed: its settings are in force now, except those of Spark", DEFINITION)

    def _new_scheduler(self, spark: SparkSession | None, before: Iterable[TableStatus]) -> Scheduler:
        start = partial(self._start_spark, self.settings)
        return Scheduler(
            self._storage, self.settings, start, self._observer, spark, self.settings.poll, before, self._turns,
            settings_of=allowed,
        )  # fmt: skip

    def _say_unknown_settings(self) -> None:
        found = setting_warnings(self._storage, self._warnings_of)
        for warned in found:
            if warned not in self._writer.setting_warnings:
                log.warning("%s", warned.message)
        self._writer.setting_warnings = found

    def _write(self, status: str) -> None:
        self._writer.write(status, self._scheduler, self._readers, self.definition_error or self._round_error)

    def _end(self) -> None:
        """Waits a limited time for running work, and always writes the status `Stopped`."""
        self._scheduler.request_stop()
        try:
            self._idle_time.stop()
            self._dropping.shutdown(wait=self._scheduler.stop(PATIENCE), cancel_futures=True)
        except Exception as failure:
            log.error("%s", coded(failure))
        finally:
            if self._watch is not None:
                self._watch.close()
            self._write("Stopped")


def tick(
    scheduler: Scheduler, storage: Storage, only: Collection[TableName] | None = None, *, again: bool = False
) -> int:
    """Runs one tick over all tables, or `only` these. Returns the number of tables that got work. `again`: it is
    another look of the same pass.

    LakemirrorError `database-missing`, `storage-unavailable`; SetupError.
    """
    if scheduler.broken:
        raise SetupError("spark-failed", "Spark's process ended; nothing is half done, start again")
    try:
        return scheduler.tick(only=only, again=again)
    except FileNotFoundError as error:
        raise missing(storage) from error


def require_zone(storage: Storage) -> None:
    """LakemirrorError `database-missing` if there is no landing zone: a misspelt path is never created."""
    if not storage.exists(LANDING_ZONE):
        raise missing(storage)


def missing(storage: Storage) -> LakemirrorError:
    return missing_database(storage.uri())


def status_before(storage: Storage) -> DatabaseStatus:
    """The status as an earlier process wrote it; empty if it cannot be read."""
    try:
        found = monitoring.read_status(storage)
    except LakemirrorError:
        found = None
    return found or DatabaseStatus("")


def setting_warnings(
    storage: Storage, warnings_of: Callable[[Mapping[str, Any]], list[Warned]] = unknown_settings
) -> list[Warned]:
    """Warnings for the settings in `mirroring.json` and the environment; none if the definition is unreadable."""
    try:
        return warnings_of(read_definition(storage))
    except LakemirrorError:
        return []


def _definition_etag(storage: Storage) -> str:
    """A text that changes when `mirroring.json` changes. `definition-invalid` if it is no regular file."""
    try:
        entry = storage.stat(DEFINITION)
    except LakemirrorError as error:
        if error.code == "path-refused":
            raise LakemirrorError("definition-invalid", error.message) from error
        raise
    return entry.etag if entry else ""


__all__ = ["PATIENCE", "Runner", "missing", "require_zone", "setting_warnings", "status_before", "tick"]
