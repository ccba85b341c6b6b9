"""The apply queue: the one answer to "when is this table touched next?", and the threads that do it.

    folder events, REST, retries, settle times ─▶ wake, later ─▶ schedule.py ─▶ a thread ─▶ one step ─▶ Again

One queue serves all databases of a process. A table that rests costs its place in the queue and nothing else. Threads
are daemons: the process never waits for a step that is stuck.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

from lakemirror.failures import coded
from lakemirror.mirror.schedule import LOOKS, Again, Lane, Schedule, Step, Task

log = logging.getLogger("lakemirror")

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
STEP = "table"
"""The name of the threads."""

_AFTER_A_DEFECT = 60.0  # seconds until a step that raised an error, or got no thread, is due again


class ApplyQueue:
    """The tables of all databases of a process, and the threads that do their steps."""

    def __init__(self, commits: int | None = None) -> None:
        """`commits`: most at one time, of all databases together; None: what the databases allow."""
        self._schedule = Schedule(commits, CORES)
        self._lock = threading.Lock()
        self._due = threading.Condition(self._lock)  # for the timer: a table is due earlier than it knows
        self._quiet = threading.Condition(self._lock)  # for `wait`: a database has no step left
        self._free: list[
            tuple[SimpleQueue[Task | None], threading.Thread]
        ] = []  # threads without work, and their inbox
        self._timer_until = -math.inf  # when the timer looks next; -inf: it does not run
        self._is_closed = False

    def add(self, step: Step, *, commits: int = 1, looks: int = LOOKS, computes: bool = True) -> Lane:
        """A database, whose tables `step` works on. Steps raise no errors. The rest as in `Lane`."""
        return Lane(step, {False: looks, True: max(1, commits)}, computes)

    def wake(self, lane: Lane, *names: Hashable) -> None:
        """Something has happened to these tables: each gets a step that begins after now."""
        self.later(lane, 0.0, *names)

    def later(self, lane: Lane, seconds: float, *names: Hashable) -> None:
        """Each of these tables gets a step that begins in so many seconds, or earlier."""
        with self._lock:
            at = time.monotonic() + seconds
            for name in names:
                self._schedule.later(lane, name, at)
            self._begin_steps()

    def forget(self, lane: Lane, name: Hashable) -> None:
        """The table is gone."""
        with self._lock:
            self._schedule.forget(lane, name)

    def is_at_work(self, lane: Lane, name: Hashable) -> bool:
        """True if a step of the table runs, a commit of it waits for its turn, or it is paused (`paused`)."""
        with self._lock:
            task = lane.tasks.get(name)
            return task is not None and (task.at_work or task.plan is not None)

    def all_at_work(self, lane: Lane) -> list[Hashable]:
        """The tables for which `is_at_work` is true."""
        with self._lock:
            return [name for name, task in lane.tasks.items() if task.at_work or task.plan is not None]

    def commits(self, lane: Lane) -> int:
        """The number of commits of a database that run or wait for their turn."""
        with self._lock:
            return lane.at_work[True] + len(lane.ready[True])

    @contextmanager
    def paused(self, lane: Lane, name: Hashable) -> Iterator[bool]:
        """No step of the table begins within the block. Yields False, without a pause, if it is at work."""
        with self._lock:
            held = self._schedule.hold(lane, name)
        try:
            yield held is not None
        finally:
            if held is not None:
                with self._lock:
                    self._schedule.release(held)
                    self._quiet.notify_all()
                    self._begin_steps()

    def stop(self, lane: Lane) -> None:
        """No step of the database begins any more. Does not wait."""
        with self._lock:
            self._schedule.stop(lane)
            self._quiet.notify_all()

    def wait(self, lane: Lane, timeout: float | None, within: float = 0.0) -> bool:
        """Waits until no table of the database is ready or at work, or due within so many seconds; False after the
        timeout."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        with self._lock:
            while lane.active or self._schedule.next_due(lane) <= time.monotonic() + within:
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._quiet.wait(min(left, threading.TIMEOUT_MAX))
            return True

    def close(self) -> None:
        """Ends the threads, each after its step; waits for those that have none. No step begins any more."""
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
            self._due.notify_all()
        for inbox, thread in free:
            inbox.put(None)
            thread.join()

    def _begin_steps(self) -> None:
        """Gives every step that may begin to a thread. Call with the lock held."""
        while not self._is_closed and (task := self._schedule.take(time.monotonic())) is not None:
            if self._free:
                self._free.pop()[0].put(task)
            elif not _has_started(threading.Thread(target=self._work, args=(task,), name=STEP, daemon=True)):
                self._schedule.finish(task, Again(_AFTER_A_DEFECT), time.monotonic())
        self._set_timer()

    def _work(self, first: Task) -> None:
        """A thread: does one step after the other, and waits for the next one."""
        task: Task | None = first
        inbox: SimpleQueue[Task | None] = SimpleQueue()
        while task is not None:
            try:
                again = task.lane.step(task.name, task.plan)
            except BaseException as failure:  # a step catches its errors; one that does not must not end the queue
                log.error("%s: %s", task.name, coded(failure))
                again = Again(_AFTER_A_DEFECT)
            with self._lock:
                self._schedule.finish(task, again, time.monotonic())
                if not task.lane.active:
                    self._quiet.notify_all()
                if self._is_closed:
                    return
                self._free.append((inbox, threading.current_thread()))
                self._begin_steps()  # the last one that is free, this one, gets the next step
            task = inbox.get()

    def _set_timer(self) -> None:
        """Has the timer look again when the next table is due. Call with the lock held."""
        until = self._schedule.next_event(time.monotonic())
        if until >= self._timer_until > -math.inf or (math.isinf(until) and until > 0):
            return
        if self._timer_until == -math.inf and not _has_started(
            threading.Thread(target=self._keep_time, name="due-times", daemon=True)
        ):
            return
        self._timer_until = until
        self._due.notify_all()

    def _keep_time(self) -> None:
        """The timer: begins the steps that are due."""
        with self._lock:
            while not self._is_closed:
                self._timer_until = math.inf
                self._begin_steps()
                seconds = self._timer_until - time.monotonic()
                self._due.wait(None if math.isinf(seconds) else max(0.0, seconds))


def _has_started(thread: threading.Thread) -> bool:
    try:
        thread.start()
    except RuntimeError as error:  # the process has as many threads as it may have
        log.error("%s: %s", thread.name, error)
        return False
    return True
