"""As many tables begin to compute at one time as there are cores.

More threads of Python than cores make each other slower: they take the interpreter's lock from one another at every
call into a library or the system. Fewer threads leave the cores idle while a disk is waited for. So a thread counts
for the first 30 ms only: the look or apply of a small table is done by then, and what takes longer waits for the disk
or for Spark, or is in a long call that leaves the interpreter to others. Nobody waits longer behind it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class CoreTurns:
    """The cores of this process, and the threads that count as computing."""

    def __init__(self, cores: int, counts_for: float = 0.03) -> None:
        """`counts_for`: seconds."""
        self._cores = cores
        self._counts_for = counts_for
        self._until: dict[int, float] = {}  # by thread: when it stops to count
        self._given_back = threading.Condition()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Waits for a core and holds it within the block."""
        mine = threading.get_ident()
        with self._given_back:
            while (wait := self._seconds_to_wait()) > 0:
                self._given_back.wait(wait)
            self._until[mine] = time.monotonic() + self._counts_for
        try:
            yield
        finally:
            with self._given_back:
                del self._until[mine]
                self._given_back.notify()

    def _seconds_to_wait(self) -> float:
        """Until the next thread stops to count; 0 if a core is free."""
        now = time.monotonic()
        counted = [until - now for until in self._until.values() if until > now]
        return min(counted) if len(counted) >= self._cores else 0.0


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


CORES = CoreTurns(_cores())
"""Those of all databases of this process."""

__all__ = ["CORES", "CoreTurns"]
