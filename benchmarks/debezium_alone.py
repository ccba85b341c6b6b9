"""`python -m benchmarks.debezium_alone FILE URL TABLE …`: the peer of `benchmarks.capture`, Debezium's engine alone."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

SLOT = "debezium_alone"
JSON = {
    "provide.transaction.metadata": "false",
    "sourceinfo.struct.maker": "io.debezium.connector.postgresql.PostgresSourceInfoStructMaker",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}


def follow(into: Path, url: str, tables: Iterable[str]) -> None:
    """The same engine with a slot of its own and values as its JSON; the handler writes the texts of each batch."""
    import psycopg

    from lakemirror.publisher.capture.debezium import ENGINE, use_java
    from lakemirror.publisher.capture.postgresql.change_log import ChangeLog
    from lakemirror.spark_session.java import find

    use_java(find().home)
    with psycopg.connect(url, autocommit=True) as connection, into.open("wb") as output:
        log = ChangeLog(connection, SLOT)
        log.make()
        log.publish([("public", table) for table in tables])
        engine = _engine({**ENGINE, **log.properties(), **JSON}, output)
        signal.signal(signal.SIGINT, lambda *_: os._exit(0))
        print("ready", flush=True)
        engine.run()


def _engine(properties: Mapping[str, str], output: BinaryIO) -> Any:
    import jpype

    from lakemirror.publisher.capture.debezium import java_class

    collectors, value_of = java_class("java.util.stream.Collectors"), _value_of(java_class)

    @jpype.JImplements("io.debezium.engine.DebeziumEngine$ChangeConsumer")
    class Consumer:
        @jpype.JOverride  # type: ignore[untyped-decorator]
        def handleBatch(self, records: Any, committer: Any) -> None:
            joined = records.stream().map(value_of).collect(collectors.joining("\n"))
            output.write(bytes(joined.getBytes("UTF-8")) + b"\n")
            output.flush()
            committer.markProcessed(records.get(records.size() - 1))
            committer.markBatchFinished()

        @jpype.JOverride  # type: ignore[untyped-decorator]
        def supportsTombstoneEvents(self) -> bool:
            return False

    given = java_class("java.util.Properties")()
    for name, value in properties.items():
        given.setProperty(name, value)
    json = java_class("io.debezium.engine.format.Json").class_
    return java_class("io.debezium.engine.DebeziumEngine").create(json).using(given).notifying(Consumer()).build()


def _value_of(java: Callable[[str], Any]) -> Any:
    """A function of Java from an event to its text."""
    handles = java("java.lang.invoke.MethodHandles").publicLookup()
    returned = java("java.lang.invoke.MethodType").methodType(java("java.lang.Object").class_)
    handle = handles.findVirtual(java("io.debezium.engine.ChangeEvent"), "value", returned)
    made = java("java.lang.invoke.MethodHandleProxies").asInterfaceInstance
    return made(java("java.util.function.Function"), handle)


if __name__ == "__main__":
    follow(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
