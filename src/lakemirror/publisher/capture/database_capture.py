"""The life of a capture: what is missing is made at the source, tables are loaded, then their changes are streamed.

    connect ─▶ publication, slot ─▶ load tables that are not loaded ─▶ stream ─▶ an error? from the start again

Nothing is remembered from one round to the next: the positions are in the landing zone and at the source. So a kill, a
failing source and a table that is added later are the same: another round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.landing_zone.zone import CUTS, LANDING_ZONE
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.capture_position import (
    LOADING,
    STOPPED,
    STREAMING,
    CaptureState,
    FilePosition,
    Position,
    TableState,
    newest_position,
    read_zone_state,
    write_state,
)
from lakemirror.publisher.capture.captured_tables import CapturedTable, CapturedTables
from lakemirror.publisher.capture.change_handler import ChangeHandler
from lakemirror.publisher.capture.debezium import DebeziumStream, Group
from lakemirror.publisher.capture.pending_changes import Table
from lakemirror.publisher.capture.postgresql.change_log import ChangeLog
from lakemirror.publisher.capture.postgresql.load import Stopped
from lakemirror.publisher.capture.postgresql.slot import LOST, SlotReport
from lakemirror.publisher.capture.postgresql.source import PostgresSource
from lakemirror.publisher.capture.source_cuts import EVERY, SourceCuts
from lakemirror.publisher.capture.table_stream import Origin, TableStream
from lakemirror.publisher.landing import Landing

SOURCE = "postgresql"
HEARTBEAT = 5.0  # seconds
_KEPT_BACK = 1 << 20  # bytes of log that an idle database may keep back before a mark releases them
_AGAIN = (1.0, 2.0, 5.0, 10.0)  # seconds before the next round


@dataclass
class _Round:
    """What one round has: the source, its log, and the tables that are streamed."""

    source: PostgresSource
    log: ChangeLog
    slot: SlotReport
    streams: dict[Table, TableStream]


Progress = Callable[[str, int, "int | None"], None]


class Capture:
    """One capture of a database into a landing zone. `run` may be called once."""

    def __init__(
        self,
        landing: Landing,
        options: CaptureOptions,
        tell: Callable[[str], None] = lambda _: None,
        progress: Progress = lambda *_: None,
        *,
        cut: float = EVERY,
    ) -> None:
        """`tell` gets sentences for people, such as that a table was loaded. `progress` gets, as a table is loaded, its
        name, the rows until now, and about how many it has. `cut`: seconds between two cuts; 0: none is made.
        """
        self._landing = landing
        self._options = options
        self._tell, self._progress = tell, progress
        self._stop = threading.Event()
        self._until: int | None = None
        self._stream: DebeziumStream | None = None
        self._zone = landing.folder(LANDING_ZONE)
        self._reload = set(options.reload)
        self._cuts = SourceCuts(landing.folder(CUTS), cut, tell)

    def stop(self) -> None:
        """Ends `run` soon, from a signal handler or another thread."""
        self._stop.set()

    def run(self, *, once: bool = False) -> None:
        """Loads and streams until `stop`; `once`: until everything is published that had happened at the start.

        `capture-taken`, `capture-position-lost`, `capture-source-failed` with `once`, and what `check` finds.
        """
        failed = 0
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                if self._round(once):
                    return
                failed = 0
            except Exception as failure:
                error = coded(failure)
                if not error.retry or (once and failed >= len(_AGAIN)):
                    raise error from failure
                failed = 0 if time.monotonic() - started > 60 else failed + 1
                self._tell(f"{error}; tried again")
                self._stop.wait(_AGAIN[min(failed, len(_AGAIN)) - 1])

    def _round(self, once: bool) -> bool:
        """One round, until the stream ends; True where nothing more is to be done."""
        with PostgresSource(self._options, self._stop.is_set) as source:
            log = source.log
            tables = CapturedTables(self._landing, source.tables(), self._options)
            slot = self._slot(log, tables)
            if once and self._until is None:
                self._until = log.now()
            log.publish([table.key for table in tables])
            self._interrupt(tables)
            self._load(source, tables)
            if self._stop.is_set():
                return True
            origin = Origin(SOURCE, self._options.name, slot.confirmed)
            streams = {
                table.key: TableStream(table.landing, table.shape, table.state, origin)
                for table in tables
                if table.state is not None and table.state.phase == STREAMING
            }
            return self._follow(_Round(source, log, slot, streams), tables)

    def _slot(self, log: ChangeLog, tables: CapturedTables) -> SlotReport:
        """The main slot, made where there is none.

        `capture-position-lost` where tables stream and the source has no longer what follows their position.
        """
        found = self._idle_slot(log)
        streaming = [table for table in tables if table.state is not None and table.state.phase == STREAMING]
        streaming = [table for table in streaming if not self._to_reload(table)]
        if found is not None and found.wal_status != LOST:
            said = read_zone_state(self._zone)
            positions = [newest_position(table.landing.place).position for table in streaming]
            newest = max([at.last.lsn for at in positions if at is not None], default=0)
            if streaming and said is not None and found.confirmed > max(newest, said["position"]):
                raise self._lost("another program has read the slot", streaming)
            return found
        if streaming:
            raise self._lost("the slot is gone" if found is None else "the source has deleted its log", streaming)
        return log.make()

    def _idle_slot(self, log: ChangeLog) -> SlotReport | None:
        """The slot, once no other stream reads it. The source may take a moment to see a kill. `capture-taken`."""
        end = time.monotonic() + 10
        while (found := log.slot()) is not None and found.active:
            if time.monotonic() > end or self._stop.wait(0.2):
                raise LakemirrorError(
                    "capture-taken", f"another capture reads the slot {self._options.slot!r} of this database"
                )
        return found

    def _lost(self, why: str, tables: Sequence[CapturedTable]) -> LakemirrorError:
        return LakemirrorError(
            "capture-position-lost",
            f"the changes of {len(tables)} tables cannot be followed any more: {why}",
        )

    def _to_reload(self, table: CapturedTable) -> bool:
        return bool(self._reload & {"all", table.name})

    def _interrupt(self, tables: CapturedTables) -> None:
        """Tables that can no longer be captured say so in their folders: their changes are not followed meanwhile."""
        for table in tables.interrupted:
            error = tables.refused[table.key]
            if table.state is not None and table.state.phase != STOPPED:
                code, message = error.code, error.message
                table.state = replace(table.state, phase=STOPPED, error_code=code, error_message=message)
                with table.landing.storage():
                    write_state(table.landing.place, table.state)

    def _load(self, source: PostgresSource, tables: CapturedTables) -> None:
        """Loads the tables that are not loaded, all in one snapshot, whose position says where their streams count."""
        wanted = [
            table for table in tables if table.state is None or table.state.phase == LOADING or self._to_reload(table)
        ]
        if not wanted:
            return
        with source.snapshot() as snapshot:
            for table in wanted:
                if self._stop.is_set():
                    return
                self._load_table(source, snapshot.position, table)

    def _load_table(self, source: PostgresSource, position: int, table: CapturedTable) -> None:
        """Loads one table; an error of it stops it alone."""
        state = TableState(SOURCE, self._options.name, LOADING, position)
        try:
            with table.landing.storage():
                table.landing.recreate()
                write_state(table.landing.place, state)
            for warning in table.source.warnings:
                self._tell(f"{table.name}: {warning}")
            rows = source.load(table.source, _publisher(table, state), self._counted(table))
            state = replace(state, phase=STREAMING, rows_loaded=rows)
            self._tell(f"{table.name}: {rows:,} rows loaded")
        except Stopped:
            return
        except Exception as failure:
            error = coded(failure, table=table.name)
            if error.retry:
                raise error from failure
            self._tell(f"{table.name} stopped: {error}; {error.hint}")
            state = replace(state, phase=STOPPED, error_code=error.code, error_message=error.message)
        with table.landing.storage():
            write_state(table.landing.place, state)
        table.state = state
        self._reload.discard(table.name)

    def _counted(self, table: CapturedTable) -> Callable[[int], None]:
        """Adds up the rows of a load, from any thread."""
        counts: list[int] = []

        def tell(rows: int) -> None:
            counts.append(rows)
            done = sum(counts)
            self._progress(table.name, done, max(table.source.rows, done) or None)

        return tell

    def _follow(self, now: _Round, tables: CapturedTables) -> bool:
        """Streams until `stop`, until everything asked for is published, or until the stream ends."""
        state = CaptureState(
            self._zone,
            {"source": SOURCE, "name": self._options.name, "slot": self._options.slot},
            self._tell,
        )
        for table in tables:
            if table.state is not None:
                state.set(table.key, table.state)
        for key, error in tables.refused.items():
            state.stopped(key, TableState(SOURCE, self._options.name, STOPPED, 0, 0, error.code, error.message), error)
        if (before := read_zone_state(self._zone)) is not None:
            state.said = before["position"]
        shapes = tables.shapes(now.source, now.log)
        handler = ChangeHandler(now.streams, shapes.shape_of, self._cuts.counting(shapes.found), state, self._stop)
        until = self._until
        if until is not None:
            until = max(until, now.log.mark())
        marked = time.monotonic()

        def handle(groups: list[Group]) -> bool:
            nonlocal marked
            confirmed = handler.handle(groups)
            if until is not None and handler.committed >= until:
                done.set()
            self._cuts.step(handler.streams, handler.committed, state.milliseconds, now=done.is_set())
            if time.monotonic() - marked > HEARTBEAT * 2:
                marked = time.monotonic()
                if now.log.now() - max(handler.committed, now.slot.confirmed) > _KEPT_BACK:
                    now.log.mark()
            return confirmed

        done = threading.Event()
        stream = DebeziumStream(now.log.properties(now.source.values, HEARTBEAT), handle)
        self._tell(f"following {len(now.streams)} tables")
        try:
            _run_until(stream, lambda: self._stop.is_set() or done.is_set())
        finally:
            with suppress(LakemirrorError):
                if handler.committed:
                    state.write(handler.committed, handler.streams)
        return self._stop.is_set() or done.is_set()


def _publisher(table: CapturedTable, state: TableState) -> Callable[[pa.RecordBatchReader], int]:
    """Publishes the files of a load, from any thread: written side by side, numbered one after another."""
    at = FilePosition(state.source, state.name, Position(), Position(state.start))

    def publish(rows: pa.RecordBatchReader) -> int:
        published = table.landing.publish(table.landing.take(rows), empty=True, footer=at.footer())
        return 0 if published is None else published.rows

    return publish


def _run_until(stream: DebeziumStream, ended: Callable[[], bool]) -> None:
    """Runs the stream in a thread, so that this one gets signals. Raises what the stream raises."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            stream.run()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, name="capture-stream", daemon=True)
    thread.start()
    while thread.is_alive():
        if ended():
            stream.stop()
            thread.join(15)
            break
        thread.join(0.05)
    if failures:
        raise failures[0]


__all__ = ["Capture"]
