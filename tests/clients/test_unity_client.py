"""Unity Catalog's interface by its own Python client, unmodified, in an environment of its own."""

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
from tests.landing import declare, put

from lakemirror.api import MirroredDatabase
from lakemirror.service.auth.principals import Principals
from lakemirror.service.sharing.profile import write_profile

pytestmark = pytest.mark.full

CLIENT = "unitycatalog-client==0.7.0"
SCRIPT = """
import asyncio, json, sys
from unitycatalog.client import *

async def main():
    url, token, authority = sys.argv[1:]
    configuration = Configuration(host=url, access_token=token, ssl_ca_cert=authority)
    async with ApiClient(configuration, "Authorization", "Bearer " + token) as client:
        catalogs = await CatalogsApi(client).list_catalogs()
        schemas = await SchemasApi(client).list_schemas("sales")
        tables, more = [], None
        while more != "":
            page = await TablesApi(client).list_tables("sales", "shop", max_results=1, page_token=more)
            tables += [each.name for each in page.tables]
            more = page.next_page_token or ""
        table = await TablesApi(client).get_table("sales.shop:crm.people")
        refused = {}
        for name, call in {
            "create": lambda: CatalogsApi(client).create_catalog(CreateCatalog(name="new")),
            "delete": lambda: TablesApi(client).delete_table("sales.shop.orders"),
            "key": lambda: TemporaryCredentialsApi(client).generate_temporary_table_credentials(
                GenerateTemporaryTableCredential(table_id=table.table_id, operation=TableOperation.READ)),
        }.items():
            try:
                await call()
            except ApiException as error:
                refused[name] = [error.status, json.loads(error.body)["error_code"]]
        print(json.dumps({
            "catalogs": [each.name for each in catalogs.catalogs], "schemas": [each.name for each in schemas.schemas],
            "tables": tables, "columns": [[each.name, each.type_name.value, each.position] for each in table.columns],
            "kind": [table.table_type.value, table.data_source_format.value], "refused": refused,
        }))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client")
    venv.create(folder, with_pip=True)
    made = subprocess.run([str(folder / "bin/pip"), "install", "-q", CLIENT], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"{CLIENT} cannot be installed: {made.stderr[-200:]}")
    return folder / "bin/python"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    folder = root / "sales/shop"
    for table in ("orders", "items", "crm.people"):
        declare(folder, table, ["id"])
        put(folder, table, 1, {"id": [1], "name": ["a"], "__rowMarker__": [0]})
    MirroredDatabase(folder, engine="local").sync()
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


def test_the_client_lists_and_gets(root: Path, port: int, python: Path, tmp_path: Path) -> None:
    Principals(root).add("analyst", ["sales=read"])
    write_profile(Principals(root), "analyst", tmp_path / "profile", f"https://localhost:{port}", 3600)
    token = json.loads((tmp_path / "profile").read_text())["bearerToken"]
    time.sleep(1.5)  # a running service looks for new principals once a second
    url = f"https://localhost:{port}/api/2.1/unity-catalog"
    command = [str(python), "-W", "ignore", "-c", SCRIPT, url, token, str(root / ".lakemirror/tls/ca.pem")]
    ran = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), cwd=tmp_path, timeout=60)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert json.loads(ran.stdout) == {
        "catalogs": ["sales"], "schemas": ["shop", "shop:crm"], "tables": ["items", "orders"],
        "columns": [["id", "LONG", 0], ["name", "STRING", 1]], "kind": ["EXTERNAL", "DELTA"],
        "refused": {"create": [405, "UNIMPLEMENTED"], "delete": [405, "UNIMPLEMENTED"], "key": [501, "UNIMPLEMENTED"]},
    }  # fmt: skip
