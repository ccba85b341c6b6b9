"""The publisher library in a bucket: numbers without gaps and without losses, whoever else publishes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.databases import Database
from tests.fault_proxy import ERROR, LOST, fault_proxy
from tests.object_stores import StoreServer

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing
from lakemirror.storage import connections


@pytest.fixture
def database(server: StoreServer) -> Iterator[Database]:
    yield Database(f"{server.bucket()}/shop", server.options)
    connections.forget_all()


def landing(database: Database) -> Landing:
    return Landing(database.address, storage_options=database.options)


def test_rows_are_published_and_applied(database: Database) -> None:
    orders = landing(database).table("orders", keys=["id"])
    assert orders.load([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]).number == 1
    orders.upsert([{"id": 2, "v": "B"}])
    orders.delete([{"id": 1}])
    database.sync()
    assert dict(database.bag("orders")) == {(2, "B"): 1}
    published = landing(database).table("orders").insert([{"id": 9, "v": "z"}])
    assert published is not None and published.number == 4  # applied files count, too
    with pytest.raises(LakemirrorError, match="taken"):
        orders.insert([{"id": 5, "v": "x"}], number=2)
    database.sync()
    assert dict(database.bag("orders")) == {(2, "B"): 1, (9, "z"): 1}
    assert not database.files("Files/_publishing")


@pytest.mark.full
def test_snapshots_give_differences(database: Database) -> None:
    table = landing(database).table("orders", keys=["id"])
    table.publish_snapshot([{"id": n, "v": "a"} for n in range(50)])
    database.sync()
    again = landing(database).table("orders", keys=["id"])
    again.publish_snapshot([{"id": n, "v": "a" if n else "changed"} for n in range(49)])
    database.sync()
    bag = database.bag("orders")
    assert sum(bag.values()) == 49 and bag[(0, "changed")] == 1


@pytest.mark.full
def test_racing_publishers_never_take_one_number(database: Database) -> None:
    tables = [landing(database).table("log") for _ in range(4)]
    start = threading.Barrier(4)

    def publish(table: Any, who: int) -> None:
        start.wait()
        for turn in range(5):
            table.insert([{"who": who, "turn": turn}])

    threads = [threading.Thread(target=publish, args=(table, who)) for who, table in enumerate(tables)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    database.sync()
    assert sorted(database.bag("log")) == [(who, turn) for who in range(4) for turn in range(5)]


def test_a_table_starts_again(database: Database) -> None:
    orders = landing(database).table("orders", keys=["id"])
    orders.load([{"id": 1, "v": "a"}])
    database.sync()
    orders.recreate()
    orders.load([{"id": 7, "v": "z"}])
    database.sync()
    assert dict(database.bag("orders")) == {(7, "z"): 1}


@pytest.mark.full
def test_answers_that_are_lost_publish_no_row_twice(server: StoreServer) -> None:
    with fault_proxy(server.endpoint) as proxy:
        database = Database(f"{server.bucket()}/shop", server.through(proxy.url))
        table = landing(database).table("log")
        calls = 0

        def fault(method: str, _: str) -> str:
            nonlocal calls
            calls += 1
            return (LOST, "", ERROR)[calls % 3] if method in ("PUT", "POST") else ""

        for number in range(4):
            proxy.fault = fault
            table.insert([{"n": number}])
            proxy.fault = lambda *_: ""
        database.sync()
        assert sorted(database.bag("log")) == [(0,), (1,), (2,), (3,)]
    connections.forget_all()


@pytest.mark.full
def test_the_command_publishes_into_a_bucket(database: Database, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("id,v\n1,a\n2,b\n")
    done = subprocess.run(
        [sys.executable, "-m", "lakemirror.cli", "publish", database.address, "orders", "--from",
         str(tmp_path / "orders.csv"), "--keys", "id", "--create"],
        env={**os.environ, **database.options}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    database.sync()
    assert sum(database.bag("orders").values()) == 2


def test_a_cut_is_declared_and_reached(database: Database) -> None:
    """Also a truncated table, whose file has the number of an earlier one."""
    bank = landing(database)
    a, b = bank.table("a", keys=["id"]), bank.table("b", keys=["id"], schema="s")
    for number in range(3):
        a.upsert([{"id": 1, "v": number}])
        b.upsert([{"id": 1, "v": -number}])
        bank.cut()
    a.upsert([{"id": 1, "v": 9}])
    database.sync()
    b.recreate()
    b.load([{"id": 1, "v": 7}])
    bank.cut(["s.b"])
    found = list(database.opened().cuts())
    assert [cut.is_complete for cut in found] == [False, True, True, True]
    assert found[1].versions == {"a": 2, "s.b": 2} and found[3].versions == {"a": 0, "s.b": 0}
    database.sync()
    assert database.opened().cut().versions == {"s.b": 3}
    assert database.opened().cut(1).versions == {"a": 0, "s.b": 0}
