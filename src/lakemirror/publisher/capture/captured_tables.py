"""The tables of one capture: each with its folder, its key, and the state that its folder tells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.capture_position import LOADING, STOPPED, STREAMING, TableState, read_state, stopped
from lakemirror.publisher.capture.change_folding import TableShape
from lakemirror.publisher.capture.pending_changes import Table
from lakemirror.publisher.capture.source_tables import SourceTable
from lakemirror.publisher.capture.table_folders import table_folders
from lakemirror.publisher.landing import Landing
from lakemirror.publisher.landing_table import LandingTable


class CapturedTable:
    """One table of the source with its folder. `state` is None where no capture has begun with it."""

    def __init__(self, source: SourceTable, landing: LandingTable, key: tuple[str, ...]) -> None:
        """`key`: the key columns; empty for a table whose inserts alone are captured."""
        self.source = source
        self.landing = landing
        self.key: Table = source.id
        self.name = source.title
        self.state: TableState | None = read_state(landing.place)
        self.shape = TableShape(self.name, source.columns, key)

    @property
    def phase(self) -> str:
        """The phase that the folder tells; `loading` where no capture has begun with the table."""
        return LOADING if self.state is None else self.state.phase

    def shape_of(self, source: SourceTable) -> TableShape:
        """The shape of the table as the catalog has it now."""
        return TableShape(self.name, source.columns, self.shape.key)


class CapturedTables:
    """All tables of a capture, by schema and name. `refused`: those that cannot be captured, each with its error."""

    def __init__(self, landing: Landing, sources: Iterable[SourceTable], options: CaptureOptions) -> None:
        """`sources`: as the catalog reads them."""
        self._tables: dict[Table, CapturedTable] = {}
        self.refused: dict[Table, TableError] = {}
        sources = list(sources)
        folders = table_folders(sources, options)
        for source in sources:
            folder = folders[source.id]
            if isinstance(folder, TableError):
                self.refused[source.id] = folder
                continue
            inserts_only = options.takes_inserts_only(*source.id, source.qualified)
            keys = () if inserts_only else source.key
            opened = landing.table(folder.table, keys or None, folder.schema or None, zoneless="ntz")
            if source.problem is not None:
                self.refused[source.id] = source.problem
            self._tables[source.id] = CapturedTable(source, opened, keys)

    def __iter__(self) -> Iterator[CapturedTable]:
        return iter(self._tables.values())

    def __len__(self) -> int:
        return len(self._tables)

    def __getitem__(self, table: Table) -> CapturedTable:
        return self._tables[table]

    def named(self, names: Iterable[str]) -> set[str]:
        """The names, `schema.table`, of the tables that these name, as they are or quoted as in SQL; `all`: all.

        `input-invalid` for one that is no table of this capture.
        """
        known = {name: table.name for table in self for name in (table.name, table.source.qualified)}
        found = set(known.values()) if "all" in names else set()
        for name in set(names) - {"all"}:
            if name not in known:
                raise LakemirrorError(
                    "input-invalid", f"{name} is no table of this capture", hint="Name it as SCHEMA.TABLE."
                )
            found.add(known[name])
        return found

    def require_own(self, said: Mapping[str, Any] | None, options: CaptureOptions) -> None:
        """`capture-taken` where another capture publishes into the landing zone. `said`: its `_capture.json`."""
        others = {table.state.name for table in self if table.state is not None} - {options.name}
        if said is not None and said.get("slot") != options.slot:
            others.add(str(said.get("slot") or said.get("name")))
        if others:
            raise LakemirrorError(
                "capture-taken",
                f"another capture publishes into this database: {', '.join(sorted(others))}",
                hint="Give this one a database of its own; if the other one has ended for good, delete each "
                "_capture.json below Files/LandingZone.",
            )

    @property
    def unnamed(self) -> set[Table]:
        """The tables that can have no folder."""
        return self.refused.keys() - self._tables.keys()

    @property
    def followed(self) -> list[CapturedTable]:
        """The tables whose changes are wanted: all that are neither refused nor stopped."""
        return [table for table in self if table.key not in self.refused and table.phase != STOPPED]

    @property
    def streaming(self) -> list[CapturedTable]:
        """The tables that are loaded."""
        return [table for table in self.followed if table.phase == STREAMING]

    @property
    def states(self) -> Iterator[tuple[Table, TableState]]:
        """What is reported of each table."""
        for table in self:
            if table.key not in self.refused:
                yield table.key, table.state or TableState("", "", LOADING)
        for key, error in self.refused.items():
            yield key, stopped(TableState("", "", STOPPED), error)
