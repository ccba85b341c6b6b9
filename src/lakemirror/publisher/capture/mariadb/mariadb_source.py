"""One MariaDB or MySQL server as a capture uses it: its tables, its log, a snapshot and the rows of a table in it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.loaded_rows import Publish, Stopped, Tell, converted, in_files
from lakemirror.publisher.capture.mariadb.binlog_files import BinlogFiles, lock_name, position_of
from lakemirror.publisher.capture.mariadb.binlog_stream import BinlogStream
from lakemirror.publisher.capture.mariadb.mariadb_catalog import read_tables, types_of
from lakemirror.publisher.capture.mariadb.mariadb_check import settings_needed
from lakemirror.publisher.capture.mariadb.mariadb_sessions import MariaSession, failing, opened, quoted
from lakemirror.publisher.capture.pending_changes import Table
from lakemirror.publisher.capture.source_block import SourceBlock, require_ready, wait_until_free
from lakemirror.publisher.capture.source_interface import Reached, Step, position_lost
from lakemirror.publisher.capture.source_tables import SourceColumn, SourceTable, followed

ROWS = 20_000
"""Rows of a load that are read at a time."""


@dataclass(frozen=True)
class BinlogSnapshot:
    """What the server held at a position of its log."""

    position: int


class BinlogLog:
    """The log as one capture reads it."""

    def __init__(self, session: MariaSession, options: CaptureOptions) -> None:
        self._session, self._options = session, options
        self.files = BinlogFiles(session)

    def published(self, said: Mapping[str, Any] | None) -> set[Table]:
        """The tables that were followed up to where the stream begins; all, where the landing zone does not say."""
        return {(each.schema, each.name) for each in followed(read_tables(self._session, self._options), said)}

    def publish(self, tables: Sequence[Table]) -> None:
        """The log has the changes of all tables."""

    def now(self) -> int:
        return self.files.now()

    def mark(self) -> int:
        """Nothing is written: the stream reaches the end of the log by itself."""
        return self.files.now()

    def types(self, schema: str, table: str) -> Mapping[str, tuple[str, bool, str]]:
        return types_of(self._session, schema, table)

    def stream(self, start: int, tables: Mapping[Table, int], step: Step) -> BinlogStream:
        return BinlogStream(self._options, start, list(tables), step, self.files)


class MariaDbSource(SourceBlock):
    """Used in a `with` block. `capture-source-failed` where the server does not answer."""

    kind = "mariadb"
    log: BinlogLog
    _session: MariaSession
    _loading: MariaSession | None = None

    def __enter__(self) -> MariaDbSource:
        self._session = self._open.enter_context(opened(self._options))
        self.kind = self._session.kind
        self.log = BinlogLog(self._session, self._options)
        return self

    def asking(self) -> AbstractContextManager[None]:
        return failing(self._options)

    def tables(self) -> tuple[SourceTable, ...]:
        """The tables that the options name, as they are now."""
        return read_tables(self._session, self._options)

    def begin(self, reached: Reached, stop: threading.Event) -> int:
        """Where the stream begins: behind what the landing zone has, or at the end of the log.

        `capture-not-ready` with a setting of the server that must be another one; `capture-taken`;
        `capture-position-lost` where tables stream and the server has no longer what follows their position.
        """
        self._take_lock(stop)
        require_ready(settings_needed(self._session))
        if not reached.streaming:
            return self.log.now()
        if why := self.log.files.lost(reached.start):
            raise position_lost(why, reached.streaming)
        if reached.log not in ("", self.log_of(reached.start)):
            raise position_lost("the log is another one, as after RESET MASTER or a failover", reached.streaming)
        return reached.start

    def log_of(self, position: int) -> str:
        """Which file of its name the position is in; empty where the server has none."""
        return self.log.files.begun(position, self._options)

    def is_begun_again(self) -> bool:
        """True if the log was reset, of which the server tells no stream."""
        return self.log.files.is_begun_again(self._options)

    def _take_lock(self, stop: threading.Event) -> None:
        """The lock that one capture of this name holds as long as its session is open. `capture-taken`."""

        def is_ours() -> bool:
            return self._session.one("SELECT GET_LOCK(%s, 0)", lock_name(self._options)) == ("1",)

        wait_until_free(is_ours, stop, f"another capture {self._options.name!r} reads this database")

    @contextmanager
    def snapshot(self) -> Iterator[BinlogSnapshot]:
        """A snapshot and its position, for loads within this block.

        MariaDB says the position of a snapshot by itself; MySQL is locked against writes for the moment between both.
        """
        with opened(self._options) as session:
            if not session.is_mariadb:
                session.one("FLUSH TABLES WITH READ LOCK")
            session.one("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            session.one("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            if session.is_mariadb:
                said = dict(session.all("SHOW STATUS LIKE 'binlog_snapshot_%'"))
                position = position_of(said["Binlog_snapshot_file"], int(said["Binlog_snapshot_position"]))
            else:
                position = BinlogFiles(session).now()
                session.one("UNLOCK TABLES")
            self._loading = session
            yield BinlogSnapshot(position)

    def load(self, table: SourceTable, publish: Publish, tell: Tell = lambda _: None) -> int:
        """Publishes all rows of a table in the snapshot; returns their number. At least one file is published.

        `Stopped`; `capture-value` with the row's key; `capture-source-failed`.
        """
        schema = pa.schema([(column.name, column.arrow_type) for column in table.columns])
        count = sum(publish(file) for file in in_files(self._batches(table, schema, tell), schema))
        return count or publish(schema.empty_table().to_reader())

    def _batches(self, table: SourceTable, schema: pa.Schema, tell: Tell) -> Iterator[pa.RecordBatch]:
        assert self._loading is not None
        columns = ", ".join(f"{column.load_expression} AS {quoted(column.name)}" for column in table.columns)
        for rows in self._loading.rows(f"SELECT {columns} FROM {table.qualified}", ROWS):
            if self._stopped():
                raise Stopped
            tell(len(rows))
            yield pa.RecordBatch.from_arrays(converted(table, _batch(table.columns, rows)), schema=schema)

    def row(self, table: SourceTable, key: Mapping[str, Any]) -> dict[str, pa.Scalar] | None:
        """The row of a key as it is now, in the values of a load; None where there is none."""
        columns = ", ".join(f"{column.load_expression}" for column in table.columns).replace("%", "%%")
        where = " AND ".join(f"{quoted(name)} = %s".replace("%", "%%", quoted(name).count("%")) for name in key)
        found = self._session.one(f"SELECT {columns} FROM {table.qualified} WHERE {where}", *key.values())
        if found is None:
            return None
        arrays = converted(table, _batch(table.columns, [found]))
        return {column.name: values[0] for column, values in zip(table.columns, arrays, strict=True)}


def _batch(columns: Sequence[SourceColumn], rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Rows of the driver as Arrow has them: bytes as bytes, all else as text."""
    arrays = []
    for values in zip(*rows, strict=True):
        is_bytes = any(isinstance(value, bytes) for value in values)
        arrays.append(pa.array(values, pa.binary() if is_bytes else pa.string()))
    return pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])
