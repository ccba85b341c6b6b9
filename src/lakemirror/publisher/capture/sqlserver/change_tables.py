"""Debezium's connector for SQL Server: what it must know, where it starts, and its records as events and ends.

A transaction has ended where Debezium says so, where the next one begins, or where a heartbeat says that everything up
to a later position, which has no change of these tables, was read.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.change_folding import UNSENT
from lakemirror.publisher.capture.debezium import DebeziumStream, Group, KnownColumns, write_offset
from lakemirror.publisher.capture.envelope import Ended, TableEvents, read_events
from lakemirror.publisher.capture.pending_changes import Table
from lakemirror.publisher.capture.source_interface import Step
from lakemirror.publisher.capture.sqlserver.log_positions import places, position_of, text_of
from lakemirror.publisher.capture.sqlserver.sqlserver_sessions import address_of
from lakemirror.publisher.capture.sqlserver.sqlserver_types import EVENT_PROPERTIES

_TRANSACTION, _NOTIFICATION = ".TransactionMetadataValue", ".Notification"
_NOTHING = ("", "NULL", "None", "null")


def properties_of(options: CaptureOptions, tables: Sequence[Table]) -> dict[str, str]:
    """Debezium's properties of every run."""
    at = address_of(options)
    return {
        "name": options.slot,
        "connector.class": "io.debezium.connector.sqlserver.SqlServerConnector",
        "topic.prefix": options.slot,
        "database.hostname": at.host,
        "database.port": str(at.port),
        "database.user": at.user,
        "database.password": at.password,
        "database.names": at.database,
        "table.include.list": ",".join(f"{_pattern(schema)}\\.{_pattern(name)}" for schema, name in tables),
        "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
        "schema.history.internal.store.only.captured.tables.ddl": "true",
        "include.schema.changes": "false",
        "skipped.operations": "none",
        "snapshot.isolation.mode": "snapshot",
        "unavailable.value.placeholder": UNSENT,
        "driver.applicationName": "lakemirror",
        **{f"driver.{name}": value for name, value in at.driver.items()},
        **EVENT_PROPERTIES,
    }


def loading(options: CaptureOptions, table: Table) -> dict[str, str]:
    """Properties of a run that reads one table in a snapshot, and says when it is done."""
    return {
        **properties_of(options, [table]),
        "topic.prefix": f"{options.slot}_load",  # as of another connector, because the stream may run beside it
        "snapshot.mode": "initial_only",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": f"{options.slot}.notifications",
    }


def streaming(options: CaptureOptions, tables: Sequence[Table], offsets: Path) -> dict[str, str]:
    """Properties of a run that goes on behind the position that the file of offsets holds."""
    return {
        **properties_of(options, tables),
        "snapshot.mode": "recovery",  # of the tables' definitions, which are in memory alone
        "heartbeat.interval.ms": "500",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(offsets),
    }


def write_start(options: CaptureOptions, offsets: Path, start: int) -> None:
    """Writes the file of offsets: the stream begins with the first transaction behind this position."""
    partition = {"server": options.slot, "database": address_of(options).database}
    said = {"commit_lsn": text_of(start), "change_lsn": None, "event_serial_no": None}
    write_offset(offsets, options.slot, partition, {**said, "snapshot": "INITIAL", "snapshot_completed": True})


class ChangeTableStream:
    """One run of the stream."""

    def __init__(self, options: CaptureOptions, start: int, tables: Sequence[Table], step: Step) -> None:
        self._options, self._start, self._step = options, start, step
        self._folder = tempfile.TemporaryDirectory(prefix="lakemirror-capture-")
        self._offsets = Path(self._folder.name) / "offsets"
        self._received = ReceivedChanges(start)
        self._stream = DebeziumStream(streaming(options, tables, self._offsets), self._handle)

    def run(self) -> None:
        """Blocks until `stop`. Raises what the handler raised; `capture-source-failed` with what the source says."""
        try:
            write_start(self._options, self._offsets, self._start)
            self._stream.run()
        finally:
            self._folder.cleanup()

    def stop(self) -> None:
        """Ends `run`, from another thread; what is not published comes again at the next start."""
        self._stream.stop()

    def _handle(self, groups: list[Group]) -> bool:
        events, ended = self._received.take(groups)
        return self._step(lambda handler: handler.take(events, ended))


class ReceivedChanges:
    """Batches of Debezium's as events and ends of transactions."""

    def __init__(self, start: int) -> None:
        """`start`: everything up to this position is known; the first heartbeat says so, too."""
        self._columns = KnownColumns()
        self._ended, self._open = start - 1, dict[int, str]()

    def take(self, groups: Sequence[Group]) -> tuple[list[TableEvents], list[Ended]]:
        """The events of a batch, and the transactions that have ended, in the order of their commits."""
        events, ended, passed = [], dict[int, Ended](), 0
        for group in groups:
            if group.topic.endswith(_TRANSACTION):
                ended |= {each.position: each for each in _ends(group.lines)}
            elif group.offset is not None:
                passed = _passed(group.offset)
            elif columns := self._columns.of(group):
                events += read_events(group.lines, columns, places)
        for each in events:
            self._open |= {position_of(text): text for text in each.rows["transaction"].unique().to_pylist()}
        begun = max(self._open, default=0)  # what was begun before has ended
        done = {at: Ended(text, at, 0) for at, text in self._open.items() if at < begun or at <= passed}
        ended = {**done, **ended}
        if passed > max([self._ended, *ended]):
            ended[passed] = Ended("", passed, 0)
        new = [each for at, each in sorted(ended.items()) if at > self._ended]
        self._ended = max([self._ended, *ended])
        self._open = {at: text for at, text in self._open.items() if at > self._ended}
        return events, new


def read_rows(groups: Sequence[Group], known: KnownColumns) -> tuple[list[TableEvents], bool]:
    """The rows of a load in a batch, and whether the load is complete. `capture-source-failed` if it was given up."""
    events, is_done = [], False
    for group in groups:
        if group.topic.endswith(_NOTIFICATION):
            for line in group.lines.splitlines():
                is_done = is_done or _is_completed(json.loads(line))
        elif columns := known.of(group):
            events += read_events(group.lines, columns, places)
    return events, is_done


def _is_completed(said: dict[str, Any]) -> bool:
    if said.get("aggregate_type") != "Initial Snapshot":
        return False
    if said.get("type") in ("ABORTED", "SKIPPED"):
        raise LakemirrorError("capture-source-failed", "Debezium gave the load up")
    return said.get("type") == "COMPLETED"


def _ends(lines: bytes) -> list[Ended]:
    said = [json.loads(line) for line in lines.splitlines()]
    return [
        Ended(each["id"], position_of(each["id"]), int(each["ts_ms"] or 0)) for each in said if each["status"] == "END"
    ]


def _passed(offset: Any) -> int:
    """The position up to which everything was read; 0 within the changes of a transaction."""
    if offset.get("change_lsn") not in (None, *_NOTHING):
        return 0
    commit = offset.get("commit_lsn")
    return 0 if commit in (None, *_NOTHING) else position_of(commit)


def _pattern(name: str) -> str:
    """A name as one of Debezium's patterns, a list of which commas part."""
    return re.sub(r"(\W)", r"\\\1", name)
