"""Turns at applying, shared by the databases of one process: bounded, and fair between them."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

CANCEL_LOOK = 1.0  # seconds between two checks of a waiting thread for a cancellation


class FairTurns:
    """At most `most` turns at one time. The database with the fewest of them at work gets the next one.

    A turn that is given back wakes only the thread that gets it: thousands may wait at no cost.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._at_work: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._tickets = 0
        self._lock = threading.Lock()

    @contextmanager
    def turn(self, database: str, is_cancelled: Callable[[], bool]) -> Iterator[bool]:
        """Waits for a turn and holds it within the block; gives False, without a turn, once `is_cancelled` is true."""
        taken = self._take(database, is_cancelled)
        try:
            yield taken
        finally:
            if taken:
                with self._lock:
                    self._at_work[database] -= 1
                    self._at_work += Counter()  # drops zeros
                    self._give()

    def _take(self, database: str, is_cancelled: Callable[[], bool]) -> bool:
        with self._lock:
            self._tickets += 1
            mine = _Waiting(self._tickets)
            self._waiting.setdefault(database, deque()).append(mine)
            self._give()
        while not mine.has_turn.wait(CANCEL_LOOK):
            if is_cancelled():
                with self._lock:
                    if mine.has_turn.is_set():
                        break
                    self._leave(database, mine)
                    return False
        return True

    def _give(self) -> None:
        """Gives out free turns: to the database with the fewest turns, and among equals to the longest waiter."""
        free = self._most - self._at_work.total()
        while free > 0 and self._waiting:
            database = min(self._waiting, key=lambda each: (self._at_work[each], self._waiting[each][0].ticket))
            mine = self._waiting[database][0]
            self._leave(database, mine)
            self._at_work[database] += 1
            mine.has_turn.set()
            free -= 1

    def _leave(self, database: str, mine: _Waiting) -> None:
        self._waiting[database].remove(mine)
        if not self._waiting[database]:
            del self._waiting[database]


class _Waiting:
    """One thread that waits. `ticket`: lower ones came earlier."""

    def __init__(self, ticket: int) -> None:
        self.ticket = ticket
        self.has_turn = threading.Event()


__all__ = ["FairTurns"]
