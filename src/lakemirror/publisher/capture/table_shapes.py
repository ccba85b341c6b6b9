"""Columns of events, compared with the catalog and with what was published: changes of a table's columns are seen here.

    event's columns ─▶ known? ─▶ the catalog's, read again ─▶ do old rows hold other values now? ─▶ loaded again

Changes of old rows that come with a changed definition are not logged: a default, a rename, another type.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakemirror.errors import TableError
from lakemirror.landing_zone.column_types import table_type
from lakemirror.publisher.capture.captured_tables import CapturedTable, CapturedTables
from lakemirror.publisher.capture.change_folding import TableShape
from lakemirror.publisher.capture.envelope import EventColumn
from lakemirror.publisher.capture.pending_changes import Table
from lakemirror.publisher.capture.source_interface import Source
from lakemirror.publisher.capture.table_stream import Found

SCHEMA_CHANGED = "capture-schema-changed"
_SERIAL = {"SMALLSERIAL": "INT2", "SERIAL": "INT4", "BIGSERIAL": "INT8"}


class TableShapes:
    """The shapes of the tables of one run of the stream."""

    def __init__(self, tables: CapturedTables, source: Source, *, ignore: bool) -> None:
        """`ignore`: old rows that changed with a definition stay as they are."""
        self._tables, self._source, self._ignore = tables, source, ignore
        self._known: dict[tuple[Table, tuple[EventColumn, ...]], TableShape] = {}

    def shape_of(self, table: Table, columns: tuple[EventColumn, ...]) -> TableShape:
        """The shape for events of these columns.

        `capture-schema-changed` where the table must be loaded again, or the catalog does not know a column any more.
        """
        shape = self._known.get((table, columns))
        if shape is None:
            shape = self._known[(table, columns)] = self._compared(self._tables[table], columns)
        return shape

    def found(self, table: Table) -> Found:
        """Reads a row of the table by its key, as it is now."""
        captured = self._tables[table]
        return lambda key: self._source.row(captured.source, key)

    def _compared(self, table: CapturedTable, columns: tuple[EventColumn, ...]) -> TableShape:
        with self._source.asking():
            types = self._source.log.types(*table.key)
        if strange := _strange(columns, types):
            raise _changed(table, strange, "was changed or dropped in the source meanwhile")
        known = {column.name: column.type_name for column in table.shape.columns}
        if any(known.get(column.name) != types[column.name][2] for column in columns):
            table.shape = self._read_again(table)
        if not self._ignore:
            self._require_same_rows(table, types)
        return table.shape

    def _read_again(self, table: CapturedTable) -> TableShape:
        for source in self._source.tables():
            if source.id == table.key:
                if source.problem is not None:
                    raise source.problem
                return table.shape_of(source)
        raise _changed(table, "", "the table is gone from the source")

    def _require_same_rows(self, table: CapturedTable, types: Mapping[str, tuple[str, bool, str]]) -> None:
        """`capture-schema-changed` where rows that were published before have other values by now."""
        before = {name.lower(): kind for name, kind in table.landing.types_before().items()}
        if not before:
            return
        now = {column.name.lower(): column for column in table.shape.columns}
        gone = before.keys() - now.keys()
        for name, column in now.items():
            if name not in before:
                if gone:
                    raise _changed(table, column.name, "was added, and another column is gone: it may be a new name")
                if types.get(column.name, ("", True, ""))[1]:
                    raise _changed(table, column.name, "was added with a default, which old rows may have")
            elif table_type(before[name]) != table_type(column.arrow_type):
                raise _changed(table, column.name, f"has another type: {column.type_name}")


def _strange(columns: tuple[EventColumn, ...], types: Mapping[str, tuple[str, bool, str]]) -> str:
    """The first column of an event that the catalog does not have, or has with another type."""
    for column in columns:
        found = types.get(column.name)
        if found is None:
            return column.name
        given = _SERIAL.get(column.source_type.upper(), column.source_type.upper())
        if given and found[0] and found[0] != given:
            return column.name
    return ""


def _changed(table: CapturedTable, column: str, why: str) -> TableError:
    where = f"column {column} " if column else ""
    return TableError(SCHEMA_CHANGED, f"{table.name}: {where}{why}", table=table.name, column=column or None)
