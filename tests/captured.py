"""A PostgreSQL database with tables that change at random, and a capture of it that is started, killed, waited for."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lakemirror import MirroredDatabase
from tests.postgres import execute
from tests.table_rows import read_table

TABLES = {
    "one": ("id", "create table one (id int primary key, v text, n numeric(10, 2), long text)"),
    "two": ("id", "create table two (id bigint primary key, v text, at timestamptz, long text)"),
    "pairs": ("x, y", "create table pairs (x int, y text, v float8, primary key (x, y))"),
    "log": ("id", "create table log (id bigserial, v text)"),
}


class Captured:
    """A database with tables, and a capture of it that can be started, killed and waited for.

    `address`: what the capture publishes to, with `environment` beside its own. `folder`: of the mirrored database,
    where that is on this machine.
    """

    def __init__(self, url: str, folder: Path, log: Path, address: str = "", **environment: str) -> None:
        self.url, self.db, self._log = url, folder, log
        self.address = address or str(folder)
        self.environment = environment
        self.process: subprocess.Popen[bytes] | None = None
        for _, statement in TABLES.values():
            execute(url, statement)
        execute(url, "alter table log replica identity full")

    def start(self, *more: str, **environment: str) -> None:
        command = [sys.executable, "-m", "lakemirror.cli", "capture", self.address, "--from", self.url]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--insert-only", "public.log", *more], stdout=log, stderr=log,
                env={**os.environ, **self.environment, **environment},
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

    def files(self, table: str) -> int:
        """How many change files of a table there are that are not applied."""
        return len(list((self.db / f"Files/LandingZone/public.schema/{table}").glob("0*.parquet")))

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """The rows of a mirrored table."""
        return [tuple(row.values()) for row in read_table(self.db / "Tables/public" / table).to_pylist()]

    def differs(self) -> str:
        """The first table whose rows are not those of the source; empty where all are the same."""
        for table in TABLES:
            source = execute(self.url, f"select * from {table}")
            if sorted(map(repr, source)) != sorted(map(repr, self.rows(table))):
                return table
        return ""

    def assert_equal(self) -> None:
        assert not self.differs()


def change(connection: Any, rng: random.Random, transactions: int) -> None:
    """Random transactions: of one change and of many, some rolled back; changed keys, truncates, unsent values."""
    import psycopg

    for _ in range(transactions):
        with connection.transaction() as transaction:
            for _ in range(rng.choice([1, 1, 1, 3, 40])):
                _change_one(connection, rng)
            if rng.random() < 0.1:
                raise psycopg.Rollback(transaction)


def _change_one(connection: Any, rng: random.Random) -> None:
    table, key, other, what = rng.choice(("one", "two")), rng.randrange(300), rng.randrange(300, 600), rng.random()
    text = rng.choice(["plain", "ü€😀", None, 'a"b\\c\n\t,d', ""])
    long = rng.choice([None, "short", rng.randbytes(4000).hex()])
    if what < 0.35:
        insert = f"insert into {table} (id, v, long) values (%s, %s, %s) on conflict (id) do update set v = excluded.v"
        connection.execute(insert, (key, text, long))
    elif what < 0.6:
        connection.execute(f"update {table} set v = %s where id = %s", (text, key))
    elif what < 0.7:
        connection.execute(f"delete from {table} where id = %s", (key,))
    elif what < 0.8:
        connection.execute(f"delete from {table} where id = %s", (other,))
        connection.execute(f"update {table} set id = %s where id = %s", (other, key))
    elif what < 0.9:
        upsert = "insert into pairs values (%s, %s, %s) on conflict (x, y) do update set v = excluded.v"
        connection.execute(upsert, (key % 20, rng.choice("ab"), rng.choice([0.1, float("nan"), None, -1e300])))
    elif what < 0.99:
        connection.execute("insert into log (v) values (%s)", (text,))
    elif what < 0.995:
        connection.execute(f"truncate {table}")
    else:
        free = "not exists (select from pairs b where b.x = a.x + 1000 and b.y = a.y)"
        connection.execute(f"update pairs a set x = x + 1000 where x < 5 and y = 'a' and {free}")


def follow_and_kill(captured: Captured, seed: int, kills: int, restart: Callable[[], None] | None = None) -> None:
    import psycopg

    rng = random.Random(seed)
    print(f"seed {seed}")
    with psycopg.connect(captured.url, autocommit=True) as connection:
        connection.execute("insert into one select i, i, i, repeat('x', i) from generate_series(1, 300) i")
        captured.start()
        change(connection, rng, 40)
        for _ in range(kills):
            end = time.monotonic() + rng.uniform(1, 9)
            while time.monotonic() < end:
                change(connection, rng, 5)
                time.sleep(0.02)
            captured.end()
            change(connection, rng, 10)
            captured.start()
        change(connection, rng, 60)
        captured.end(signal.SIGTERM)
        change(connection, rng, 5)
    captured.finish()
    captured.assert_equal()


__all__ = ["TABLES", "Captured", "change", "follow_and_kill"]
