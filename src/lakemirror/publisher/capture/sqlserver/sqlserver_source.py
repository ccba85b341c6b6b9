"""One SQL Server database as a capture uses it: its tables, its change tables, loads by Debezium's snapshot.

A load's position is read before its snapshot begins: what is committed between is in both. Upserts of whole rows make
that harmless, so tables without a key are refused, and no cut is made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.capture_status import SlotView
from lakemirror.publisher.capture.debezium import DebeziumStream, Group, KnownColumns
from lakemirror.publisher.capture.envelope import TableEvents
from lakemirror.publisher.capture.loaded_rows import FILE_BYTES, Publish, Stopped, Tell, converted
from lakemirror.publisher.capture.pending_changes import Table
from lakemirror.publisher.capture.source_interface import Log, Reached, Source, Step
from lakemirror.publisher.capture.source_needs import Need
from lakemirror.publisher.capture.source_tables import SourceTable, followed
from lakemirror.publisher.capture.sqlserver.change_tables import ChangeTableStream, loading, read_rows
from lakemirror.publisher.capture.sqlserver.log_positions import position_of
from lakemirror.publisher.capture.sqlserver.sqlserver_catalog import read_captured, read_tables, types_of
from lakemirror.publisher.capture.sqlserver.sqlserver_check import needs_of, settings_needed
from lakemirror.publisher.capture.sqlserver.sqlserver_sessions import SqlServerSession, failing, opened, quoted

_NOW = "SELECT CONVERT(varchar(22), MAX(start_lsn), 2) FROM cdc.lsn_time_mapping WHERE tran_id <> 0x00"
_LOCK = ("DECLARE @got int; EXEC @got = sp_getapplock @Resource = ?, @LockMode = 'Exclusive', "
         "@LockOwner = 'Session', @LockTimeout = 0; SELECT @got")  # fmt: skip


class ChangeTables(Log):
    """The change tables as one capture reads them; the database's own people make them."""

    def __init__(self, session: SqlServerSession, options: CaptureOptions) -> None:
        self._session, self._options = session, options

    def published(self, said: Mapping[str, Any] | None) -> set[Table]:
        """The tables that were followed, without those whose change table was made again since."""
        captured = read_captured(self._session)
        reached = max(int((said or {}).get("position") or 0), self.oldest())
        return {
            table.id
            for table in followed(read_tables(self._session, self._options), said)
            if table.number in captured and (said is None or captured[table.number].oldest <= reached)
        }

    def oldest(self) -> int:
        """The position from which on change tables hold changes; 0 where there is none."""
        return min((each.oldest for each in read_captured(self._session).values()), default=0)

    def now(self) -> int:
        """The position behind everything that the change tables have; at least where they begin."""
        row = self._session.one(_NOW)
        return max(0 if row is None or row[0] is None else position_of(row[0]), self.oldest())

    def types(self, schema: str, table: str) -> Mapping[str, tuple[str, bool, str]]:
        return types_of(self._session, schema, table)

    def stream(self, start: int, tables: Mapping[Table, int], step: Step) -> ChangeTableStream:
        return ChangeTableStream(self._options, start, list(tables), step)


class SqlServerSource(Source):
    """One database of SQL Server."""

    kind = "sqlserver"
    log: ChangeTables
    has_cuts = False
    streams_by_java = asks_by_java = True
    _session: SqlServerSession

    def _connect(self) -> None:
        self._session = self._open.enter_context(opened(self._options))
        self.log = ChangeTables(self._session, self._options)

    def asking(self) -> AbstractContextManager[None]:
        return failing(self._options)

    def tables(self) -> tuple[SourceTable, ...]:
        return read_tables(self._session, self._options)

    def needs(self) -> list[Need]:
        return list(needs_of(self._session, self._options))

    def view(self, slot: str, position: int) -> SlotView:
        """What the change tables still have behind a position. They keep nothing back for a reader."""
        row = self._session.one("SELECT APPLOCK_TEST('public', ?, 'Exclusive', 'Session')", self._lock)
        status = "lost" if position < self.log.oldest() else "reserved"
        return SlotView(status, 0, self.log.now(), row is not None and row[0] == "0")

    def _settings_needed(self) -> Iterator[Need]:
        return settings_needed(self._session)

    def _lost(self, reached: Reached) -> str:
        if reached.start < self.log.oldest():
            return "the source has deleted older changes, or made its change tables again"
        is_older = max(reached.start, reached.newest) > self.log.now()
        return "it is older than what was published, as after a restore" if is_older else ""

    @property
    def _lock(self) -> str:
        """The name of the lock that one capture of this name holds as long as its session is open."""
        return f"lakemirror/{self._options.slot}"

    def _is_free(self) -> bool:
        """True if the lock is ours now."""
        row = self._session.one(_LOCK, self._lock)
        return row is not None and row[0] is not None and int(row[0]) >= 0

    @contextmanager
    def snapshot(self) -> Iterator[int]:
        """A position; each load within this block reads a snapshot of its own, which begins behind it."""
        yield self.log.now()

    def load(self, table: SourceTable, publish: Publish, tell: Tell = lambda _: None) -> int:
        load = Load(table, publish, tell, self._stopped)
        run = DebeziumStream(loading(self._options, table.id), load.take)
        ended = threading.Event()
        watch = threading.Thread(target=load.end, args=(run, ended), name="capture-load-end", daemon=True)
        watch.start()
        try:
            run.run()
        finally:
            ended.set()
            watch.join()
        return load.finish()

    def row(self, table: SourceTable, key: Mapping[str, Any]) -> dict[str, pa.Scalar] | None:
        """The (max) columns of a row as they are now, which alone may be unsent; None where there is no row.

        `capture-schema-changed`, by which the table is loaded again, for a key whose text is not exact.
        """
        if not all(isinstance(value, (int, str, Decimal)) for value in key.values()):
            why = "a row has a new key and values that were not sent, and its key has no exact text"
            raise TableError("capture-schema-changed", f"{table.title}: {why}")
        columns = [column for column in table.columns if column.type_name.endswith("(max)")]
        given = ", ".join(column.load_expression for column in columns)
        where = " AND ".join(f"{quoted(name)} = ?" for name in key)
        found = self._session.one(f"SELECT {given} FROM {table.qualified} WHERE {where}", *map(str, key.values()))
        if found is None:
            return None
        pairs = zip(columns, found, strict=True)
        return {column.name: column.from_load(pa.array([value], pa.string()))[0] for column, value in pairs}


class Load:
    """Rows of a load on their way into files, as Debezium hands them over."""

    def __init__(self, table: SourceTable, publish: Publish, tell: Tell, stopped: Callable[[], bool]) -> None:
        self._table, self._publish, self._tell, self._stopped = table, publish, tell, stopped
        self._columns = KnownColumns()
        self._pending: list[pa.RecordBatch] = []
        self._count = 0
        self._is_done = False

    def take(self, groups: list[Group]) -> bool:
        """Takes in a batch; `Stopped`, `capture-value`, and what publishing raises."""
        if self._stopped():
            raise Stopped
        events, is_done = read_rows(groups, self._columns)
        for each in events:
            self._pending.append(self._converted(each))
            self._tell(each.rows.num_rows)
        if sum(batch.nbytes for batch in self._pending) >= FILE_BYTES:
            self._write()
        self._is_done = self._is_done or is_done
        return True

    def end(self, run: DebeziumStream, ended: threading.Event) -> None:
        """Ends the run, from another thread: once the load is complete, or shall end. `ended`: that it has ended."""
        while not ended.wait(0.2):
            if self._is_done or self._stopped():
                run.stop()  # again, because a run that is starting cannot be stopped yet

    def finish(self) -> int:
        """The number of rows, the last file published. `Stopped`, `capture-source-failed` where rows are missing."""
        if not self._is_done:
            if self._stopped():
                raise Stopped
            raise LakemirrorError("capture-source-failed", "the load ended before its last row")
        if self._pending or not self._count:
            self._write()
        return self._count

    def _write(self) -> None:
        rows = sum(batch.num_rows for batch in self._pending)
        self._publish(pa.RecordBatchReader.from_batches(self._table.arrow_schema, self._pending))
        self._count, self._pending = self._count + rows, []

    def _converted(self, events: TableEvents) -> pa.RecordBatch:
        schema, after = self._table.arrow_schema, events.rows["after"].combine_chunks()
        given = pa.RecordBatch.from_arrays([pc.struct_field(after, name) for name in schema.names], schema.names)
        return pa.RecordBatch.from_arrays(converted(self._table, given, is_of_events=True), schema=schema)
