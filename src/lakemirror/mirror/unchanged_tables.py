"""Tables that are as their last look left them, with nothing to do: they are not looked at again."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import TableFolder, TableName
from lakemirror.mirror.observe import View
from lakemirror.storage import Storage

LASTS = 600.0
"""Seconds after which a table is read again even if nothing shows a change."""

_FRESH = 2.0  # seconds: a folder's time this young may stay the same at the next change


class _Seen(NamedTuple):
    """What a look has seen: the table's folder, and the time of its log (`View.log_time`)."""

    folder: TableFolder
    log_time: int
    until: float


class UnchangedTables:
    """Looks that found nothing to do, by table. `schema`: the folder of Delta tables without a schema."""

    def __init__(self, storage: Storage, schema: str) -> None:
        self._storage = storage
        self._schema = schema
        self._seen: dict[TableName, _Seen] = {}

    def has(self, name: TableName, folder: TableFolder) -> bool:
        """True where another look would find what the last one found."""
        seen = self._seen.get(name)
        if seen is None or time.monotonic() >= seen.until or seen.folder != folder:
            return False
        return self._log_time(name) == seen.log_time

    def until(self, name: TableName) -> float:
        """When the table is read again at the latest, by `time.monotonic`; infinite where no look is remembered."""
        seen = self._seen.get(name)
        return math.inf if seen is None else seen.until

    def note(self, name: TableName, look: View, begun: float) -> None:
        """Remembers a look that found nothing to do. `begun`: when, in seconds since the epoch."""
        idle = not look.pending.count and not look.to_begin and look.table is not None and not look.is_recreated
        is_old = begun - look.log_time / 1e9 > _FRESH
        if idle and is_old and look.error is None and look.pending.waiting is None and not look.has_files_to_archive:
            until = time.monotonic() + (self._storage.capabilities.looks_last or LASTS)
            self._seen[name] = _Seen(look.files.folder, look.log_time, until)
        else:
            self.forget(name)

    def forget(self, name: TableName) -> None:
        """Has the table looked at again."""
        self._seen.pop(name, None)

    def _log_time(self, name: TableName) -> int:
        """When the folder of the Delta table's log was changed, in nanoseconds; -1 where that is not known.

        0 where folders have no time: then only the clock limits how long a look is valid.
        """
        if not self._storage.capabilities.folder_times:
            return 0
        try:
            entry = self._storage.stat(f"{name.target(self._schema)}/_delta_log")
        except LakemirrorError:
            return -1
        return entry.modified if entry is not None else -1
