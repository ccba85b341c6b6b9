"""A service whose own files are in the store that it serves: another machine, with nothing, goes on where one died."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from tests import preloaded
from tests.databases import Database, parquet
from tests.object_stores import StoreServer
from tests.service_process import ServiceProcess

from lakemirror.service.auth.principals import Issued, Principals
from lakemirror.storage import connections, place
from lakemirror.storage.connections import give_options

ZONE = "/sales/shop/Files/LandingZone/orders"
FILE = f"{ZONE}/00000000000000000002.parquet"


@pytest.fixture
def machines(tmp_path: Path, server: StoreServer) -> Iterator[list[ServiceProcess]]:
    """Two machines for one prefix, each with an empty cache; none runs."""
    address = f"{server.bucket()}/lake"
    give_options(address, server.options)
    give_options("", server.options)
    made = []
    for name in ("here", "there"):
        environment = {
            **os.environ, **server.options, "LAKEMIRROR_ENGINE": "local",
            "LAKEMIRROR_CACHE_DIR": str(tmp_path / name / "cache"), "LAKEMIRROR_FAILPOINT": "",
        }  # fmt: skip
        made.append(ServiceProcess(
            tmp_path / name, tmp_path / f"{name}.log", environment=environment, address=address, in_store=True
        ))  # fmt: skip
    yield made
    for each in made:
        each.close()
    connections.forget_all()


def until_status(machine: ServiceProcess, caller: Issued, status: int) -> None:
    end = time.monotonic() + 20
    while machine.ask(caller, "GET", "/v1/workspaces").status != status:
        assert time.monotonic() < end
        time.sleep(0.2)


def test_another_machine_goes_on_with_everything(machines: list[ServiceProcess], server: StoreServer) -> None:
    here, there = machines
    boss, writer = here.principal("boss", "*=contribute"), here.principal("writer", "sales=contribute")
    here.start()
    shop = here.database(writer, "shop")
    blob = {"x_ms_blob_type": "BlockBlob"}
    assert here.send(writer, "PUT", f"{ZONE}/_metadata.json", b'{"keyColumns": ["id"]}', **blob).status == 201
    rows = parquet({"id": [1, 2], "name": ["a", "b"]})
    assert here.send(writer, "PUT", f"{ZONE}/00000000000000000001.parquet", rows, **blob).status == 201
    database = Database(f"{here.address}/sales/shop", server.options)
    database.until_rows("orders", ["id", "name"], {(1, "a"), (2, "b")})

    late = parquet({"id": [2, 3], "name": ["B", "c"], "__rowMarker__": [1, 0]})
    assert here.send(writer, "PUT", f"{FILE}?resource=file").status == 201
    assert here.send(writer, "PATCH", f"{FILE}?action=append&position=100", late[100:]).status == 202
    assert here.send(writer, "PATCH", f"{FILE}?action=append&position=0", late[:100]).status == 202
    for block, data in (("MQ==", b"one "), ("Mg==", b"two")):
        assert here.send(writer, "PUT", f"/sales/shop/Files/x?comp=block&blockid={quote(block)}", data).status == 201
    table = "/delta-sharing/shares/sales/schemas/shop/tables/orders"
    shared = here.ask(writer, "POST", f"{table}/query", {}).body.splitlines()
    link = next(json.loads(line)["file"]["url"] for line in shared if b'"file"' in line)
    assert here.ask(boss, "POST", "/v1/workspaces", {"displayName": "stock"}).status == 201
    assert here.ask(boss, "PATCH", "/v1/workspaces/stock", {"displayName": "goods"}).status == 200
    here.end(signal.SIGKILL)

    there._tokens = here._tokens
    there.start()
    assert there.ask(writer, "GET", shop).json["displayName"] == "shop"
    names = [each["displayName"] for each in there.ask(boss, "GET", "/v1/workspaces").json["value"]]
    assert names == ["goods", "sales"]
    file = urlsplit(link)
    assert there._send("GET", f"{file.path}?{file.query}", None, {}).body[:4] == b"PAR1"
    assert there.send(writer, "HEAD", FILE).status == 200
    assert there.send(writer, "PATCH", f"{FILE}?action=flush&position={len(late)}").status == 200
    database.until_rows("orders", ["id", "name"], {(1, "a"), (2, "B"), (3, "c")})
    listed = b"<BlockList><Latest>MQ==</Latest><Latest>Mg==</Latest></BlockList>"
    assert there.send(writer, "PUT", "/sales/shop/Files/x?comp=blocklist", listed).status == 201
    assert there.send(writer, "GET", "/sales/shop/Files/x").body == b"one two"

    Principals(place(there.address), "store").remove("boss")  # on any machine
    until_status(there, boss, 401)
    with pytest.raises(AssertionError, match="root-in-use"):
        here.start()
    assert there.ask(writer, "GET", shop).status == 200
    assert there.end(signal.SIGTERM) == 0
    words = [sys.executable, "-m", "lakemirror.cli", "access", "--state", "store", here.address, "audit"]
    told = preloaded.run(words, env=here.environment, capture_output=True, text=True, check=True)
    operations = [json.loads(line)["operation"] for line in told.stdout.splitlines()]
    done = {"CreateFile", "Append", "PutBlock", "CreateWorkspace", "UpdateWorkspace", "Flush", "PutBlockList"}
    assert done <= set(operations), operations
