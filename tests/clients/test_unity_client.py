"""Unity Catalog's interface, and tables read with its temporary credentials, by clients as they are on PyPI, in an
environment of their own."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

import pytest
from tests import unity_server
from tests.free_ports import free_port
from tests.landing import declare, put

from lakemirror.api import MirroredDatabase
from lakemirror.readers.catalog_of_unity import CONNECTOR
from lakemirror.service.auth.principals import Issued, Principals

pytestmark = pytest.mark.full

CLIENT = "unitycatalog-client==0.7.0"
READERS = (
    "deltalake==1.6.6", "pyarrow", "duckdb==1.5.5",
    *(f"duckdb-extension-{name}==1.5.5" for name in ("azure", "delta", "httpfs")),
)  # fmt: skip
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
        key = await TemporaryCredentialsApi(client).generate_temporary_table_credentials(
            GenerateTemporaryTableCredential(table_id=table.table_id, operation=TableOperation.READ))
        refused = {}
        for name, call in {
            "create": lambda: CatalogsApi(client).create_catalog(CreateCatalog(name="new")),
            "delete": lambda: TablesApi(client).delete_table("sales.shop.orders"),
            "key": lambda: TemporaryCredentialsApi(client).generate_temporary_table_credentials(
                GenerateTemporaryTableCredential(table_id=table.table_id, operation=TableOperation.READ_WRITE)),
        }.items():
            try:
                await call()
            except ApiException as error:
                refused[name] = [error.status, json.loads(error.body)["error_code"]]
        print(json.dumps({
            "catalogs": [each.name for each in catalogs.catalogs], "schemas": [each.name for each in schemas.schemas],
            "tables": tables, "columns": [[each.name, each.type_name.value, each.position] for each in table.columns],
            "kind": [table.table_type.value, table.data_source_format.value], "refused": refused,
            "place": table.storage_location, "sas": key.azure_user_delegation_sas.sas_token, "end": key.expiration_time,
        }))

asyncio.run(main())
"""


READ = """
import importlib, json, sys
from pathlib import Path
import duckdb
from deltalake import DeltaTable

url, place, sas, authority = sys.argv[1:]
options = {"azure_endpoint": url, "azure_storage_account_name": "onelake", "sas_token": sas}
table = DeltaTable(place, storage_options=options)
found = {"delta-rs": [table.version(), sorted(table.to_pyarrow_table().to_pydict()["id"])]}
for name, act in {
    "write": lambda: table.delete("id = 1"),
    "other": lambda: DeltaTable(place.replace("people", "secrets"), storage_options=options),
}.items():
    try:
        act()
    except Exception as error:
        found[name] = "403" in str(error)
session = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for name in ("httpfs", "azure", "delta"):
    folder = Path(importlib.import_module(f"duckdb_extension_{name}").__file__).parent
    session.execute(f"load '{next(folder.rglob('*.duckdb_extension'))}'")
session.execute("set azure_transport_option_type = 'curl'")
connection = f"BlobEndpoint={url};AccountName=onelake;SharedAccessSignature={sas}"
session.execute(f"create secret (type azure, connection_string '{connection}')")
found["duckdb"] = session.execute(f"select id, name from delta_scan('{place}') order by id").fetchall()
print(json.dumps(found))
"""
REGISTERED = """
import asyncio, json, sys
from unitycatalog.client import *

async def main():
    async with ApiClient(Configuration(host=sys.argv[1])) as client:
        table = await TablesApi(client).get_table("unity.shop.orders")
        print(json.dumps([table.storage_location, [[each.name, each.type_name.value] for each in table.columns]]))

asyncio.run(main())
"""
BY_SPARK = """
import json, sys
from lakemirror import MirroredDatabase
from lakemirror.spark_session.session import start

folder, options = sys.argv[1], sys.argv[2:]
database = MirroredDatabase(folder, spark=options)
spark = start(database.settings, delta=True)
done = database.register(spark, "shop", "unity")
rows = spark.sql("SELECT id, name FROM unity.shop.orders ORDER BY id").collect()
print(json.dumps([done.created, done.changed, sorted(done.names), [list(row) for row in rows]]))
"""


def environment(folder: Path, *packages: str) -> Path:
    """The Python of a new environment with these packages. Skips where they cannot be had."""
    venv.create(folder, with_pip=True)
    made = subprocess.run([str(folder / "bin/pip"), "install", "-q", *packages], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"{packages} cannot be installed: {made.stderr[-200:]}")
    return folder / "bin/python"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("client"), CLIENT)


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("readers"), *READERS)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    folder = root / "sales/shop"
    for table in ("orders", "items", "crm.people", "crm.secrets"):
        declare(folder, table, ["id"])
        put(folder, table, 1, {"id": [1, 2], "name": ["a", "b"], "__rowMarker__": [0, 0]})
    MirroredDatabase(folder, engine="local", deletion_vectors=False).sync()
    return root


@contextmanager
def served(root: Path, *options: str) -> Iterator[str]:
    """The address of a service in a process of its own."""
    command = [sys.executable, "-m", "lakemirror.cli", "serve", str(root), "--port", "0", *options]
    service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert service.stdout is not None
        line = next(each for each in service.stdout if each.startswith("serving"))
        yield line.split(" at ")[1].split()[0].replace("127.0.0.1", "localhost")
    finally:
        service.terminate()
        service.wait(60)


def ran(python: Path, script: str, *words: str, **variables: str) -> Any:
    """What a script prints, as JSON."""
    command = [str(python), "-W", "ignore", "-c", script, *words]
    found = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables}, timeout=170)
    assert found.returncode == 0, found.stderr[-2000:]
    return json.loads(found.stdout)


def token_of(url: str, issued: Issued, authority: Path | None) -> str:
    context = None if authority is None else ssl.create_default_context(cafile=str(authority))
    form = {
        "grant_type": "client_credentials", "client_id": issued.principal.client_id,
        "client_secret": issued.client_secret, "scope": "https://storage.azure.com/.default",
    }  # fmt: skip
    with urlopen(f"{url}/common/oauth2/v2.0/token", urlencode(form).encode(), context=context) as answer:
        return str(json.load(answer)["access_token"])


def test_clients_list_and_get_and_read_with_the_credentials(root: Path, python: Path, readers: Path) -> None:
    authority = root / ".lakemirror/tls/ca.pem"
    issued = Principals(root).add("analyst", ["sales=read"])
    with served(root) as url:
        token = token_of(url, issued, authority)
        found = ran(python, SCRIPT, f"{url}/api/2.1/unity-catalog", token, str(authority))
        place, sas, end = (found.pop(name) for name in ("place", "sas", "end"))
        assert found == {
            "catalogs": ["sales"], "schemas": ["shop", "shop:crm"], "tables": ["items", "orders"],
            "columns": [["id", "LONG", 0], ["name", "STRING", 1]], "kind": ["EXTERNAL", "DELTA"],
            "refused": {
                "create": [405, "UNIMPLEMENTED"], "delete": [405, "UNIMPLEMENTED"], "key": [403, "PERMISSION_DENIED"],
            },
        }  # fmt: skip
        assert 0 < end / 1000 - time.time() <= 3600
        location = urlsplit(place)
        address = f"az://{location.username}{location.path}"
        trusted = dict.fromkeys(("SSL_CERT_FILE", "CURL_CA_INFO"), str(authority))
        assert ran(readers, READ, url, address, sas, str(authority), **trusted) == {
            "delta-rs": [0, [1, 2]], "write": True, "other": True, "duckdb": [[1, "a"], [2, "b"]],
        }  # fmt: skip


@pytest.fixture(scope="module")
def registered(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real server that has entries of the database."""
    port = free_port()
    with unity_server.real(tmp_path_factory.mktemp("server"), port) as url:
        catalog = Request(
            f"{url}{unity_server.API}/catalogs", b'{"name": "unity"}', {"Content-Type": "application/json"}
        )
        urlopen(catalog).close()
        done = MirroredDatabase(root / "sales/shop", spark=connector(url)).register(None, "shop", "unity")
        assert len(done.created) == 4 and not done.failed
        yield url


def connector(url: str) -> list[str]:
    key = "spark.sql.catalog.unity"
    return [f"{key}={CONNECTOR}", f"{key}.uri={url}", f"{key}.token=none"]


def test_the_client_finds_what_was_registered(root: Path, python: Path, registered: str) -> None:
    place, columns = ran(python, REGISTERED, f"{registered}{unity_server.API}")
    assert place == f"file://{root}/sales/shop/Tables/orders"
    assert columns == [["id", "LONG"], ["name", "STRING"]]


def test_spark_reads_what_was_registered(root: Path, registered: str) -> None:
    jars = os.environ.get("UNITY_SPARK_JARS")
    if not jars:
        pytest.skip("UNITY_SPARK_JARS does not name unitycatalog-spark and what it needs, with commas")
    path = f"spark.driver.extraClassPath={jars.replace(',', os.pathsep)}"  # Delta's classes there look for the client's
    found = ran(Path(sys.executable), BY_SPARK, str(root / "sales/shop"), *connector(registered), path)
    tables = ["crm.people", "crm.secrets", "items", "orders"]
    assert found == [[], [], tables, [[1, "a"], [2, "b"]]]
