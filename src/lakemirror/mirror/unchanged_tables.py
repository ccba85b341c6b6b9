"""Looks that need not be repeated: the listing shows the same folder, and the table's log has no new file.

    look without work, error or wait ─▶ note ─▶ same listing, same time of `_delta_log` ─▶ nothing is opened

A note is valid for a limited time, and none is made for a log that has just changed: a folder's modified time is
coarse. Where folders have no time, nothing shows that a log changed: there a note is valid for
`Capabilities.looks_last` seconds.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import TableFolder, TableName
from lakemirror.mirror.table_plan import TablePlan
from lakemirror.storage import Storage

LASTS = 600.0
"""Seconds after which a table is read again even if the listing shows no change."""

_UNTOLD = -1  # the time of a log where folders have none
_FRESH = 2.0  # seconds: a folder's time this young may stay the same at the next change


class _Note(NamedTuple):
    folder: TableFolder
    log_time: int
    until: float


class SettledLooks:
    """The last looks at the tables of one database that found nothing to do."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._notes: dict[TableName, _Note] = {}

    def log_time(self, target: str) -> int:
        """The modified time of the folder of a Delta table's log; 0 where that time does not show whether the log
        changed.

        Read it before the look.
        """
        if not self._storage.capabilities.folder_times:
            return _UNTOLD
        try:
            entry = self._storage.stat(f"{target}/_delta_log")
        except LakemirrorError:
            return 0
        return entry.modified if entry is not None and time.time() - entry.modified / 1e9 > _FRESH else 0

    def holds(self, name: TableName, folder: TableFolder, target: str) -> bool:
        """True where another look would find what the last one found: nothing to do."""
        note = self._notes.get(name)
        if note is None or time.monotonic() >= note.until or note.folder != folder:
            return False
        return self.log_time(target) == note.log_time != 0

    def note(self, name: TableName, look: TablePlan, log_time: int) -> None:
        """Remembers a look. `log_time`: as it was before."""
        nothing_to_do = look.start is None and not look.pending.count and look.table_log is not None
        if (
            nothing_to_do
            and log_time
            and look.error is None
            and look.waiting is None
            and not look.reseeding
            and not look.leftovers
        ):
            lasts = self._storage.capabilities.looks_last or LASTS
            self._notes[name] = _Note(look.folder, log_time, time.monotonic() + lasts)
        else:
            self._notes.pop(name, None)

    def forget(self, name: TableName) -> None:
        """The next look reads the table."""
        self._notes.pop(name, None)


__all__ = ["LASTS", "SettledLooks"]
