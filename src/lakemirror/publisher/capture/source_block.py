"""What sources have in common: the block in which they are open, and waiting for a log that another capture reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.source_needs import Need

_WAIT = 10.0  # seconds: a source may take a moment to see that a capture was killed


class SourceBlock:
    """A source between `__enter__`, which each database has of its own, and `__exit__`."""

    def __init__(self, options: CaptureOptions, stopped: Callable[[], bool] = lambda: False) -> None:
        """`stopped`: True where a load shall end."""
        self._options, self._stopped = options, stopped
        self._open = ExitStack()

    def __exit__(self, *failure: object) -> None:
        self._open.close()

    def log_of(self, position: int) -> str:
        """As in `FilePosition`: empty, for positions that the source itself keeps apart."""
        return ""

    def is_begun_again(self) -> bool:
        """True if the log that is streamed is gone, and another one has begun, without an error of the stream."""
        return False


def require_ready(needs: Iterable[Need]) -> None:
    """Raises `capture-not-ready` for the first need that is more than advice."""
    for need in needs:
        if not need.is_advice:
            raise LakemirrorError("capture-not-ready", need.what, hint=f"Run in the source: {need.statement}")


def wait_until_free(is_free: Callable[[], bool], stop: threading.Event, why: str) -> None:
    """Waits a moment until no other capture reads the log. `capture-taken` with `why`, also where `stop` is set."""
    end = time.monotonic() + _WAIT
    while not is_free():
        if time.monotonic() > end or stop.wait(0.2):
            raise LakemirrorError("capture-taken", why)
