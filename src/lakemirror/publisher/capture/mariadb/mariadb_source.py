"""One MariaDB or MySQL server as a capture uses it: its tables, its log, a snapshot and the rows of a table in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa

from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.capture_status import SlotView
from lakemirror.publisher.capture.loaded_rows import Publish, Stopped, Tell, only_row, publish_empty, publish_rows
from lakemirror.publisher.capture.mariadb.binlog_files import BinlogFiles, position_of
from lakemirror.publisher.capture.mariadb.binlog_stream import BinlogStream
from lakemirror.publisher.capture.mariadb.mariadb_catalog import read_tables, types_of
from lakemirror.publisher.capture.mariadb.mariadb_check import needs_of, settings_needed
from lakemirror.publisher.capture.mariadb.mariadb_sessions import MariaSession, failing, opened, quoted
from lakemirror.publisher.capture.pending_changes import Table
from lakemirror.publisher.capture.source_interface import Log, Reached, Source, Step
from lakemirror.publisher.capture.source_needs import Need
from lakemirror.publisher.capture.source_tables import SourceColumn, SourceTable, followed

ROWS = 20_000
"""Rows of a load that are read at a time."""


class BinlogLog(Log):
    """The log as one capture reads it."""

    def __init__(self, session: MariaSession, options: CaptureOptions) -> None:
        self._session, self._options = session, options
        self.files = BinlogFiles(session)

    def published(self, said: Mapping[str, Any] | None) -> set[Table]:
        """The tables that were followed up to where the stream begins; all, where the landing zone does not say."""
        return {table.id for table in followed(read_tables(self._session, self._options), said)}

    def now(self) -> int:
        return self.files.now()

    def types(self, schema: str, table: str) -> Mapping[str, tuple[str, bool, str]]:
        return types_of(self._session, schema, table)

    def stream(self, start: int, tables: Mapping[Table, int], step: Step) -> BinlogStream:
        return BinlogStream(self._options, start, list(tables), step, self.files)


class MariaDbSource(Source):
    """One server of MariaDB or MySQL."""

    kind = "mariadb"
    log: BinlogLog
    _session: MariaSession
    _loading: MariaSession | None = None

    def _connect(self) -> None:
        self._session = self._open.enter_context(opened(self._options))
        self.kind = self._session.kind
        self.log = BinlogLog(self._session, self._options)

    def asking(self) -> AbstractContextManager[None]:
        return failing(self._options)

    def tables(self) -> tuple[SourceTable, ...]:
        return read_tables(self._session, self._options)

    def needs(self) -> list[Need]:
        return list(needs_of(self._session, self._options))

    def view(self, slot: str, position: int) -> SlotView:
        row = self._session.one("SELECT IS_USED_LOCK(%s) IS NOT NULL", self._lock)
        return self.log.files.view(position, is_read=bool(row and row[0]))

    def log_of(self, position: int) -> str:
        """Which file of its name the position is in; empty where the server has none."""
        return self.log.files.begun(position, self._options)

    def is_begun_again(self) -> bool:
        """True if the log was reset, of which the server tells no stream."""
        return self.log.files.is_begun_again(self._options)

    def _settings_needed(self) -> Iterator[Need]:
        return settings_needed(self._session)

    def _lost(self, reached: Reached) -> str:
        if why := self.log.files.lost(reached.start):
            return why
        is_same = reached.log in ("", self.log_of(reached.start))
        return "" if is_same else "the log is another one, as after RESET MASTER or a failover"

    @property
    def _lock(self) -> str:
        """The name of the lock that one capture of this name holds as long as its session is open."""
        return f"lakemirror/{self._options.slot}"[:64]

    def _is_free(self) -> bool:
        """True if the lock is ours now."""
        return self._session.one("SELECT GET_LOCK(%s, 0)", self._lock) == ("1",)

    @contextmanager
    def snapshot(self) -> Iterator[int]:
        """MariaDB says the position of a snapshot by itself; MySQL is locked against writes for the moment between."""
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
            yield position

    def load(self, table: SourceTable, publish: Publish, tell: Tell = lambda _: None) -> int:
        return publish_rows(table, self._batches(table, tell), publish) or publish_empty(table, publish)

    def _batches(self, table: SourceTable, tell: Tell) -> Iterator[pa.RecordBatch]:
        assert self._loading is not None
        columns = ", ".join(f"{column.load_expression} AS {quoted(column.name)}" for column in table.columns)
        for rows in self._loading.rows(f"SELECT {columns} FROM {table.qualified}", ROWS):
            if self._stopped():
                raise Stopped
            tell(len(rows))
            yield _batch(table.columns, rows)

    def row(self, table: SourceTable, key: Mapping[str, Any]) -> dict[str, pa.Scalar] | None:
        columns = ", ".join(f"{column.load_expression}" for column in table.columns).replace("%", "%%")
        where = " AND ".join(f"{quoted(name)} = %s".replace("%", "%%", quoted(name).count("%")) for name in key)
        found = self._session.one(f"SELECT {columns} FROM {table.qualified} WHERE {where}", *key.values())
        return None if found is None else only_row(table, _batch(table.columns, [found]))


def _batch(columns: Sequence[SourceColumn], rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    """Rows of the driver as Arrow has them: bytes as bytes, all else as text."""
    arrays = []
    for values in zip(*rows, strict=True):
        is_bytes = any(isinstance(value, bytes) for value in values)
        arrays.append(pa.array(values, pa.binary() if is_bytes else pa.string()))
    return pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])
