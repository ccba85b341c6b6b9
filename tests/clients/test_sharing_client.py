"""Delta Sharing by its own client, unmodified, as it is installed: pandas, and its kernel for tables with vectors.

It needs an older aiohttp than the service, so it is installed into an environment of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.how_to_pages import examples
from tests.landing import declare, put

from lakemirror.api import MirroredDatabase
from lakemirror.service.auth.principals import Principals
from lakemirror.service.sharing.profile import write_profile

pytestmark = pytest.mark.full

CLIENT = "delta-sharing==1.4.2"
MORE = """
import json
def rows(frame):
    return sorted(json.loads(frame.to_json(orient="values")))
url = "analyst.share#sales.shop."
print(json.dumps({
    "tables": sorted(f"{table.share}.{table.schema}.{table.name}" for table in tables),
    "orders": rows(orders[["id", "name"]]),
    "first": rows(first[["id", "name"]]),
    "plain": rows(delta_sharing.load_as_pandas(url + "plain")[["id", "name"]]),
    "limit": len(delta_sharing.load_as_pandas(url + "plain", limit=3)),
    "schema": rows(delta_sharing.load_as_pandas("analyst.share#sales.shop:crm.people")[["id", "name"]]),
    "changes": rows(delta_sharing.load_table_changes_as_pandas(
        "analyst.share#sales.fed.fed", starting_version=1, use_delta_format=True)[["id", "_change_type"]]),
}))
"""
"""Runs after the example of the page."""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client")
    venv.create(folder, with_pip=True)
    made = subprocess.run(
        [str(folder / "bin/pip"), "install", "-q", CLIENT, "pandas<3"], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"{CLIENT} cannot be installed: {made.stderr[-200:]}")
    return folder / "bin/python"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    for database, table, settings in (
        ("shop", "orders", {}), ("shop", "plain", {"deletion_vectors": False}), ("shop", "crm.people", {}),
        ("fed", "fed", {"change_data_feed": True}),
    ):  # fmt: skip
        folder = root / "sales" / database
        declare(folder, table, ["id"])
        put(folder, table, 1, {"id": list(range(9)), "name": [f"n{i}" for i in range(9)], "__rowMarker__": [0] * 9})
        MirroredDatabase(folder, engine="local", **settings).sync()
        put(folder, table, 2, {"id": [1, 2, 9], "name": ["x", "", "new"], "__rowMarker__": [4, 2, 4]})
        MirroredDatabase(folder, engine="local", **settings).sync()
    return root


@pytest.fixture(scope="module")
def port(root: Path) -> Iterator[int]:
    command = [sys.executable, "-m", "lakemirror.cli", "serve", str(root), "--port", "0"]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert service.stdout is not None
        line = next(each for each in service.stdout if each.startswith("serving"))
        yield int(line.split(" at ")[1].split()[0].rpartition(":")[2])
    finally:
        service.terminate()
        service.wait(60)


def test_the_page_works_and_the_client_reads_what_was_mirrored(
    root: Path, port: int, python: Path, tmp_path: Path
) -> None:
    Principals(root).add("analyst", ["sales=read"])
    write_profile(Principals(root), "analyst", tmp_path / "analyst.share", f"https://localhost:{port}", 3600)
    authority = str(root / ".lakemirror/tls/ca.pem")
    environment = {**os.environ, "SSL_CERT_FILE": authority, "REQUESTS_CA_BUNDLE": authority}
    time.sleep(1.5)  # a running service looks for new principals once a second
    (example,) = examples("how-to/share-tables")
    command = [str(python), "-W", "ignore", "-c", example.code + MORE]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=150)
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    now = [[0, "n0"], [1, "x"], *([i, f"n{i}"] for i in range(3, 9)), [9, "new"]]
    assert found["tables"] == ["sales.fed.fed", "sales.shop.crm.people", "sales.shop.orders", "sales.shop.plain"]
    assert found["orders"] == found["plain"] == found["schema"] == now
    assert found["first"] == [[i, f"n{i}"] for i in range(9)]
    assert found["limit"] == 3
    assert found["changes"] == [[1, "update_postimage"], [1, "update_preimage"], [2, "delete"], [9, "insert"]]
