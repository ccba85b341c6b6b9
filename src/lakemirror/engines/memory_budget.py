"""Memory that several threads share."""

from __future__ import annotations

import threading

DEFAULT = 512 << 20
"""Bytes, where nobody says otherwise: the setting `memory`."""


class MemoryBudget:
    """`size` bytes, of which each takes what it needs before it allocates it, and gives back what it has freed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._left = size
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """False where so much is not left; then nothing is taken."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give(self, size: int) -> None:
        """Gives back what was taken."""
        with self._lock:
            self._left += size
