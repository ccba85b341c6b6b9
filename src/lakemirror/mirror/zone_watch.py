"""Which tables the next tick looks at: those that were touched, or all of them.

    watched folders ─▶ touched tables ─▶ tick(touched) ─▶ wait …          all: at first, rarely, and in doubt

If every folder of the landing zone is watched, a look at all tables only confirms the watch. If one is not, every
tick looks at all tables.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from lakemirror.landing_zone.zone import LANDING_ZONE, TableName, Zone, table_of
from lakemirror.mirror.scheduler import Scheduler
from lakemirror.storage import Storage
from lakemirror.storage.folder_watch import FolderWatch, NotWatched

log = logging.getLogger("lakemirror")

SELDOM = 10.0
"""Seconds between two looks at all tables, at least, where all folders are watched."""

_SHARE = 200.0  # pause after a look at all tables, as a multiple of how long it took
_SOON = 0.05  # seconds until a table that was at work is looked at again
_RESTLESS = 0.2  # seconds between two looks at tables that wait for time to pass
_RESTLESS_SHARE = 50.0
_ABOVE = ("Files", LANDING_ZONE)  # folders whose change concerns more than one table


class ZoneWatch:
    """What changed in one landing zone since the last look."""

    def __init__(self, storage: Storage) -> None:
        self._watch = storage.watch()
        self._touched: set[TableName] = set()
        self._all = True
        self._all_again = self._restless_again = 0.0
        if isinstance(self._watch, NotWatched):
            say = log.warning if self._watch.is_limit else log.debug
            say("the landing zone is polled: %s", self._watch.reason)

    @property
    def sees_everything(self) -> bool:
        """True where every folder that a change file may come to is watched."""
        return isinstance(self._watch, FolderWatch) and not self._watch.refused

    def due(self, scheduler: Scheduler) -> set[TableName] | None:
        """The tables to look at now; None: all."""
        now = time.monotonic()
        if self._all or not self.sees_everything or now >= min(self._all_again, scheduler.drop_due):
            self._all = True
            return None
        due, self._touched = self._touched, set()
        if now >= self._restless_again:
            due |= scheduler.restless
        return due

    def looked(self, scheduler: Scheduler, due: set[TableName] | None, seconds: float) -> None:
        """Call after a tick over `due`, with its seconds: watches new folders.

        A folder may get files between the listing and the start of its watch: its table is looked at once more.
        """
        if not isinstance(self._watch, FolderWatch):
            return
        now = time.monotonic()
        zone = scheduler.zone
        if due is None:
            self._all = False
            self._touched = set()
            self._all_again = now + max(SELDOM, _SHARE * seconds)
        folders = (
            _folders(zone) if due is None else [f for n in due if n in zone.tables for f in zone.tables[n].folders]
        )
        refused = self._watch.refused
        for folder in self._watch.watch(folders):
            self._touch(folder)
        if self._watch.refused and not refused:
            log.warning("not every folder can be watched, so all are polled: %s", self._watch.refused)
        self._touched |= scheduler.unseen
        self._restless_again = now + max(_RESTLESS, _RESTLESS_SHARE * seconds)

    def wait(self, scheduler: Scheduler, seconds: float, is_over: Callable[[], bool]) -> None:
        """Waits for a time, or until a table is due."""
        assert isinstance(self._watch, FolderWatch)
        now = time.monotonic()
        until = min(now + seconds, self._all_again, max(now, scheduler.drop_due))
        if self._all or self._touched:
            until = min(until, now + _SOON)
        if scheduler.restless:
            until = min(until, max(now, self._restless_again))
        changed = self._watch.wait(max(0.0, until - now), is_over)
        self._all = self._all or changed.lost
        for folder in changed.folders:
            self._touch(folder)

    def look_at_all(self) -> None:
        """The next tick looks at all tables."""
        self._all = True

    def close(self) -> None:
        if isinstance(self._watch, FolderWatch):
            self._watch.close()

    def _touch(self, folder: str) -> None:
        name = None if folder in _ABOVE else table_of(folder)
        if name is not None:
            self._touched.add(name)
        else:  # a table or a schema was added or removed
            self._all = True


def _folders(zone: Zone) -> list[str]:
    return [*_ABOVE, *zone.folders, *(each for folder in zone.tables.values() for each in folder.folders)]


__all__ = ["SELDOM", "ZoneWatch"]
