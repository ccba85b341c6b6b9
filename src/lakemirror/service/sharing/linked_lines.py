"""Lines of files with the links of one caller, as they are sent.

    file, caller, end of the links ─▶ bytes of its line, made once a minute

Many readers have one profile, and the links that are made for it within a minute end together. Their questions differ,
but are about the same files: an answer is put together from lines that are there.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence

from lakemirror.service.sharing.response_lines import FileLine, Link

_MOST = 50_000  # lines, some 30 MB


class LinkedLines:
    """The lines of this minute. Safe for threads: two that make the same line make the same bytes."""

    def __init__(self) -> None:
        self._expiry, self._count = 0, 0
        self._known: dict[Hashable, dict[FileLine, bytes]] = {}
        self._lock = threading.Lock()

    def of(self, files: Sequence[FileLine], scope: Hashable, link: Link, expiry: int) -> list[bytes] | None:
        """The line of each file; None for more files than are kept. `scope`: what a link depends on beside its file and
        `expiry`."""
        if len(files) > _MOST:
            return None
        with self._lock:
            new = max(0, len(files) - len(self._known.get(scope, ())))  # at least
            if expiry != self._expiry or self._count + new > _MOST:
                self._known, self._expiry, self._count = {}, expiry, 0
            known = self._known.setdefault(scope, {})
        found, new = [], 0
        for file in files:
            line = known.get(file)
            if line is None:
                made = file.line(link, expiry)
                line = known.setdefault(file, made)
                new += line is made
            found.append(line)
        with self._lock:
            self._count += new
        return found
