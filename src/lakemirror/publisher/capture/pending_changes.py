"""Events that were received and not published yet: complete transactions are taken, the open one stays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
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
        numbers = [each.transaction for each in ended]
        commits = positions([each.position for each in ended])
        complete: dict[Table, list[TableEvents]] = {}
        for table, parts in list(self._events.items()):
            done, still = [], []
            for part in _joined(_in_order(parts, numbers)):
                found = commits.take(_places(part.rows["transaction"], numbers).combine_chunks())
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
        return {table: _joined(_in_order(parts, [])) for table, parts in self._events.items()}

    def keep(self, table: Table, events: list[TableEvents]) -> None:
        """Replaces the events of a table."""
        if events:
            self._events[table] = events
        else:
            self._events.pop(table, None)

    def forget(self, table: Table) -> None:
        """Drops the events of a table."""
        self._events.pop(table, None)


def positions(numbers: list[int]) -> pa.Array:
    """Positions of a log: of SQL Server they have 80 bits."""
    return pa.array(numbers, pa.int64() if max(numbers, default=0) < 1 << 63 else pa.decimal128(38, 0))


def _in_order(parts: list[TableEvents], ended: list[int | str]) -> list[TableEvents]:
    """The same events in the order of the stream. `ended`: the transactions that have ended, in their order.

    A batch comes grouped by the columns of its events. Where a table's columns change and change back within one
    batch, the parts overlap, and are cut where the columns change.
    """
    lengths = [each.rows.num_rows for each in parts]
    part = np.repeat(np.arange(len(parts)), lengths)
    begins = np.repeat(np.cumsum([0, *lengths[:-1]]), lengths)
    rows = pa.concat_tables([each.rows.select(["transaction", "order"]) for each in parts]).combine_chunks()
    rank = pc.fill_null(_places(rows["transaction"], ended), len(ended))
    places = np.lexsort((np.asarray(rows["order"]), np.asarray(rank)))
    if (np.diff(places) > 0).all():
        return parts
    cuts = np.flatnonzero(np.diff(part[places])) + 1
    return [
        replace(parts[part[some[0]]], rows=parts[part[some[0]]].rows.take(pa.array(some - begins[some])))
        for some in np.split(places, cuts)
    ]


def _places(transactions: Any, ended: list[int | str]) -> Any:
    """The place of each transaction among those that have ended."""
    return pc.index_in(transactions, value_set=pa.array(ended, transactions.type))


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
