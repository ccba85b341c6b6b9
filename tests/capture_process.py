"""A capture in a process of its own that is started, killed and waited for, and what it must have reached then."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lakemirror import MirroredDatabase
from tests import preloaded
from tests.table_rows import read_table

QUICK_JAVA = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
"""A JVM that lives for seconds compiles nothing twice."""


class CaptureProcess:
    """A capture of one database: its schema's tables, of which `log` takes inserts only.

    `address`: what the capture publishes to, with `environment` beside its own. `db`: the folder of the mirrored
    database, where that is on this machine.
    """

    inserts_only = "*.log"
    tables: tuple[str, ...] = ()

    def __init__(self, url: str, schema: str, db: Path, log: Path, address: str = "", **environment: str) -> None:
        self.url, self.schema, self.db, self._log = url, schema, db, log
        self.address = address or str(db)
        self.environment = environment
        self.process: preloaded.Popen | None = None

    def start(self, *more: str, stdout: int | None = None, **environment: str) -> None:
        command = [sys.executable, "-m", "lakemirror.cli", "capture", self.address, "--from", self.url]
        with self._log.open("ab") as log:
            self.process = preloaded.Popen(
                [*command, "--insert-only", self.inserts_only, *more], stdout=stdout or log, stderr=log,
                env={**os.environ, **QUICK_JAVA, **self.environment, **environment},
            )  # fmt: skip

    def end(self, number: int = signal.SIGKILL) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(60)

    def close(self) -> None:
        """Ends a capture that still runs."""
        if self.process is not None and self.process.poll() is None:
            self.end()

    def finish(self, *more: str) -> None:
        """Everything that has happened so far is published, and applied."""
        self.start("--once", *more)
        assert self.process is not None
        assert self.process.wait(180) == 0, self.said()
        self.apply()

    def apply(self) -> None:
        """Everything that is published is applied."""
        result = MirroredDatabase(self.db, engine="local").sync()
        assert not result.failed, result.failed

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def wait(self, condition: Callable[[], bool], seconds: float = 90) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.said()
            assert self.process is not None and self.process.poll() is None, self.said()
            time.sleep(0.05)

    def folder(self, table: str) -> Path:
        """The landing folder of a table."""
        return self.db / f"Files/LandingZone/{self.schema}.schema" / table

    def files(self, table: str) -> int:
        """How many change files of a table there are that are not applied."""
        return len(list(self.folder(table).glob("0*.parquet")))

    def state(self, table: str) -> str:
        """What the capture says of a table in its folder; empty where it says nothing."""
        file = self.folder(table) / "_capture.json"
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def found(self, table: str) -> list[dict[str, Any]]:
        """The rows of a mirrored table, in the order of their first two columns."""
        found: list[dict[str, Any]] = read_table(self.db / "Tables" / self.schema / table).to_pylist()
        return sorted(found, key=lambda row: str(list(row.values())[:2]))

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """The rows of a mirrored table as the source's driver would give them."""
        return [tuple(row.values()) for row in self.found(table)]

    def source_rows(self, table: str) -> list[tuple[Any, ...]]:
        """The rows of a table of the source."""
        raise NotImplementedError

    def differs(self) -> str:
        """The first table whose rows are not those of the source; empty where all are the same."""
        for table in self.tables:
            if sorted(map(repr, self.source_rows(table))) != sorted(map(repr, self.rows(table))):
                return table
        return ""

    def assert_equal(self) -> None:
        assert not self.differs()


def follow_and_kill(captured: CaptureProcess, change: Callable[[int], object], rng: random.Random, kills: int,
                    between: Callable[[int], None] = lambda _: None, most: float = 7) -> None:  # fmt: skip
    """`change` makes so many random transactions; `between` is called with its number after each kill, which comes
    within `most` seconds."""
    captured.start()
    change(40)
    for number in range(kills):
        end = time.monotonic() + rng.uniform(0.5, most)
        while time.monotonic() < end:
            change(5)
            time.sleep(0.02)
        captured.end()
        change(10)
        between(number)
        captured.start()
    change(60)
    captured.end(signal.SIGTERM)
    change(5)
    captured.finish()
    captured.assert_equal()


__all__ = ["CaptureProcess", "follow_and_kill"]
