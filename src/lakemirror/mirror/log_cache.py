"""The log of one Delta table, as this process knows it, so that an apply needs no listing.

    in a store    listing ─▶ commits that this process has made since ─▶ the log, for `holds` seconds
    on a disk     the log's end, with all commits that are there (`delta/log_folder.py`)

Nothing is concluded from its age: version N + 1 is put only if it is free, and the log's end is looked at before
(`delta/commit.py`). A commit of another writer that is not known here makes the commit fail, and the log is listed.
"""

from __future__ import annotations

import time
from dataclasses import replace

from lakemirror.delta.log_folder import Log, RecentLog, list_end, table_folder
from lakemirror.storage.place import StorePath, is_in_store


class KnownLog:
    """The log of the table in that folder. `holds`: seconds for which the listing of a store counts; 0 for a disk."""

    def __init__(self, table: str, holds: float) -> None:
        self._table = table
        self._recent = None if is_in_store(table) else RecentLog(table)
        self._holds = holds
        self._log: Log | None = None
        self._listed = 0
        self._until = 0.0

    def read(self) -> Log | None:
        """The log, or its end; None if the folder has none, or a store's log is always listed. As `list_log`."""
        if self._recent is not None:
            return self._recent.read()
        if not self._holds:
            return None
        if self._log is None or time.monotonic() >= self._until:
            before, self._log = self._log, None
            listed = time.time_ns()
            self._log = list_end(self._table, before)
            self._listed, self._until = listed, time.monotonic() + self._holds
        if self._log is not None:
            self._log = self._with_own_commits(self._log)
        return self._log

    def forget(self) -> None:
        """The next read lists the log."""
        self._until = 0.0
        if self._recent is not None:
            self._recent.forget()

    def _with_own_commits(self, log: Log) -> Log:
        """The log with the commits that this process made after it was listed."""
        added: dict[int, StorePath] = {}
        version, folder = log.version + 1, table_folder(log.folder)
        while isinstance(folder, StorePath) and version:
            path = (folder / f"{version:020}.json").as_written()
            if path.known is None or path.known.modified < self._listed:
                break
            added[version] = path
            version += 1
        return replace(log, commits={**log.commits, **added}) if added else log


__all__ = ["KnownLog"]
