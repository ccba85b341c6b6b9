"""Detects changes in a landing zone: by inotify, else by the modified times of its folders.

A look at a landing zone lists every table; this reads one queue, or calls `stat` once a folder. Both can miss changes
(writes of another machine, writes in place), so a look is still needed from time to time.
"""

from __future__ import annotations

import os
import select
import threading
import time
from pathlib import Path

from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.settings import DEFINITION
from lakemirror.storage.folder_watch import NotWatched, open_watch

_UNSURE = 100_000_000  # nanoseconds: a time this fresh may stay the same at the next change


class LandingWatch:
    """Remembers the folders of one mirrored database's landing zone."""

    def __init__(self, database: Path) -> None:
        self._definition = database / DEFINITION
        self._zone = database / LANDING_ZONE
        self._database = database
        self._seen: dict[str, int] = {}
        self._touched = False
        opened = open_watch(database)
        self._told = None if isinstance(opened, NotWatched) else opened
        self._ringing = threading.Lock()
        self._bell = -1 if self._told is None else os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    @property
    def is_told(self) -> bool:
        """True if the system reports changes, so that a check costs almost nothing."""
        return self._told is not None and not self._told.refused

    def close(self) -> None:
        """Ends what the system does for this watch."""
        if self._told is not None:
            self._told.close()
            self._told = None
            with self._ringing:
                os.close(self._bell)
                self._bell = -1

    def ring(self) -> None:
        """Ends a `wait` of another thread, or the next one."""
        with self._ringing:
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)

    def note(self) -> None:
        """Remembers the current state of the folders. Call it before a look, so that the look sees every earlier
        change.
        """
        self._ask()
        self._touched = False
        now = time.time_ns()
        found = {str(self._definition): _modified(str(self._definition))}
        for folder, inner, _ in os.walk(self._zone):
            inner[:] = [name for name in inner if not name.startswith("_")]
            found[folder] = _modified(folder)
        if self._told is not None:
            below = len(str(self._database)) + 1
            self._told.watch(["", *(each[below:] for each in found if each != str(self._definition))])
        self._seen = found if all(now - modified > _UNSURE for modified in found.values()) else {}

    def has_changed(self) -> bool:
        """True if a folder differs from the remembered state, or that state was too recent to be sure."""
        if self._seen and self.is_told:
            self._ask()
            return self._touched
        return not self._seen or any(_modified(path) != modified for path, modified in self._seen.items())

    def wait(self, seconds: float) -> None:
        """Waits until the system reports a change or `ring` is called, at most so long. Only if `is_told`."""
        if self._told is not None:
            ready = select.poll()
            ready.register(self._told.queue, select.POLLIN)
            ready.register(self._bell, select.POLLIN)
            if any(file == self._bell for file, _ in ready.poll(seconds * 1000)):
                os.eventfd_read(self._bell)

    def _ask(self) -> None:
        """Takes in what the system has told since the last time."""
        if self._told is not None:
            changed = self._told.wait(0.0, lambda: False)
            self._touched = self._touched or changed.lost or bool(changed.folders)


def _modified(path: str) -> int:
    """The modified time in nanoseconds; 0 where there is nothing."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116  a Path for each would double the time
    except OSError:
        return 0


__all__ = ["LandingWatch"]
