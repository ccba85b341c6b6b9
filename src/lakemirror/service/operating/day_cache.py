"""The last day of each database, for the plots of the page: read by a thread of its own, and kept for some seconds.

a view ─▶ plots that are young enough, else those from before while the thread reads ─▶ None where there are none yet
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from lakemirror.executions.last_day import DayRows, last_day
from lakemirror.failures import coded
from lakemirror.service.interface import DatabaseEntry
from lakemirror.settings.settings import Settings
from lakemirror.storage.place import storage_of

FRESH = 15.0  # seconds for which plots are shown again
_PATIENCE = 0.03  # seconds that a view waits for plots
_MOST = 16  # databases whose days are kept


@dataclass
class _Day:
    """A day that was read, with the plots that were made of it."""

    rows: DayRows
    read_at: float
    plots: dict[str, dict[str, Any]] = field(default_factory=dict)


class DayCache:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._days: OrderedDict[str, _Day] = OrderedDict()
        self._reading: dict[str, Future[None]] = {}
        self._pool = ThreadPoolExecutor(1, "plots")

    def plot(self, database: DatabaseEntry, table: str = "") -> dict[str, Any] | None:
        """The figures of the last day of a database, or of one of its tables; None while they are read first."""
        with self._lock:
            day, reading = self._days.get(database.id), self._reading.get(database.id)
            if reading is None and (day is None or time.time() - day.read_at > FRESH):
                reading = self._reading[database.id] = self._pool.submit(self._read, database)
        if day is None and reading is not None:
            wait([reading], _PATIENCE)
            with self._lock:
                day = self._days.get(database.id)
        if day is None:
            return None
        if table not in day.plots:
            day.plots[table] = day.rows.plot(day.read_at, table)
        return day.plots[table]

    def _read(self, database: DatabaseEntry) -> None:
        """Never raises: without a table of executions there are no plots."""
        now = time.time()
        day: _Day | None = None
        try:
            day = _Day(last_day(storage_of(database.folder), Settings(), now), now)
            day.plots[""] = day.rows.plot(now)
        except Exception as failure:
            coded(failure)  # in the log of unexpected errors, if it is one
        with self._lock:
            del self._reading[database.id]
            if day is not None:
                self._days[database.id] = day
                self._days.move_to_end(database.id)
                while len(self._days) > _MOST:
                    self._days.popitem(last=False)
