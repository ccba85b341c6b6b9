"""The tables of one capture: each with its folder, its key, and the state that its folder tells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.capture_position import TableState, read_state
from lakemirror.publisher.capture.change_folding import TableShape
from lakemirror.publisher.capture.envelope import EventColumn
from lakemirror.publisher.capture.pending_changes import Table
from lakemirror.publisher.capture.table_folders import matches, table_folders
from lakemirror.publisher.capture.table_stream import Found
from lakemirror.publisher.landing import Landing
from lakemirror.publisher.landing_table import LandingTable


class CapturedTable:
    """One table of the source. `state` is None where no capture has begun with it."""

    def __init__(self, source: Any, landing: LandingTable, insert_only: bool) -> None:
        self.source = source
        self.landing = landing
        self.key: Table = (source.schema, source.name)
        self.name = f"{source.schema}.{source.name}"
        self.error: LakemirrorError | None = source.problem
        self.shape = TableShape(self.name, source.columns, () if insert_only else source.key)
        self.state: TableState | None = read_state(landing.place)


class CapturedTables:
    """The tables of a capture that can be captured, by schema and name.

    `refused`: why the others cannot be. `interrupted`: those of them that were captured until now.
    """

    def __init__(self, landing: Landing, sources: Iterable[Any], options: CaptureOptions) -> None:
        """`sources`: as the catalog reads them."""
        self._tables: dict[Table, CapturedTable] = {}
        self.refused: dict[Table, LakemirrorError] = {}
        self.interrupted: list[CapturedTable] = []
        sources = list(sources)
        folders = table_folders(sources, options)
        for source in sources:
            place: Table = (source.schema, source.name)
            folder = folders[place]
            if isinstance(folder, TableError):
                self.refused[place] = folder
                continue
            insert_only = matches(*place, source.qualified, options.insert_only)
            keys = () if insert_only else source.key
            opened = landing.table(folder.table, keys or None, folder.schema or None, zoneless="ntz")
            table = CapturedTable(source, opened, insert_only)
            if table.error is None:
                self._tables[place] = table
            else:
                self.refused[place] = table.error
                self.interrupted += [table] if table.state is not None else []

    def __iter__(self) -> Iterator[CapturedTable]:
        return iter(self._tables.values())

    def __len__(self) -> int:
        return len(self._tables)

    def shapes(self, source: Any, log: Any) -> TableShapes:
        """The columns of the tables as their events have them."""
        return TableShapes(self._tables, source, log)


class TableShapes:
    """Columns of events, compared with the catalog: read again where they differ."""

    def __init__(self, tables: dict[Table, CapturedTable], source: Any, log: Any) -> None:
        self._tables, self._source, self._log = tables, source, log
        self._known: dict[tuple[Table, tuple[EventColumn, ...]], TableShape] = {}

    def shape_of(self, table: Table, columns: tuple[EventColumn, ...]) -> TableShape:
        """The shape for events of these columns. `capture-schema` where the catalog does not know them any more."""
        shape = self._known.get((table, columns))
        if shape is None:
            shape = self._known[(table, columns)] = self._compared(table, columns)
        return shape

    def found(self, table: Table) -> Found:
        """Reads a row of the table by its key."""
        captured = self._tables[table]
        return lambda key: self._source.row(captured.source, key)

    def _compared(self, table: Table, columns: tuple[EventColumn, ...]) -> TableShape:
        captured = self._tables[table]
        for again in (False, True):
            if again:
                captured.shape = self._read_again(captured)
            types = self._log.types(*table)
            known = {column.name for column in captured.shape.columns}
            strange = [
                column.name
                for column in columns
                if column.name not in known or types.get(column.name, column.source_type) != column.source_type
            ]
            if not strange:
                return captured.shape
        raise TableError(
            "capture-schema-changed",
            f"{captured.name}: column {strange[0]} was changed at the source meanwhile",
            table=captured.name,
            column=strange[0],
        )

    def _read_again(self, captured: CapturedTable) -> TableShape:
        for source in self._source.tables():
            if (source.schema, source.name) == captured.key:
                return TableShape(captured.name, source.columns, captured.shape.key)
        return captured.shape


__all__ = ["CapturedTable", "CapturedTables", "TableShapes"]
