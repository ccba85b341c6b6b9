"""The tables of one mirrored database: what one step does with a table, and what a listing of all of them wakes.

    tick: list the landing zone ─▶ wake the tables that are not as their last look left them ─▶ drop those that are gone
    step: look at a table ─▶ commit one batch of what was found ─▶ archive ─▶ when the table is due again

`queue.py` decides which table gets its next step, and when. Every error in a step becomes the error of that table.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from lakemirror.engines.engine import Engines
from lakemirror.engines.row_work import Action, Target
from lakemirror.errors import LakemirrorError, SetupError, TableError
from lakemirror.failures import coded, spark_is_gone
from lakemirror.keys.key_index import KeyIndex
from lakemirror.landing_zone import staging
from lakemirror.landing_zone.change_file import TableFiles
from lakemirror.landing_zone.database_folder import missing_database
from lakemirror.landing_zone.zone import TableFolder, TableName, Zone, collisions, scan, scan_table
from lakemirror.mirror.apply import Applied
from lakemirror.mirror.dropped_tables import DroppedTables
from lakemirror.mirror.observe import View
from lakemirror.mirror.queue import ApplyQueue
from lakemirror.mirror.schedule import Again
from lakemirror.mirror.step import Begun, Conflict, Replicator
from lakemirror.mirror.table_rules import allowed
from lakemirror.mirror.table_state import TableState
from lakemirror.mirror.table_states import LASTS, TableStates, UnchangedTables
from lakemirror.settings.settings import Settings
from lakemirror.storage import Storage
from lakemirror.storage.connections import cache_on_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakemirror.mirror.engine_group import EngineGroup

log = logging.getLogger("lakemirror")

PATIENCE = 8.0  # seconds that commits at work get to end after a stop
LONGEST_LOOK = 60.0  # seconds after which nobody waits for a look at one table any more

_RACES = 5  # commits in a row that others were faster with, after which the table has failed
_FAILED_AGAIN = 0.2  # least seconds between two looks at a table that has failed for good
_FAILED_SHARE = 50.0  # the same for all of them together, as a multiple of how long the looks take


class InQueue(NamedTuple):
    """How the tables of a database are in a queue that others share.

    `gather`: seconds after a commit in which a table is not touched. `on_step` is called after each step that changed a
    table's state; it gets whether that was a commit. `group`: the engines that share the database; None: this one has
    all tables.
    """

    queue: ApplyQueue
    gather: float = 0.0
    on_step: Callable[[bool], None] = lambda was_commit: None
    group: EngineGroup | None = None


class Scheduler:
    """Runs the tables of one mirrored database."""

    def __init__(
        self,
        storage: Storage,
        settings: Settings,
        start_spark: Callable[[], SparkSession],
        *,
        spark: SparkSession | None = None,
        tables: TableStates | None = None,
        in_queue: InQueue | None = None,
        earlier: Scheduler | None = None,
    ) -> None:
        """`start_spark` gives the session when the first batch needs one, or when much waits.

        `spark`: a session that runs already. `tables`: what an earlier process or scheduler left of them. `in_queue`:
        None: a queue of its own. `earlier`: one of the same database and settings that `is_idle`: what its replicators
        have read is remembered.
        """
        self.zone = Zone({}, [])
        self.broken = False  # the JVM has died: this process can apply nothing any more
        self.worked_at = -math.inf  # when the last look found something to apply, by `time.monotonic`
        self.has_events = False  # True where events wake the tables: no listing does it soon
        self._storage = storage
        self._settings = settings
        self._replicators: dict[TableName, Replicator] = earlier._replicators if earlier is not None else {}
        self._rivals: dict[TableName, TableName] = {}
        self._listed: dict[TableName, TableFolder] = {}  # what the last listing showed of tables that it woke
        self._touched: dict[TableName, float] = {}  # when an event came last
        self._unchanged = UnchangedTables(storage, settings.default_schema)
        self._looking: dict[TableName, float] = {}  # since when
        self._races: Counter[TableName] = Counter()
        self.dropped = DroppedTables(storage, settings.drop_after, kept_days=settings.dropped_retention)
        if earlier is not None and earlier.engines.spark is spark:
            self.engines: Engines = earlier.engines
        else:
            self.engines = Engines(settings, start_spark, spark)
        self.tables = tables or TableStates((), (), settings.retry_limit)
        self.states = self.tables.by_name
        self._in_queue = in_queue or InQueue(ApplyQueue())
        self._queue, self._group = self._in_queue.queue, self._in_queue.group
        self._owns_queue = in_queue is None
        self._lane = self._queue.add(
            self._step, commits=settings.parallel_tables, computes=not storage.capabilities.waits
        )
        if storage.capabilities.waits:
            cache_on_disk(settings.cache_folder / "stores", settings.store_cache_bytes)
        if earlier is None:  # the first pass of this process
            staging.sweep(storage)

    @property
    def key_index(self) -> KeyIndex | None:
        """The index of the tables' keys; None where the setting `key_index` is off."""
        return self.engines.index

    def index_keys(self, target: Target, adds: Sequence[Action]) -> None:
        """Has the key index of new data files built soon. Does not wait."""
        self.engines.index_keys(target, adds)

    def tick(self) -> None:
        """Lists the landing zone once, and wakes the tables that have changed. Does not wait for them.

        LakemirrorError `database-missing`; `storage-unavailable` where the landing zone cannot be listed: then nothing
        is concluded. SetupError where Spark's process has ended.
        """
        if self.broken:
            raise SetupError("spark-failed", "Spark's process ended; nothing is half done, start again")
        begun = time.monotonic()
        try:
            self.zone = scan(self._storage)
        except FileNotFoundError as error:
            raise missing_database(self._storage.uri()) from error
        self._rivals = collisions(self.zone, self._settings.default_schema)
        changed = []
        for name, folder in self.zone.tables.items():
            if (self._group is None or self._group.owns(name)) and not self._is_unchanged(name, folder):
                changed.append(name)
                self._listed[name] = folder
                if self._touched.get(name, -math.inf) >= begun:  # looked at last: an event may come at any moment
                    self._listed.pop(name, None)
        self._queue.wake(self._lane, *changed)
        if self._group is None or self._group.leads:
            at_work: list[Any] = self._queue.all_at_work(self._lane)
            self.dropped.step(self.zone, self.tables, at_work, self._settings.default_schema)
        else:
            self.dropped.due = math.inf
        self._forget()

    def touch(self, name: TableName) -> bool:
        """Something has happened in a table's folder: it is looked at. False for a table that was never listed."""
        if name not in self.zone.tables:
            return False
        if not self.owns(name):
            return True
        self._touched[name] = time.monotonic()
        self._listed.pop(name, None)
        self._queue.wake(self._lane, name)
        return True

    def owns(self, name: TableName) -> bool:
        """True where this engine applies the table's changes, and no other that shares the database."""
        return self._group is None or self._group.owns(name)

    def wait(self, timeout: float | None = None, within: float = 0.0) -> bool:
        """Waits until no table has a step, or is due within so many seconds; False after the timeout.

        A look that has taken LONGEST_LOOK is not waited for: its table has the error `storage-unavailable`.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        while not self._queue.wait(self._lane, max(0.0, min(0.2, until - time.monotonic())), within):
            now = time.monotonic()
            stuck = [name for name, since in list(self._looking.items()) if now - since >= LONGEST_LOOK]
            if stuck and self._lane.active == len(stuck):
                for name in stuck:
                    message = f"{name.folder}: no answer within {LONGEST_LOOK:g} seconds"
                    self.tables.stuck(name, LakemirrorError("storage-unavailable", message, table=str(name)))
                return True
            if now >= until:
                return False
        return True

    @property
    def at_work(self) -> int:
        """The number of tables whose commit runs or waits for its turn."""
        return self._queue.commits(self._lane)

    def targets(self) -> dict[TableName, str]:
        """The Delta tables of the table folders, relative to the database; those that exist."""
        return {name: name.target(self._settings.default_schema) for name, s in list(self.states.items()) if s.position}

    def history_targets(self) -> dict[TableName, list[str]]:
        """The history tables of the table folders, relative to the database."""
        schema = self._settings.default_schema
        return {
            name: [f"{name.target(schema).rpartition('/')[0]}/{each.name}" for each in state.history]
            for name, state in list(self.states.items())
            if state.history
        }

    def last_commits(self) -> dict[str, float]:
        """When each table was committed to last, by its target."""
        schema = self._settings.default_schema
        return {name.target(schema): s.last.committed for name, s in list(self.states.items()) if s.position}

    @contextmanager
    def paused(self, name: TableName) -> Iterator[bool]:
        """Pauses a table: no step of it starts within the block. Yields False, without a pause, if one is running."""
        with self._queue.paused(self._lane, name) as is_free:
            yield is_free

    def request_stop(self) -> None:
        """From now on no table starts another commit. Does not wait."""
        self._queue.stop(self._lane)

    def stop(self, patience: float | None = None) -> bool:
        """Lets every table finish its current step and start no other; True once all have finished, but looks that are
        stuck (`wait`).

        `patience`: seconds to wait for them. A commit that takes longer ends later or with the process; both are safe.
        """
        self.request_stop()
        ended = self.wait(patience)
        if self._owns_queue:
            self._queue.close()
        return ended

    @property
    def is_idle(self) -> bool:
        """True if a later scheduler of this process may use what the replicators remember. False while a step is at
        work, and where a listing counts for a while: a later pass shall see all that has happened before it.
        """
        return not self._lane.active and not self._storage.capabilities.looks_last

    def _step(self, name: TableName, plan: View | None) -> Again:
        """One step of one table: a look, or one commit of what a look has found."""
        before = self.states.get(name)
        if self._group is not None and not self._group.owns(name):
            return Again()
        again = self._look(name) if plan is None else self._commit(name, plan)
        if self.states.get(name) is not before:
            self._in_queue.on_step(plan is not None)
        return again

    def _look(self, name: TableName) -> Again:
        """Looks at a table, and does the work that needs no commit."""
        self._looking[name] = begun = time.monotonic()
        now = time.time()
        try:
            folder = self._listed.pop(name, None) or scan_table(self._storage, name)
            if folder is None:
                return Again()  # the next listing finds that it is gone
            if self._is_unchanged(name, folder):
                return Again(self._unchanged.until(name) - begun)
            look = self._inspect(name, folder, now)
        except Exception as failure:  # the boundary around one table
            look = View(TableFiles(TableFolder(name)), failure=coded(failure, table=str(name)))
        finally:
            self._looking.pop(name, None)
        state = self.tables.after(name, look)
        self._unchanged.note(name, look, now)
        if state.is_due(look, now):
            self.worked_at = time.monotonic()
            self.engines.waits(name, look.pending.files)
            return Again(0.0, look)
        self.engines.waits(name)
        self._races.pop(name, None)
        if look.has_files_to_archive or look.files.folder.processed:
            self._replicator(name).tidy(look, now)
        return Again(self._seconds_to_next_look(look, state, now, time.monotonic() - begun))

    def _inspect(self, name: TableName, folder: TableFolder, now: float) -> View:
        replicator, rival = self._replicator(name), self._rivals.get(name)
        look = replicator.observe(folder, now=now)
        while rival is None and look.error is not None and replicator.quarantine(look, look.error):
            look = replicator.observe(scan_table(self._storage, name) or folder, now=now)
        if rival is not None:
            message = f"{name.folder} and {rival.folder} share one table"
            look = look.failed(TableError("table-name-ambiguous", message))
        return look

    def _commit(self, name: TableName, look: View) -> Again:
        """One commit of one table. What comes after it: more of the look, another look, or a rest."""
        begun = time.monotonic()
        try:
            return self._apply(name, look)
        except Exception as failure:  # the boundary around one table
            error, is_gone = coded(failure, table=str(name)), spark_is_gone(failure)
            if self.engines.goes_on_without_spark(error, begun, is_gone=is_gone):
                return Again(0.0)
            self.broken = self.broken or is_gone
            return self._failed(name, look, error)

    def _apply(self, name: TableName, look: View) -> Again:
        replicator = self._replicator(name)
        preference = self.engines.preference()
        look, done = replicator.step(look, self.engines.get, preference)
        match done:
            case Conflict():
                self._races[name] += 1
                return Again(0.0) if self._races[name] <= _RACES else self._failed(name, look, done.error)
            case Begun():
                return Again(0.0)
            case Applied():
                self._races.pop(name, None)
                self.tables.after(name, look, done)
                if look.has_work:
                    self.engines.waits(name, look.pending.files)
                    return Again(0.0, look)
                self.engines.waits(name)
                if not look.pending.behind:
                    begun = time.monotonic()
                    if merged := replicator.merge_small(done.version, self.engines.index_keys):
                        self.tables.maintained("Compact", replicator.target, time.monotonic() - begun, merged)
        if look.error is not None:
            is_aside = replicator.quarantine(look, look.error)
            return Again(0.0) if is_aside else self._failed(name, look, look.error)
        if look.pending.behind and look.pending.waiting is None:
            return Again(0.0)
        return Again(rest=self._in_queue.gather)

    def _failed(self, name: TableName, look: View, error: LakemirrorError) -> Again:
        self.engines.waits(name)
        state = self.tables.after(name, look, error)
        return Again(self._seconds_to_next_look(look, state, time.time(), 0.0))

    def _replicator(self, name: TableName) -> Replicator:
        if name not in self._replicators:
            self._replicators[name] = Replicator(self._storage, name, allowed(self._settings, str(name)))
        return self._replicators[name]

    def _seconds_to_next_look(self, look: View, state: TableState, now: float, took: float) -> float:
        """When a table is due again after a step that leaves nothing to commit now, if no event comes before.

        `took`: seconds of the look.
        """
        due = [math.inf]
        if state.failure is not None and state.failure.error.retry:
            due.append(state.failure.next_try - now)
        elif state.failure is not None and self.has_events:  # what it waits for may be outside of its folder
            failing = sum(each.error is not None for each in list(self.states.values()))
            due.append(max(_FAILED_AGAIN, _FAILED_SHARE * took * failing))
        if look.pending.waiting is not None and look.pending.waiting.until is not None:
            due.append(max(0.0, look.pending.waiting.until - now))
        if look.files.folder.processed:
            oldest = min(entry.modified for entry in look.files.folder.processed) / 1e9
            due.append(max(LASTS, oldest + 86400 * self._settings.processed_retention - now))
        due.append(max(0.0, self._unchanged.until(look.files.folder.name) - time.monotonic()))
        return min(due)

    def _is_unchanged(self, name: TableName, folder: TableFolder) -> bool:
        """True where another look would find what the last one found: nothing to do."""
        state = self.states.get(name)
        if state is None or state.error is not None or name in self._rivals:
            return False
        return self._unchanged.has(name, folder)

    def _forget(self) -> None:
        """Forgets the tables whose folder is gone, and those that are another engine's now."""
        zone = self.zone
        gone = set(self.states) - set(zone.tables)
        if self._group is not None:
            gone.update(name for name in self.states if not self._group.owns(name))
        for name in gone:
            schema = next((error for path, error in zone.errors.items() if name.folder.startswith(f"{path}/")), None)
            if schema is not None:
                self.tables.unlisted(name, schema)
            elif not self._queue.is_at_work(self._lane, name):
                self._queue.forget(self._lane, name)
                self.tables.forget(name)
                self.engines.waits(name)
                self._unchanged.forget(name)
                for of_tables in (self._replicators, self._touched, self._listed, self._races):
                    of_tables.pop(name, None)
        self.tables.retain(lambda name: name in zone.tables or self._may_come_back(name))

    def _may_come_back(self, name: TableName) -> bool:
        """True for a table that is not listed, and not dropped either."""
        target = name.target(self._settings.default_schema)
        return target in self.dropped.missing or self.zone.is_unknown(target, self._settings.default_schema)
