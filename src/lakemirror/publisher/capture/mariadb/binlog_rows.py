"""Rows of the binary log as events of their tables: collected in order, handed over as Arrow tables.

An update without a column's value says so by `UNSENT`: the images of rows may be complete, or of what changed alone
(binlog_row_image). The key of an updated row is in its old image in any case.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import Any

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture import envelope
from lakemirror.publisher.capture.change_folding import UNSENT
from lakemirror.publisher.capture.envelope import EventColumn, TableEvents
from lakemirror.publisher.capture.mariadb.table_maps import MappedTable, lenenc
from lakemirror.publisher.capture.pending_changes import Table

WRITE, UPDATE, DELETE = "write", "update", "delete"
ROW_EVENTS = {23: WRITE, 24: UPDATE, 25: DELETE, 30: WRITE, 31: UPDATE, 32: DELETE}
_OPS = {WRITE: envelope.CREATE, UPDATE: envelope.UPDATE, DELETE: envelope.DELETE}
Values = list["str | None"]


class CollectedRows:
    """Changes of tables since the last `take`, in order."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._newest: dict[Table, _Part] = {}
        self._orders: dict[Table, int] = defaultdict(int)
        self._milliseconds = 0
        self.nbytes = 0

    def begin(self, milliseconds: int) -> None:
        """A transaction of this time (Unix ms) begins: the places of events in it are counted from 0."""
        self._milliseconds = milliseconds
        self._orders.clear()

    def add(self, table: MappedTable, op: str, transaction: str, position: int, body: bytes) -> None:
        """Takes in the rows of one event. `body`: from its second header on. `capture-source-failed`."""
        part = self._part((table.schema, table.name), table.columns, table.key)
        try:
            for before, after in _images(table, op, body):
                self._append(part, _OPS[op], before, after, transaction, position)
        except (struct.error, IndexError, UnicodeDecodeError, ValueError) as error:
            raise LakemirrorError(
                "capture-source-failed",
                f"{table.schema}.{table.name}: a row in the binary log cannot be read: {error}",
            ) from error
        self.nbytes += 2 * len(body)

    def add_truncate(self, table: Table, transaction: str, position: int) -> None:
        """Takes in that a table was emptied."""
        self._append(self._part(table, (), ()), envelope.TRUNCATE, None, None, transaction, position)

    def _append(
        self, part: _Part, op: str, before: Values | None, after: Values | None, transaction: str, position: int
    ) -> None:
        self._orders[part.table] += 1
        part.rows.append((op, before, after, position, transaction, self._orders[part.table], self._milliseconds))

    def _part(self, table: Table, columns: tuple[EventColumn, ...], key: tuple[int, ...]) -> _Part:
        part = self._newest.get(table)
        if part is None or part.columns != columns:
            part = self._newest[table] = _Part(table, columns, key)
            self._parts.append(part)
        return part

    def take(self) -> list[TableEvents]:
        """Everything collected, each part with one set of columns."""
        found = [part.events() for part in self._parts if part.rows]
        self._parts, self._newest, self.nbytes = [], {}, 0
        return found


class _Part:
    """Events of one table with one set of columns. `key`: the places of its key columns; none: all are."""

    def __init__(self, table: Table, columns: tuple[EventColumn, ...], key: tuple[int, ...]) -> None:
        self.table, self.columns = table, columns
        self.key = key or tuple(range(len(columns)))
        self.rows: list[tuple[str, Values | None, Values | None, int, str, int, int]] = []

    def events(self) -> TableEvents:
        ops, before, after, positions, transactions, orders, milliseconds = zip(*self.rows, strict=True)
        rows = pa.table(
            {
                "op": pa.array(ops, pa.string()),
                "before": self._structs(before, self.key),
                "after": self._structs(after, range(len(self.columns))),
                "lsn": pa.array(positions, pa.int64()),
                "transaction": pa.array(transactions, pa.string()),
                "order": pa.array(orders, pa.int64()),
                "moment": envelope.moments(pa.array(milliseconds, pa.int64())),
            }
        )
        return TableEvents(*self.table, self.columns, rows)

    def _structs(self, images: tuple[Values | None, ...], places: Any) -> pa.Array:
        fields = [pa.field(self.columns[place].name, pa.string()) for place in places]
        if not fields:
            return pa.array([None] * len(images), pa.struct([]))
        none: Values = [None] * len(self.columns)
        given = list(zip(*[none if image is None else image for image in images], strict=True))
        arrays = [pa.array(given[place], pa.string()) for place in places]
        mask = pa.array([image is None for image in images])
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)


def _images(table: MappedTable, op: str, body: bytes) -> Any:
    """Each row as it was and as it is; None where there is none."""
    count, at = lenenc(body, 0)
    if count != len(table.columns):
        raise ValueError("its columns are others than its table's")
    size = (count + 7) // 8
    first, at = _included(body[at : at + size], count), at + size
    second = first
    if op == UPDATE:
        second, at = _included(body[at : at + size], count), at + size
    while at < len(body):
        image, at = _image(table, first, body, at)
        if op == WRITE:
            yield None, image
        elif op == DELETE:
            yield image, None
        else:
            after, at = _image(table, second, body, at)
            for place in table.key:
                if after[place] is UNSENT:
                    after[place] = image[place]
            yield image, after


def _included(bitmap: bytes, count: int) -> list[int]:
    return [place for place in range(count) if bitmap[place >> 3] >> (place & 7) & 1]


def _image(table: MappedTable, included: list[int], body: bytes, at: int) -> tuple[Values, int]:
    """One image of a row: a text for each column, None for NULL, `UNSENT` for a column that is not in it."""
    size = (len(included) + 7) // 8
    nulls, at = body[at : at + size], at + size
    row: Values = [UNSENT] * len(table.columns)
    readers = table.readers
    for number, place in enumerate(included):
        if nulls[number >> 3] >> (number & 7) & 1:
            row[place] = None
        else:
            row[place], at = readers[place](body, at)
    if at > len(body):
        raise IndexError("it is cut off")
    return row, at
