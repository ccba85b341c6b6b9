"""Turns at applying, shared by the databases of one process: bounded, and fair between them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class FairTurns:
    """At most `most` turns at one time. The database with the fewest of them at work gets the next one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._at_work: Counter[str] = Counter()
        self._waiting: list[tuple[int, str]] = []
        self._next = 0
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, database: str, is_cancelled: Callable[[], bool]) -> Iterator[bool]:
        """Waits for a turn and holds it within the block; False, without one, once `is_cancelled` says so."""
        taken = self._take(database, is_cancelled)
        try:
            yield taken
        finally:
            if taken:
                with self._changed:
                    self._at_work[database] -= 1
                    self._at_work += Counter()  # drops zeros
                    self._changed.notify_all()

    def _take(self, database: str, is_cancelled: Callable[[], bool]) -> bool:
        with self._changed:
            ticket = (self._next, database)
            self._next += 1
            self._waiting.append(ticket)
            try:
                while not self._is_next(ticket):
                    if is_cancelled():
                        return False
                    self._changed.wait(0.2)
                self._at_work[database] += 1
                return True
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()

    def _is_next(self, ticket: tuple[int, str]) -> bool:
        if sum(self._at_work.values()) >= self._most:
            return False
        return ticket == min(self._waiting, key=lambda each: (self._at_work[each[1]], each[0]))


__all__ = ["FairTurns"]
