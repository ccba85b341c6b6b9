"""Which tables Delta in this process's JVM may commit to now, and who has to give way.

On a local file system Delta puts a commit in place by looking whether its version is free and then renaming: a commit
of our own in between would be overwritten. Within one JVM Delta holds a lock; here the two keep out of each other's
way. (Two processes: `docs/decisions/024-commits-without-a-jvm.md`.)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 5.0
"""Seconds that an apply waits for work that gives way to it."""

_AGAIN = 0.2

_at_work: dict[str, list[Callable[[], None] | None]] = {}
_conditions: dict[str, threading.Condition] = {}
_guard = threading.Lock()


@contextmanager
def delta_at_work(table: str, give_way: Callable[[], None] | None = None) -> Iterator[None]:
    """Delta may commit to the table within the block. `give_way` ends the block early, for whoever cannot wait."""
    condition = _condition(table)
    with condition:
        _at_work.setdefault(table, []).append(give_way)
    try:
        yield
    finally:
        with condition:
            _at_work[table].remove(give_way)
            condition.notify_all()


@contextmanager
def without_delta(table: str) -> Iterator[bool]:
    """True where Delta does not begin to commit to the table within the block, False where it may be at it now.

    Work that gives way is told to, and waited for.
    """
    condition = _condition(table)
    with condition:
        until = time.monotonic() + PATIENCE
        while (others := _at_work.get(table)) and None not in others and time.monotonic() < until:
            for give_way in others:
                if give_way is not None:
                    give_way()
            condition.wait(_AGAIN)  # it may have been between two jobs
        yield not others


def _condition(table: str) -> threading.Condition:
    with _guard:
        return _conditions.setdefault(table, threading.Condition())
