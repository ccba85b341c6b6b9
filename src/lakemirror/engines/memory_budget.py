"""Memory that several threads share."""

from __future__ import annotations

import threading

DEFAULT = 512 << 20
"""The default of the setting `memory`, in bytes."""


class MemoryBudget:
    """`size` bytes that threads share: each thread takes bytes before it allocates them, and gives freed ones back."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._left = size
        self._given = threading.Condition()

    def take(self, size: int, *, waits: bool = False) -> bool:
        """Takes so many bytes. Returns False, and takes nothing, if fewer are left.

        `waits`: waits for them instead. For at most the budget's size, and for a thread that holds none of it.
        """
        with self._given:
            while waits and size > self._left:
                self._given.wait()
            if size > self._left:
                return False
            self._left -= size
            return True

    def give(self, size: int) -> None:
        """Gives bytes back."""
        with self._given:
            self._left += size
            self._given.notify_all()
