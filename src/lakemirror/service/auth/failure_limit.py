"""How often one address may fail to prove who it is."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

MOST = 10  # failures
WINDOW = 1.0  # in so many seconds
_MOST_ADDRESSES = 10_000


class FailureLimit:
    """Counts failures by address. For one thread, the event loop's."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, deque[float]] = {}

    def note(self, address: str) -> None:
        """One failure."""
        if len(self._failures) >= _MOST_ADDRESSES:
            self._failures.clear()
        self._failures.setdefault(address, deque(maxlen=MOST + 1)).append(self._clock())

    def is_reached(self, address: str) -> bool:
        """True where the address has failed more than MOST times within the last WINDOW seconds."""
        recent = self._failures.get(address)
        return recent is not None and len(recent) > MOST and self._clock() - recent[0] < WINDOW
