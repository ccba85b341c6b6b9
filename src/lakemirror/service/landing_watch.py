"""Whether anything was put into a landing zone, told from the modified times of its folders.

A look at a landing zone lists every table; this asks one `stat` a folder. It sees files that are created, renamed or
deleted, not files that are written in place: a look is still needed now and then.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.settings import DEFINITION

_UNSURE = 100_000_000  # nanoseconds: a time this fresh may stay the same at the next change


class LandingWatch:
    """Remembers the folders of one mirrored database's landing zone."""

    def __init__(self, database: Path) -> None:
        self._definition = database / DEFINITION
        self._zone = database / LANDING_ZONE
        self._seen: dict[str, int] = {}

    def note(self) -> None:
        """Remembers how the folders are now. Call it before a look, so that the look sees what came before."""
        now = time.time_ns()
        found = {str(self._definition): _modified(str(self._definition))}
        for folder, inner, _ in os.walk(self._zone):
            inner[:] = [name for name in inner if not name.startswith("_")]
            found[folder] = _modified(folder)
        self._seen = found if all(now - modified > _UNSURE for modified in found.values()) else {}

    def has_changed(self) -> bool:
        """True where a folder differs from what was remembered, or that was too fresh to tell."""
        return not self._seen or any(_modified(path) != modified for path, modified in self._seen.items())


def _modified(path: str) -> int:
    """The modified time in nanoseconds; 0 where there is nothing."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116  a Path for each would double the time
    except OSError:
        return 0


__all__ = ["LandingWatch"]
