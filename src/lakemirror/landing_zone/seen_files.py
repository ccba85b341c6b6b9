"""What a process remembers of a table's waiting change files from look to look.

footer      read once, as long as the file does not change
first seen  delimited text that did not change for a second is complete (contract section 4)
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pyarrow.parquet as pq

from lakemirror.landing_zone.change_file import AppliedFiles, Readiness, TableFiles
from lakemirror.parquet.footer import read_footer
from lakemirror.storage import Entry, Storage

_REQUESTS_AT_ONCE = 8
_STEADY = 1.0  # seconds between two looks that make a delimited file complete


class SeenFiles:
    """The files of one table folder that wait."""

    def __init__(self, storage: Storage, settle: float) -> None:
        self._storage = storage
        self._settle = settle
        self._footers: dict[str, tuple[str, pq.FileMetaData]] = {}
        self._first_seen: dict[str, tuple[str, float]] = {}

    def readiness(self, now: float) -> Readiness:
        """When a file is complete, at a look now."""
        return Readiness(now, self._settle, self._footer, partial(self._steady_at, now))

    def fetch_footers(self, files: TableFiles, applied: AppliedFiles, most: int) -> None:
        """Reads the footers of waiting files side by side, where each is a request. What fails is read again."""
        if not self._storage.capabilities.waits or files.metadata.file_format != "Parquet":
            return
        waiting = [
            file.entry
            for file in files.changes
            if self._footers.get(file.entry.path, ("",))[0] != file.entry.etag and not applied.holds(file)
        ][:most]

        def fetch(entry: Entry) -> None:
            with suppress(Exception):
                self._footer(entry)

        if len(waiting) > 1:
            with ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix="footers") as pool:
                list(pool.map(fetch, waiting))

    def keep(self, listed: Sequence[Entry]) -> None:
        """Forgets files that are no longer listed."""
        if len(self._footers) + len(self._first_seen) > len(listed):
            paths = {entry.path for entry in listed}
            self._footers = {path: footer for path, footer in self._footers.items() if path in paths}
            self._first_seen = {path: seen for path, seen in self._first_seen.items() if path in paths}

    def _footer(self, entry: Entry) -> pq.FileMetaData:
        cached = self._footers.get(entry.path)
        if cached is not None and cached[0] == entry.etag:
            return cached[1]
        with self._storage.open(entry.path, entry) as file:
            footer = read_footer(file)
        self._footers[entry.path] = (entry.etag, footer)
        return footer

    def _steady_at(self, now: float, entry: Entry) -> float:
        """When a delimited file counts as complete: seen unchanged for a second, or earlier if settled (section 4)."""
        settled = entry.modified / 1e9 + self._settle
        if now >= settled:
            return settled
        etag, since = self._first_seen.get(entry.path, ("", now))
        if etag != entry.etag:
            since = now
            self._first_seen[entry.path] = (entry.etag, now)
        return min(settled, since + _STEADY)


__all__ = ["SeenFiles"]
