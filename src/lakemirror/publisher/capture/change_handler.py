"""What becomes of a batch of the stream: files of every table, then the confirmation to the source.

    batch ─▶ pending ─▶ complete transactions ─▶ files of each table ─▶ `_capture.json` where needed ─▶ confirmed

The source is confirmed up to a commit only when every table's events before it are in the landing zone, and a file or
`_capture.json` says so. An error of one table stops that table; the landing zone's own failures are waited for.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.failures import coded
from lakemirror.publisher.capture.capture_position import LOADING, CaptureState, stopped, write_state
from lakemirror.publisher.capture.change_folding import TableShape
from lakemirror.publisher.capture.debezium import Group, KnownColumns
from lakemirror.publisher.capture.envelope import Ended, EventColumn, TableEvents, read_ended, read_events
from lakemirror.publisher.capture.pending_changes import PendingChanges, Table
from lakemirror.publisher.capture.table_stream import Found, TableStream

PAUSE = 0.2  # seconds at least from one batch of files to the next
MOST_PENDING = 64 << 20  # bytes of an open transaction that are kept in memory
AT_REST = 10.0  # seconds at least between two writes of `_capture.json`
_WAITS = (0.2, 0.5, 1.0, 2.0, 5.0)
_TRANSACTION = "TransactionMetadataValue"


@dataclass(frozen=True)
class Exchanged:
    """A table whose rows were replaced, or may have been, at this position of the log. `why`: says where, too, so that
    it is another sentence each time. `columns`: only where the table had one of these before; None: in any case.
    """

    table: Table
    position: int
    why: str
    columns: frozenset[str] | None = None


class RowsExchanged(TableError):
    """The rows of a table are others, whatever became of its columns."""


class ChangeHandler:
    """Handles the batches of one run of the stream."""

    def __init__(
        self,
        streams: Mapping[Table, TableStream],
        shape_of: Callable[[Table, tuple[EventColumn, ...]], TableShape],
        found: Callable[[Table], Found],
        state: CaptureState,
        stop: threading.Event,
        is_loaded_again: Callable[[Table, LakemirrorError], bool] = lambda *_: False,
    ) -> None:
        """`shape_of` gives the columns that a table's events have; `found` reads rows from the source again.

        `state` is written to the landing zone; `stop` ends waiting. `is_loaded_again`: True where a table that has
        this error is loaded again instead of stopped.
        """
        self._streams = dict(streams)
        self._shape_of, self._found = shape_of, found
        self._state, self._stop, self._is_loaded_again = state, stop, is_loaded_again
        self._pending = PendingChanges()
        self._columns = KnownColumns()
        self._published = 0.0
        self.committed = 0
        self.may_confirm = True

    def handle(self, groups: list[Group], exchanged: Iterable[Exchanged] = ()) -> bool:
        """Publishes a batch of Debezium's, as `take`; True where the source may be confirmed up to here."""
        events, ended = [], []
        for group in groups:
            if group.topic.endswith(_TRANSACTION):
                ended += read_ended(group.lines)
            elif columns := self._columns.of(group):
                events += read_events(group.lines, columns)
        return self.take(events, ended, exchanged)

    def take(self, events: Iterable[TableEvents], ended: list[Ended], exchanged: Iterable[Exchanged] = ()) -> bool:
        """Publishes events and ends of transactions; True where the source may be confirmed up to here.

        `exchanged`: tables whose rows were replaced by others without being logged; they are loaded again.
        """
        for each in exchanged:
            self._exchange(each)
        self._pending.add([each for each in events if self._table(each) in self._streams], ended)
        if ended:
            self._wait(self._published + PAUSE - time.monotonic())
            self._publish_complete()
            self._published = time.monotonic()
        if self._pending.nbytes > MOST_PENDING:
            self._publish_parts()
        return not self._stop.is_set() and self._may_confirm()

    @property
    def streams(self) -> Mapping[Table, TableStream]:
        """The tables that have not stopped."""
        return self._streams

    def _exchange(self, found: Exchanged) -> None:
        """Stops a table, to be loaded again, unless what it holds is younger."""
        stream = self._streams.get(found.table)
        if stream is None or stream.position >= found.position:
            return
        if found.columns is None or not found.columns.isdisjoint(stream.table.types_before()):
            name = ".".join(found.table)
            self.end(found.table, RowsExchanged("capture-schema-changed", f"{name}: {found.why}", table=name))

    def _publish_complete(self) -> None:
        complete, ended = self._pending.take_complete()
        for table, parts in complete.items():
            for part, later in zip(parts, [*parts[1:], None], strict=True):
                goes_on = later is not None and later.rows["transaction"][0] == part.rows["transaction"][-1]
                self._publish(table, functools.partial(self._write, part=part, goes_on=goes_on))
        for each in ended:
            for stream in self._streams.values():
                stream.passed(each.position)
        if ended and not self._stop.is_set():
            self.committed = ended[-1].position
            self._state.committed(ended[-1].milliseconds)

    def _write(self, stream: TableStream, part: TableEvents, goes_on: bool) -> None:
        table = self._table(part)
        shape = functools.partial(self._shape_of, table, part.columns)
        stream.publish(part.rows, shape, self._found(table), goes_on=goes_on)

    def _publish_parts(self) -> None:
        for table, parts in self._pending.open().items():
            left: list[TableEvents] = []

            def write(stream: TableStream, table: Table = table, parts: list[TableEvents] = parts) -> None:
                del left[:]  # noqa: B023  called in this round of the loop
                for number, part in enumerate(parts, 1):
                    shape, is_last = functools.partial(self._shape_of, table, part.columns), number == len(parts)
                    rows = stream.publish_part(part.rows, shape, self._found(table), is_last=is_last)
                    left.append(replace(part, rows=rows))  # noqa: B023

            self._publish(table, write)
            self._pending.keep(table, [part for part in left if part.rows.num_rows])

    def _publish(self, table: Table, write: Callable[[TableStream], None]) -> None:
        """Writes the files of one table, however long the landing zone fails; another error stops the table."""
        for wait in _waits():
            stream = self._streams.get(table)
            if stream is None or self._stop.is_set():
                return
            try:
                write(stream)
                return
            except Exception as failure:
                error = coded(failure, table=str(stream.table.name))
            if error.code in ("capture-taken", "capture-source-failed"):
                raise error
            if not error.retry:
                self.end(table, error)
                return
            self._state.waiting(table, error)
            self._wait(wait)
            if not self._renew(table):
                self._wait(wait)

    def _renew(self, table: Table) -> bool:
        """Reads the table's position again: what was being written may have been published."""
        try:
            self._streams[table] = self._streams[table].again()
        except LakemirrorError as error:
            if not error.retry:
                raise
            return False
        except OSError:
            return False
        return True

    def end(self, table: Table, error: LakemirrorError) -> None:
        """Stops one table: its folder says so before the source is confirmed without it."""
        stream = self._streams[table]
        state = stopped(stream.state, error)
        if self._is_loaded_again(table, error):
            state = replace(state, phase=LOADING)
        for wait in _waits():
            try:
                with stream.table.storage():
                    write_state(stream.table.place, state)
                break
            except LakemirrorError as failure:
                if not failure.retry or self._stop.is_set():
                    raise
                self._wait(wait)
        del self._streams[table]
        self._pending.forget(table)
        if state.phase == LOADING:
            self._state.set(table, state)
        else:
            self._state.stopped(table, state, error)

    def _may_confirm(self) -> bool:
        """True where a file or `_capture.json` says that everything up to the last commit is in the landing zone."""
        if not self.may_confirm:
            return False
        newest = max([stream.position for stream in self._streams.values()], default=0)
        said = max(newest, self._state.said)
        due = self._state.age > AT_REST
        if due or self.committed > said:
            if not due:
                return False
            try:
                self._state.write(max(self.committed, self._state.said), self._streams)
            except LakemirrorError as error:
                if not error.retry:
                    raise
                return False
        return self.committed > 0  # before the first end of a transaction, Debezium would confirm a place within one

    def _table(self, events: TableEvents) -> Table:
        return events.schema, events.table

    def _wait(self, seconds: float) -> None:
        if seconds > 0:
            self._stop.wait(seconds)


def _waits() -> Iterator[float]:
    yield from _WAITS
    while True:
        yield _WAITS[-1]
