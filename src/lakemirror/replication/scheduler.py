"""Many tables: one look at all of them per tick, fair turns, bounded parallelism, back-off, a clean stop.

tick: list once ─▶ look at every idle table (no JVM) ─▶ those with work take turns, one commit a turn
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from lakemirror.engines.engines import Engines
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone import archive as cleanup
from lakemirror.landing_zone import staging
from lakemirror.landing_zone.metadata import Warned
from lakemirror.landing_zone.zone import TableName, Zone, collisions, scan
from lakemirror.replication import table_state
from lakemirror.replication.apply_plan import Applied
from lakemirror.replication.dropped_tables import DroppedTables
from lakemirror.replication.replicator import Replicator
from lakemirror.replication.table_plan import TablePlan
from lakemirror.replication.table_state import TableState
from lakemirror.settings import Settings
from lakemirror.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakemirror")

_RACES = 5  # lost races in a row after which a table takes its turn behind the others


class Observer(Protocol):
    """Who is told what happens; called from several threads."""

    def applied(self, name: TableName, applied: Applied) -> None: ...
    def failed(self, name: TableName, error: LakemirrorError) -> None: ...
    def dropped(self, target: str) -> None: ...


class Scheduler:
    """Runs the tables of one mirrored database."""

    def __init__(
        self,
        storage: Storage,
        settings: Settings,
        start_spark: Callable[[int], SparkSession],
        observer: Observer | None = None,
        spark: SparkSession | None = None,
        gather: float = 0.0,
    ) -> None:
        """`start_spark` gives the session when the first batch needs one; it is told how many bytes are pending.

        `spark`: one that runs already. `gather`: seconds after a commit in which a table is not looked at.
        """
        self.states: dict[TableName, TableState] = {}
        self.zone = Zone({}, [])
        self.broken = False  # the JVM has died: this process can apply nothing any more
        self._storage = storage
        self._settings = settings
        self._start_spark = start_spark
        self._observer = observer
        self._spark = spark
        self._gather = gather
        self._applied_at: dict[TableName, float] = {}
        self._starting = threading.Lock()
        self._pending_bytes = 0
        self._replicators: dict[TableName, Replicator] = {}
        self._running: dict[TableName, Future[None]] = {}
        self._dropped = DroppedTables(storage)
        self._pool = ThreadPoolExecutor(max(1, settings.parallel_tables), thread_name_prefix="table")
        self._engines = Engines(settings, self.need_spark)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        staging.sweep(storage)

    def tick(self, now: float | None = None) -> int:
        """Looks at everything once and starts what there is to do; returns how many tables got work.

        Does not wait for them. FileNotFoundError where the landing zone is missing, LakemirrorError
        `storage-unavailable` where it cannot be listed: then nothing was concluded from what was not seen.
        """
        now = time.time() if now is None else now
        self.zone = zone = scan(self._storage)
        ambiguous = collisions(zone, self._settings.default_schema)
        looks: list[tuple[TableName, TablePlan]] = []
        for name, folder in zone.tables.items():
            if self._busy(name) or time.monotonic() - self._applied_at.get(name, -math.inf) < self._gather:
                continue
            replicator = self._replicators.get(name)
            if replicator is None:
                replicator = self._replicators[name] = Replicator(
                    self._storage, name, self._settings, spark_given=self._spark is not None
                )
            look = replicator.inspect(folder, now=now)
            while name not in ambiguous and replicator.quarantine(look, look.error):
                look = replicator.inspect(scan(self._storage).tables.get(name, folder), now=now)
            if name in ambiguous:
                look.start = None
                look.error = TableError("table-name-ambiguous", f"{name.folder} and another folder share one table")
            self._note(name, look)
            if look.start is not None and self._due(name, look, now):
                looks.append((name, look))
            else:
                self._tidy(replicator, look, now)
        self._forget(set(zone.tables))
        self._drop(zone)
        if looks:
            self._pending_bytes = sum(f.entry.size for _, look in looks for f in look.pending.files)
            for name, look in looks:
                self._submit(name, look)
        return len(looks)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until no table is at work; False when the time was too short."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                running = list(self._running.values())
            if not running:
                return True
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if left == 0.0:
                return False
            wait(running, timeout=left)

    @property
    def at_work(self) -> int:
        """How many tables are at work now."""
        with self._lock:
            return len(self._running)

    def targets(self) -> dict[TableName, str]:
        """The Delta tables of the table folders, relative to the database; those that exist."""
        return {name: name.target(self._settings.default_schema) for name, s in list(self.states.items()) if s.position}

    @contextmanager
    def held_back(self, name: TableName) -> Iterator[bool]:
        """No apply of the table begins within the block; False where one is at work, and nothing is held."""
        held: Future[None] = Future()
        with self._lock:
            is_free = name not in self._running
            if is_free:
                self._running[name] = held
        try:
            yield is_free
        finally:
            if is_free:
                with self._lock:
                    self._running.pop(name, None)
                held.set_result(None)

    @property
    def spark(self) -> SparkSession | None:
        """The session, once it was needed."""
        return self._spark

    def need_spark(self) -> SparkSession:
        """The session, started where there is none yet; SetupError where that fails."""
        with self._starting:
            if self._spark is None:
                self._spark = self._start_spark(self._pending_bytes)
            return self._spark

    def stop(self) -> None:
        """Lets every table finish the commit it is at, and no more."""
        self._stopping.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            self._running.clear()

    def _busy(self, name: TableName) -> bool:
        with self._lock:
            return name in self._running

    def _note(self, name: TableName, look: TablePlan) -> None:
        state = self.states.get(name, TableState())
        manifest = None if look.reseeding or look.table_log is None else look.table_log.manifest
        if manifest is not None:
            state = replace(state, rows=manifest.rows, bytes=manifest.bytes, last_commit=manifest.committed)
        before = state.error
        state = table_state.looked(
            state,
            identity=look.identity,
            position=look.position,
            pending=look.pending.count,
            waiting=look.waiting,
            warnings=look.warnings,
            reseeding=look.reseeding,
            error=look.error,
            fingerprint=_fingerprint(look, look.error or state.error),
            work=look.start is not None,
        )
        self.states[name] = state
        if state.error is not None and (before is None or str(before) != str(state.error)):
            self._report(name, state.error)

    def _due(self, name: TableName, look: TablePlan, now: float) -> bool:
        state = self.states[name]
        return state.due(_fingerprint(look, state.error), now)

    def _submit(self, name: TableName, look: TablePlan) -> None:
        with self._lock:
            if not self._stopping.is_set() and name not in self._running:  # it may be held back since the look
                self._running[name] = self._pool.submit(self._turn, name, look)

    def _turn(self, name: TableName, look: TablePlan, races: int = 0) -> None:
        """One commit of one table, then the next turn if there is more."""
        again: TablePlan | None = None
        try:
            again = self._apply_once(name, look)
        except LakemirrorError as error:
            if error.code == "concurrent-commit" and races < _RACES and not self._stopping.is_set():
                again = self._look_again(name)
                races += 1
            else:
                self._failed(name, look, error)
        except Exception as error:
            log.exception("%s: unexpected", name)
            self.broken = self.broken or _jvm_is_gone(error)
            self._failed(name, look, LakemirrorError("internal", f"{type(error).__name__}: {error}"))
        finally:
            with self._lock:
                if again is not None and again.start is not None and not self._stopping.is_set():
                    self._running[name] = self._pool.submit(self._turn, name, again, races)
                else:
                    self._running.pop(name, None)

    def _apply_once(self, name: TableName, look: TablePlan) -> TablePlan | None:
        """Applies one batch; the look to go on with, None where the table is through."""
        replicator = self._replicators[name]
        applied, error = replicator.apply(self._engines.get, look)
        if applied is not None:
            self.states[name] = table_state.applied(
                self.states[name],
                position=applied.position.number,
                files=len(applied.batch.files),
                rows=applied.manifest.rows,
                bytes=applied.manifest.bytes,
                commit_time=applied.manifest.committed,
            )
            self._applied_at[name] = time.monotonic()
            if self._observer is not None:
                self._observer.applied(name, applied)
            assert look.start is not None
            look = look.after(applied, look.start, self._storage.uri(replicator.target))
            replicator.retire(look)
            if look.pending.files and error is None:
                return look
            if not look.pending.behind:
                replicator.tidy_up(applied.version)
        if replicator.quarantine(look, error):
            return self._look_again(name)
        if error is not None:
            self._failed(name, look, error)
            return None
        return self._look_again(name) if look.pending.behind and look.waiting is None else None

    def _look_again(self, name: TableName) -> TablePlan | None:
        folder = scan(self._storage).tables.get(name)
        if folder is None:
            return None
        look = self._replicators[name].inspect(folder)
        self._note(name, look)
        return look

    def _failed(self, name: TableName, look: TablePlan, error: LakemirrorError) -> None:
        before = self.states[name].error
        self.states[name] = table_state.failed(
            self.states[name],
            error,
            _fingerprint(look, error),
            now=time.time(),
            longest=self._settings.retry_limit,
        )
        if before is None or str(before) != str(error):
            self._report(name, error)

    def _report(self, name: TableName, error: LakemirrorError) -> None:
        log.debug("%s: %s", name, error)
        if self._observer is not None:
            self._observer.failed(name, error)

    def _tidy(self, replicator: Replicator, look: TablePlan, now: float) -> None:
        """What needs no commit: moves that failed before, and files whose time is over."""
        if look.leftovers:
            replicator.retire(look)
        if look.folder.processed:
            cleanup.purge(self._storage, look.folder, self._settings.processed_retention, now)

    def _forget(self, present: set[TableName]) -> None:
        for name in set(self.states) - present:
            if not self._busy(name):
                self.states.pop(name)
                self._replicators.pop(name, None)
                self._applied_at.pop(name, None)

    def _drop(self, zone: Zone) -> None:
        targets = {name.target(self._settings.default_schema) for name in zone.tables}
        with self._lock:
            busy = {name.target(self._settings.default_schema) for name in self._running}
        for target in self._dropped.look(zone, targets, busy.__contains__):
            log.info("%s left Tables/: its folder is gone", target)
            if self._observer is not None:
                self._observer.dropped(target)
        self._dropped.purge(self._settings.dropped_retention)


def _jvm_is_gone(error: Exception) -> bool:
    return isinstance(error, ConnectionError) or any(
        each.__name__ == "Py4JNetworkError" for each in type(error).__mro__
    )


def skipped_warnings(zone: Zone) -> list[Warned]:
    """One warning per folder that is no table because of its name (contract section 1)."""
    return [
        Warned("folder-skipped", f"{path} begins with an underscore: it is no table", path) for path in zone.skipped
    ]


def _fingerprint(look: TablePlan, error: LakemirrorError | None) -> str:
    """Changes when what an apply failed on may have changed: that file, the metadata, or the folder as a whole."""
    file = next((f.etag for f in look.folder.files if error is not None and f.path == error.file), "")
    metadata = look.folder.metadata.etag if look.folder.metadata else ""
    return f"{file}|{metadata}|{look.identity}"
