"""Threads that look at many tables, one table after the other, where a slow one does not delay the rest.

Usually one thread does all looks of a pass: a look takes well under a millisecond, less than handing it over would.
Where that thread makes no progress for a while, it is stuck in one table (a slow file, a store that does not answer);
another thread then takes the tables that are left, and the pass ends without the stuck one. A stuck thread ends with
its look. The threads are daemons: the process never waits for them when it ends.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

LOOK = "look"
"""The name of the threads."""

Job = Callable[[], None]


class Lookers:
    """Runs the looks of one pass."""

    def __init__(self, *, slow: float = 0.3, most: int = 32) -> None:
        """`slow`: seconds without progress after which a thread counts as stuck. `most`: stuck threads at one time."""
        self._slow = slow
        self._most = most
        self._stuck = 0
        self._lock = threading.Lock()

    def each(self, jobs: Iterable[Job]) -> None:
        """Runs every job, and returns when all are done but those that are stuck. Jobs must not raise.

        Jobs that no thread is free for are left out.
        """
        waiting = deque(jobs)
        if not waiting:
            return
        turn = _Pass(waiting)
        self._start(turn)
        seen = 0
        while not turn.ended.wait(self._slow):
            if turn.done != seen:
                seen = turn.done
                continue
            with self._lock:
                may_go_on = bool(waiting) and self._stuck < self._most
            if not may_go_on:
                break
            self._start(turn)
        waiting.clear()

    def _start(self, turn: _Pass) -> None:
        threading.Thread(target=self._work, args=(turn,), name=LOOK, daemon=True).start()

    def _work(self, turn: _Pass) -> None:
        with self._lock:
            self._stuck += 1
        try:
            turn.work()
        finally:
            with self._lock:
                self._stuck -= 1


class _Pass:
    """The jobs of one pass, and how many of them are done."""

    def __init__(self, waiting: deque[Job]) -> None:
        self.done = 0
        self.ended = threading.Event()
        self._waiting = waiting
        self._all = len(waiting)

    def work(self) -> None:
        while True:
            try:
                job = self._waiting.popleft()
            except IndexError:
                return
            job()
            self.done += 1
            if self.done >= self._all:
                self.ended.set()


__all__ = ["Lookers"]
