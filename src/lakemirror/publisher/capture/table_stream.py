"""One captured table: which of its events are new, and their change files with positions.

    events ─▶ those behind the newest file's position ─▶ folded ─▶ one file, whose footer says up to where

A table knows its position from its newest file alone. A file that ends within a transaction has `final` false and the
number of its last event in that transaction; the transaction is then sent again as long as it is not confirmed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.publisher.capture import envelope
from lakemirror.publisher.capture.capture_position import FilePosition, Position, TableState, write_state
from lakemirror.publisher.capture.captured_files import CapturedFiles
from lakemirror.publisher.capture.change_folding import TableShape, fold_events, with_reselected
from lakemirror.publisher.landing_table import LandingTable

Shape = Callable[[], TableShape]
Found = Callable[[dict[str, Any]], "dict[str, pa.Scalar] | None"]


@dataclass(frozen=True)
class Origin:
    """Whose positions these are: the kind of source, the capture's name, where the source's stream starts, and which
    log a position is in, as in `FilePosition`."""

    source: str
    name: str
    stream_start: int
    log_of: Callable[[int], str] = lambda _: ""

    def at(self, first: Position, last: Position, transaction: int | str = 0, final: bool = True) -> FilePosition:
        """The position of a file with these events."""
        return FilePosition(self.source, self.name, first, last, transaction, final, self.log_of(last.lsn))


class TableStream:
    """The files of one table. It is made again after every error: it holds nothing that the folder does not tell."""

    def __init__(self, table: LandingTable, shape: TableShape, state: TableState, origin: Origin) -> None:
        """Reads the newest position. `capture-taken` where the newest file is not this capture's."""
        self.table = table
        self.shape = shape
        self.state = state
        self.origin = origin
        self._files = CapturedFiles(table)
        newest = FilePosition.of_footer(self._files.footer)
        if self._files.number and (newest is None or newest.name != origin.name):
            raise self._files.taken(self._taken(self._files.number))
        self._at = at = newest or origin.at(Position(), Position(state.start))
        self._caught_up = at.final and origin.stream_start >= max(at.last.lsn, state.start)
        self.files = 0
        self.rows = 0

    def again(self) -> TableStream:
        """The same table, its position read again."""
        made = TableStream(self.table, self.shape, self.state, self.origin)
        made.files, made.rows = self.files, self.rows
        made._caught_up = made._caught_up or self._caught_up
        return made

    @property
    def position(self) -> int:
        """Everything up to here is in the landing zone, as the newest file tells."""
        return max(self._at.last.lsn, self.state.start)

    def is_at(self, commit: int) -> bool:
        """True if the newest file ends with a transaction that was committed up to here, and not within one."""
        return self._at.final and self.position <= commit

    def passed(self, commit: int) -> None:
        """Takes in that a transaction with this commit has ended in the stream."""
        self._caught_up = self._caught_up or (self._at.final and commit >= self.position)

    def publish(self, events: pa.Table, shape: Shape, found: Found, *, goes_on: bool = False) -> None:
        """Publishes complete transactions: `events` also has `commit`, the position behind each event's commit.

        `shape`: of the new ones; events that a load has already may have columns that are gone from the source.
        `goes_on`: the last transaction has later events, with other columns, which are published next.
        """
        events = self._new(events)
        if not events.num_rows:
            return
        self.shape = shape()
        commits, orders = events["commit"], events["order"]
        last = Position(int(commits[-1].as_py()), orders[-1].as_py())
        at = self.origin.at(
            Position(int(commits[0].as_py()), orders[0].as_py()),
            last,
            events["transaction"][-1].as_py(),
            not goes_on,
        )
        self._write(events, at, found)

    def publish_part(self, events: pa.Table, shape: Shape, found: Found, *, is_last: bool = True) -> pa.Table:
        """Publishes events of a transaction that has not ended, but for the last one; returns those that are left.

        One is left, so that a file is there to be marked as the last one when the transaction ends. `is_last`: no later
        events of the transaction have come; else none is left, as events are published in their order.
        """
        fresh = self._new_of_open(events)
        if fresh is None:
            return events
        count = fresh.num_rows - 1 if is_last else fresh.num_rows
        part, left = fresh.slice(0, max(count, 0)), fresh.slice(max(count, 0))
        if not part.num_rows:
            return left
        self.shape = shape()
        first, last = (
            Position(int(part["lsn"][at].as_py()), part["order"][at].as_py()) for at in (0, part.num_rows - 1)
        )
        number = part["transaction"][-1].as_py()
        self._write(part, self.origin.at(first, last, number, final=False), found)
        return left

    def _new(self, events: pa.Table) -> pa.Table:
        """The events that no file has."""
        at = self._at
        if not at.final:
            same = pc.equal(events["transaction"], at.transaction)
            first = pc.index(same, True).as_py()
            if first < 0:
                return events.slice(0, 0)  # earlier transactions: that one is sent again, after them
            rest = events.slice(first)
            old = pc.and_(pc.equal(rest["transaction"], at.transaction), pc.less_equal(rest["order"], at.last.order))
            return rest.filter(pc.invert(old))
        return events.filter(_behind(events["commit"], self.position))

    def _new_of_open(self, events: pa.Table) -> pa.Table | None:
        """The same for events of one open transaction; None where its commit must be known first."""
        at = self._at
        if not at.final:
            same = events.num_rows and events["transaction"][0].as_py() == at.transaction
            return events.filter(pc.greater(events["order"], at.last.order)) if same else events.slice(0, 0)
        if self._caught_up:
            return events
        if not at.transaction or self.state.start > at.last.lsn:
            return None
        # transactions come in the order of their commits: the one of the newest file is still to come
        return events.filter(_behind(events["lsn"], at.last.lsn))

    def _write(self, events: pa.Table, at: FilePosition, found: Found) -> None:
        truncated = pc.indices_nonzero(pc.equal(events["op"], envelope.TRUNCATE).combine_chunks())
        if len(truncated):
            place = truncated[-1].as_py()
            self._start_again(_at_truncate(events, place, at))
            events = events.slice(place + 1)
        if not events.num_rows:
            return
        folded = with_reselected(fold_events(events, self.shape), found, self.shape)
        self._publish(self._files.rows(folded, self.shape), at)

    def _start_again(self, at: FilePosition) -> None:
        """The folder again, with a file of zero rows that has the columns and the position."""
        self._publish(self._files.begin_again(self.shape.columns), at)
        write_state(self.table.place, self.state)

    def _publish(self, rows: pa.RecordBatchReader, at: FilePosition) -> None:
        published = self._files.publish(rows, at.footer(), self._taken(self._files.number + 1))
        self._at = at
        self.files += 1
        self.rows += published.rows

    def _taken(self, number: int) -> str:
        return (
            f"file {number} is not of this run of the capture {self.origin.name!r}: another one publishes to this table"
        )


def _behind(positions: Any, position: int) -> Any:
    return pc.greater(positions, pa.scalar(position, positions.type))


def _at_truncate(events: pa.Table, place: int, at: FilePosition) -> FilePosition:
    """The position behind the truncate at this place: final where it is its transaction's last event."""
    number = events["transaction"][place].as_py()
    behind = events["transaction"].slice(place + 1, 1).to_pylist()
    lsn = int(events["commit" if at.final else "lsn"][place].as_py())
    last = Position(lsn, events["order"][place].as_py())
    return replace(at, last=last, transaction=number, final=at.final and behind != [number])
