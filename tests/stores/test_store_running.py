"""An engine that runs on a store: the store goes and comes back, a pass that finds nothing costs nothing."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests import preloaded
from tests.databases import Database, parquet
from tests.fault_proxy import fault_proxy
from tests.landing import MARKER
from tests.model import ModelTable
from tests.object_stores import StoreServer, azurite, azurite_binary

from lakemirror.storage import connections
from lakemirror.storage.object_storage import ObjectStorage
from lakemirror.storage.storage import STORE


def test_an_idle_pass_lists_the_landing_zone_and_asks_for_nothing_per_table(server: StoreServer) -> None:
    with fault_proxy(server.endpoint) as proxy:
        database = Database(f"{server.bucket()}/shop", server.through(proxy.url))
        for name in ("one", "two", "three"):
            database.declare(name, ["id"])
            database.put(name, 1, {"id": [1]})
        database.sync()
        with running(database):
            for _ in range(10):  # until the first looks are over
                proxy.seen.clear()
                time.sleep(1.0)
                asked = [path.partition("/shop/")[2] for _, path, _ in proxy.seen]
                of_tables = [path for path in asked if "Tables" in path or "Files/LandingZone/" in path]
                if len(asked) > 1 and not of_tables:
                    break
        assert len(asked) > 1 and not of_tables, asked
    connections.forget_all()


@pytest.mark.parametrize(("kind", "touched"), [pytest.param("insert", 3, marks=pytest.mark.full), ("update", 5)])
def test_an_apply_of_one_small_file_takes_eight_requests_and_the_files_that_it_touches(
    server: StoreServer, monkeypatch: pytest.MonkeyPatch, kind: str, touched: int
) -> None:
    """Touched: the change file, the data file that is written, the file that is set aside; of an update also the data
    file that has the old row, and its deletion vector. One of the eight is the status."""
    monkeypatch.setattr(
        ObjectStorage, "capabilities", replace(STORE, looks_last=3600.0)
    )  # nothing comes due meanwhile, however slow the machine
    with fault_proxy(server.endpoint) as proxy:
        database = Database(f"{server.bucket()}/shop", server.through(proxy.url))
        bucket = database.address.removesuffix("/shop")
        database.declare("orders", ["id"])
        database.put("orders", 1, {"id": [1], MARKER: [0]})
        with running(database):
            asked = asked_until_quiet(proxy.seen, 0)
            for number in (2, 3):
                proxy.seen.clear()
                rows = {"id": [number if kind == "insert" else 1], MARKER: [0 if kind == "insert" else 1]}
                server.put(bucket, f"shop/Files/LandingZone/orders/{number:020}.parquet", parquet(rows))
                asked = asked_until_quiet(proxy.seen, number - 1)
        assert len(asked) <= 7 + touched, "\n".join(asked)
        assert database.bag("orders") == {(1,): 1, **({(2,): 1, (3,): 1} if kind == "insert" else {})}
    connections.forget_all()


@pytest.mark.full
def test_the_engine_goes_on_by_itself_when_the_store_is_back(server: StoreServer) -> None:
    with fault_proxy(server.endpoint) as proxy:
        database = Database(f"{server.bucket()}/shop", server.through(proxy.url))
        database.declare("orders", [])
        database.put("orders", 1, {"id": [1]})
        with running(database):
            wait_until(lambda: puts(proxy.seen, 0))
            proxy.down = True
            time.sleep(1.0)
            proxy.down = False
            database.put("orders", 2, {"id": [2]})
            wait_until(lambda: puts(proxy.seen, 1), 60.0)
        assert sorted(database.bag("orders")) == [(1,), (2,)]
    connections.forget_all()


@pytest.mark.full
def test_kills_at_random_lose_nothing(server: StoreServer) -> None:
    chance = random.Random(6)
    database = Database(f"{server.bucket()}/shop", server.options)
    model = ModelTable(["id"])
    database.declare("orders", ["id"])
    for number in range(1, 31):
        rows = {"id": [chance.randrange(20) for _ in range(5)], "v": [f"{number}-{place}" for place in range(5)]}
        markers = [chance.choice([2, 4]) for _ in range(5)]
        database.put("orders", number, {**rows, MARKER: markers})
        model.apply(rows, [(m, {"id": rows["id"][n], "v": rows["v"][n]}) for n, m in enumerate(markers)])
    environment = {**os.environ, **database.options, "LAKEMIRROR_BATCH_FILES": "2"}
    command = [sys.executable, "-m", "lakemirror.cli", "sync", database.address, "--engine", "local"]
    for _ in range(12):
        engines = [preloaded.Popen(command, env=environment, stderr=subprocess.DEVNULL) for _ in range(2)]
        time.sleep(chance.uniform(0.8, 3.0))
        for each in engines:
            each.send_signal(signal.SIGKILL)
            each.wait()
    database.sync()
    assert database.bag("orders") == model.bag()
    connections.forget_all()


@pytest.mark.full
def test_twenty_thousand_objects_are_listed_in_pages(server: StoreServer) -> None:
    # fake-gcs-server looks at every object for each put; Azurite looks at all of them every ten minutes and answers
    # nobody meanwhile
    count = {"fake-gcs-server": 3_000, "azurite": 5_000}.get(server.name, 20_000)
    if server.name == "azurite":
        with azurite(azurite_binary()) as own:
            _listed_in_pages(own, count)
    else:
        _listed_in_pages(server, count)


def _listed_in_pages(server: StoreServer, count: int) -> None:
    database = Database(f"{server.bucket()}/shop", server.options)
    database.declare("orders", [])
    storage = database.storage
    assert isinstance(storage, ObjectStorage)
    zone = "Files/LandingZone/orders"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: storage.write(f"{zone}/_ProcessedFiles/{n:020}.txt", b"x"), range(count)))
    database.write(f"orders/{1:020}.parquet", parquet({"id": [1]}))
    storage.store.requests.clear()
    assert len(storage.list("Files/LandingZone").files) == count + 2
    assert storage.store.requests["list"] <= count // 1000 + 2
    database.sync()
    assert list(database.bag("orders")) == [(1,)]
    connections.forget_all()


@contextmanager
def running(database: Database) -> Iterator[None]:
    """An engine at work in a thread, until the block ends."""
    stop = threading.Event()
    opened = database.opened(maintenance=False, verify_idle=False)
    thread = threading.Thread(target=opened.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def asked_until_quiet(seen: list[tuple[str, str, str]], version: int) -> list[str]:
    """The requests up to a commit and until no more follow, without those of each pass and those for the status."""
    asked: list[str] = []
    wait_until(lambda: puts(seen, version), 60.0)
    while True:
        time.sleep(1.5)
        found = [f"{method} {path.partition('shop/')[2]}" for method, path, _ in list(seen)]
        found = [each for each in found if not _OF_EACH_PASS.search(each)]
        if found == asked:
            return asked
        asked = found


_OF_EACH_PASS = re.compile(r"Files/LandingZone/($|&)|Files/Monitoring/|mirroring.json")


def puts(seen: list[tuple[str, str, str]], version: int) -> bool:
    return any(method == "PUT" and path.endswith(f"{version:020}.json") for method, path, _ in seen)


def wait_until(condition, patience: float = 30.0) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
