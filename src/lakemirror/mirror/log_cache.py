"""The log of one Delta table, as this process knows it, so that an apply needs no listing.

    in a store    listing ─▶ commits that this process has made since ─▶ the log, for `holds` seconds
    on a disk     the log's end, with all commits that are there (`delta/log_folder.py`)

Nothing is concluded from its age: version N + 1 is put only if it is free, and the log's end is looked at before
(`delta/commit.py`). A commit of another writer that is not known here makes the commit fail, and the log is listed.
"""

from __future__ import annotations

import time

from lakemirror.delta.log_folder import Log, RecentLog, commit_path, list_end
from lakemirror.storage.place import written_here


class KnownLog:
    """The log of the table in that folder. `holds`: seconds for which a listing counts; 0: each read looks
    for what is new."""

    def __init__(self, table: str, holds: float) -> None:
        self._table = table
        self._recent = None if holds else RecentLog(table)
        self._holds = holds
        self._log: Log | None = None
        self._listed = 0
        self._until = 0.0

    def read(self) -> Log | None:
        """The log, or its end; None if the folder has none. As `list_log`."""
        if self._recent is not None:
            return self._recent.read()
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
        version = log.version
        while (path := written_here(commit_path(log.folder, version + 1))) is not None:
            if path.stat().st_mtime_ns < self._listed:
                break
            version += 1
        return log.with_commits_to(version)


__all__ = ["KnownLog"]
