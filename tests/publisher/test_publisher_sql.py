"""Queries as snapshots and by watermark, against a real SQLite; and against PostgreSQL where it is installed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from published_contents import change_files, changes, fold

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing, LandingTable
from lakemirror.publisher.sql import publish_sql

pytestmark = pytest.mark.usefixtures("door")

FORK = multiprocessing.get_context("fork")
QUERY = "select * from orders;"


class Shop:
    """A database of orders, and the table that it is published to."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "shop.db"
        self.url = f"sqlite:///{self.file}"
        self.connection = sqlite3.connect(self.file, isolation_level=None)
        self.run("create table orders (id integer primary key, item text, price real, changed integer)")
        self.table: LandingTable = Landing(folder).table("orders", ["id"])

    def run(self, statement: str, *values: Any) -> None:
        self.connection.execute(statement, values)

    def put(self, id: int, item: str | None, price: float, changed: int) -> None:
        self.run("insert or replace into orders values (?, ?, ?, ?)", id, item, price, changed)

    def rows(self) -> list[dict[str, Any]]:
        found = self.connection.execute("select * from orders order by id")
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]

    def mirrored(self) -> list[dict[str, Any]]:
        return sorted(fold(changes(self.table.folder), ["id"]), key=lambda row: row["id"])


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.connection.close()


def test_a_snapshot_finds_deletes_too(shop: Shop) -> None:
    shop.put(1, "tea", 1.5, 1)
    shop.put(2, None, 2, 1)
    publish_sql(shop.table, shop.url, QUERY)
    shop.run("delete from orders where id = 1")
    shop.put(3, "cup", 3, 2)
    published = publish_sql(shop.table, shop.url, QUERY)
    assert published is not None and published.rows == 2
    assert shop.mirrored() == shop.rows()
    assert publish_sql(shop.table, shop.url, QUERY) is None


def test_without_keys_all_rows_are_inserted_each_time(shop: Shop, tmp_path: Path) -> None:
    shop.put(1, "tea", 1.5, 1)
    log = Landing(tmp_path).table("log")
    for _ in range(2):
        publish_sql(log, shop.url, QUERY)
    assert [marker for marker, _ in changes(log.folder)] == [0, 0]


def test_a_mode_of_its_own(shop: Shop) -> None:
    shop.put(1, "tea", 1.5, 1)
    publish_sql(shop.table, shop.url, QUERY, "upsert")
    publish_sql(shop.table, shop.url, "select id from orders", "delete")
    assert [marker for marker, _ in changes(shop.table.folder)] == [4, 2]


def test_a_watermark_picks_up_what_is_new(shop: Shop) -> None:
    def publish() -> int:
        published = publish_sql(shop.table, shop.url, QUERY, watermark="changed")
        assert shop.mirrored() == shop.rows()
        return published.rows if published else 0

    shop.put(1, "tea", 1.5, 10)
    shop.put(2, "cup", 2, 20)
    assert publish() == 2
    assert pq.read_schema(change_files(shop.table.folder)[1]).names[-1] == "changed"  # a load, without markers
    assert publish() == 0
    shop.put(1, "green tea", 2, 30)
    assert publish() == 1
    shop.put(3, None, 3, 30)  # shares the value of the last row that was seen
    assert publish() == 1
    shop.put(3, "pot", 3, 30)  # the same row again, changed within the same value
    assert publish() == 1
    assert publish() == 0
    shop.put(4, None, 4, 31)
    shop.put(5, None, 4, 32)
    assert publish() == 2
    assert len(change_files(shop.table.folder)) == 5


def test_a_watermark_of_text(shop: Shop) -> None:
    shop.run("create view texts as select id, item, printf('2026-01-01 00:00:%02d', changed) as at from orders")
    for number in range(3):
        shop.put(number, "tea", 1, number)
        published = publish_sql(shop.table, shop.url, "select * from texts", watermark="at")
        assert published is not None and published.rows == 1
    assert publish_sql(shop.table, shop.url, "select * from texts", watermark="at") is None


def test_another_query_begins_anew(shop: Shop) -> None:
    shop.put(1, "tea", 1.5, 10)
    publish_sql(shop.table, shop.url, QUERY, watermark="changed")
    published = publish_sql(shop.table, shop.url, "select * from orders where id > 0", watermark="changed")
    assert published is not None and published.rows == 1
    assert shop.mirrored() == shop.rows()


def test_nothing_to_begin_with(shop: Shop) -> None:
    published = publish_sql(shop.table, shop.url, QUERY, watermark="changed")
    assert published is not None and published.rows == 0
    shop.put(1, "tea", 1.5, 10)
    publish_sql(shop.table, shop.url, QUERY, watermark="changed")
    assert [row["id"] for row in shop.mirrored()] == [1]


def test_killed_between_file_and_watermark(shop: Shop) -> None:
    shop.put(1, "tea", 1.5, 10)
    publish_sql(shop.table, shop.url, QUERY, watermark="changed")
    shop.put(2, "cup", 2, 20)
    shop.connection.close()  # a connection must not be carried into another process

    def publish_and_die() -> None:
        os.environ["LAKEMIRROR_FAILPOINT"] = "watermark.before-state"
        publish_sql(shop.table, shop.url, QUERY, watermark="changed")

    process = FORK.Process(target=publish_and_die)
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    shop.connection = sqlite3.connect(shop.file, isolation_level=None)
    shop.put(3, "pot", 3, 30)
    publish_sql(shop.table, shop.url, QUERY, watermark="changed")
    assert shop.mirrored() == shop.rows()
    assert publish_sql(shop.table, shop.url, QUERY, watermark="changed") is None


def test_a_watermark_needs_keys_and_its_column(shop: Shop, tmp_path: Path) -> None:
    shop.put(1, "tea", 1.5, 10)
    for table, column, code in (
        (Landing(tmp_path).table("log"), "changed", "key-columns-missing"),
        (shop.table, "nope", "input-invalid"),
    ):
        with pytest.raises(LakemirrorError) as caught:
            publish_sql(table, shop.url, QUERY, watermark=column)
        assert caught.value.code == code
    assert not list(shop.table.folder.glob("*.parquet"))


@pytest.mark.parametrize("query", ["select * from nope", "select", ""])
def test_what_the_database_refuses(shop: Shop, query: str) -> None:
    with pytest.raises(LakemirrorError) as caught:
        publish_sql(shop.table, shop.url, query)
    assert caught.value.code == "sql-failed"
    assert not list(shop.table.folder.glob("*.parquet"))


def test_a_kind_of_value_that_appears_late(shop: Shop) -> None:
    shop.run("create table mixed (id integer primary key, v integer)")
    shop.run("begin")
    shop.connection.executemany("insert into mixed values (?, ?)", [(number, number) for number in range(70_000)])
    shop.run("insert into mixed values (70000, 'text')")
    shop.run("commit")
    with pytest.raises(LakemirrorError) as caught:
        publish_sql(shop.table, shop.url, "select * from mixed")
    assert (caught.value.code, caught.value.row, caught.value.column) == ("value-invalid", 70_001, "v")
    assert not list(shop.table.folder.glob("*.parquet"))
    shop.run("delete from mixed where v = 'text'")
    published = publish_sql(shop.table, shop.url, "select * from mixed")
    assert published is not None and published.rows == 70_000


@pytest.mark.parametrize("url", ["", "shop.db", "mysql://host/db", "sqlite:///no/such/file.db"])
def test_urls_that_lead_nowhere(tmp_path: Path, url: str) -> None:
    with pytest.raises(LakemirrorError) as caught:
        publish_sql(Landing(tmp_path).table("t", ["id"]), url, "select 1")
    assert caught.value.code == "input-invalid"


def test_without_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("adbc_driver_postgresql", "adbc_driver_postgresql.dbapi"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(LakemirrorError) as caught:
        publish_sql(Landing(tmp_path).table("t", ["id"]), "postgresql://localhost/db", "select 1")
    assert caught.value.code == "sql-driver-missing"


@pytest.mark.full
def test_postgresql(postgres: str, tmp_path: Path) -> None:
    import adbc_driver_postgresql.dbapi

    connection = adbc_driver_postgresql.dbapi.connect(postgres, autocommit=True)

    def run(statement: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement)

    run("drop table if exists orders")  # of the other door
    run(
        "create table orders (id int primary key, item text, price numeric(10,2), day date, paid boolean, "
        "tags text[], changed timestamptz not null)"
    )
    run(
        "insert into orders select n, 'item ' || n, n / 4.0, date '2026-01-01' + n, n % 2 = 0, array['a', 'b'], "
        "timestamptz '2026-01-01 00:00:00+00' + n * interval '1 second' from generate_series(1, 1000) n"
    )
    query = "select id, item, price::float8 as price, day, paid, tags, changed from orders"
    by_mark = Landing(tmp_path).table("by_mark", ["id"])
    whole = Landing(tmp_path).table("whole", ["id"])

    def publish() -> tuple[int, int]:
        counts = []
        for table, watermark in ((by_mark, "changed"), (whole, None)):
            published = publish_sql(table, postgres, query, watermark=watermark)
            counts.append(published.rows if published else 0)
        return counts[0], counts[1]

    with pytest.warns(UserWarning, match="JSON string"):
        assert publish() == (1000, 1000)
    assert publish() == (0, 0)
    run("update orders set item = 'changed', changed = '2026-02-01 00:00:00+00' where id <= 3")
    run("insert into orders values (2000, null, null, null, null, null, '2026-02-01 00:00:00+00')")
    run("delete from orders where id = 500")
    assert publish() == (4, 5)
    run("update orders set item = 'again', changed = '2026-02-01 00:00:00+00' where id = 7")
    assert publish() == (1, 1)
    with connection.cursor() as cursor:
        cursor.execute("select id, item, paid from orders order by id")
        expected = [tuple(row) for row in cursor.fetchall()]
    connection.close()
    rows = sorted(fold(changes(whole.folder), ["id"]), key=lambda row: row["id"])
    assert [(row["id"], row["item"], row["paid"]) for row in rows] == expected
    assert {row["id"] for row in fold(changes(by_mark.folder), ["id"])} == {row[0] for row in expected} | {500}
    with pytest.raises(LakemirrorError, match="sql-failed"):
        publish_sql(whole, postgres, "select * from nope")


@pytest.mark.full
def test_postgresql_that_does_not_answer(tmp_path: Path) -> None:
    pytest.importorskip("adbc_driver_postgresql")
    with pytest.raises(LakemirrorError) as caught:
        publish_sql(Landing(tmp_path).table("t", ["id"]), "postgresql://shop@127.0.0.1:1/postgres", "select 1")
    assert (caught.value.code, caught.value.retry) == ("sql-failed", True)


def test_a_name_that_is_there_twice(tmp_path: Path) -> None:
    """SQLite calls the second one id:1, as a column of a view."""
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute('create table t (id integer, "id:1" integer)')
        connection.execute("insert into t values (1, 2)")
    connection.close()
    table = Landing(tmp_path).table("t", ["id"])
    with pytest.raises(LakemirrorError) as caught:
        publish_sql(table, f"sqlite:///{tmp_path}/s.db", "select id, id from t")
    assert (caught.value.code, caught.value.column) == ("columns-ambiguous", "id")
    published = publish_sql(table, f"sqlite:///{tmp_path}/s.db", "select * from t")
    assert published is not None and pq.read_schema(table.folder / published.path.name).names[:2] == ["id", "id:1"]
