"""Threads that look at many tables, one table after the other, where a slow one does not delay the rest.

Usually one thread does all looks of a pass: a look takes well under a millisecond, less than a hand-over between
threads. Where looks take longer, since they wait for a disk or a store, a few threads look side by side. Where none
makes progress for a while, they are stuck (a slow file, a store that does not answer); another thread then takes the
remaining tables, and the pass ends without the stuck ones. A stuck thread ends with its look. The threads are daemons:
the process never waits for them when it ends.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

LOOK = "look"
"""The name of the threads."""
_OFTEN = 15  # looks at the progress in the time of a stuck thread, while there may be more threads
_QUICK = 20  # looks that one thread does between two of them where it waits for nothing

Job = Callable[[], None]


class Lookers:
    """Runs the looks of one pass."""

    def __init__(
        self,
        *,
        side_by_side: int = 4,
        slow: float = 0.3,
        most: int = 32,
        turn: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`side_by_side`: threads at one time, where looks take long. `slow`: seconds without progress after which a
        thread counts as stuck. `most`: stuck threads at one time. `turn`: each look is within such a block."""
        self._turn = turn
        self._side_by_side = side_by_side
        self._slow = slow
        self._most = most
        self._stuck = 0
        self._lock = threading.Lock()

    def each(self, jobs: Iterable[Job]) -> None:
        """Runs every job, and returns when all but the stuck ones are done. Jobs must not raise.

        Jobs for which no thread is free are left out.
        """
        waiting = deque(jobs)
        if not waiting:
            return
        turn = _Pass(waiting, self._turn)
        self._start(turn)
        seen, threads = 0, 1
        while threads < self._side_by_side and waiting and not turn.ended.wait(self._slow / _OFTEN):
            if turn.done - seen < _QUICK and waiting:
                self._start(turn)
                threads += 1
            seen = turn.done
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

    def __init__(self, waiting: deque[Job], turn: Callable[[], AbstractContextManager[None]]) -> None:
        self.done = 0
        self._turn = turn
        self.ended = threading.Event()
        self._waiting = waiting
        self._all = len(waiting)
        self._lock = threading.Lock()

    def work(self) -> None:
        while True:
            try:
                job = self._waiting.popleft()
            except IndexError:
                return
            with self._turn():
                job()
            with self._lock:
                self.done += 1
                if self.done >= self._all:
                    self.ended.set()


__all__ = ["Lookers"]
