"""What the process knows of each table, and of the database: states, warnings, and who is told of them.

look, apply, failure ─▶ the table's next state (`table_state.py`) ─▶ log and observer, where it is new
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.findings import summed_up
from lakemirror.landing_zone.warned import EVENTS, Warned
from lakemirror.landing_zone.zone import TableName
from lakemirror.mirror import table_state
from lakemirror.mirror.apply import Applied
from lakemirror.mirror.observe import View
from lakemirror.mirror.observer import Observer
from lakemirror.mirror.position import from_note
from lakemirror.mirror.table_state import TableState
from lakemirror.mirror.table_status import remembered, table_status
from lakemirror.status import TableStatus

log = logging.getLogger("lakemirror")


class KnownTables:
    """The states of the tables of one mirrored database."""

    def __init__(self, observer: Observer | None, before: Iterable[TableStatus], longest: float) -> None:
        """`before`: the record that an earlier process left of the tables. `longest`: seconds between two tries."""
        self.states: dict[TableName, TableState] = {}
        self.warnings: dict[str, Warned] = {}  # errors that concern no single table
        self.restless: set[TableName] = set()  # tables that may change although nothing is touched
        self.absent: tuple[TableStatus, ...] = ()  # the last status of tables whose folder is missing
        self._observer = observer
        self._before = {table.name: table for table in before}
        self._longest = longest

    def is_well(self, name: TableName) -> bool:
        """True if the table was looked at and has no error."""
        state = self.states.get(name)
        return state is not None and state.error is None

    def due(self, name: TableName, look: View, now: float) -> bool:
        """True if what the look found is to be applied now."""
        state = self.states[name]
        return look.has_work and state.due(_fingerprint(look, state.error), now)

    def looked(self, name: TableName, look: View) -> None:
        """Takes what a look found."""
        state = self._state(name)
        before = state.error
        known = [each for each in state.warnings if name in self.states or each.code in EVENTS]
        state = table_state.looked(state, look, _fingerprint(look, look.error or before), time.time())
        self.states[name] = state
        self._log_new_warnings(name, known)
        self._mark(name)
        if state.error is not None and (before is None or str(before) != str(state.error)):
            self._report(name, state.error)

    def applied(self, name: TableName, applied: Applied) -> None:
        """Takes what one apply did, and tells the observer."""
        before = self.states[name].warnings
        self.states[name] = table_state.applied(
            self.states[name],
            position=applied.position.number,
            files=len(applied.batch.files),
            rows=applied.manifest.rows,
            bytes=applied.manifest.bytes,
            commit_time=applied.manifest.committed,
            engine=applied.engine,
            engine_reason=applied.engine_reason,
            warnings=[from_note(note) for note in applied.manifest.notes],
        )
        self._log_new_warnings(name, before)
        self._mark(name)
        self.tell(lambda observer: observer.applied(name, applied))

    def failed(self, name: TableName, look: View, error: LakemirrorError) -> None:
        """Takes the error of an apply."""
        state = self.states.get(name, TableState())
        before = state.error
        self.states[name] = table_state.failed(
            state,
            error,
            _fingerprint(look, error),
            now=time.time(),
            longest=self._longest,
        )
        self._mark(name)
        if before is None or str(before) != str(error):
            self._report(name, error)

    def no_answer(self, name: TableName, error: LakemirrorError) -> None:
        """Takes the error of a look that has not ended."""
        self.states[name] = replace(self._state(name), error=error)
        self._mark(name)
        self._report(name, error)

    def forget(self, name: TableName) -> None:
        """The table's folder is gone. Its last status is kept as long as `retain` says."""
        self._before[str(name)] = table_status(name, self.states.pop(name))
        self.restless.discard(name)

    def retain(self, listed: Collection[str], is_missing: Callable[[TableName], bool]) -> None:
        """Keeps the last status of the `listed` tables, and of those whose folder may come back."""
        self._before = {
            name: row
            for name, row in self._before.items()
            if name in listed or is_missing(TableName(row.schema, row.table))
        }
        absent = tuple(row for name, row in self._before.items() if name not in listed)
        self.absent = self.absent if absent == self.absent else absent

    def rows(self) -> list[TableStatus]:
        """The status of every table that is known, for the next process, or the next scheduler of this one."""
        return [*(table_status(name, state) for name, state in list(self.states.items())), *self.absent]

    def warn(self, code: str, message: str) -> None:
        """Reports a problem that concerns no single table: in the status while it lasts, in the log once."""
        if self.warnings.get(code, Warned(code, "")).message != message:
            log.warning("%s", message)
        self.warnings[code] = Warned(code, message)

    def tell(self, what: Callable[[Observer], None]) -> None:
        """Calls the observer. Its errors, such as a closed terminal, are ignored."""
        if self._observer is not None:
            try:
                what(self._observer)
            except Exception as failure:
                log.debug("the observer failed: %s", failure)

    def _state(self, name: TableName) -> TableState:
        """What is known of a table; at first what an earlier process wrote down."""
        return self.states.get(name) or remembered(self._before.get(str(name)))

    def _log_new_warnings(self, name: TableName, before: Iterable[Warned]) -> None:
        """Logs the table's new warnings."""
        known = {(warned.code, warned.file) for warned in before}
        for warned in summed_up(each for each in self.states[name].warnings if (each.code, each.file) not in known):
            log.warning("%s: warning %s: %s", name, warned.code, warned.message)

    def _mark(self, name: TableName) -> None:
        """Notes whether the table waits for something without an event: a time, or a store that answers again."""
        state = self.states[name]
        (self.restless.add if state.pending or state.error is not None else self.restless.discard)(name)

    def _report(self, name: TableName, error: LakemirrorError) -> None:
        log.debug("%s: %s", name, error)
        self.tell(lambda observer: observer.failed(name, error))


def _fingerprint(look: View, error: LakemirrorError | None) -> str:
    """A text that changes when the cause of a failed apply may have changed: that file, the metadata, the folder, the
    table.
    """
    file = next((f.etag for f in look.folder.files if error is not None and f.path == error.file), "")
    metadata = look.folder.metadata.etag if look.folder.metadata else ""
    version = look.table.version if look.table is not None else -1
    return f"{file}|{metadata}|{look.identity}|{version}"


__all__ = ["KnownTables"]
