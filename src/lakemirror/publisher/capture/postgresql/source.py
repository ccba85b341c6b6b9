"""One PostgreSQL database as a capture uses it: its tables, its log, a snapshot and the rows of a table in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakemirror.publisher.capture.capture_status import SlotView
from lakemirror.publisher.capture.loaded_rows import Publish, Tell, only_row
from lakemirror.publisher.capture.postgresql.catalog import read_tables
from lakemirror.publisher.capture.postgresql.change_log import ChangeLog
from lakemirror.publisher.capture.postgresql.load import Loader
from lakemirror.publisher.capture.postgresql.slot import LOST, exported_snapshot, give_back, view_slot
from lakemirror.publisher.capture.postgresql.source_check import needs_of
from lakemirror.publisher.capture.postgresql.source_sessions import connected, failing, reading
from lakemirror.publisher.capture.source_interface import Reached, Source
from lakemirror.publisher.capture.source_needs import Need
from lakemirror.publisher.capture.source_tables import SourceTable
from lakemirror.publisher.sources.sql_types import quoted

if TYPE_CHECKING:
    from psycopg import Connection


class PostgresSource(Source):
    """One database of PostgreSQL."""

    kind = "postgresql"
    streams_by_java = True
    connection: Connection[Any]
    log: ChangeLog
    _loader: Loader | None = None
    _reader: Any = None

    def _connect(self) -> None:
        self.connection = self._open.enter_context(connected(self._options))
        self.log = ChangeLog(self.connection, self._options.slot)

    def asking(self) -> AbstractContextManager[None]:
        return failing(self._options)

    def tables(self) -> tuple[SourceTable, ...]:
        with failing(self._options):
            return read_tables(self.connection, self._options)

    def needs(self) -> list[Need]:
        return needs_of(self.connection, self._options)

    def view(self, slot: str, position: int) -> SlotView:
        return view_slot(self.connection, slot)

    def give_back(self) -> list[str]:
        return give_back(self.connection, self._options.slot)

    def _is_free(self) -> bool:
        found = self.log.slot()
        return found is None or not found.active

    @property
    def _taken(self) -> str:
        return f"another capture reads the slot {self._options.slot!r} of this database"

    def _lost(self, reached: Reached) -> str:
        found = self.log.slot()
        if found is None:
            return "the slot is gone"
        if found.wal_status == LOST or not self.log.has_publication():
            return "the source has deleted its log"
        if reached.said is not None and found.confirmed > max(reached.newest, reached.said["position"]):
            return "another program has read the slot"
        return "it is older than what was published, as after a restore" if reached.newest > self.log.now() else ""

    def _start(self, reached: Reached) -> int:
        """Where the main slot is confirmed; the slot is made where there is none that can be read."""
        found = self.log.slot()
        if found is not None and found.wal_status != LOST and self.log.has_publication():
            return found.confirmed
        if found is not None:
            self.log.drop_slot()
        return self.log.make().confirmed

    @contextmanager
    def snapshot(self) -> Iterator[int]:
        with (
            exported_snapshot(self._options) as snapshot,
            Loader(self._options, snapshot.id, self._stopped) as self._loader,
        ):
            yield snapshot.position

    def load(self, table: SourceTable, publish: Publish, tell: Tell = lambda _: None) -> int:
        assert self._loader is not None
        return self._loader.load(table, publish, tell)

    def row(self, table: SourceTable, key: Mapping[str, Any]) -> dict[str, pa.Scalar] | None:
        with self.asking():
            if self._reader is None:
                self._reader = self._open.enter_context(reading(self._options))
            columns = [f"{column.load_expression} as {quoted(column.name)}" for column in table.columns]
            query = self.log.row_query(f"select {', '.join(columns)} from {table.qualified}", key)
            with self._reader.cursor() as cursor:
                cursor.execute(query)
                found = cursor.fetch_arrow_table().combine_chunks()
        return only_row(table, found.to_batches()[0]) if found.num_rows else None
