"""The vendor's tutorial, followed literally; only address, authority and CA are changed (contract cases 44 to 46).

A mirrored database is made and started by REST; a table folder with its keys, an initial file and a file of changes
are uploaded: with the vendor's Python SDK, with its JavaScript SDKs, with curl, and as the MongoDB partner's program
does it over plain HTTP. What is not given is skipped, aloud:

`LAKEMIRROR_OPEN_MIRRORING_SDK`: the vendor's `openmirroring_operations.py` (microsoft/fabric-toolbox).
`LAKEMIRROR_JS_CLIENTS`: a folder in which `npm install @azure/storage-file-datalake @azure/identity` was run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("aiohttp", reason="the extra `service` is not installed")
sys.path.insert(0, str(Path(__file__).parents[1] / "service"))

from running_service import Running, until

from lakemirror.delta.log import read_snapshot
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.target import target_of
from lakemirror.service.auth.principals import Issued, Principals

SDK = os.environ.get("LAKEMIRROR_OPEN_MIRRORING_SDK", "")
JS_CLIENTS = os.environ.get("LAKEMIRROR_JS_CLIENTS", "")

INITIAL = {"EmployeeID": [1, 2, 3], "Location": ["Seattle", "Austin", "Denver"]}
CHANGES = {
    "EmployeeID": [4, 2, 3, 5],
    "Location": ["Boston", "Houston", None, "Miami"],
    "__rowMarker__": [0, 1, 2, 4],
}
RIGHT = {1: "Seattle", 2: "Houston", 4: "Boston", 5: "Miami"}


@pytest.fixture(scope="module", params=["https", "http"])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Issued]]:
    root = tmp_path_factory.mktemp(request.param)
    issued = Principals(root).add("publisher", ["sales=contribute"])
    running = Running(root, clear=request.param == "http")
    running.url = running.url.replace("https", request.param)
    yield running, issued
    running.stop()


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    made = []
    for number, rows in enumerate((INITIAL, CHANGES), start=1):
        path = tmp_path / f"{number:020d}.parquet"
        table = pa.table({**rows, "EmployeeID": pa.array(rows["EmployeeID"], pa.int32())})
        pq.write_table(table, path)
        made.append(path)
    return made


def secure(shop: tuple[Running, Issued]) -> tuple[Running, Issued]:
    if shop[0].url.startswith("http:"):
        pytest.skip("this client sends tokens over HTTPS only")
    return shop


def rows_of(running: Running, folder: str, table: str) -> dict[int, str]:
    """The rows of the Delta table once both files are applied; each key once."""
    path = running.root / "sales" / folder / "Tables" / table

    def read() -> dict[int, str]:
        try:
            snapshot = read_snapshot(path)
            if snapshot is None:
                return {}
            target = target_of(str(path), snapshot.metadata.value)
            found = pa.concat_tables([rows for add in snapshot.files.values() for rows in live_rows(add, target)])
        except OSError:
            return {}
        assert len(set(found["EmployeeID"].to_pylist())) == found.num_rows
        return dict(zip(found["EmployeeID"].to_pylist(), found["Location"].to_pylist(), strict=True))

    return dict(until(lambda: (found := read()) == RIGHT and found, 30))


def run(command: list[Any], **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


PYTHON = """
import json, sys
sys.path.insert(0, sys.argv[1])
from openmirroring_operations import OpenMirroringClient

client = OpenMirroringClient(client_id=sys.argv[2], client_secret=sys.argv[3], client_tenant="adfs", host=sys.argv[4])
client.create_table(schema_name="hr", table_name="employees", key_cols=["EmployeeID"])
for file in sys.argv[5:]:
    print(client.get_next_file_name(schema_name="hr", table_name="employees"))
    client.upload_data_file(schema_name="hr", table_name="employees", local_file_path=file)
"""


@pytest.mark.skipif(not SDK, reason="LAKEMIRROR_OPEN_MIRRORING_SDK names no openmirroring_operations.py")
def test_45_the_python_sdk(shop: tuple[Running, Issued], files: list[Path]) -> None:
    running, issued = secure(shop)
    database = running.create(running.token(issued), "python", start=True)
    zone = f"{running.url}/sales/{database}/Files/LandingZone/"
    words = [Path(SDK).parent, issued.principal.client_id, issued.client_secret, zone, *files]
    environment = {"AZURE_AUTHORITY_HOST": running.url, "REQUESTS_CA_BUNDLE": str(running.ca)}
    said = run([sys.executable, "-c", PYTHON, *words], **environment)
    assert f"{1:020d}.parquet" in said and f"{2:020d}.parquet" in said and "Failed" not in said
    assert rows_of(running, "python", "hr/employees") == RIGHT
    asked = "client = OpenMirroringClient(*sys.argv[2:4], 'adfs', sys.argv[4])"
    script = PYTHON.partition("client =")[0] + f"{asked}\nclient.get_table_status('hr', 'employees')"
    status = json.loads(until(lambda: run([sys.executable, "-c", script, *words], **environment)))["tables"]
    assert [(each["status"], each["errorCode"]) for each in status] == [("Replicating", "")]


JAVASCRIPT = """
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
const [clients, host, id, secret, ...files] = process.argv.slice(2);
const require = createRequire(clients + "/");
const { DataLakeServiceClient } = require("@azure/storage-file-datalake");
const { ClientSecretCredential } = require("@azure/identity");
const options = { authorityHost: host, disableInstanceDiscovery: true };
const credential = new ClientSecretCredential("adfs", id, secret, options);

const token = (await credential.getToken("https://api.fabric.microsoft.com/.default")).token;
const definition = { properties: { source: { type: "GenericMirror", typeProperties: {} },
  target: { type: "MountedRelationalDatabase", typeProperties: { format: "Delta" } } } };
const payload = Buffer.from(JSON.stringify(definition)).toString("base64");
const parts = [{ path: "mirroring.json", payload, payloadType: "InlineBase64" }];
const databases = host + "/v1/workspaces/sales/mirroredDatabases";
const headers = { Authorization: "Bearer " + token, "Content-Type": "application/json" };
const body = JSON.stringify({ displayName: "javascript", definition: { parts } });
const made = await (await fetch(databases, { method: "POST", headers, body })).json();
await fetch(`${databases}/${made.id}/startMirroring`, { method: "POST", headers });

const service = new DataLakeServiceClient(host + "/onelake", credential);
const table = service.getFileSystemClient("sales").getDirectoryClient(`${made.id}/Files/LandingZone/employees`);
await table.create();
const metadata = Buffer.from(JSON.stringify({ keyColumns: ["EmployeeID"] }));
await table.getFileClient("_metadata.json").upload(metadata);
for (const [index, file] of files.entries()) {
  const name = String(index + 1).padStart(20, "0") + ".parquet";
  const temporary = table.getFileClient("_" + name);
  await temporary.uploadFile(file);
  await temporary.move(`${made.id}/Files/LandingZone/employees/${name}`);
}
console.log(made.id);
"""


@pytest.mark.skipif(not JS_CLIENTS, reason="LAKEMIRROR_JS_CLIENTS names no folder with the vendor's packages")
def test_45_the_javascript_sdk(shop: tuple[Running, Issued], files: list[Path], tmp_path: Path) -> None:
    running, issued = secure(shop)
    script = tmp_path / "tutorial.mjs"
    script.write_text(JAVASCRIPT, encoding="utf-8")
    words = [script, JS_CLIENTS, running.url, issued.principal.client_id, issued.client_secret, *files]
    run(["node", *words], NODE_EXTRA_CA_CERTS=str(running.ca))
    assert rows_of(running, "javascript", "employees") == RIGHT


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_45_curl(shop: tuple[Running, Issued], files: list[Path], tmp_path: Path) -> None:
    running, issued = shop
    name = "curl"
    trust = [] if running.url.startswith("http:") else ["--cacert", running.ca]

    def curl(*words: Any) -> str:
        return run(["curl", "-sS", "--fail-with-body", *trust, *words])

    form = f"grant_type=client_credentials&client_id={issued.principal.client_id}&client_secret={issued.client_secret}"
    form += "&scope=https://storage.azure.com/.default"
    token = json.loads(curl(f"{running.url}/adfs/oauth2/v2.0/token", "-d", form))["access_token"]
    bearer = ["-H", f"Authorization: Bearer {token}"]
    database = running.create(token, name)
    curl(*bearer, "-X", "POST", f"{running.url}/v1/workspaces/sales/mirroredDatabases/{database}/startMirroring")
    folder = f"{running.url}/sales/{database}/Files/LandingZone/employees"
    metadata = tmp_path / "_metadata.json"
    metadata.write_text('{"keyColumns": ["EmployeeID"]}')
    for file in (metadata, *files):
        target = f"{folder}/{file.name}"
        curl(*bearer, "-X", "PUT", f"{target}?resource=file", "-H", "Content-Length: 0")
        curl(*bearer, "-X", "PATCH", f"{target}?action=append&position=0", "--data-binary", f"@{file}")
        flush = f"{target}?action=flush&position={file.stat().st_size}"
        curl(*bearer, "-X", "PATCH", flush, "-H", "Content-Length: 0")
    assert rows_of(running, name, "employees") == RIGHT


def test_46_a_partners_program_over_http(shop: tuple[Running, Issued], files: list[Path]) -> None:
    """As the MongoDB partner's program: its own state beside the files, a temporary name, a rename by REST."""
    running, issued = shop
    token = running.token(issued)
    database = running.create(token, "partner", start=True)
    folder = f"/sales/{database}/Files/LandingZone/employees"

    def put(name: str, data: bytes) -> None:
        """As recorded: no version, no folder made, one PATCH, then a rename whose source is an address with a query."""
        temporary = f"{folder}/{name}_TEMP"
        assert running.send("PUT", f"{temporary}?resource=file", b"", token=token).status == 201
        append = f"{temporary}?position=0&action=append&flush=true"
        assert running.send("PATCH", append, data, token=token, headers={"x-ms-file-name": name}).status == 202
        source = f"{running.url}{temporary}?resource=file"
        headers = {"x-ms-rename-source": source, "x-ms-version": "2020-06-12"}
        assert running.send("PUT", f"{folder}/{name}", b"", token=token, headers=headers).status == 201

    put("_metadata.json", b'{"keyColumns": ["EmployeeID"]}')
    for file in files:
        put("_resume_token.pkl", b"its own state")
        put(file.name, file.read_bytes())
    assert rows_of(running, "partner", "employees") == RIGHT
    kept = running.send("GET", f"{folder}/_resume_token.pkl", token=token)
    assert (kept.status, kept.body) == (200, b"its own state")
    assert running.send("DELETE", f"{folder}/_resume_token.pkl", token=token).status == 200


def test_44_the_status_of_tables_comes_in_pages(tmp_path: Path) -> None:
    from lakemirror.service.interface import Limits

    issued = Principals(tmp_path).add("publisher", ["sales=contribute"])
    running = Running(tmp_path, clear=True, limits=Limits(page_size=2))
    try:
        token = running.token(issued)
        database = running.create(token, "paged", start=True)
        for table in "abcde":
            path = f"/sales/{database}/Files/LandingZone/{table}/{1:020d}.parquet"
            data = pa.BufferOutputStream()
            pq.write_table(pa.table({"id": [1]}), data)
            answer = running.send(
                "PUT", path, data.getvalue().to_pybytes(), token=token, headers={"x-ms-blob-type": "BlockBlob"}
            )
            assert answer.status == 201
        status = f"/v1/workspaces/sales/mirroredDatabases/{database}/getTablesMirroringStatus"

        def pages() -> list[list[Any]]:
            found, more = [], ""
            while True:
                answer = running.send("POST", f"{status}{more}", token=token).json
                found.append(answer["data"])
                if not answer.get("continuationToken"):
                    return found
                more = f"?continuationToken={answer['continuationToken']}"

        def applied() -> bool:
            rows = [each for page in pages() for each in page]
            return len(rows) == 5 and all(each["status"] == "Replicating" for each in rows)

        until(applied, 30)
        found = pages()
        assert [len(page) for page in found] == [2, 2, 1]
        assert [each["sourceTableName"] for page in found for each in page] == list("abcde")
        refused = running.send("POST", f"{status}?continuationToken=bm90IG91cnM", token=token)
        assert (refused.status, refused.code) == (400, "InvalidRequest")
    finally:
        running.stop()
