"""`lakemirror capture` of a real MariaDB or MySQL: the Delta tables equal the idle source, however it was killed."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from tests.capture_process import CaptureProcess, follow_and_kill
from tests.mariadb import GTIDS, LOGGED, MariaDb, connect, execute, numbers
from tests.table_rows import read_table

from lakemirror import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.database_capture import Capture

TABLES = {
    "one": "create table one (id int primary key, v text, n decimal(10, 2), rest longtext)",
    "two": "create table two (id bigint unsigned primary key, v varchar(50), at timestamp(6) null, rest longtext)",
    "pairs": "create table pairs (x int, y varchar(5), v double, primary key (x, y))",
    "log": "create table log (id bigint not null, v text)",
}


class Captured(CaptureProcess):
    """A MariaDB database with tables, and a capture of it."""

    tables = tuple(TABLES)

    def __init__(self, url: str, db: Path, log: Path) -> None:
        super().__init__(url, url.rpartition("/")[2], db, log)
        execute(url, *TABLES.values())

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return [tuple(plain(value) for value in row) for row in super().rows(table)]

    def source_rows(self, table: str) -> list[tuple[Any, ...]]:
        return execute(self.url, "set time_zone = '+00:00'", f"select * from {table}")


def plain(value: Any) -> Any:
    """A value as the driver gives it: instants in UTC without a zone, unsigned numbers as numbers."""
    if type(value).__name__ == "Decimal" and value.as_tuple().exponent == 0:
        return int(value)
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value


@pytest.fixture
def captured(mariadb_server: MariaDb, tmp_path: Path) -> Iterator[Captured]:
    made = Captured(mariadb_server.database(), tmp_path / "shop", tmp_path / "log")
    yield made
    made.close()


def change(connection: Any, rng: random.Random, transactions: int) -> None:
    """Random transactions: of one change and of many, some rolled back; changed keys, truncates, partial images."""
    compresses = "MariaDB" not in connection.get_server_info()
    with connection.cursor() as cursor:
        for _ in range(transactions):
            if compresses:
                cursor.execute(f"set session binlog_transaction_compression = {rng.choice(['ON', 'OFF'])}")
            cursor.execute(f"set session binlog_row_image = '{rng.choice(['FULL', 'MINIMAL', 'NOBLOB'])}'")
            cursor.execute("begin")
            for _ in range(rng.choice([1, 1, 1, 3, 40])):
                _change_one(cursor, rng)
            cursor.execute("rollback" if rng.random() < 0.1 else "commit")
            if rng.random() < 0.01:
                cursor.execute(f"truncate table {rng.choice(('one', 'two'))}")
            if rng.random() < 0.02:
                cursor.execute("flush binary logs")


def _change_one(cursor: Any, rng: random.Random) -> None:
    table, key, other, what = rng.choice(("one", "two")), rng.randrange(300), rng.randrange(300, 600), rng.random()
    text = rng.choice(["plain", "ü€😀", None, 'a"b\\c\n\t,d', ""])
    rest = rng.choice([None, "short", rng.randbytes(4000).hex()])
    if what < 0.35:
        insert = f"insert into {table} (id, v, rest) values (%s, %s, %s) on duplicate key update v = values(v)"
        cursor.execute(insert, (key, text, rest))
    elif what < 0.45:
        cursor.execute(f"insert ignore into {table} (id) values (%s)", (key,))
    elif what < 0.6:
        cursor.execute(f"update {table} set v = %s where id = %s", (text, key))
    elif what < 0.7:
        cursor.execute(f"delete from {table} where id = %s", (key,))
    elif what < 0.8:
        cursor.execute(f"delete from {table} where id = %s", (other,))
        cursor.execute(f"update {table} set id = %s where id = %s", (other, key))
    elif what < 0.9:
        upsert = "insert into pairs values (%s, %s, %s) on duplicate key update v = values(v)"
        cursor.execute(upsert, (key % 20, rng.choice("ab"), rng.choice([0.1, 1 / 3, None, -1e300])))
    elif what < 0.99:
        cursor.execute("insert into log values (%s, %s)", (rng.getrandbits(60), text))
    else:
        cursor.execute("update ignore pairs set x = x + 1000 where x < 5 and y = 'a'")


def follow_and_kill_random(
    captured: Captured, seed: int, kills: int, restart: Callable[[], None] | None = None
) -> None:
    """Kills a capture so often while random changes are made; the tables must then equal the source."""
    rng = random.Random(seed)
    print(f"seed {seed}")
    connections = [connect(captured.url)]
    with connections[0].cursor() as cursor:
        cursor.execute(f"insert into one select seq, seq, seq, repeat('x', seq) from {numbers(300)}")

    def between(number: int) -> None:
        if restart is not None and number % 3 == 1:
            restart()
            connections.append(connect(captured.url))

    follow_and_kill(captured, lambda count: change(connections[-1], rng, count), rng, kills, between)
    connections[-1].close()


@pytest.mark.full
def test_tables_equal_a_mariadb_through_kills(captured: Captured) -> None:
    follow_and_kill_random(captured, random.randrange(10**6), 2)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
def test_tables_equal_a_mariadb_through_many_kills_and_restarts(
    own_server: Callable[..., MariaDb], tmp_path: Path, seed: int
) -> None:
    server = own_server(*(LOGGED if seed == 2 else ()))  # MySQL without GTIDs
    captured = Captured(server.database(), tmp_path / "shop", tmp_path / "log")

    def restart() -> None:
        server.stop(signal.SIGKILL if seed else signal.SIGTERM)
        server.start()

    follow_and_kill_random(captured, seed, 10, restart)


@pytest.mark.full
def test_a_load_that_is_killed_begins_anew(captured: Captured) -> None:
    execute(captured.url, f"insert into one select seq, seq, seq, repeat('x', 100) from {numbers(400_000)}")
    rng = random.Random(7)
    for _ in range(20):
        captured.start()
        time.sleep(rng.uniform(0.3, 3))
        captured.end()
        execute(
            captured.url, "update one set v = concat(v, 'k') where id % 1000 = 1", "delete from one where id % 777 = 0"
        )
    captured.finish()
    captured.assert_equal()


@pytest.mark.full
def test_what_happens_while_a_mariadb_is_followed(captured: Captured) -> None:
    """New tables, changed columns, a table that is made again, an update without a key: each table by itself."""
    url = captured.url
    execute(url, "insert into one values (1, 'a', 1, 'l')", "insert into log values (1, 'first')",
            "insert into two (id) values (1)", "insert into pairs values (1, 'a', 1), (2, 'b', 2)")  # fmt: skip
    captured.start()
    captured.wait(lambda: "following" in captured.said())
    execute(
        url,
        "alter table one add column later text",
        "insert into one values (2, 'b', 2, 'm', 'new')",
        "create index by_v on two (v)",
        "alter table two add column given int default 7, comment = 'x, y'",
        "insert into two (id) values (2)",
        "rename table pairs to swapped",
        "create table pairs (x int, y varchar(5), v double, primary key (x, y))",
        "insert into pairs values (9, 'z', 9)",
        "update log set v = 'changed'",
        "create table added (id int primary key, v text)",
        "insert into added values (1, 'before')",
    )
    captured.wait(lambda: '"streaming"' in captured.state("added") and '"streaming"' in captured.state("swapped"))
    execute(url, "insert into added values (2, 'behind')", "insert into one values (3, 'c', 3, 'n', 'newer')")
    captured.end(signal.SIGTERM)
    captured.finish()
    assert [(row["id"], row.get("later")) for row in captured.found("one")] == [(1, None), (2, "new"), (3, "newer")]
    assert [row["given"] for row in captured.found("two")] == [7, 7]
    assert [row["x"] for row in captured.found("pairs")] == [9]
    assert [row["x"] for row in captured.found("swapped")] == [1, 2]
    assert [row["v"] for row in captured.found("added")] == ["before", "behind"]
    assert [row["v"] for row in captured.found("log")] == ["first"]
    assert "capture-no-key" in captured.state("log")
    assert captured.said().count("one: 1 rows loaded") == 1


@pytest.mark.full
def test_definitions_that_a_capture_ignores(captured: Captured) -> None:
    """Old rows stay as they were published, the table goes on; one that is another table is loaded again."""
    url = captured.url
    execute(url, "insert into two (id, v) values (1, 'a')", "insert into pairs values (1, 'a', 1)",
            "create table other like pairs", "insert into other values (2, 'b', 2)")  # fmt: skip
    captured.start("--after-ddl", "ignore")
    captured.wait(lambda: "following" in captured.said())
    execute(
        url,
        "alter table two add column given int default 7, modify v varchar(100)",
        "insert into two (id, v) values (2, repeat('ü', 90))",
        "rename table pairs to swapped, other to pairs",
        "insert into pairs values (3, 'c', 3)",
    )
    captured.wait(lambda: captured.files("two") == 2 and captured.said().count("pairs: ") > 1)
    captured.end(signal.SIGTERM)
    captured.finish("--after-ddl", "ignore")
    assert [(row["id"], row["given"]) for row in captured.found("two")] == [(1, None), (2, 7)]
    assert [row["x"] for row in captured.found("pairs")] == [2, 3]
    assert '"streaming"' in captured.state("two") and '"streaming"' in captured.state("pairs")
    assert captured.said().count("two: 1 rows loaded") == 1


@pytest.mark.full
def test_one_capture_of_a_name_and_a_log_that_is_lost(own_server: Callable[[], MariaDb], tmp_path: Path) -> None:
    server = own_server()
    captured = Captured(server.database(), tmp_path / "shop", tmp_path / "log")
    execute(captured.url, "insert into one values (1, 'a', 1, 'l')")
    captured.start()
    captured.wait(lambda: "following" in captured.said())
    options = CaptureOptions(captured.url, insert_only=("*.log",))
    with pytest.raises(LakemirrorError, match="another capture") as raised:
        Capture(Landing(captured.db), options).run()
    assert raised.value.code == "capture-taken"
    execute(captured.url, "insert into one values (2, 'b', 2, 'm')")
    captured.wait(lambda: captured.files("one") == 2)
    captured.end()
    (captured.db / "Files/LandingZone/_capture.json").unlink()
    captured.finish()
    captured.assert_equal()
    execute(captured.url, "insert into one values (3, 'c', 3, 'n')", "flush binary logs")
    execute(captured.url, "insert into one values (4, 'd', 4, 'o')", "flush binary logs")
    newest = execute(captured.url, server.log_status)[0][0]
    while len(execute(captured.url, f"purge binary logs to '{newest}'", "show binary logs")) > 1:
        time.sleep(0.1)  # the server still sends a file to the capture that was killed
    lost(captured, options, "has deleted its log")
    captured.finish("--reload", "all")
    captured.assert_equal()
    execute(captured.url, "insert into one values (5, 'e', 5, 'p')")
    captured.finish()
    captured.assert_equal()
    longer = ["insert into two (id, rest) select max(id) + 1, repeat('x', 9000) from two", "flush binary logs"]
    execute(captured.url, "insert into two (id) values (1)", server.clear_log, *(longer * 9))
    lost(captured, options, "after RESET MASTER")


def lost(captured: Captured, options: CaptureOptions, why: str) -> None:
    with pytest.raises(LakemirrorError, match=why) as raised:
        Capture(Landing(captured.db), options).run(once=True)
    assert raised.value.code == "capture-position-lost"


@pytest.mark.full
@pytest.mark.parametrize("is_lost", [False, True], ids=["", "and-the-position-file-is-lost"])
def test_a_log_that_is_reset_and_as_long_again_is_not_followed(
    own_server: Callable[..., MariaDb], tmp_path: Path, is_lost: bool
) -> None:
    """The same statements make the same file with the same transactions at the same places, in another second."""
    server = own_server(*LOGGED)  # MySQL without GTIDs
    captured = CaptureProcess(server.database(), "db1", tmp_path / "shop", tmp_path / "log")
    captured.tables = ("t",)
    captured.source_rows = lambda table: execute(captured.url, f"select * from {table}")  # type: ignore[method-assign]
    execute(captured.url, "create table t (id int primary key, v text)")
    statements = ["delete from t", "insert into t values (1, 'a')", "update t set v = 'b'"]
    execute(captured.url, "insert into t values (7, 'c')", server.clear_log)
    captured.finish()
    execute(captured.url, *statements)
    captured.finish()
    captured.assert_equal()
    length = execute(captured.url, server.log_status)[0][1]
    if is_lost:
        (captured.db / "Files/LandingZone/_capture.json").unlink()
    execute(captured.url, server.clear_log, *statements, "insert into t values (2, 'unseen')")
    assert execute(captured.url, server.log_status)[0][1] > length
    lost(captured, CaptureOptions(captured.url), "after RESET MASTER")
    captured.finish("--reload", "all")
    captured.assert_equal()
    execute(captured.url, "insert into t values (3, 'behind')")
    captured.finish()
    captured.assert_equal()


@pytest.mark.full
@pytest.mark.parametrize("is_lost", [False, True], ids=["", "and-the-position-file-is-lost"])
def test_a_replica_that_has_become_the_primary_is_not_followed(
    own_server: Callable[..., MariaDb], tmp_path: Path, is_lost: bool
) -> None:
    """It has the same transactions, and the same place of its log may be within another one."""
    primary = own_server()
    replica = own_server(*LOGGED, "--server-id=2", *FOLLOWING[primary.kind])
    url = primary.database("shop")
    execute(url, "create table t (id int primary key)", "insert into t values (1)")
    execute(replica.url(), *(each.format(port=primary.port) for each in FOLLOW[primary.kind]))
    capture(tmp_path, url)
    end = time.monotonic() + 60
    while True:
        with suppress(Exception):
            if execute(replica.url("shop"), "select id from t") == [(1,)]:
                break
        assert time.monotonic() < end, replica.log()
        time.sleep(0.1)
    if is_lost:
        (tmp_path / "Files/LandingZone/_capture.json").unlink()
    primary.stop()
    url = replica.url("shop")
    execute(url, *["insert into t values (2)", "delete from t where id = 2"] * 20, "insert into t values (2)")
    with pytest.raises(LakemirrorError, match=r"failover|restore") as raised:
        capture(tmp_path, url)
    assert raised.value.code == "capture-position-lost"
    capture(tmp_path, url, reload=("all",))
    execute(url, "delete from t where id = 1")
    capture(tmp_path, url)
    MirroredDatabase(tmp_path, engine="local").sync()
    assert read_table(tmp_path / "Tables/shop/t").to_pylist() == [{"id": 2}]


def capture(folder: Path, url: str, **more: Any) -> None:
    """Captures everything that has happened so far."""
    Capture(Landing(folder), CaptureOptions(url, **more)).run(once=True)


FOLLOW = {
    "mariadb": ["change master to master_host='127.0.0.1', master_port={port}, master_user='root', "
                "master_use_gtid=slave_pos", "start slave"],
    "mysql": ["change replication source to source_host='127.0.0.1', source_port={port}, source_user='root', "
              "source_auto_position=1, get_source_public_key=1", "start replica"],
}  # fmt: skip
FOLLOWING = {"mariadb": ("--log-slave-updates",), "mysql": GTIDS}


@pytest.mark.full
@pytest.mark.parametrize("goes_on", [False, True], ids=["", "and-a-second-file-begins"])
def test_a_log_that_is_reset_while_it_is_followed(
    own_server: Callable[..., MariaDb], tmp_path: Path, goes_on: bool
) -> None:
    """The server says nothing: it waits at the end of the old file, and sends the second one of the new log."""
    server = own_server()
    captured = Captured(server.database(), tmp_path / "shop", tmp_path / "log")
    captured.start()
    try:
        captured.wait(lambda: "following" in captured.said())
        execute(captured.url, "insert into two (id, v) values (1, 'old')")
        captured.wait(lambda: captured.files("two") == 2)
        second = ["flush binary logs", "insert into two (id, v) values (3, 'behind')"] if goes_on else []
        execute(captured.url, server.clear_log, "insert into two (id, v) values (2, 'new')", *second)
        assert captured.process is not None
        assert captured.process.wait(60) == 3, captured.said()
    finally:
        captured.close()
    assert "capture-position-lost" in captured.said()
    captured.finish("--reload", "all")
    captured.assert_equal()
    execute(captured.url, "delete from two where id = 2")  # at a lower place than those of the old log
    captured.finish()
    captured.assert_equal()


@pytest.mark.full
def test_a_sum_agrees_at_every_cut(mariadb_server: MariaDb, tmp_path: Path) -> None:
    """Each transaction moves money from one table to another; the capture is killed meanwhile."""
    url = mariadb_server.database()
    execute(url, *(f"create table {name} (id int primary key, amount int not null)" for name in ("ours", "theirs")),
            f"insert into ours select seq, 0 from {numbers(50)}", "insert into theirs select * from ours")  # fmt: skip
    captured = CaptureProcess(url, url.rpartition("/")[2], tmp_path / "shop", tmp_path / "log")
    rng = random.Random(11)
    captured.start("--cut", "0.2")
    with connect(url) as connection, connection.cursor() as cursor:
        for number in range(400):
            amount = rng.randrange(-9, 10)
            cursor.execute("begin")
            for table, given in (("ours", amount), ("theirs", -amount)):
                cursor.execute(f"update {table} set amount = amount + {given} where id = {rng.randrange(1, 51)}")
            cursor.execute("commit")
            if number % 100 == 50:
                captured.end()
                captured.start("--cut", "0.2")
            time.sleep(0.02)
    captured.end(signal.SIGTERM)
    captured.finish("--cut", "0.2")
    cuts = [cut for cut in MirroredDatabase(captured.db, engine="local").cuts() if cut.is_complete]
    assert len(cuts) > 3, captured.said()
    for cut in cuts:
        assert len(cut.versions) == 2
        sums = []
        for table in cut.tables:
            read = QueryBuilder().register("t", DeltaTable(table.path, version=cut.versions[table.name]))
            found: Any = read.execute("select sum(amount) as s from t").read_all()
            sums.append(pa.table(found)["s"][0].as_py())
        assert sum(sums) == 0, (cut.number, sums)
