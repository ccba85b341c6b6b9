"""Many tables: one look at all of them per tick, fair turns, bounded parallelism, back-off, a clean stop.

tick: list once ─▶ look at every idle table (no JVM) ─▶ those with work take turns (`turns.py`), one commit a turn

Every error in a look becomes the error of that table: `_look_at` is the boundary, as `Turns` is for applies.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from lakemirror.engines.engines import Engines
from lakemirror.engines.row_work import Action, Target
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.failures import coded
from lakemirror.keys.key_index import KeyIndex
from lakemirror.landing_zone import archive as cleanup
from lakemirror.landing_zone import staging
from lakemirror.landing_zone.metadata import TableMetadata
from lakemirror.landing_zone.warned import Warned
from lakemirror.landing_zone.zone import TableFolder, TableName, Zone, collisions, scan, scan_table
from lakemirror.mirror.core_turns import CORES
from lakemirror.mirror.dropped_tables import DroppedTables
from lakemirror.mirror.fair_turns import FairTurns
from lakemirror.mirror.known_tables import KnownTables
from lakemirror.mirror.lookers import Lookers
from lakemirror.mirror.moved_tables import was_filled_from
from lakemirror.mirror.observer import Observer
from lakemirror.mirror.replicator import Replicator
from lakemirror.mirror.table_plan import TablePlan
from lakemirror.mirror.table_state import TableState
from lakemirror.mirror.turns import Turns
from lakemirror.mirror.unchanged_tables import SettledLooks
from lakemirror.settings import Settings
from lakemirror.status import TableStatus
from lakemirror.storage import Storage
from lakemirror.storage.connections import cache_on_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakemirror")

LONGEST_LOOK = 60.0  # seconds that a pass waits for a look at one table
_AT_ONCE, _AT_ONCE_IN_A_STORE = 4, 16  # looks: in a store they wait for answers


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
        self.zone = Zone({}, [])
        self.unseen: set[TableName] = set()  # tables that the last tick should look at and could not
        self._storage = storage
        self._settings = settings
        self._start_spark = start_spark
        self._spark = spark
        self._gather = gather
        self._settings_of = settings_of
        self._starting = threading.Lock()
        self._replicators: dict[TableName, Replicator] = {}
        if storage.capabilities.waits:
            self._lookers = Lookers(side_by_side=_AT_ONCE_IN_A_STORE)
        else:
            self._lookers = Lookers(side_by_side=_AT_ONCE, turn=CORES.taken)
        self._settled = SettledLooks(storage)
        self._ambiguous: dict[TableName, TableName] = {}
        self._dropped = DroppedTables(storage, settings.drop_after)
        self._engines = Engines(settings, self.need_spark)
        self._known = KnownTables(observer, before, settings.retry_limit)
        self._turns = Turns(storage, settings.parallel_tables, self._replicators, self._known, self._engines, turns)
        if storage.capabilities.waits:
            cache_on_disk(settings.cache_folder / "stores", settings.store_cache_bytes)
        staging.sweep(storage)

    @property
    def key_index(self) -> KeyIndex | None:
        """The index of the tables' keys; None where the setting `key_index` is off."""
        return self._engines.index

    def index_keys(self, target: Target, adds: Sequence[Action]) -> None:
        """Has the key index of new data files built soon. Does not wait."""
        self._engines.index_keys(target, adds)

    @property
    def states(self) -> dict[TableName, TableState]:
        """What is known of each table."""
        return self._known.states

    @property
    def warnings(self) -> dict[str, Warned]:
        """Errors that concern no single table, by code."""
        return self._known.warnings

    @property
    def missing_folders(self) -> list[Warned]:
        """A warning for each table that is dropped soon, because its folder is missing."""
        return self._dropped.warnings

    @property
    def drop_due(self) -> float:
        """When a look at all tables may drop one, by `time.monotonic`."""
        return self._dropped.due

    @property
    def absent(self) -> tuple[TableStatus, ...]:
        """The last status of the tables whose folder is missing; the same object as before if nothing changed."""
        return self._known.absent

    def rows(self) -> list[TableStatus]:
        """The status of every table that is known."""
        return self._known.rows()

    @property
    def restless(self) -> set[TableName]:
        """Tables that may change although nothing is touched."""
        return self._known.restless

    def warn(self, code: str, message: str) -> None:
        """Reports a problem that concerns no single table: in the status while it lasts, in the log once."""
        self._known.warn(code, message)

    @property
    def broken(self) -> bool:
        """True once the JVM has died: this process can apply nothing any more."""
        return self._turns.broken

    def tick(
        self, now: float | None = None, only: Collection[TableName] | None = None, *, again: bool = False
    ) -> int:  # fmt: skip
        """Looks at every table once and starts the applies. Returns the number of tables that got one.

        `only`: looks at these tables alone; then no table is dropped or forgotten. `again`: another look of the same
        pass, which alone drops no table. Does not wait for the work.
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
            if self._turns.busy(name) or self._turns.seconds_since_commit(name) < self._gather:
                self.unseen.add(name)
                continue
            folder = self.zone.tables.get(name) if only is None else self._listed(name)
            if folder is None:
                continue
            if name not in self._replicators:
                settings = self._settings_of(self._settings, str(name))
                self._replicators[name] = Replicator(self._storage, name, settings, spark_given=self._spark is not None)
            jobs.append(partial(self._look_at, name, folder, self._ambiguous.get(name), now))
        begun = self._turns.begin_tick()
        self._lookers.each(jobs)
        if only is None:
            self._drop(self.zone, again)
            self._forget(self.zone)
        self._turns.submit_looked()
        return self._turns.submitted - begun

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until no apply and no look is running; False after the timeout.

        A look that takes longer than LONGEST_LOOK is not waited for: its table has the error `storage-unavailable`.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        patience = time.monotonic() + LONGEST_LOOK
        while True:
            running, looking = self._turns.running_and_looking()
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
        return self._turns.at_work

    def targets(self) -> dict[TableName, str]:
        """The Delta tables of the table folders, relative to the database; those that exist."""
        return {name: name.target(self._settings.default_schema) for name, s in list(self.states.items()) if s.position}

    def last_commits(self) -> dict[str, float]:
        """When each table was committed to last, by its target."""
        schema = self._settings.default_schema
        return {name.target(schema): state.last_commit for name, state in list(self.states.items()) if state.position}

    @contextmanager
    def paused(self, name: TableName) -> Iterator[bool]:
        """Pauses a table: no apply of it starts within the block. Yields False, without a pause, if one is running."""
        with self._turns.paused(name) as is_free:
            yield is_free

    @property
    def spark(self) -> SparkSession | None:
        """The session, once it was needed."""
        return self._spark

    def need_spark(self) -> SparkSession:
        """The session; started if there is none. SetupError if it cannot start."""
        with self._starting:
            if self._spark is None:
                self._spark = self._start_spark(self._turns.pending_bytes)
            return self._spark

    def request_stop(self) -> None:
        """From now on no table starts another commit. Does not wait."""
        self._turns.request_stop()

    def stop(self, patience: float | None = None) -> bool:
        """Lets every table finish its current commit and start no other; True once all have finished.

        `patience`: seconds to wait for them. A commit that takes longer ends later or with the process; both are safe.
        """
        return self._turns.stop(patience)

    def _listed(self, name: TableName) -> TableFolder | None:
        """One table's folder as it is now; None if it is gone or new: the next tick over all tables handles it."""
        folder = scan_table(self._storage, name) if name in self.zone.tables else None
        if folder is not None:
            self.zone.tables[name] = folder
        return folder

    def _look_at(self, name: TableName, folder: TableFolder, rival: TableName | None, now: float) -> None:
        """One table's look, and the work that needs no commit; every error becomes the table's error."""
        if not self._turns.begin_look(name):
            return
        log_time = 0
        try:
            target = self._replicators[name].target
            if rival is None and self._known.is_well(name) and self._settled.holds(name, folder, target):
                self._turns.end_look(name)
                self._purge(name, folder, now)
                return
            log_time = self._settled.log_time(target)
            look = self._look(name, folder, rival, now)
        except Exception as failure:  # the boundary around one table
            look = TablePlan(folder, TableMetadata(), error=coded(failure, table=str(name)))
        due = False
        try:
            self._known.looked(name, look)
            self._settled.note(name, look, log_time if rival is None else 0)
            due = self._known.due(name, look, now)
            if not due:
                self._tidy(name, look, now)
        finally:
            self._turns.end_look(name, look if due else None)
        if due:
            self._turns.submit_looked()  # its apply starts while other tables are looked at

    def _look(self, name: TableName, folder: TableFolder, rival: TableName | None, now: float) -> TablePlan:
        replicator = self._replicators[name]
        look = replicator.inspect(folder, now=now)
        while rival is None and replicator.quarantine(look, look.error):
            look = replicator.inspect(scan_table(self._storage, name) or folder, now=now)
        if rival is not None:
            look.start = None
            look.error = TableError("table-name-ambiguous", f"{name.folder} and {rival.folder} share one table")
        return look

    def _no_answer(self, name: TableName) -> None:
        message = f"{name.folder}: no answer within {LONGEST_LOOK:g} seconds"
        error = LakemirrorError("storage-unavailable", message, table=str(name))
        self._known.no_answer(name, error)

    def _tidy(self, name: TableName, look: TablePlan, now: float) -> None:
        """Work without a commit: repeats failed moves and removes expired files. Never raises."""
        try:
            if look.leftovers:
                self._replicators[name].archive(look)
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
            elif not self._turns.busy(name):
                self._replicators.pop(name, None)
                self._known.forget(name)
                self._turns.forget(name)
                self._settled.forget(name)
        self._known.retain({str(name) for name in (*zone.tables, *self.states)}, self._may_come_back)

    def _may_come_back(self, name: TableName) -> bool:
        """True for a table that is not listed, and not dropped either."""
        target = name.target(self._settings.default_schema)
        return target in self._dropped.missing or self.zone.is_unknown(target, self._settings.default_schema)

    def _drop(self, zone: Zone, again: bool) -> None:
        """Drops the tables whose folder is gone. A failure is tried again in the next pass and reported once."""
        schema = self._settings.default_schema
        targets = {name.target(schema) for name in zone.tables}
        busy = {name.target(schema) for name in self._turns.all_busy()}

        def is_no_miss(target: str) -> bool:
            return target in busy or zone.is_unknown(target, schema) or self._is_to_move(target, zone)

        try:
            unfilled = {name.target(schema) for name, state in self.states.items() if not state.position}
            for target in self._dropped.look(targets, is_no_miss, unfilled, again=again):
                log.info("%s left Tables/: its folder is gone", target)
                self._known.tell(partial(_dropped, target))
            self._dropped.purge(self._settings.dropped_retention)
            if self._dropped.failure is not None:
                raise self._dropped.failure
        except Exception as failure:
            self.warn("drop-postponed", f"folders that are gone are looked for again: {coded(failure)}")
        else:
            self.warnings.pop("drop-postponed", None)

    def _is_to_move(self, target: str, zone: Zone) -> bool:
        """True for a table that has a folder, and is not yet where the default schema puts it."""
        name = TableName("", target.rpartition("/")[2])
        moves = name in zone.tables and name.target(self._settings.default_schema) != target
        return moves and was_filled_from(self._storage, name, target)


def _dropped(target: str, observer: Observer) -> None:
    observer.dropped(target)
