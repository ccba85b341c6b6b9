"""Programs that are no package of this environment, unmodified; where one is missing its test says so and is skipped.

`LAKEMIRROR_JS_CLIENTS`: a folder in which `npm install @azure/storage-file-datalake` was run.
`LAKEMIRROR_OPEN_MIRRORING_SDK`: the vendor's `openmirroring_operations.py`.
`LAKEMIRROR_RCLONE`: the program rclone, where it is not on the PATH.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from azure.core.credentials import AccessToken
from endpoint_double import ACCOUNT_KEY, EndpointServer

JS_CLIENTS = os.environ.get("LAKEMIRROR_JS_CLIENTS", "")
SDK = os.environ.get("LAKEMIRROR_OPEN_MIRRORING_SDK", "")
RCLONE = os.environ.get("LAKEMIRROR_RCLONE") or shutil.which("rclone") or ""

SCRIPT = """
import { createRequire } from "node:module";
const require = createRequire(process.argv[2] + "/");
const { DataLakeServiceClient, StorageSharedKeyCredential } = require("@azure/storage-file-datalake");
const credential = new StorageSharedKeyCredential("loader", process.argv[4]);
const service = new DataLakeServiceClient(process.argv[3] + "/loader", credential, { retryOptions: { maxTries: 1 } });
const zone = "sales.MirroredDatabase/Files/LandingZone";
const fs = service.getFileSystemClient("ws");
const dir = fs.getDirectoryClient(zone + "/js");
await dir.createIfNotExists();
await dir.createIfNotExists();
const file = dir.getFileClient("_tmp");
await file.create();
await file.append("hello", 0, 5);
await file.flush(5);
await file.move(zone + "/js/1 ü+.parquet");
const moved = dir.getFileClient("1 ü+.parquet");
const found = [await moved.exists(), await file.exists(), (await moved.readToBuffer()).toString()];
await moved.upload(Buffer.from("x".repeat(300000)));
found.push((await moved.getProperties()).contentLength);
for await (const path of fs.listPaths({ path: zone, recursive: true })) found.push(path.name);
await fs.getDirectoryClient(zone + "/js").move(zone + "/moved");
found.push(await fs.getFileClient(zone + "/moved/1 ü+.parquet").exists());
await fs.getDirectoryClient(zone + "/moved").delete(true);
found.push(await fs.getDirectoryClient(zone + "/moved").exists());
console.log(JSON.stringify(found));
"""


@pytest.mark.skipif(not JS_CLIENTS, reason="LAKEMIRROR_JS_CLIENTS names no folder with @azure/storage-file-datalake")
def test_javascript_sdk(endpoint: EndpointServer, tmp_path: Path) -> None:
    script = tmp_path / "trial.mjs"
    script.write_text(SCRIPT, encoding="utf-8")
    program = ["node", str(script), JS_CLIENTS, endpoint.url, ACCOUNT_KEY]
    answer = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 0, answer.stderr
    zone = "sales.MirroredDatabase/Files/LandingZone"
    names = [f"{zone}/js", f"{zone}/js/1 ü+.parquet"]
    assert json.loads(answer.stdout) == [True, False, "hello", 300000, *names, True, False]


class Token:
    """Stands in for the vendor's credential, so that no authority is needed here."""

    def __init__(self, *_: str) -> None: ...

    def get_token(self, *_: str, **__: object) -> AccessToken:
        return AccessToken("loader", 4_000_000_000)


@pytest.fixture
def secure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EndpointServer]:
    server = EndpointServer(tmp_path, tls=True)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(server.certificate))
    yield server
    server.close()


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    specification = importlib.util.spec_from_file_location("openmirroring_operations", SDK)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    monkeypatch.setattr(module, "ClientSecretCredential", Token)
    return module


@pytest.mark.skipif(not SDK, reason="LAKEMIRROR_OPEN_MIRRORING_SDK names no openmirroring_operations.py")
def test_open_mirroring_sdk(
    secure: EndpointServer, sdk: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = sdk.OpenMirroringClient("id", "secret", "adfs", f"{secure.url}/ws/sales/Files/LandingZone/")
    client.create_table(schema_name="dbo", table_name="orders", key_cols=["id"])
    folder = secure.landing_zone / "dbo.schema" / "orders"
    assert json.loads((folder / "_metadata.json").read_text()) == {"keyColumns": ["id"]}
    local = tmp_path / "00000000000000000001.parquet"
    for number in (1, 2):
        assert client.get_next_file_name("dbo", "orders") == f"{number:020d}.parquet"
        local.write_bytes(f"rows {number}".encode())
        client.upload_data_file(schema_name="dbo", table_name="orders", local_file_path=str(local))
        assert (folder / f"{number:020d}.parquet").read_bytes() == local.read_bytes()
    monitoring = secure.database / "Files" / "Monitoring"
    monitoring.mkdir()
    (monitoring / "replicator.json").write_text('{"status": "Running"}')
    (monitoring / "tables.json").write_text('{"tables": []}')
    client.get_mirrored_database_status()
    client.get_table_status()
    client.remove_table(schema_name="dbo", table_name="orders", remove_schema_folder=True)
    assert list(secure.landing_zone.iterdir()) == []
    assert "Running" in capsys.readouterr().out


def connection_string(endpoint: EndpointServer) -> str:
    return (
        f"DefaultEndpointsProtocol=http;AccountName=loader;AccountKey={ACCOUNT_KEY};BlobEndpoint={endpoint.url}/loader"
    )


def test_adlfs(endpoint: EndpointServer) -> None:
    adlfs = pytest.importorskip("adlfs")
    files = adlfs.AzureBlobFileSystem(
        account_name="loader", connection_string=connection_string(endpoint), skip_instance_cache=True
    )
    folder = "ws/sales/Files/LandingZone/t"
    files.pipe(f"{folder}/a.parquet", b"abc")
    with files.open(f"{folder}/b.parquet", "wb", block_size=1 << 20) as file:
        file.write(b"x" * 3_000_000)
    assert files.ls(folder) == [f"{folder}/a.parquet", f"{folder}/b.parquet"] and files.isdir(folder)
    assert files.cat_ranges([f"{folder}/b.parquet"], [1], [4]) == [b"xxx"]
    files.mv(f"{folder}/a.parquet", f"{folder}/c.parquet")
    assert files.find(folder) == [f"{folder}/b.parquet", f"{folder}/c.parquet"]
    files.rm(folder, recursive=True)
    assert list(endpoint.landing_zone.iterdir()) == []


def test_duckdb(endpoint: EndpointServer) -> None:
    extension = pytest.importorskip("duckdb_extension_azure")
    duckdb = pytest.importorskip("duckdb")
    (table := endpoint.database / "Tables" / "t").mkdir()
    (endpoint.landing_zone / "t").mkdir()
    duckdb.sql(f"copy (select range id from range(1000)) to '{table}/1.parquet'")
    session = duckdb.connect(config={"allow_unsigned_extensions": True})
    session.execute(f"load '{next(Path(extension.__file__).parent.rglob('*.duckdb_extension'))}'")
    session.execute(f"create secret (type azure, connection_string '{connection_string(endpoint)}')")
    rows = session.execute("select sum(id) from read_parquet('az://ws/sales/Tables/*/*.parquet')").fetchall()
    assert rows == [(499500,)]
    session.execute(f"copy (select 1 id) to 'az://ws/sales/Files/LandingZone/t/{1:020d}.parquet'")
    assert duckdb.sql(f"from '{endpoint.landing_zone}/t/{1:020d}.parquet'").fetchall() == [(1,)]


@pytest.mark.skipif(not RCLONE, reason="no rclone on this machine (LAKEMIRROR_RCLONE)")
def test_rclone(endpoint: EndpointServer, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "RCLONE_CONFIG": str(tmp_path / "none.conf"),
        "RCLONE_CONFIG_LAKE_TYPE": "azureblob",
        "RCLONE_CONFIG_LAKE_ACCOUNT": "loader",
        "RCLONE_CONFIG_LAKE_KEY": ACCOUNT_KEY,
        "RCLONE_CONFIG_LAKE_ENDPOINT": f"{endpoint.url}/loader",
        "RCLONE_AZUREBLOB_CHUNK_SIZE": "1Mi",
        "RCLONE_AZUREBLOB_NO_CHECK_CONTAINER": "false",
    }

    def rclone(*words: str | Path) -> str:
        program = [RCLONE, "--retries", "1", "--low-level-retries", "1", *map(str, words)]
        done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    zone, source = "lake:ws/sales/Files/LandingZone", tmp_path / "source"
    (source / "t").mkdir(parents=True)
    (source / "t/_metadata.json").write_text('{"keyColumns": ["id"]}')
    (source / "t/1 ü+.parquet").write_bytes(os.urandom(5_000_000))
    rclone("copy", source, zone)
    rclone("check", source, zone)
    for name in ("_metadata.json", "1 ü+.parquet"):
        assert (endpoint.landing_zone / "t" / name).read_bytes() == (source / "t" / name).read_bytes()
    assert sorted(rclone("lsf", "-R", "--files-only", zone).split("\n")) == ["", "t/1 ü+.parquet", "t/_metadata.json"]
    assert "ws/" in rclone("lsd", "lake:").replace(" ws", " ws/")
    rclone("moveto", f"{zone}/t/1 ü+.parquet", f"{zone}/t/{1:020d}.parquet")
    rclone("copyto", f"{zone}/t/{1:020d}.parquet", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == (source / "t/1 ü+.parquet").read_bytes()
    assert rclone("cat", "--offset", "2", "--count", "3", f"{zone}/t/_metadata.json") == "key"
    rclone("sync", source, zone)
    assert sorted(path.name for path in (endpoint.landing_zone / "t").iterdir()) == ["1 ü+.parquet", "_metadata.json"]
    rclone("delete", zone)
    assert [path for path in endpoint.landing_zone.rglob("*") if path.is_file()] == []
