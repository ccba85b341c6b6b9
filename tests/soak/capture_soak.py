"""python -m tests.soak.capture_soak --minutes 60 [--seed 7]: random changes and definitions of a PostgreSQL database,
while capture, engine and server are killed and restarted, and others write to every table. At each look every table
must equal the source, value by value. 0 without a finding, else 3.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from tests.postgres import Postgres
from tests.table_rows import read_table

from lakemirror import MirroredDatabase
from lakemirror.mirror.cut_versions import Cut
from lakemirror.publisher.capture.capture_options import CaptureOptions

PATIENCE = 240.0  # seconds that a process gets to do what it was asked
COLUMNS = ("int", "text", "numeric(10,2)", "boolean", "bigint", "varchar(40)", "date")
VALUES: dict[str, Callable[[random.Random], str]] = {
    "int": lambda rng: str(rng.randrange(1000)),
    "bigint": lambda rng: str(rng.randrange(10**12)),
    "text": lambda rng: rng.choice(["'plain'", "'ü€😀'", "''", "repeat(md5(random()::text), 150)", "NULL"]),
    "varchar(40)": lambda rng: f"'v{rng.randrange(1000)}'",
    "numeric(10,2)": lambda rng: f"{rng.randrange(10**6)}.{rng.randrange(100):02}",
    "boolean": lambda rng: rng.choice(["true", "false", "NULL"]),
    "date": lambda rng: f"date '2020-01-01' + {rng.randrange(2000)}",
}


@dataclass
class Table:
    """A table of the source. `columns`: names to types, without the key; `parts`: how many partitions it has had."""

    name: str
    columns: dict[str, str]
    parts: int = 0


@dataclass
class Soak:
    """`server`, `folder`: of this run. `findings`: what was wrong; none is right."""

    folder: Path
    rng: random.Random
    server: Postgres
    url: str
    tables: dict[str, Table] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    numbers: int = 0
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def db(self) -> Path:
        return self.folder / "shop"

    def start(self, name: str, *more: str) -> None:
        words = {
            "capture": ["capture", str(self.db), "--from", self.url, "--tables", "public.*", "--cut", "5"],
            "engine": ["run", str(self.db), "--engine", "local"],
        }[name]
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "lakemirror.cli", *words, *more]
            self.running[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def end(self, name: str, number: int) -> None:
        process = self.running.pop(name, None)
        if process is not None:
            process.send_signal(number)
            process.wait(PATIENCE)

    def step(self) -> None:
        """One random act."""
        acts: list[tuple[float, Callable[[], None]]] = [
            (60, self.changes), (4, self.add_table), (1.5, self.drop_table), (2, self.add_column),
            (1.5, self.add_default), (1, self.drop_column), (1, self.rename_column), (1, self.widen_column),
            (2, self.truncate), (1, self.swap), (1, self.rename_away), (1, self.replace), (1, self.move),
            (1.5, self.partition), (2, self.kill_capture),
            (2, self.kill_engine), (1, self.stop_both), (0.7, self.restart_server), (1, self.landing_zone_fails),
            (1, self.reload), (0.5, self.lose_slot), (0.5, self.lose_state),
        ]  # fmt: skip
        act = self.rng.choices([act for _, act in acts], [weight for weight, _ in acts])[0]
        try:
            act()
        except psycopg.Error as error:  # such as a column that is of a key, or a name that is taken
            self.done[f"refused by the source: {type(error).__name__}"] += 1
            return
        self.done[act.__name__] += 1

    def sql(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def pick(self, *, partitioned: bool | None = None) -> Table:
        """One of the tables; made where there is none of the kind."""
        found = [each for each in self.tables.values() if partitioned is None or bool(each.parts) == partitioned]
        return self.rng.choice(found) if found else self.add_table(partitioned=bool(partitioned))

    def add_table(self, *, partitioned: bool | None = None) -> Table:
        self.numbers += 1
        is_parted = self.rng.random() < 0.2 if partitioned is None else partitioned
        columns = {f"c{number}": self.rng.choice(COLUMNS) for number in range(self.rng.randrange(1, 5))}
        made = Table(f"t{self.numbers}", columns, int(is_parted))
        body = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        by = " partition by range (id)" if is_parted else ""
        statements = [f"create table {made.name} (id int primary key, {body}){by}"]
        if is_parted:
            statements.append(f"create table {made.name}_p1 partition of {made.name} default")
        self.sql(*statements)
        self.tables[made.name] = made
        return made

    def drop_table(self) -> None:
        if len(self.tables) > 4:
            name = self.pick().name
            self.sql(f"drop table {name}")
            del self.tables[name]

    def changes(self) -> None:
        """Some transactions over all tables; some are rolled back."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for _ in range(self.rng.randrange(1, 12)):
                with contextlib.suppress(psycopg.IntegrityError), connection.transaction() as transaction:
                    for _ in range(self.rng.choice([1, 1, 2, 5, 60])):
                        connection.execute(self._change(self.pick()).encode())
                    if self.rng.random() < 0.1:
                        raise psycopg.Rollback(transaction)

    def _change(self, table: Table) -> str:
        rng, key, what = self.rng, self.rng.randrange(200), self.rng.random()
        values = {name: VALUES[kind](rng) for name, kind in table.columns.items()}
        if what < 0.5 or not values:
            names, given = ", ".join(["id", *values]), ", ".join([str(key), *values.values()])
            first = next(iter(values), "id")
            taken = f"on conflict (id) do update set {first} = excluded.{first}"
            return f"insert into {table.name} ({names}) values ({given}) {taken}"
        if what < 0.75:
            name = rng.choice(list(values))
            return f"update {table.name} set {name} = {values[name]} where id between {key} and {key + 3}"
        if what < 0.9:
            return f"delete from {table.name} where id = {key}"
        return f"update {table.name} set id = {1000 + rng.randrange(10**6)} where id = {key}"

    def add_column(self) -> None:
        self._add("")

    def add_default(self) -> None:
        self._add(" default {}")

    def _add(self, default: str) -> None:
        table, kind = self.pick(), self.rng.choice(COLUMNS)
        self.numbers += 1
        name = f"n{self.numbers}"
        self.sql(f"alter table {table.name} add column {name} {kind}{default.format(VALUES[kind](self.rng))}")
        table.columns[name] = kind

    def drop_column(self) -> None:
        table = self.pick()
        if len(table.columns) > 1:
            name = self.rng.choice(list(table.columns))
            self.sql(f"alter table {table.name} drop column {name}")
            del table.columns[name]

    def rename_column(self) -> None:
        table = self.pick()
        self.numbers += 1
        name, new = self.rng.choice(list(table.columns)), f"r{self.numbers}"
        self.sql(f"alter table {table.name} rename column {name} to {new}")
        table.columns = {new if each == name else each: kind for each, kind in table.columns.items()}

    def widen_column(self) -> None:
        table = self.pick()
        narrow = [name for name, kind in table.columns.items() if kind == "int"]
        if narrow:
            self.sql(f"alter table {table.name} alter column {narrow[0]} type bigint")
            table.columns[narrow[0]] = "bigint"

    def truncate(self) -> None:
        table = self.pick()
        self.sql(f"begin; {self._change(table)}; truncate {table.name}; {self._change(table)}; commit")

    def swap(self) -> None:
        one, two = self.pick(partitioned=False), self.pick(partitioned=False)
        if one is not two:
            self.sql(
                f"begin; alter table {one.name} rename to swapped; alter table {two.name} rename to {one.name}; "
                f"alter table swapped rename to {two.name}; commit"
            )
            one.columns, two.columns = two.columns, one.columns

    def rename_away(self) -> None:
        """Changes under another name, then the name of before again: at once, or in one transaction."""
        table = self.pick(partitioned=False)
        rename, back = f"alter table {table.name} rename to away", f"alter table away rename to {table.name}"
        change = self._change(Table("away", table.columns))
        self.sql(
            *([f"begin; {rename}; {change}; {back}; commit"] if self.rng.random() < 0.5 else [rename, change, back])
        )

    def replace(self) -> None:
        """A table gets another name and is a table of its own; an empty one gets its name."""
        table = self.pick(partitioned=False)
        self.numbers += 1
        old = Table(f"t{self.numbers}", dict(table.columns))
        self.sql(
            f"alter table {table.name} rename to {old.name}",
            f"create table {table.name} (like {old.name} including all)",
        )
        self.tables[old.name] = old
        self.sql(self._change(table), self._change(old))

    def move(self) -> None:
        """Changes in a schema that is not captured, and back: at once, or in one transaction."""
        table = self.pick(partitioned=False)
        there, back = f"alter table {table.name} set schema away", f"alter table away.{table.name} set schema public"
        change = self._change(Table(f"away.{table.name}", table.columns))
        self.sql(*([f"begin; {there}; {change}; {back}; commit"] if self.rng.random() < 0.5 else [there, change, back]))

    def write_beside(self, stop: threading.Event) -> None:
        """Writes to tables by the names that they have or had, until `stop`, however they are altered meanwhile."""
        rng = random.Random(self.rng.random())
        while not stop.wait(rng.uniform(0, 0.05)):
            with contextlib.suppress(psycopg.Error), psycopg.connect(self.url, autocommit=True) as connection:
                for _ in range(20):
                    name = rng.choice([*list(self.tables), "away"])
                    what = f"insert into {name} (id) values ({rng.randrange(300)}) on conflict do nothing"
                    deletes = f"delete from {name} where id = {rng.randrange(300)}"
                    with contextlib.suppress(psycopg.Error):
                        connection.execute((what if rng.random() < 0.8 else deletes).encode())

    def partition(self) -> None:
        """A partition that is filled and attached, in one transaction or in several; or truncated; or detached."""
        table, what = self.pick(partitioned=True), self.rng.random()
        low = 10**7 + table.parts * 1000
        name = f"{table.name}_p{table.parts + 1}"
        if what < 0.7:
            statements = [
                f"create table {name} (like {table.name} including all)",
                f"insert into {name} (id) values ({low + 1}), ({low + 2})",
                f"alter table {table.name} attach partition {name} for values from ({low}) to ({low + 1000})",
            ]
            self.sql(*(["; ".join(["begin", *statements, "commit"])] if what < 0.35 else statements))
            table.parts += 1
        elif table.parts > 1:
            last = f"{table.name}_p{table.parts}"
            self.sql(f"truncate {last}" if what < 0.85 else f"alter table {table.name} detach partition {last}")

    def kill_capture(self) -> None:
        self.end("capture", signal.SIGKILL)
        self.changes()
        self.start("capture")

    def reload(self) -> None:
        """A table, or all, is loaded again; the load may be killed, and goes on with the next start."""
        self.end("capture", self.rng.choice([signal.SIGKILL, signal.SIGTERM]))
        self.changes()
        self.start("capture", "--reload", self.rng.choice(["all", f"public.{self.pick().name}"]))
        if self.rng.random() < 0.5:
            time.sleep(self.rng.uniform(1, 10))
            self.kill_capture()

    def lose_slot(self) -> None:
        """The slot is dropped, as by an operator who needs the disk. A kill waits until the tables are marked."""
        self.end("capture", signal.SIGTERM)
        self._wait_for_slot("active", 0)  # it may have been ended before it made one
        self.sql("select pg_drop_replication_slot(slot_name) from pg_replication_slots")
        self.changes()
        self.start("capture", "--reload", "all")
        self._wait_for_slot("true", 1)

    def _wait_for_slot(self, condition: str, count: int) -> None:
        end, slot = time.monotonic() + PATIENCE, CaptureOptions(self.url).slot
        query = f"select count(*) from pg_replication_slots where slot_name = '{slot}' and {condition}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            while connection.execute(query.encode()).fetchone() != (count,):
                assert time.monotonic() < end, query
                time.sleep(0.1)

    def lose_state(self) -> None:
        """The position file of the landing zone is deleted."""
        self.end("capture", signal.SIGKILL)
        (self.db / "Files/LandingZone/_capture.json").unlink(missing_ok=True)
        self.start("capture")

    def kill_engine(self) -> None:
        self.end("engine", signal.SIGKILL)
        self.start("engine")

    def stop_both(self) -> None:
        for name in ("capture", "engine"):
            self.end(name, signal.SIGTERM)
            self.start(name)

    def restart_server(self) -> None:
        self.server.restart()

    def landing_zone_fails(self) -> None:
        """A table's folder cannot be used for some seconds."""
        folders = sorted(self.db.glob("Files/LandingZone/public.schema/t*"))
        if folders:
            folder = self.rng.choice(folders)
            moved = folder.with_name("_moved")
            with contextlib.suppress(FileNotFoundError):
                self.end("engine", signal.SIGKILL)
                folder.rename(moved)
                folder.write_text("in the way")
                self.changes()
                time.sleep(self.rng.uniform(1, 5))
                folder.unlink()
                moved.rename(folder)
                self.start("engine")

    def look(self) -> None:
        """Ends both, lets them finish what has happened, and compares."""
        for name in ("capture", "engine"):
            self.end(name, self.rng.choice([signal.SIGKILL, signal.SIGTERM]))
        self.start("capture", "--once")
        code = self.running.pop("capture").wait(PATIENCE)
        if code:
            self.findings.append(f"capture --once ended with {code}")
        database = MirroredDatabase(self.db, engine="local", drop_after=0)
        for table, error in database.sync().failed.items():
            self.findings.append(f"{table}: {error}")
        for table in self.tables.values():
            if why := self.difference(table):
                self.findings.append(f"{table.name}: {why}")
        for cut in database.cuts():
            self._look_at(cut)
        self.done["looks"] += 1

    def _look_at(self, cut: Cut) -> None:
        self.done["complete cuts" if cut.is_complete else "void cuts"] += 1

    def difference(self, table: Table) -> str:
        """What differs between the table and its mirror; empty where nothing does."""
        with psycopg.connect(self.url) as connection:
            cursor = connection.execute(f"select * from {table.name}".encode())
            names = [column.name for column in cursor.description or ()]
            source = Counter(map(repr, cursor.fetchall()))
        path = self.db / "Tables/public" / table.name
        if not (path / "_delta_log").is_dir():
            state = self.db / f"Files/LandingZone/public.schema/{table.name}/_capture.json"
            said = json.loads(state.read_text()) if state.exists() else {}
            return f"there is no table: {said}"
        found = read_table(path)
        # a column that was added since the last change of the table is not there yet, and NULL everywhere
        mirrored = Counter(repr(tuple(row.get(name) for name in names)) for row in found.to_pylist())
        if mirrored == source:
            return ""
        lost, more = list((source - mirrored).elements()), list((mirrored - source).elements())
        return f"{len(lost)} rows are missing, {len(more)} too many: {lost[:2]} {more[:2]}"


def soak(folder: Path, seed: int, seconds: float, every: float = 75.0) -> Soak:
    """Steps for so many seconds, with a look every so many."""
    server = Postgres()
    run = Soak(folder, random.Random(seed), server, server.database())
    try:
        run.sql("create schema away")
        for _ in range(4):
            run.add_table()
        run.add_table(partitioned=True)
        run.db.mkdir(parents=True)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not run.findings:
            run.start("capture")
            run.start("engine")
            until = min(time.monotonic() + every, end)
            stop = threading.Event()
            writer = threading.Thread(target=run.write_beside, args=(stop,))
            writer.start()
            try:
                while time.monotonic() < until:
                    run.step()
                    time.sleep(run.rng.uniform(0, 0.3))
            finally:
                stop.set()
                writer.join()
            run.look()
            print(f"{max(end - time.monotonic(), 0):.0f} s left, {run.done['looks']} looks, {run.findings}", flush=True)
    finally:
        for process in run.running.values():
            process.kill()
            process.wait()
        server.close()
    return run


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.soak.capture_soak")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--minutes", type=float, default=60.0)
    given = parser.parse_args()
    into = Path(tempfile.mkdtemp(prefix="lakemirror-capture-soak-"))
    print(f"seed {given.seed}, in {into}", flush=True)
    outcome = soak(into, given.seed, given.minutes * 60)
    for act, count in sorted(outcome.done.items()):
        print(f"{count:6} {act}")
    print("\n".join(outcome.findings) or "no finding")
    if not outcome.findings:
        shutil.rmtree(into)
    raise SystemExit(3 if outcome.findings else 0)
