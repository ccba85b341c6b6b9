"""How slow a client may be: while it sends a body, and while it reads an answer (section 7)."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakemirror.service.interface import Limits


@dataclass
class Pace:
    """The time that a client has left. Only time that is spent waiting for the client counts.

    `size`: the bytes that move at most; None: not known. A small body has a fixed time as a whole. Anything else has
    `grace` seconds, and one second more for every `least_rate` bytes. No client may stall for `body_timeout` seconds.
    """

    limits: Limits
    size: int | None = None
    _left: float = field(init=False)
    _stalled: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._left = self.limits.small_body_time if self._is_small else self.limits.grace

    def waited(self, seconds: float, moved: int) -> None:
        """Counts a wait of so many seconds, in which so many bytes moved."""
        self._stalled = 0.0 if moved else self._stalled + seconds
        self._left -= seconds
        if not self._is_small:
            most = max(self.limits.grace, self.limits.body_timeout)
            self._left = min(self._left + moved / self.limits.least_rate, most)

    @property
    def left(self) -> float:
        """Seconds until the client is too slow, if nothing moves until then; 0 or less: it is too slow."""
        return min(self._left, self.limits.body_timeout - self._stalled)

    @property
    def _is_small(self) -> bool:
        return self.size is not None and self.size <= self.limits.small_body
