"""The service of a prefix of a bucket: databases over REST, files published, tables read, kills, other machines."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.databases import Database, parquet
from tests.object_stores import StoreServer
from tests.service_process import ServiceProcess

from lakemirror.service.auth.principals import Issued
from lakemirror.storage import connections
from lakemirror.storage.connections import give_options

ZONE = "Files/LandingZone/orders"


class Machine:
    """A machine that serves a bucket: its own state folder, one principal."""

    def __init__(self, folder: Path, server: StoreServer, address: str) -> None:
        environment = {**os.environ, **server.options, "LAKEMIRROR_ENGINE": "local"}
        self.service = ServiceProcess(folder / "state", folder / "log", environment=environment, address=address)
        self.issued: Issued = self.service.principal("shop", "sales=contribute")

    def publish(self, number: int, rows: dict[str, Any]) -> None:
        at = f"/sales/shop/{ZONE}/{number:020}.parquet"
        self.put(at, parquet(rows))

    def put(self, path: str, data: bytes) -> None:
        answer = self.service.send(self.issued, "PUT", path, data, x_ms_blob_type="BlockBlob")
        assert answer.status == 201, answer.body

    def read(self, path: str) -> bytes:
        answer = self.service.send(self.issued, "GET", f"/sales/shop/{path}")
        assert answer.status == 200, answer.body
        return answer.body


@pytest.fixture
def machines(tmp_path: Path, server: StoreServer) -> Iterator[list[Machine]]:
    """Two machines for one prefix; none runs."""
    address = f"{server.bucket()}/lake"
    give_options(address, server.options)
    give_options("", server.options)
    made = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        made.append(Machine(tmp_path / name, server, address))
    yield made
    for each in made:
        each.service.close()
    connections.forget_all()


@pytest.mark.full  # tests/stores/test_state_in_store.py does the same with the state in the store
def test_a_bucket_is_served_and_another_machine_goes_on_after_a_kill(
    machines: list[Machine], server: StoreServer
) -> None:
    here, there = machines
    here.service.start()
    address = here.service.database(here.issued, "shop")
    here.put(f"/sales/shop/{ZONE}/_metadata.json", b'{"keyColumns": ["id"]}')
    here.publish(1, {"id": [1, 2], "name": ["a", "b"]})
    database = Database(f"{here.service.address}/sales/shop", server.options)
    database.until_rows("orders", ["id", "name"], {(1, "a"), (2, "b")})
    assert here.read("Tables/orders/_delta_log/00000000000000000000.json")
    here.service.end(signal.SIGKILL)

    there.service.start()
    assert there.service.ask(there.issued, "GET", address).json["displayName"] == "shop"
    there.publish(2, {"id": [2, 3], "name": ["B", "c"], "__rowMarker__": [1, 0]})
    database.until_rows("orders", ["id", "name"], {(1, "a"), (2, "B"), (3, "c")})
    tables: list[str] = []
    end = time.monotonic() + 30
    while not tables:  # the status is written after the rows
        assert time.monotonic() < end
        status = there.service.ask(there.issued, "POST", f"{address}/getTablesMirroringStatus").json
        tables = [each["sourceTableName"] for each in status["data"]]
    assert tables == ["orders"]
    assert there.service.end(signal.SIGTERM) == 0
