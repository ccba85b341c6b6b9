"""What happens now and then while changes are followed: marks in the log of an idle database, looks at the catalog."""

from __future__ import annotations

import time

from lakemirror.publisher.capture.source_interface import Source

HEARTBEAT = 5.0  # seconds
_KEPT_BACK = 1 << 20  # bytes of log that an idle database may keep back before a mark releases them


class Pulse:
    """The pulse of one run of the stream."""

    def __init__(self, source: Source, confirmed: int) -> None:
        self._source, self._confirmed = source, confirmed
        self._beat = self._look = time.monotonic()

    def beat(self, committed: int) -> None:
        """Writes a mark into the log of an idle database, where the slot keeps back what others wrote."""
        if time.monotonic() - self._beat > HEARTBEAT * 2:
            self._beat = time.monotonic()
            with self._source.asking():
                if self._source.log.now() - max(committed, self._confirmed) > _KEPT_BACK:
                    self._source.log.mark()

    def looks(self) -> bool:
        """True once in ten seconds."""
        due = time.monotonic() - self._look > HEARTBEAT * 2
        if due:
            self._look = time.monotonic()
        return due
