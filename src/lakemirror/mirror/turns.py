"""Turns: tables that have something to apply get one commit a turn, a limited number of tables at one time.

    a look that found something ─▶ queue ─▶ turn: one commit ─▶ another turn if there is more
                                              └─▶ lost race: another look; any other error: the table's error

A table has at most one look or one turn at one time. Every error in a turn becomes the error of that table.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext

from lakemirror.engines.engines import Engines
from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.landing_zone.zone import TableName, scan_table
from lakemirror.mirror.core_turns import CORES
from lakemirror.mirror.fair_turns import FairTurns
from lakemirror.mirror.known_tables import KnownTables
from lakemirror.mirror.replicator import Replicator
from lakemirror.mirror.table_plan import TablePlan
from lakemirror.storage import Storage

log = logging.getLogger("lakemirror")

_RACES = 5  # lost races in a row after which a table goes to the end of the queue


class Turns:
    """The tables of one mirrored database that are at work."""

    def __init__(
        self,
        storage: Storage,
        most: int,
        replicators: Mapping[TableName, Replicator],
        known: KnownTables,
        engines: Engines,
        fair: FairTurns | None = None,
    ) -> None:
        """`most`: turns at one time. `fair`: shared with the other databases of the process; None where this one is
        alone."""
        self.broken = False  # the JVM has died: this process can apply nothing any more
        self.submitted = 0  # looks that have got a turn
        self.pending_bytes = 0  # of the looks that got a turn since `begin_tick`
        self._storage = storage
        self._replicators = replicators
        self._known = known
        self._engines = engines
        self._fair = fair
        self._applied_at: dict[TableName, float] = {}
        self._running: dict[TableName, Future[None]] = {}
        self._looking: set[TableName] = set()
        self._looked: list[tuple[TableName, TablePlan]] = []  # what there is to apply, not started yet
        self._pool = ThreadPoolExecutor(max(1, most), thread_name_prefix="table")
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def begin_tick(self) -> int:
        """Counts pending bytes from 0 again; returns the number of looks that have got a turn so far."""
        self.pending_bytes = 0
        return self.submitted

    def busy(self, name: TableName) -> bool:
        """True if the table is looked at or applied to, or is paused (`paused`)."""
        with self._lock:
            return name in self._running or name in self._looking

    def all_busy(self) -> list[TableName]:
        """The tables that are looked at or applied to, or paused."""
        with self._lock:
            return [*self._running, *self._looking]

    @property
    def at_work(self) -> int:
        """The number of tables with a turn now."""
        with self._lock:
            return len(self._running)

    def running_and_looking(self) -> tuple[list[Future[None]], list[TableName]]:
        """The turns that run or wait in the queue, and the tables that are looked at now.

        A look that has just ended gets its turn first: otherwise its table would be in neither list.
        """
        with self._lock:
            self._begin_looked()
            return [each for each in self._running.values() if not each.cancelled()], list(self._looking)

    def seconds_since_commit(self, name: TableName) -> float:
        """Seconds since this process committed to the table; infinite if it never did."""
        return time.monotonic() - self._applied_at.get(name, -math.inf)

    def forget(self, name: TableName) -> None:
        """The table's folder is gone."""
        self._applied_at.pop(name, None)

    def begin_look(self, name: TableName) -> bool:
        """True if the table may be looked at now; then `end_look` must follow."""
        with self._lock:
            if name in self._running or name in self._looking or self._stopping.is_set():
                return False
            self._looking.add(name)
            return True

    def end_look(self, name: TableName, look: TablePlan | None = None) -> None:
        """The look has ended. `look`: what it found to apply; `submit_looked` gives it a turn."""
        with self._lock:
            self._looking.discard(name)
            if look is not None:
                self._looked.append((name, look))

    def submit_looked(self) -> None:
        """Gives the tables that have something to apply their turns."""
        with self._lock:
            self._begin_looked()

    def submit(self, name: TableName, look: TablePlan) -> None:
        """Gives one table its turn, unless it is paused or at work."""
        with self._lock:
            self._begin(name, look)

    @contextmanager
    def paused(self, name: TableName) -> Iterator[bool]:
        """Pauses a table: no apply of it starts within the block. Yields False, without a pause, if one is running."""
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

    def _begin_looked(self) -> None:
        """As `submit_looked`. Call with the lock held."""
        looks, self._looked = self._looked, []
        self.submitted += len(looks)
        self.pending_bytes += sum(f.entry.size for _, look in looks for f in look.pending.files)
        for name, look in looks:
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
            self._known.failed(name, look, coded(failure, table=str(name)))
        finally:
            with self._lock:
                if again is not None and again.start is not None and not self._stopping.is_set():
                    self._running[name] = self._pool.submit(self._turn, name, again, races)
                else:
                    self._running.pop(name, None)

    def _apply_in_turn(self, name: TableName, look: TablePlan) -> TablePlan | None:
        if self._fair is None:
            return self._apply_once(name, look)
        with self._fair.turn(self._storage.uri(), self._stopping.is_set) as has_turn:
            return self._apply_once(name, look) if has_turn else None

    def _apply_once(self, name: TableName, look: TablePlan) -> TablePlan | None:
        """Applies one batch. Returns the look for the next batch, None if the table is done."""
        with nullcontext() if self._storage.capabilities.waits else CORES.taken():
            return self._apply_batch(name, look)

    def _apply_batch(self, name: TableName, look: TablePlan) -> TablePlan | None:
        replicator = self._replicators[name]
        applied, error = replicator.apply(self._engines.get, look)
        if applied is not None:
            self._applied_at[name] = time.monotonic()
            self._known.applied(name, applied)
            assert look.start is not None
            look = look.after(applied, look.start, self._storage.uri(replicator.target))
            replicator.archive(look)
            if look.pending.files and error is None:
                return look
            if not look.pending.behind:
                replicator.tidy_up(applied.version, self._engines.index_keys)
        if replicator.quarantine(look, error):
            return self._look_again(name)
        if error is not None:
            self._known.failed(name, look, error)
            return None
        return self._look_again(name) if look.pending.behind and look.waiting is None else None

    def _look_again(self, name: TableName) -> TablePlan | None:
        folder = scan_table(self._storage, name)
        if folder is None:
            return None
        look = self._replicators[name].inspect(folder)
        self._known.looked(name, look)
        return look


def _spark_is_gone(failure: Exception) -> bool:
    names = {kind.__name__ for kind in type(failure).__mro__}  # by name: nothing of Spark is imported here
    return "Py4JNetworkError" in names or isinstance(failure, ConnectionError)


__all__ = ["Turns"]
