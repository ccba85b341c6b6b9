"""Which tables Delta in this process's JVM may commit to now.

On a local file system Delta puts a commit in place by looking whether its version is free and then renaming: a commit
of our own in between would be overwritten. Within one JVM Delta holds a lock; here the two keep out of each other's
way. (Two processes: `docs/decisions/024-commits-without-a-jvm.md`.)
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

_at_work: Counter[str] = Counter()
_locks: dict[str, threading.Lock] = {}
_guard = threading.Lock()


@contextmanager
def delta_at_work(table: str) -> Iterator[None]:
    """Delta may commit to the table within the block."""
    with _lock(table):
        _at_work[table] += 1
    try:
        yield
    finally:
        with _lock(table):
            _at_work[table] -= 1


@contextmanager
def without_delta(table: str) -> Iterator[bool]:
    """True where Delta does not begin to commit to the table within the block, False where it may be at it now."""
    with _lock(table):
        yield not _at_work[table]


def _lock(table: str) -> threading.Lock:
    with _guard:
        return _locks.setdefault(table, threading.Lock())
