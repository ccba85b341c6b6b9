"""Many tables: one look at all of them per tick, fair turns, bounded parallelism, back-off, a clean stop.

tick: list once ─▶ look at every idle table (no JVM) ─▶ those with work take turns, one commit a turn

Every error in a look or a turn becomes the error of that table: `_look_at` and `_turn` are the only boundaries.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lakemirror.engines.engines import Engines
from lakemirror.engines.key_index import KeyIndex
from lakemirror.engines.row_work import Action, Target
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.failures import coded
from lakemirror.landing_zone import archive as cleanup
from lakemirror.landing_zone import staging
from lakemirror.landing_zone.findings import summed_up
from lakemirror.landing_zone.metadata import TableMetadata, Warned
from lakemirror.landing_zone.zone import TableFolder, TableName, Zone, collisions, scan, scan_table
from lakemirror.replication import table_state
from lakemirror.replication.dropped_tables import DroppedTables
from lakemirror.replication.fair_turns import FairTurns
from lakemirror.replication.lookers import Lookers
from lakemirror.replication.observer import Observer
from lakemirror.replication.position import from_note
from lakemirror.replication.replicator import Replicator
from lakemirror.replication.settled_looks import SettledLooks
from lakemirror.replication.table_plan import TablePlan
from lakemirror.replication.table_state import TableState
from lakemirror.replication.table_status import remembered
from lakemirror.settings import Settings
from lakemirror.status import TableStatus
from lakemirror.storage import Storage
from lakemirror.storage.connections import cache_on_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakemirror")

LONGEST_LOOK = 60.0  # seconds that a pass waits for a look at one table
_AT_ONCE, _AT_ONCE_IN_A_STORE = 4, 16  # looks: in a store they wait for answers
_RACES = 5  # lost races in a row after which a table goes to the end of the queue


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
        before: Iterable[TableStatus] = (),
        turns: FairTurns | None = None,
        settings_of: Callable[[Settings, str], Settings] = lambda settings, table: settings,
    ) -> None:
        """`start_spark` gives the session when the first batch needs one; it is told how many bytes are pending.

        `spark`: a session that runs already. `gather`: seconds after a commit in which a table is not looked at.
        `before`: the record that an earlier process left of the tables.
        `turns`: shared with the other databases of the process; None where this one is alone.
        `settings_of`: the settings of one table, from those of the database.
        """
        self.states: dict[TableName, TableState] = {}
        self.zone = Zone({}, [])
        self.warnings: dict[str, Warned] = {}  # errors that concern no single table
        self.unseen: set[TableName] = set()  # tables that the last tick should look at and could not
        self.restless: set[TableName] = set()  # tables that may change although nothing is touched
        self.broken = False  # the JVM has died: this process can apply nothing any more
        self._storage = storage
        self._settings = settings
        self._start_spark = start_spark
        self._observer = observer
        self._spark = spark
        self._gather = gather
        self._before = {table.name: table for table in before}
        self._turns = turns
        self._settings_of = settings_of
        self._applied_at: dict[TableName, float] = {}
        self._starting = threading.Lock()
        self._pending_bytes = 0  # of the tick at hand, as far as tables have been looked at
        self._submitted = 0
        self._replicators: dict[TableName, Replicator] = {}
        self._running: dict[TableName, Future[None]] = {}
        self._looking: set[TableName] = set()
        self._looked: list[tuple[TableName, TablePlan]] = []  # what there is to apply, not started yet
        self._lookers = Lookers(side_by_side=_AT_ONCE_IN_A_STORE if storage.look_again else _AT_ONCE)
        self._settled = SettledLooks(storage)
        self._ambiguous: dict[TableName, TableName] = {}
        self._dropped = DroppedTables(storage)
        self._pool = ThreadPoolExecutor(max(1, settings.parallel_tables), thread_name_prefix="table")
        self._engines = Engines(settings, self.need_spark)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        if storage.look_again:
            cache_on_disk(settings.cache_folder / "stores", settings.store_cache_bytes)
        staging.sweep(storage)

    @property
    def key_index(self) -> KeyIndex | None:
        """The index of the tables' keys; None where the setting `key_index` is off."""
        return self._engines.index

    def index_keys(self, target: Target, adds: Sequence[Action]) -> None:
        """Has the key index of new data files built soon. Does not wait."""
        index = self._engines.index
        if index is not None:
            for add in adds:
                index.want(add, target)

    def tick(self, now: float | None = None, only: Collection[TableName] | None = None) -> int:
        """Looks at every table once and starts the work there is; returns the number of tables that got work.

        `only`: looks at these tables alone; then no table is dropped or forgotten. Does not wait for the work.
        FileNotFoundError where the landing zone is missing, LakemirrorError `storage-unavailable` where it cannot be
        listed: then nothing is concluded.
        """
        now = time.time() if now is None else now
        self.unseen = set()
        if only is None:
            self.zone = scan(self._storage)
            self._ambiguous = collisions(self.zone, self._settings.default_schema)
        jobs = []
        for name in self.zone.tables if only is None else only:
            if self._busy(name) or time.monotonic() - self._applied_at.get(name, -math.inf) < self._gather:
                self.unseen.add(name)
                continue
            folder = self.zone.tables.get(name) if only is None else self._listed(name)
            if folder is None:
                continue
            if name not in self._replicators:
                settings = self._settings_of(self._settings, str(name))
                self._replicators[name] = Replicator(self._storage, name, settings, spark_given=self._spark is not None)
            jobs.append(partial(self._look_at, name, folder, self._ambiguous.get(name), now))
        begun, self._pending_bytes = self._submitted, 0
        self._lookers.each(jobs)
        if only is None:
            self._forget(self.zone)
            self._drop(self.zone)
        self._submit_looked()
        return self._submitted - begun

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until no apply and no look is running; False after the timeout.

        A look that takes longer than LONGEST_LOOK is not waited for: its table has the error `storage-unavailable`.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        patience = time.monotonic() + LONGEST_LOOK
        while True:
            self._submit_looked()
            with self._lock:
                running = [each for each in self._running.values() if not each.cancelled()]
                looking = list(self._looking)
            if not running and (not looking or time.monotonic() >= patience):
                for name in looking:
                    self._no_answer(name)
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if looking:
                time.sleep(min(left, 0.02))
            else:
                wait(running, timeout=None if math.isinf(left) else left)

    @property
    def at_work(self) -> int:
        """The number of tables at work now."""
        with self._lock:
            return len(self._running)

    def targets(self) -> dict[TableName, str]:
        """The Delta tables of the table folders, relative to the database; those that exist."""
        return {name: name.target(self._settings.default_schema) for name, s in list(self.states.items()) if s.position}

    def last_commits(self) -> dict[str, float]:
        """When each table was committed to last, by its target."""
        schema = self._settings.default_schema
        return {name.target(schema): state.last_commit for name, state in list(self.states.items()) if state.position}

    @contextmanager
    def held_back(self, name: TableName) -> Iterator[bool]:
        """No apply of the table starts within the block; gives False if one is running, and then holds nothing."""
        held: Future[None] = Future()
        with self._lock:
            is_free = name not in self._running and name not in self._looking
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

    def request_stop(self) -> None:
        """From now on no table starts another commit. Does not wait."""
        self._stopping.set()

    def stop(self, patience: float | None = None) -> bool:
        """Lets every table finish its current commit and start no other; True once all have finished.

        `patience`: seconds to wait for them. A commit that takes longer ends later or with the process; both are safe.
        """
        self._stopping.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            running = [future for future in self._running.values() if not future.cancelled()]
        ended = not wait(running, timeout=patience).not_done
        if ended:
            with self._lock:
                self._running.clear()
        return ended

    def _busy(self, name: TableName) -> bool:
        with self._lock:
            return name in self._running or name in self._looking

    def _listed(self, name: TableName) -> TableFolder | None:
        """One table's folder as it is now; None if it is gone or new: the next tick over all tables handles it."""
        folder = scan_table(self._storage, name) if name in self.zone.tables else None
        if folder is not None:
            self.zone.tables[name] = folder
        return folder

    def _look_at(self, name: TableName, folder: TableFolder, rival: TableName | None, now: float) -> None:
        """One table's look, and the work that needs no commit; every error becomes the table's error."""
        with self._lock:
            if name in self._running or name in self._looking or self._stopping.is_set():
                return
            self._looking.add(name)
        log_time = 0
        try:
            target = self._replicators[name].target
            if rival is None and self._is_well(name) and self._settled.holds(name, folder, target):
                with self._lock:
                    self._looking.discard(name)
                self._purge(name, folder, now)
                return
            log_time = self._settled.log_time(target)
            look = self._look(name, folder, rival, now)
        except Exception as failure:  # the boundary around one table
            look = TablePlan(folder, TableMetadata(), error=coded(failure, table=str(name)))
        due = False
        try:
            self._note(name, look)
            self._settled.note(name, look, log_time if rival is None else 0)
            due = look.start is not None and self.states[name].due(_fingerprint(look, self.states[name].error), now)
            if not due:
                self._tidy(name, look, now)
        finally:
            with self._lock:
                self._looking.discard(name)
                if due:
                    self._looked.append((name, look))
        if due:
            self._submit_looked()  # its apply starts while other tables are looked at

    def _is_well(self, name: TableName) -> bool:
        state = self.states.get(name)
        return state is not None and state.error is None

    def _look(self, name: TableName, folder: TableFolder, rival: TableName | None, now: float) -> TablePlan:
        replicator = self._replicators[name]
        look = replicator.inspect(folder, now=now)
        while rival is None and replicator.quarantine(look, look.error):
            look = replicator.inspect(scan_table(self._storage, name) or folder, now=now)
        if rival is not None:
            look.start = None
            look.error = TableError("table-name-ambiguous", f"{name.folder} and {rival.folder} share one table")
        return look

    def _submit_looked(self) -> None:
        """Gives the tables that have something to apply their turns."""
        with self._lock:
            looks, self._looked = self._looked, []
            self._submitted += len(looks)
            self._pending_bytes += sum(f.entry.size for _, look in looks for f in look.pending.files)
            for name, look in looks:
                self._begin(name, look)

    def _no_answer(self, name: TableName) -> None:
        message = f"{name.folder}: no answer within {LONGEST_LOOK:g} seconds"
        error = LakemirrorError("storage-unavailable", message, table=str(name))
        self.states[name] = replace(self.states.get(name, TableState()), error=error)
        self._mark(name)
        self._report(name, error)

    def _note(self, name: TableName, look: TablePlan) -> None:
        state = self.states.get(name) or remembered(self._before.get(str(name)))
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
            oldest=look.oldest,
        )
        known = self.states.get(name, TableState()).warnings
        self.states[name] = state
        self._say_new_warnings(name, known)
        self._mark(name)
        if state.error is not None and (before is None or str(before) != str(state.error)):
            self._report(name, state.error)

    def _say_new_warnings(self, name: TableName, before: Iterable[Warned]) -> None:
        """Logs the table's new warnings."""
        known = {(warned.code, warned.file) for warned in before}
        for warned in summed_up(each for each in self.states[name].warnings if (each.code, each.file) not in known):
            log.warning("%s: warning %s: %s", name, warned.code, warned.message)

    def _submit(self, name: TableName, look: TablePlan) -> None:
        with self._lock:
            self._begin(name, look)

    def _begin(self, name: TableName, look: TablePlan) -> None:
        """Gives a table its turn, unless it is paused or at work since the look. Call with the lock held."""
        if not self._stopping.is_set() and name not in self._running and name not in self._looking:
            self._running[name] = self._pool.submit(self._turn, name, look)

    def _turn(self, name: TableName, look: TablePlan, races: int = 0) -> None:
        """One commit of one table, then the next turn if there is more. Every error becomes the table's error."""
        again: TablePlan | None = None
        try:
            try:
                again = self._apply_in_turn(name, look)
            except LakemirrorError as error:
                if error.code != "concurrent-commit" or races >= _RACES or self._stopping.is_set():
                    raise
                again = self._look_again(name)
                races += 1
        except Exception as failure:  # the boundary around one table
            self.broken = self.broken or _spark_is_gone(failure)
            self._failed(name, look, coded(failure, table=str(name)))
        finally:
            with self._lock:
                if again is not None and again.start is not None and not self._stopping.is_set():
                    self._running[name] = self._pool.submit(self._turn, name, again, races)
                else:
                    self._running.pop(name, None)

    def _apply_in_turn(self, name: TableName, look: TablePlan) -> TablePlan | None:
        if self._turns is None:
            return self._apply_once(name, look)
        with self._turns.turn(self._storage.uri(), self._stopping.is_set) as has_turn:
            return self._apply_once(name, look) if has_turn else None

    def _apply_once(self, name: TableName, look: TablePlan) -> TablePlan | None:
        """Applies one batch. Returns the look for the next batch, None if the table is done."""
        replicator = self._replicators[name]
        applied, error = replicator.apply(self._engines.get, look)
        if applied is not None:
            before = self.states[name].warnings
            self.states[name] = table_state.applied(
                self.states[name],
                position=applied.position.number,
                files=len(applied.batch.files),
                rows=applied.manifest.rows,
                bytes=applied.manifest.bytes,
                commit_time=applied.manifest.committed,
                engine=applied.engine,
                engine_reason=applied.engine_reason,
                warnings=[from_note(note) for note in applied.manifest.notes],
            )
            self._say_new_warnings(name, before)
            self._mark(name)
            self._applied_at[name] = time.monotonic()
            self._tell(lambda observer: observer.applied(name, applied))
            assert look.start is not None
            look = look.after(applied, look.start, self._storage.uri(replicator.target))
            replicator.retire(look)
            if look.pending.files and error is None:
                return look
            if not look.pending.behind:
                replicator.tidy_up(applied.version, self.index_keys)
        if replicator.quarantine(look, error):
            return self._look_again(name)
        if error is not None:
            self._failed(name, look, error)
            return None
        return self._look_again(name) if look.pending.behind and look.waiting is None else None

    def _look_again(self, name: TableName) -> TablePlan | None:
        folder = scan_table(self._storage, name)
        if folder is None:
            return None
        look = self._replicators[name].inspect(folder)
        self._note(name, look)
        return look

    def _failed(self, name: TableName, look: TablePlan, error: LakemirrorError) -> None:
        state = self.states.get(name, TableState())
        before = state.error
        self.states[name] = table_state.failed(
            state,
            error,
            _fingerprint(look, error),
            now=time.time(),
            longest=self._settings.retry_limit,
        )
        self._mark(name)
        if before is None or str(before) != str(error):
            self._report(name, error)

    def _mark(self, name: TableName) -> None:
        """Notes whether the table waits for something without an event: a time, or a store that answers again."""
        state = self.states[name]
        (self.restless.add if state.pending or state.error is not None else self.restless.discard)(name)

    def _report(self, name: TableName, error: LakemirrorError) -> None:
        log.debug("%s: %s", name, error)
        self._tell(lambda observer: observer.failed(name, error))

    def _tell(self, what: Callable[[Observer], None]) -> None:
        """Calls the observer. Its errors, such as a closed terminal, are ignored."""
        if self._observer is not None:
            try:
                what(self._observer)
            except Exception as failure:
                log.debug("the observer failed: %s", failure)

    def _tidy(self, name: TableName, look: TablePlan, now: float) -> None:
        """Work without a commit: repeats failed moves and removes expired files. Never raises."""
        try:
            if look.leftovers:
                self._replicators[name].retire(look)
        except Exception as failure:
            log.debug("%s: tidied in a later pass: %s", name, coded(failure))
        self._purge(name, look.folder, now)

    def _purge(self, name: TableName, folder: TableFolder, now: float) -> None:
        """Deletes applied files after their retention. Never raises."""
        try:
            if folder.processed:
                cleanup.purge(self._storage, folder, self._settings.processed_retention, now)
        except Exception as failure:
            log.debug("%s: purged in a later pass: %s", name, coded(failure))

    def _forget(self, zone: Zone) -> None:
        for name in set(self.states) - set(zone.tables):
            schema = next((error for place, error in zone.errors.items() if name.folder.startswith(f"{place}/")), None)
            if schema is not None:
                self.states[name] = replace(self.states[name], error=schema)
            elif not self._busy(name):
                self.states.pop(name)
                self._replicators.pop(name, None)
                self._applied_at.pop(name, None)
                self.restless.discard(name)
                self._settled.forget(name)

    def _drop(self, zone: Zone) -> None:
        """Drops the tables whose folder is gone. A failure is tried again in the next pass and reported once."""
        schema = self._settings.default_schema
        targets = {name.target(schema) for name in zone.tables}
        with self._lock:
            busy = {name.target(schema) for name in (*self._running, *self._looking)}
        try:
            for target in self._dropped.look(targets, lambda t: t in busy or zone.is_unknown(t, schema)):
                log.info("%s left Tables/: its folder is gone", target)
                self._tell(partial(_dropped, target))
            self._dropped.purge(self._settings.dropped_retention)
            if self._dropped.failure is not None:
                raise self._dropped.failure
        except Exception as failure:
            self.warn("drop-postponed", f"folders that are gone are looked for again: {coded(failure)}")
        else:
            self.warnings.pop("drop-postponed", None)

    def warn(self, code: str, message: str) -> None:
        """Reports a problem that concerns no single table: in the status while it lasts, in the log once."""
        if self.warnings.get(code, Warned(code, "")).message != message:
            log.warning("%s", message)
        self.warnings[code] = Warned(code, message)


def _dropped(target: str, observer: Observer) -> None:
    observer.dropped(target)


def _spark_is_gone(failure: Exception) -> bool:
    names = {kind.__name__ for kind in type(failure).__mro__}  # by name: nothing of Spark is imported here
    return "Py4JNetworkError" in names or isinstance(failure, ConnectionError)


def _fingerprint(look: TablePlan, error: LakemirrorError | None) -> str:
    """A text that changes when the cause of a failed apply may have changed: that file, the metadata, the folder, the
    table.
    """
    file = next((f.etag for f in look.folder.files if error is not None and f.path == error.file), "")
    metadata = look.folder.metadata.etag if look.folder.metadata else ""
    version = look.table_log.version if look.table_log is not None else -1
    return f"{file}|{metadata}|{look.identity}|{version}"
