"""Memory that several threads share."""

from __future__ import annotations

import threading


class MemoryBudget:
    """So many bytes, of which each takes what it needs."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """False where so much is not left."""
        with self._lock:
            self._left -= size
            return self._left >= 0
