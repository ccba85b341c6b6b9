"""One mirrored database that applies what arrives until it is stopped.

    "zone" in the queue:   list the landing zone ─▶ wake its tables, watch its folders
    "status" in the queue: settings as `mirroring.json` has them ─▶ declared readers, idle work ─▶ status

Several Runners can run in one process: they share the queue and the watch of folders.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.executions.execution_log import ExecutionLog
from lakemirror.failures import coded
from lakemirror.landing_zone.database_folder import require_zone
from lakemirror.landing_zone.metadata import Warned
from lakemirror.landing_zone.zone import LANDING_ZONE, TableName, Zone, table_of
from lakemirror.mirror.declared_readers import DeclaredReaders
from lakemirror.mirror.observer import Observer
from lakemirror.mirror.queue import ApplyQueue
from lakemirror.mirror.schedule import Again
from lakemirror.mirror.scheduler import PATIENCE, InQueue, Scheduler
from lakemirror.mirror.status_writer import StatusWriter
from lakemirror.mirror.table_states import TableStates
from lakemirror.mirror.zone_watch import ZoneWatch
from lakemirror.settings.followed_settings import FollowedSettings
from lakemirror.settings.settings import DEFINITION, Settings
from lakemirror.settings.spelling import unknown_settings
from lakemirror.status.status import HEARTBEAT, DatabaseStatus, TableStatus
from lakemirror.status.status_reader import last_status
from lakemirror.storage import Storage
from lakemirror.storage.folder_watch import NotWatched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakemirror.mirror.engine_group import EngineGroup

log = logging.getLogger("lakemirror")

SELDOM = 10.0
"""Seconds between two listings, at least, where all folders are watched."""

ZONE, STATUS = "zone", "status"
"""What a database does beside its tables, by its name in the queue."""

_SOON = 0.05  # least seconds between two listings, or two writes of the status
_QUIET = 10.0  # seconds without work after which listings become rare
_REST = 35.0  # the same where events wake the tables, and nothing waits; longer than `settle`
_SHARE = 200.0  # pause after a listing that confirms a watch, as a multiple of how long it took
_ABOVE = ("", "Files", LANDING_ZONE)  # folders whose change concerns no single table

StartSpark = Callable[[Settings], "SparkSession"]


@dataclass(frozen=True)
class Shared:
    """What the databases of a process share.

    `seldom`: seconds between two listings of a database that is idle, at least, where all its folders are watched.
    `rounds`: least seconds between two rounds of such a database, so that idle work of many leaves time to others.
    """

    queue: ApplyQueue = field(default_factory=ApplyQueue)
    watch: ZoneWatch = field(default_factory=ZoneWatch)
    seldom: float = SELDOM
    rounds: float = 0.0


class Runner:
    """Runs one mirrored database."""

    def __init__(
        self,
        storage: Storage,
        resolve: Callable[[], Settings],
        start_spark: StartSpark,
        *,
        observers: Sequence[Observer] = (),
        spark: SparkSession | None = None,
        shared: Shared | None = None,
        warnings_of: Callable[[Mapping[str, Any]], list[Warned]] = unknown_settings,
    ) -> None:
        """`resolve` reads the settings, now and after each change of `mirroring.json`. Its errors are raised here.
        `start_spark(settings)` returns a session when the first batch needs one. `spark`: a session that
        already runs. `shared`: with the other Runners of the process. `warnings_of`: what is wrong with the settings of
        a definition.
        """
        from lakemirror.mirror.idle_time import IdleTime  # here, since a single pass does not need it

        self._followed = FollowedSettings(storage, resolve, warnings_of)
        self.has_looked = False  # the landing zone was listed
        self.ended_by: LakemirrorError | None = None  # the error after which it does nothing any more
        self.on_end: Callable[[], None] = lambda: None  # called when there is such an error
        self._storage = storage
        self._start_spark = start_spark
        self._given = spark
        self._executions = ExecutionLog(storage, self.settings)
        self._observers = (self._executions, *observers)
        self._shared = shared or Shared()
        self._lane = self._shared.queue.add(self._step, looks=1)
        watchable = storage.watchable()
        self._not_watched = watchable if isinstance(watchable, NotWatched) else None
        self._folder = None if isinstance(watchable, NotWatched) else watchable
        before = last_status(storage)
        self._group = self._new_group() if self.settings.share else None
        self._scheduler = self._new_scheduler(spark, before.tables)
        self._readers = DeclaredReaders(self.settings.readers, storage.uri, self._executions.maintained)
        self._idle_time = IdleTime(
            storage, self.settings, lambda target, adds: self._scheduler.index_keys(target, adds),
            self._executions.maintained,
        )  # fmt: skip
        self._bringing_down: Future[int] | None = None
        self._dropping = ThreadPoolExecutor(1, thread_name_prefix="readers")
        self._writer = StatusWriter(storage, before, self._group)
        self._begun = time.monotonic()
        self._errors: dict[str, LakemirrorError] = {}  # of what failed last time, by its name in the queue
        self._failures: Counter[str] = Counter()  # in a row

    def run(self, stop: threading.Event) -> None:
        """Applies what arrives until `stop` is set, then waits at most PATIENCE seconds for running commits.

        Reacts at once where the system tells of changes or files keep arriving, else within `settings.poll_idle`. Waits
        for a store that does not answer. While `mirroring.json` is invalid, the last valid settings stay in force;
        status and log report it. Errors: `database-missing` at the start; SetupError if Spark's process ended.
        """
        self.begin()
        try:
            while self.ended_by is None and not stop.wait(0.2):
                continue
        finally:
            self.end()
            self._shared.watch.close()
            self._shared.queue.close()
        if self.ended_by is not None:
            raise self.ended_by

    def begin(self) -> None:
        """Begins to apply, in the threads of the queue. Errors as in `run`."""
        require_zone(self._storage)
        self._storage.probe()
        if self._group is not None:
            self._group.start()
        self._followed.find_unknown()
        reason = self._not_watched or (self._folder and self._shared.watch.follow(self._folder, self._told))
        if reason:
            say = log.warning if reason.is_limit else log.debug
            say("the landing zone is polled: %s", reason.reason)
        self._shared.queue.wake(self._lane, ZONE, STATUS)

    @property
    def settings(self) -> Settings:
        """The settings that are in force."""
        return self._followed.now

    @property
    def status(self) -> DatabaseStatus | None:
        """The status as it was written last, without reading it; None before."""
        return self._writer.written if self.has_looked else None

    def wake(self) -> None:
        """Somebody has published: what the system does not tell of is looked for at once."""
        self._shared.queue.wake(self._lane, *([STATUS] if self._has_events else [ZONE, STATUS]))

    def end(self) -> None:
        """Waits a limited time for running work, and always writes the status `Stopped`."""
        self._scheduler.request_stop()
        self._shared.queue.stop(self._lane)
        if self._folder is not None:
            self._shared.watch.leave(self._folder)
        try:
            self._idle_time.stop()
            self._dropping.shutdown(wait=self._scheduler.stop(PATIENCE), cancel_futures=True)
            self._shared.queue.wait(self._lane, PATIENCE)
        except Exception as failure:
            log.error("%s", coded(failure))
        finally:
            self._write("Stopped")
            self._executions.close()
            if self._group is not None:
                self._group.leave()

    def abandon(self) -> None:
        """Writes the status `Stopped` while threads still work: for a process that ends without waiting for them.

        Their work ends as if the process were killed, which is safe at any time.
        """
        self._scheduler.request_stop()
        self._write("Stopped")

    def _step(self, name: str, _: object) -> Again:
        """One listing, or one round of what else there is to do. Transient errors are retried later."""
        try:
            again = self._list() if name == ZONE else self._do_the_rest()
        except SetupError as error:
            self.ended_by = error
            self._shared.queue.stop(self._lane)
            self.on_end()
            return Again()
        except Exception as failure:
            return self._failed(name, coded(failure))
        self._errors.pop(name, None)
        self._failures[name] = 0
        return again

    def _failed(self, name: str, error: LakemirrorError) -> Again:
        """Reports an error that concerns no single table. What failed is tried again after 2, 4, 8 … 30 seconds."""
        if str(error) != str(self._errors.get(name)):
            log.error("%s", error)
        self._errors[name] = error
        self._failures[name] += 1
        self._write("Running")
        return Again(min(30.0, 2.0 ** min(self._failures[name], 5)), rest=_SOON)

    def _list(self) -> Again:
        """Lists the landing zone, and watches what is new in it."""
        begun = time.monotonic()
        self._scheduler.has_events = self._has_events
        self._scheduler.tick()
        fresh = self._watch(_folders(self._scheduler.zone))
        took = time.monotonic() - begun
        self.has_looked = True
        self._shared.queue.later(self._lane, _SOON, STATUS)
        if any(_table_of(folder) is None for folder in fresh):
            return Again(_SOON)
        if self._has_events:
            calm = self._is_quiet and not self.is_restless
            seldom = self._shared.seldom if calm else min(self._shared.seldom, 2 * SELDOM)
            until_drop = self._scheduler.dropped.due - time.monotonic()
            due = min(max(seldom, _SHARE * took), max(self.settings.poll_idle, until_drop))
        else:
            due = max(self.settings.poll_idle, 5 * took) if self._is_quiet else max(_SOON, took)
        return Again(due, rest=max(_SOON, took))

    def _do_the_rest(self) -> Again:
        """Follows `mirroring.json`, starts what is done in idle time, and writes the status."""
        if self._followed.follow():
            self._use_settings()
        if self._scheduler.broken:
            raise SetupError("spark-failed", "Spark's process ended; nothing is half done, start again")
        if self.settings.readers and (self._bringing_down is None or self._bringing_down.done()):
            self._bringing_down = self._dropping.submit(self._bring_down)
        if not self.has_looked:
            return Again()  # nothing is known of the tables; the first listing is followed by a round
        if not self._scheduler.at_work:
            self._idle_time.use(self._scheduler, self.settings, verify=self._is_quiet)
        self._write("Running")
        self._executions.carry_if_due()
        if not self._is_quiet or self._writer.is_late:
            return Again(min(self.settings.poll_idle, 10 * _SOON), rest=_SOON)
        pause = self.settings.poll_idle
        if self._has_events and self._idle_for > _REST:
            pause = max(pause, self._shared.rounds if self.is_restless else 2 * HEARTBEAT)
        return Again(pause, rest=_SOON)

    @property
    def _has_events(self) -> bool:
        """True where the system tells of every change of the landing zone."""
        return self._folder is not None and not self._shared.watch.refused(self._folder)

    @property
    def is_restless(self) -> bool:
        """True if rounds must stay frequent: a table waits, something fails, or idle work was recent."""
        fails = bool(self._errors) or self._followed.error is not None
        waits = self._scheduler.tables.is_waiting or bool(self._scheduler.dropped.missing)
        return waits or fails or self._idle_time.was_used_lately

    @property
    def _idle_for(self) -> float:
        """Seconds without work."""
        if self._scheduler.at_work:
            return 0.0
        return time.monotonic() - max(self._begun, self._scheduler.worked_at)

    @property
    def _is_quiet(self) -> bool:
        """True if nothing has arrived for a while."""
        return self._idle_for > _QUIET

    def _told(self, folder: str | None) -> None:
        """A folder has changed; None: any may have."""
        name = None if folder is None else _table_of(folder)
        is_new = folder is not None and "/_" not in folder and not self._is_watched(folder)  # of a partition
        if name is None or not self._scheduler.touch(name) or is_new:
            self._shared.queue.wake(self._lane, ZONE, STATUS)

    def _is_watched(self, folder: str) -> bool:
        return self._folder is None or self._shared.watch.watches(self._folder, folder)

    def _watch(self, folders: Iterable[str]) -> set[str]:
        """Watches folders. One may have got files between the listing and now: its table is looked at once more."""
        if self._folder is None:
            return set()
        fresh = self._shared.watch.watch(self._folder, folders)
        for folder in fresh:
            self._told(folder)
        return fresh

    def _stepped(self, was_commit: bool) -> None:
        """A table has another state: the status is written soon. Where files arrive, listings are frequent."""
        self._shared.queue.later(self._lane, _SOON, STATUS)
        if was_commit and not self._has_events:
            self._shared.queue.later(self._lane, _SOON, ZONE)

    def _bring_down(self) -> int:
        """Drops what the declared readers cannot read. Never raises: no caller could handle an error."""
        try:
            return self._readers.step(self._scheduler, self._scheduler.engines.session)
        except Exception as failure:
            self._scheduler.tables.warn(
                "readers-unmet", f"the check of the declared readers is repeated later: {coded(failure)}"
            )
            return 0

    def _use_settings(self) -> None:
        """Goes on with changed settings, except those of Spark."""
        readers = DeclaredReaders(self.settings.readers, self._storage.uri, self._executions.maintained)
        if self._bringing_down is not None:
            self._bringing_down.result()
        self._scheduler.stop()
        self._readers = readers
        zone = self._scheduler.zone
        self._scheduler = self._new_scheduler(self._given, self._scheduler.tables.rows())
        self._scheduler.zone = zone  # what the status says of the landing zone, until it is listed again
        self._shared.queue.wake(self._lane, ZONE)
        self._idle_time.retain(self.settings.retention_in_days)
        log.warning("%s has changed: its settings are in force now, except those of Spark", DEFINITION)

    def _new_scheduler(self, spark: SparkSession | None, before: Iterable[TableStatus]) -> Scheduler:
        tables = TableStates(self._observers, before, self.settings.retry_limit)
        tables.maintained = self._executions.maintained
        return Scheduler(
            self._storage,
            self.settings,
            partial(self._start_spark, self.settings),
            spark=spark,
            tables=tables,
            in_queue=InQueue(self._shared.queue, self.settings.poll, self._stepped, self._group),
        )

    def _new_group(self) -> EngineGroup:
        from lakemirror.mirror.engine_group import EngineGroup  # here, since most databases have one engine

        return EngineGroup(self._storage, on_change=lambda: self._shared.queue.wake(self._lane, ZONE, STATUS))

    def _write(self, status: str) -> None:
        of_readers = list(self._readers.warnings.values())
        self._writer.warnings = [*self._followed.warnings, *self._idle_time.warnings, *of_readers]
        self._writer.write(status, self._scheduler, self._followed.error or next(iter(self._errors.values()), None))


def _table_of(folder: str) -> TableName | None:
    """The table that a folder of the database belongs to; None above all tables."""
    return None if folder in _ABOVE else table_of(folder)


def _folders(zone: Zone) -> list[str]:
    return [*_ABOVE, *zone.folders, *(each for folder in zone.tables.values() for each in folder.folders)]
