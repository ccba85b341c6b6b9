"""One PostgreSQL database as a capture uses it: its tables, its log, a snapshot and the rows of a table in it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakemirror.publisher.capture.loaded_rows import Publish, Tell, converted
from lakemirror.publisher.capture.postgresql.catalog import read_tables
from lakemirror.publisher.capture.postgresql.change_log import ChangeLog
from lakemirror.publisher.capture.postgresql.load import Loader
from lakemirror.publisher.capture.postgresql.slot import LOST, SlotReport, Snapshot, exported_snapshot
from lakemirror.publisher.capture.postgresql.source_sessions import connected, failing, reading
from lakemirror.publisher.capture.source_block import SourceBlock, wait_until_free
from lakemirror.publisher.capture.source_interface import Reached, position_lost
from lakemirror.publisher.capture.source_tables import SourceTable
from lakemirror.publisher.sources.sql_types import quoted

if TYPE_CHECKING:
    from psycopg import Connection


class PostgresSource(SourceBlock):
    """Used in a `with` block. `capture-source-failed` where the database does not answer."""

    kind = "postgresql"
    connection: Connection[Any]
    log: ChangeLog
    _loader: Loader | None = None
    _reader: Any = None

    def __enter__(self) -> PostgresSource:
        self.connection = self._open.enter_context(connected(self._options))
        self.log = ChangeLog(self.connection, self._options.slot)
        return self

    def asking(self) -> AbstractContextManager[None]:
        return failing(self._options)

    def tables(self) -> tuple[SourceTable, ...]:
        """The tables that the options name, as they are now."""
        with failing(self._options):
            return read_tables(self.connection, self._options)

    def begin(self, reached: Reached, stop: threading.Event) -> int:
        """Where the main slot is confirmed; the slot is made where there is none.

        `capture-position-lost` where tables stream and the source has no longer what follows their position.
        """
        found, said = self._idle_slot(stop), reached.said
        if found is not None and found.wal_status != LOST and self.log.has_publication():
            if reached.streaming and said is not None and found.confirmed > max(reached.newest, said["position"]):
                raise position_lost("another program has read the slot", reached.streaming)
            if reached.streaming and reached.newest > self.log.now():
                raise position_lost("it is older than what was published, as after a restore", reached.streaming)
            return found.confirmed
        if reached.streaming:
            why = "the slot is gone" if found is None else "the source has deleted its log"
            raise position_lost(why, reached.streaming)
        if found is not None:
            self.log.drop_slot()
        return self.log.make().confirmed

    def _idle_slot(self, stop: threading.Event) -> SlotReport | None:
        """The slot, once no other stream reads it. `capture-taken`."""

        def is_free() -> bool:
            found = self.log.slot()
            return found is None or not found.active

        wait_until_free(is_free, stop, f"another capture reads the slot {self._options.slot!r} of this database")
        return self.log.slot()

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """A snapshot and its position, for loads within this block."""
        with (
            exported_snapshot(self._options) as snapshot,
            Loader(self._options, snapshot.id, self._stopped) as self._loader,
        ):
            yield snapshot

    def load(self, table: SourceTable, publish: Publish, tell: Tell = lambda _: None) -> int:
        """Publishes all rows of a table in the snapshot; returns their number. Errors: as of `Loader.load`."""
        assert self._loader is not None
        return self._loader.load(table, publish, tell)

    def row(self, table: SourceTable, key: Mapping[str, Any]) -> dict[str, pa.Scalar] | None:
        """The row of a key as it is now, in the values of a load; None where there is none."""
        with self.asking():
            if self._reader is None:
                self._reader = self._open.enter_context(reading(self._options))
            columns = [f"{column.load_expression} as {quoted(column.name)}" for column in table.columns]
            query = self.log.row_query(f"select {', '.join(columns)} from {table.qualified}", key)
            with self._reader.cursor() as cursor:
                cursor.execute(query)
                found = cursor.fetch_arrow_table().combine_chunks()
        if not found.num_rows:
            return None
        values = converted(table, found.to_batches()[0])
        return {column.name: each[0] for column, each in zip(table.columns, values, strict=True)}
