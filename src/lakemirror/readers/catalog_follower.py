"""Keeps a catalog's entries those of a running database: registers again when a table is new or dropped.

an engine's events ─▶ a table that was not seen before, or a drop ─▶ one thread registers ─▶ what it did is told
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.landing_zone.zone import TableName
from lakemirror.mirror.apply import Applied
from lakemirror.readers.catalog_entries import Registered

AGAIN = 60.0
"""Seconds until it registers again without an event: after an error, or where a history table came later."""


class CatalogFollower:
    """Observes the tables of an engine."""

    def __init__(
        self, register: Callable[[], Registered], told: Callable[[Registered | LakemirrorError], None]
    ) -> None:
        """`register` is called at the start and after changes, by one thread. `told` gets its result, or its error."""
        self._register, self._told = register, told
        self._seen: set[TableName] = set()
        self._due, self._is_over = threading.Event(), threading.Event()
        self._due.set()
        self._thread = threading.Thread(target=self._follow, name="catalog", daemon=True)

    def start(self) -> None:
        """Begins, with the tables that are there now."""
        self._thread.start()

    def stop(self, patience: float) -> None:
        """Ends after the registration that is running, or after so many seconds."""
        self._is_over.set()
        self._due.set()
        self._thread.join(patience)

    def applied(self, name: TableName, applied: Applied) -> None:
        if name not in self._seen:
            self._seen.add(name)
            self._due.set()

    def failed(self, name: TableName, error: LakemirrorError) -> None:
        """Does nothing: an error makes no table and drops none."""

    def dropped(self, target: str) -> None:
        self._seen.clear()  # the table may come back
        self._due.set()

    def _follow(self) -> None:
        while not self._is_over.is_set():
            self._due.wait(AGAIN)
            self._due.clear()
            if self._is_over.is_set():
                return
            try:
                self._told(self._register())
            except Exception as failure:  # the boundary around one registration; the next one may succeed
                self._told(coded(failure))
