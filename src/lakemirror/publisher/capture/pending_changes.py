"""Events that were received and not published yet: complete transactions are taken, the open one stays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.publisher.capture.envelope import Ended, TableEvents

Table = tuple[str, str]
"""The schema and the name of a table of the source."""


class PendingChanges:
    """Events of all tables since the last take."""

    def __init__(self) -> None:
        self._events: dict[Table, list[TableEvents]] = {}
        self._ended: list[Ended] = []

    def add(self, events: Iterable[TableEvents], ended: Iterable[Ended]) -> None:
        """Takes in the events of a batch, and the transactions that end in it."""
        for each in events:
            self._events.setdefault((each.schema, each.table), []).append(each)
        self._ended += ended

    @property
    def nbytes(self) -> int:
        """How much memory the events take."""
        return sum(each.rows.nbytes for parts in self._events.values() for each in parts)

    def take_complete(self) -> tuple[dict[Table, list[TableEvents]], list[Ended]]:
        """Events of complete transactions, with `commit`, the position behind their commit; and these transactions."""
        ended, self._ended = self._ended, []
        numbers = pa.array([each.transaction for each in ended], pa.int64())
        commits = pa.array([each.position for each in ended], pa.int64())
        complete: dict[Table, list[TableEvents]] = {}
        for table, parts in list(self._events.items()):
            done, still = [], []
            for part in _joined(parts):
                found = commits.take(pc.index_in(part.rows["transaction"], value_set=numbers).combine_chunks())
                count = len(found) - found.null_count
                if count:
                    rows = part.rows.slice(0, count).append_column("commit", found.slice(0, count))
                    done.append(replace(part, rows=rows))
                if count < part.rows.num_rows:
                    still.append(replace(part, rows=part.rows.slice(count)))
            if done:
                complete[table] = done
            self.keep(table, still)
        return complete, ended

    def open(self) -> dict[Table, list[TableEvents]]:
        """Events of the transaction that has not ended; neighbours of the same columns are in one."""
        return {table: _joined(parts) for table, parts in self._events.items()}

    def keep(self, table: Table, events: list[TableEvents]) -> None:
        """Replaces the events of a table."""
        if events:
            self._events[table] = events
        else:
            self._events.pop(table, None)

    def forget(self, table: Table) -> None:
        """Drops the events of a table."""
        self._events.pop(table, None)


def _joined(parts: list[TableEvents]) -> list[TableEvents]:
    """The same events, with neighbours of the same columns in one."""
    joined: list[TableEvents] = []
    run: list[TableEvents] = []
    for part in [*parts, None]:
        if run and (part is None or part.columns != run[0].columns):
            joined.append(replace(run[0], rows=pa.concat_tables([each.rows for each in run]).combine_chunks()))
            run = []
        if part is not None:
            run.append(part)
    return joined


__all__ = ["PendingChanges", "Table"]
