"""The states of the tables of one database, who is told when they change, and which are as their last look left them.

look, apply, failure ─▶ the table's next state (`table_state.py`) ─▶ log and observer, where it is new
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import is_
from typing import NamedTuple

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.findings import EVENTS, Warned, summed_up
from lakemirror.landing_zone.zone import TableFolder, TableName
from lakemirror.mirror.apply import Applied
from lakemirror.mirror.observe import View
from lakemirror.mirror.observer import Maintained, Observer, nobody
from lakemirror.mirror.table_state import Failure, TableState, next_state, remembered, table_status
from lakemirror.status.status import TableStatus
from lakemirror.storage import Storage

log = logging.getLogger("lakemirror")

LASTS = 600.0
"""Seconds after which a table is read again even if nothing shows a change."""

_FRESH = 2.0  # seconds: a folder's time this young may stay the same at the next change


class TableStates:
    """The states of the tables of one mirrored database, and the warnings about the database."""

    def __init__(self, observers: Sequence[Observer], before: Iterable[TableStatus], longest: float) -> None:
        """`before`: the record that an earlier process left of the tables. `longest`: seconds between two tries."""
        self.by_name: dict[TableName, TableState] = {}
        self.warnings: dict[str, Warned] = {}  # errors that concern no single table
        self.maintained: Maintained = nobody
        self._absent: tuple[TableStatus, ...] | None = ()
        self._held: dict[TableName, tuple[TableState, TableStatus]] = {}  # of the states that were asked for last
        self._rows: tuple[TableStatus, ...] = ()
        self._rows_of: tuple[object, ...] = ()  # what `_rows` was made from
        self._observers = observers
        self._before = {TableName(row.schema, row.table): row for row in before}
        self._longest = longest

    def after(self, name: TableName, look: View, done: Applied | LakemirrorError | None = None) -> TableState:
        """Takes what a step did, and returns the table's state: a look (`done` None), an apply, or its error."""
        before = self.of(name)
        state = next_state(before, look, done, now=time.time(), longest=self._longest)
        if name not in self.by_name:
            self._absent = None
            # what an earlier process logged about an event is not logged again
            before = replace(before, warnings=tuple(w for w in before.warnings if w.code in EVENTS))
        elif state == before:
            return before
        self.by_name[name] = state
        if state.warnings:
            self._log_new_warnings(name, before, state)
        if isinstance(done, Applied):
            self.tell(lambda observer: observer.applied(name, done))
        if state.failure is not None:
            self._report_error(name, before.failure, state.failure)
        return state

    def of(self, name: TableName) -> TableState:
        """The state of a table; at first what an earlier process wrote down."""
        return self.by_name.get(name) or remembered(self._before.get(name))

    def had_rows(self, name: TableName) -> bool:
        """True if an apply made the table: as its last look found, or as an earlier process wrote down."""
        state, row = self.by_name.get(name), self._before.get(name)
        return bool(state.position if state is not None else row is not None and row.position)

    def stuck(self, name: TableName, error: LakemirrorError) -> None:
        """Takes the error of a look that has not ended."""
        before, failure = self.of(name), Failure(error)
        self.by_name[name] = replace(before, failure=failure)
        self._absent = None
        self._report_error(name, before.failure, failure)

    def unlisted(self, name: TableName, error: LakemirrorError) -> None:
        """The schema folder of the table cannot be listed."""
        self.by_name[name] = replace(self.by_name[name], failure=Failure(error))

    def forget(self, name: TableName) -> None:
        """The table's folder is gone. Its last status is kept as long as `retain` says."""
        self._before[name] = table_status(name, self.by_name.pop(name))
        self._absent = None

    def take(self, rows: Iterable[TableStatus]) -> None:
        """Takes what another engine says of its tables."""
        self._before.update((TableName(row.schema, row.table), row) for row in rows)
        self._absent = None

    def retain(self, is_to_keep: Callable[[TableName], bool]) -> None:
        """Keeps the last status of these tables, from before they were looked at or after their folder was gone."""
        self._before = {name: row for name, row in self._before.items() if is_to_keep(name)}
        self._absent = None

    @property
    def absent(self) -> tuple[TableStatus, ...]:
        """The last status of tables that have no state; the same object as before while nothing changes."""
        if self._absent is None:
            self._absent = tuple(row for name, row in list(self._before.items()) if name not in self.by_name)
        return self._absent

    @property
    def is_waiting(self) -> bool:
        """True if a table has an error, or files that cannot be applied yet."""
        return any(state.pending or state.error is not None for state in list(self.by_name.values()))

    def rows(self) -> tuple[TableStatus, ...]:
        """The status of every table; the same object as before while nothing changes."""
        absent, states = self.absent, dict(self.by_name)
        rows_of = (absent, *states.values())
        if len(rows_of) != len(self._rows_of) or not all(map(is_, rows_of, self._rows_of)):
            self._rows, self._rows_of = (*self.own_rows(), *absent), rows_of
        return self._rows

    def own_rows(self) -> list[TableStatus]:
        """The status of the tables that have a state; each is made once for a state."""
        before, held = self._held, dict[TableName, tuple[TableState, TableStatus]]()
        for name, state in list(self.by_name.items()):
            last = before.get(name)
            held[name] = last if last is not None and last[0] is state else (state, table_status(name, state))
        self._held = held
        return [row for _, row in held.values()]

    def warn(self, code: str, message: str) -> None:
        """Reports a problem that concerns no single table: in the status while it lasts, in the log once."""
        if self.warnings.get(code, Warned(code, "")).message != message:
            log.warning("%s", message)
        self.warnings[code] = Warned(code, message)

    def tell(self, what: Callable[[Observer], None]) -> None:
        """Calls the observers. Errors of one, such as a closed terminal, are ignored."""
        for observer in self._observers:
            try:
                what(observer)
            except Exception as failure:
                log.debug("an observer failed: %s", failure)

    def _log_new_warnings(self, name: TableName, before: TableState, state: TableState) -> None:
        known = {(warned.code, warned.file) for warned in before.warnings}
        for warned in summed_up(each for each in state.warnings if (each.code, each.file) not in known):
            log.warning("%s: warning %s: %s", name, warned.code, warned.message)

    def _report_error(self, name: TableName, before: Failure | None, failure: Failure) -> None:
        """Tells of an error that is another one than before."""
        if before is None or str(before.error) != str(failure.error):
            log.debug("%s: %s", name, failure.error)
            self.tell(lambda observer: observer.failed(name, failure.error))


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
