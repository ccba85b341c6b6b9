"""The life of a capture: what is missing is made at the source, tables are loaded, then their changes are streamed.

    connect ─▶ publication, slot ─▶ load tables that are not loaded ─▶ stream ─▶ an error? from the start again

Nothing is remembered from one round to the next: the positions are in the landing zone and at the source. So a kill, a
failing source and a table that is added later are the same: another round.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakemirror.errors import LakemirrorError, TableError
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
    stopped,
    write_state,
)
from lakemirror.publisher.capture.captured_tables import CapturedTable, CapturedTables
from lakemirror.publisher.capture.change_handler import ChangeHandler, RowsExchanged
from lakemirror.publisher.capture.loaded_rows import Publish, Stopped
from lakemirror.publisher.capture.pending_changes import Table
from lakemirror.publisher.capture.source_cuts import EVERY, SourceCuts
from lakemirror.publisher.capture.source_form import SourceForm
from lakemirror.publisher.capture.source_interface import Log, Reached, Source, Stream
from lakemirror.publisher.capture.source_kinds import open_source, source_class
from lakemirror.publisher.capture.source_pulse import Pulse
from lakemirror.publisher.capture.table_reload import Reloaded, publish_differences
from lakemirror.publisher.capture.table_shapes import SCHEMA_CHANGED, TableShapes
from lakemirror.publisher.capture.table_stream import Origin, TableStream
from lakemirror.publisher.landing import Landing
from lakemirror.publisher.landing_table import LandingTable

_AGAIN = (1.0, 2.0, 5.0, 10.0)  # seconds before the next round


@dataclass
class _Round:
    """What one round has: the source, its log, and the tables that are streamed."""

    source: Source
    tables: CapturedTables
    start: int
    streams: dict[Table, TableStream]

    @property
    def numbers(self) -> dict[Table, int]:
        """The tables that are streamed, with the number of each, as `SourceForm` says."""
        return {table: self.tables[table].source.form.number for table in self.streams}


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
        self._kind = ""
        self._until: int | None = None
        self._again = threading.Event()
        self._told: set[str] = set()
        self._reloaded: set[str] = set()
        self._zone = landing.folder(LANDING_ZONE)
        self._said: Mapping[str, Any] | None = None
        self._wanted, self._reload = options.reload, set[str]()
        self._cuts = SourceCuts(landing.folder(CUTS), cut if source_class(options).has_cuts else 0, tell)

    def run(self, stop: threading.Event | None = None, *, once: bool = False) -> None:
        """Loads and streams until `stop` is set, and soon ends then, or as soon as the source answers; `once`: until
        everything is published that had happened at the start.

        `capture-taken`, `capture-position-lost`, `capture-source-failed` with `once`, and what `check` finds.
        """
        self._stop, failed = stop or self._stop, 0
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
        self._again.clear()
        with open_source(self._options, self._stop.is_set) as source, source.asking():
            log, self._kind = source.log, source.kind
            tables = CapturedTables(self._landing, source.tables(), self._options)
            tables.require_own(read_zone_state(self._zone), self._options)
            if self._wanted:
                self._reload, self._wanted = tables.named(self._wanted), ()
            self._mark(log, tables)
            start = self._begin(source, tables)
            if once and self._until is None:
                self._until = log.now()
            log.publish([table.key for table in tables.followed])
            wanted = [table for table in tables.followed if table.phase == LOADING]
            beside = bool(tables.streaming) and not once
            if wanted and not beside:
                state = self._state(tables, source)
                state.write(state.said, {})
                self._load(source, wanted)
            if self._stop.is_set():
                return True
            origin = Origin(source.kind, self._options.name, start, source.log_of)
            streams = {
                table.key: TableStream(table.landing, table.shape, table.state, origin)
                for table in tables.streaming
                if table.state is not None
            }
            return self._follow(_Round(source, tables, start, streams), wanted if beside else [])

    def _mark(self, log: Log, tables: CapturedTables) -> None:
        """Writes down which tables must be loaded, and which have stopped, before anything is confirmed without them.

        A table that was not in the publication has changes that nobody has seen: it was made again, or was left out.
        """
        published = log.published(read_zone_state(self._zone))
        for table in tables:
            error = tables.refused.get(table.key)
            state = table.state or TableState(self._kind, self._options.name, LOADING)
            if error is not None:
                marked = replace(stopped(state, error), refused=state.refused or state.phase != STOPPED)
            elif (
                table.name in self._reload
                or (table.phase == STREAMING and table.key not in published)
                or (table.phase == STOPPED and state.refused)
            ):
                marked = replace(state, phase=LOADING, error_code="", error_message="", refused=False)
            elif table.phase == STREAMING:
                marked = self._in_form(table, state)
            else:
                continue
            if table.state is not None and marked != table.state:
                with table.landing.storage():
                    write_state(table.landing.place, marked)
                table.state = marked
        for key, error in tables.refused.items():
            self._tell_once(f"{'.'.join(key)} is not captured: {error}; {error.hint}")

    def _in_form(self, table: CapturedTable, state: TableState) -> TableState:
        """The state in the form that the table has now: to be loaded where its rows may be others."""
        now, before = table.source.form, SourceForm.of(state.form)
        if why := before.difference(now, ignore=self._options.after_ddl == "ignore"):
            self._tell(f"{table.name}: {why}; the table is loaded again")
            return replace(state, phase=LOADING)
        return replace(state, form=now.content) if now != before else state

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)

    def _begin(self, source: Source, tables: CapturedTables) -> int:
        """The position behind which the stream begins."""
        newest, begins, said = 0, [], read_zone_state(self._zone)
        for table in tables:
            at = newest_position(table.landing.place).position
            newest = max(newest, 0 if at is None else at.last.lsn)
            if table.phase == STREAMING and table.key not in tables.refused and table.state is not None:
                begins.append(max((table.state.start, ""), (0, "") if at is None else (at.begin, at.log)))
        self._said = said if begins else None  # else it may be of a log that is gone
        of_zone = (0, "") if said is None else (said["position"], said.get("log", ""))
        start, log = max(min(begins), of_zone) if begins else (0, "")
        return source.begin(Reached(len(begins), newest, start, log, said), self._stop)

    def _load(self, source: Source, wanted: Sequence[CapturedTable]) -> None:
        """Loads tables, all in one snapshot, whose position says from where their changes count.

        `capture-source-failed` where one was altered since it was read: the snapshot may have values of new columns.
        """
        with source.snapshot() as position:
            forms = {each.id: each.form for each in source.tables()}
            altered = [table for table in wanted if forms.get(table.key) != table.source.form]
            for table in (each for each in wanted if each not in altered):
                if self._stop.is_set():
                    return
                self._load_table(source, position, table)
        for table in altered:
            raise LakemirrorError("capture-source-failed", f"{table.name} was altered as its load began")

    def _load_table(self, source: Source, position: int, table: CapturedTable) -> None:
        """Loads one table; an error of it stops it alone."""
        state = TableState(self._kind, self._options.name, LOADING, position, form=table.source.form.content)
        at = FilePosition(state.source, state.name, Position(), Position(position), log=source.log_of(position))
        try:
            for warning in table.source.warnings:
                self._tell(f"{table.name}: {warning}")

            def load(publish: Publish) -> int:
                return source.load(table.source, publish, self._counted(table))

            found = publish_differences(table, at, load)
            if found is None:
                with table.landing.storage():
                    table.landing.recreate()
                    write_state(table.landing.place, state)
                found = Reloaded(load(_publisher(table.landing, at)), -1)
            state = replace(state, phase=STREAMING, rows_loaded=found.rows, is_complete=True)
            differ = f", {found.changes:,} changes published" if found.changes >= 0 else ""
            self._tell(f"{table.name}: {found.rows:,} rows loaded{differ}")
        except Stopped:
            return
        except Exception as failure:
            error = coded(failure, table=table.name)
            if error.retry:
                raise error from failure
            self._tell(f"{table.name} stopped: {error}; {error.hint}")
            state = stopped(state, error)
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

    def _load_beside(self, wanted: Sequence[CapturedTable]) -> threading.Thread | None:
        """Loads tables in a thread, while the others are followed; then another round begins."""

        def run() -> None:
            try:
                with open_source(self._options, self._stop.is_set) as source, source.asking():
                    self._load(source, wanted)
            except Exception as failure:
                self._tell(f"{coded(failure)}; tried again")
                self._stop.wait(_AGAIN[1])
            self._again.set()

        if not wanted:
            return None
        thread = threading.Thread(target=run, name="capture-load", daemon=True)
        thread.start()
        return thread

    def _follow(self, now: _Round, wanted: Sequence[CapturedTable]) -> bool:
        """Streams until `stop`, until everything asked for is published, or until another round must begin."""
        state = self._state(now.tables, now.source)
        shapes = TableShapes(now.tables, now.source, ignore=self._options.after_ddl == "ignore")
        found = self._cuts.counting(shapes.found)

        def again(table: Table, error: LakemirrorError) -> bool:
            return self._is_loaded_again(now.tables[table], error)

        handler = ChangeHandler(now.streams, shapes.shape_of, found, state, self._stop, again)
        handler.may_confirm = not wanted
        until = None if self._until is None else max(self._until, now.source.log.mark())
        done = threading.Event()
        pulse = Pulse(now.source, now.start)

        def step(handle: Callable[[ChangeHandler], bool]) -> bool:
            confirmed = handle(handler)
            if until is not None and handler.committed >= until:
                done.set()
            if handler.may_confirm:
                same, last = (lambda: not self._has_more(now)), done.is_set()
                self._cuts.step(handler.streams, handler.committed, state.milliseconds, same, now=last)
            pulse.beat(handler.committed)
            return confirmed and not self._again.is_set()

        def ended() -> bool:
            if until is None and not wanted and pulse.looks():
                with suppress(LakemirrorError):
                    self._has_more(now)
            return self._stop.is_set() or done.is_set() or self._again.is_set()

        self._tell_once(f"following {len(now.streams)} tables")
        loading = self._load_beside(wanted)
        try:
            _run_until(now.source.log.stream(now.start, now.numbers, step), ended)
        except TableError as error:
            if error.code != "capture-value":
                raise
            # a change that is too large: the other tables go on in another round
            for table in [table for table in handler.streams if ".".join(table) == error.table]:
                handler.end(table, error)
        finally:
            if loading is not None:
                loading.join()
            with suppress(LakemirrorError):
                reached = handler.committed if handler.may_confirm else 0
                state.write(max(reached, state.said), handler.streams)
        return self._stop.is_set() or (done.is_set() and not self._again.is_set())

    def _state(self, tables: CapturedTables, source: Source) -> CaptureState:
        """What is reported of the capture, as far as it is known when a round begins."""
        origin = {"source": self._kind, "name": self._options.name, "slot": self._options.slot}
        state = CaptureState(self._zone, origin, self._tell, source.log_of)
        for key, reported in tables.states:
            state.set(key, reported)
        if self._said is not None:
            state.said = self._said["position"]
        return state

    def _is_loaded_again(self, table: CapturedTable, error: LakemirrorError) -> bool:
        """True where the table is loaded again because its columns changed: once for each change of each form."""
        seen = f"{table.source.form} {error.message}"
        is_left = self._options.after_ddl == "ignore" and not isinstance(error, RowsExchanged)
        if error.code != SCHEMA_CHANGED or is_left or seen in self._reloaded:
            return False
        self._reloaded.add(seen)
        self._tell(f"{error.message}; the table is loaded again")
        self._again.set()
        return True

    def _has_more(self, now: _Round) -> bool:
        """True where the source has tables that this round does not know, or not in their form, or another log; another
        round begins then, unless this one ends by itself."""
        known = {table.key: table.source.form for table in now.tables if table.key not in now.tables.refused}
        found = {each.id: each for each in now.source.tables() if each.problem is None}
        changed = [key for key in now.streams.keys() & found.keys() if found[key].form != known[key]]
        has_more = changed or found.keys() - known.keys() - now.tables.unnamed or now.source.is_begun_again()
        if has_more and self._until is None:
            self._again.set()
        return bool(has_more)


def _publisher(table: LandingTable, at: FilePosition) -> Publish:
    """Publishes the files of a load, from any thread: written side by side, numbered one after another."""

    def publish(rows: pa.RecordBatchReader) -> int:
        published = table.publish(table.take(rows), empty=True, footer=at.footer())
        return 0 if published is None else published.rows

    return publish


def _run_until(stream: Stream, ended: Callable[[], bool]) -> None:
    """Runs the stream in a thread, and ends it as soon as `ended` says so. Raises what the stream raises."""
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
            end = time.monotonic() + 60
            while thread.is_alive() and time.monotonic() < end:
                stream.stop()  # again, because a stream that is starting cannot be stopped yet
                thread.join(0.3)
            break
        thread.join(0.2)
    if failures:
        raise failures[0]
