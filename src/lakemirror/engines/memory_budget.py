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
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Takes so many bytes. Returns False, and takes nothing, if fewer are left."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give(self, size: int) -> None:
        """Gives bytes back."""
        with self._lock:
            self._left += size
