"""`python -m benchmarks.debezium_alone FILE URL TABLE …`: the peer of `benchmarks.capture`, Debezium's engine alone."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

SLOT = "debezium_alone"


def follow(into: Path, url: str, tables: Iterable[str]) -> None:
    """The same engine with a slot of its own; the handler writes the texts of each batch."""
    import psycopg

    from lakemirror.publisher.capture.debezium import DebeziumStream, Group, use_java
    from lakemirror.publisher.capture.postgresql.change_log import ChangeLog
    from lakemirror.spark_session.java import find

    use_java(find().home)
    with psycopg.connect(url, autocommit=True) as connection, into.open("wb") as output:
        log = ChangeLog(connection, SLOT)
        log.make()
        followed = [("public", table) for table in tables]
        log.publish(followed)

        def write(groups: list[Group]) -> bool:
            for group in groups:
                output.write(group.lines + b"\n")
            output.flush()
            return True

        given = log.properties(followed) | {"provide.transaction.metadata": "false"}
        stream = DebeziumStream(given, write)
        signal.signal(signal.SIGINT, lambda *_: os._exit(0))
        print("ready", flush=True)
        stream.run()


if __name__ == "__main__":
    follow(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
