"""A PostgreSQL database with tables that change at random, and a capture of it that is started, killed, waited for."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from tests.capture_process import CaptureProcess, follow_and_kill
from tests.postgres import execute

TABLES = {
    "one": ("id", "create table one (id int primary key, v text, n numeric(10, 2), long text)"),
    "two": ("id", "create table two (id bigint primary key, v text, at timestamptz, long text)"),
    "pairs": ("x, y", "create table pairs (x int, y text, v float8, primary key (x, y))"),
    "log": ("id", "create table log (id bigserial, v text)"),
}


class Captured(CaptureProcess):
    """A PostgreSQL database with tables, and a capture of it."""

    tables = tuple(TABLES)

    def __init__(self, url: str, folder: Path, log: Path, address: str = "", **environment: str) -> None:
        super().__init__(url, "public", folder, log, address, **environment)
        for _, statement in TABLES.values():
            execute(url, statement)
        execute(url, "alter table log replica identity full")

    def source_rows(self, table: str) -> list[tuple[Any, ...]]:
        return execute(self.url, f"select * from {table}")


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


def follow_and_kill_random(captured: Captured, seed: int, kills: int, most: float = 7) -> None:
    """Kills a capture so often while random changes are made, each time within `most` seconds; the tables must then
    equal the source."""
    import psycopg

    rng = random.Random(seed)
    print(f"seed {seed}")
    with psycopg.connect(captured.url, autocommit=True) as connection:
        connection.execute("insert into one select i, i, i, repeat('x', i) from generate_series(1, 300) i")
        follow_and_kill(captured, lambda count: change(connection, rng, count), rng, kills, most=most)


__all__ = ["TABLES", "Captured", "change", "follow_and_kill_random"]
