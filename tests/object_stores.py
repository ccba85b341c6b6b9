"""Object stores on loopback for tests: a server, a bucket of its own for each database, the options to reach it.

moto serves S3 from PyPI. MinIO, Azurite and fake-gcs-server are used where MINIO_BINARY, AZURITE_BINARY and
FAKE_GCS_BINARY name them. `go install github.com/minio/minio@latest` builds MinIO: Go 1.24, some 15 minutes of two
processors; tested with v0.0.0-20260212201848-7aac2a2c5b7c.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakemirror.storage import connections
from lakemirror.storage.object_store import ObjectStore
from tests.free_ports import free_port
from tests.gcs_server import JsonApi, translated

ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # Azurite's own
)
USER, SECRET = "lakemirror-tests", "a-secret-that-no-log-may-hold"


@dataclass
class StoreServer:
    """A store that runs. `options`: as `storage_options`, and as environment variables of a process."""

    name: str
    endpoint: str
    options: dict[str, str] = field(default_factory=dict)
    gcs: JsonApi | None = None

    def bucket(self, name: str = "") -> str:
        """The address of a new bucket."""
        name = name or f"b{uuid.uuid4().hex[:12]}"
        if self.name == "azurite":
            azure_client(self.endpoint).create_container(name)
            return f"az://{name}"
        if self.gcs is not None:
            self.gcs.make_bucket(name)
            return f"gs://{name}"
        client(self.endpoint).create_bucket(Bucket=name)
        return f"s3://{name}"

    def put(self, bucket: str, key: str, data: bytes) -> None:
        """Puts an object as another program does, by the vendor's own client."""
        name = bucket.partition("://")[2]
        if self.name == "azurite":
            azure_client(self.endpoint).get_blob_client(name, key).upload_blob(data)
        elif self.gcs is not None:
            self.gcs.put(name, key, data)
        else:
            client(self.endpoint).put_object(Bucket=name, Key=key, Body=data)

    def delete(self, bucket: str, key: str) -> None:
        """Deletes an object as another program does."""
        name = bucket.partition("://")[2]
        if self.name == "azurite":
            azure_client(self.endpoint).get_blob_client(name, key).delete_blob()
        elif self.gcs is not None:
            self.gcs.delete(name, key)
        else:
            client(self.endpoint).delete_object(Bucket=name, Key=key)

    def through(self, endpoint: str) -> dict[str, str]:
        """The same options by way of another endpoint."""
        return {name: value.replace(self.endpoint, endpoint) for name, value in self.options.items()}


def client(endpoint: str) -> Any:
    """The vendor's own client: what another program puts into the bucket."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id=USER, aws_secret_access_key=SECRET, region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}),
    )  # fmt: skip


def azure_client(endpoint: str) -> Any:
    """The same for Azure."""
    from azure.storage.blob import BlobServiceClient

    return BlobServiceClient(f"{endpoint}/{ACCOUNT}", credential=ACCOUNT_KEY)


@contextlib.contextmanager
def moto() -> Iterator[StoreServer]:
    """moto's S3 server; of two conditional puts one wins."""
    port = free_port()
    command = [sys.executable, str(Path(__file__).with_name("moto_server.py")), "-H", "127.0.0.1", "-p", str(port)]
    with _process(command, port, {}):
        yield _server("moto", port)


@contextlib.contextmanager
def minio(binary: str) -> Iterator[StoreServer]:
    """MinIO, with its data in a folder that is gone afterwards."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="minio-") as folder:
        command = [binary, "server", "--address", f"127.0.0.1:{port}", folder]
        with _process(command, port, {"MINIO_ROOT_USER": USER, "MINIO_ROOT_PASSWORD": SECRET}):
            yield _server("minio", port)


def s3_server() -> contextlib.AbstractContextManager[StoreServer]:
    """MinIO where MINIO_BINARY names it, else moto."""
    return minio(minio_binary()) if minio_binary() else moto()


@contextlib.contextmanager
def azurite(binary: str) -> Iterator[StoreServer]:
    """Azurite's blob service, in memory."""
    port = free_port()
    command = [binary, "--inMemoryPersistence", "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with _process([*command, "--skipApiVersionCheck", "--silent", "--disableTelemetry"], port, {}):
        endpoint = f"http://127.0.0.1:{port}"
        options = {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY,
            "AZURE_STORAGE_ENDPOINT": f"{endpoint}/{ACCOUNT}", "AZURE_ALLOW_HTTP": "true",
        }  # fmt: skip
        yield StoreServer("azurite", endpoint, options)


@contextlib.contextmanager
def fake_gcs(binary: str) -> Iterator[StoreServer]:
    """fake-gcs-server, in memory, behind the translation that obstore and delta-rs need."""
    port = free_port()
    command = [binary, "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    with _process([*command, "-log-level", "error"], port, {}):
        server = f"http://127.0.0.1:{port}"
        with translated(server) as endpoint:
            key = {"gcs_base_url": endpoint, "disable_oauth": True, "client_email": "tests", "private_key_id": "1"}
            options = {
                "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps({**key, "private_key": SECRET}),
                "GOOGLE_ALLOW_HTTP": "true",
            }
            yield StoreServer("fake-gcs-server", endpoint, options, JsonApi(server))


def fake_gcs_binary() -> str:
    """Where fake-gcs-server is; empty where it is not."""
    return os.environ.get("FAKE_GCS_BINARY", "")


def azurite_binary() -> str:
    """Where Azurite's blob service is; empty where it is not."""
    return os.environ.get("AZURITE_BINARY", "")


def minio_binary() -> str:
    """Where MinIO is; empty where it is not."""
    return os.environ.get("MINIO_BINARY", "")


def connect(address: str, options: dict[str, str]) -> ObjectStore:
    """The store of a bucket, reached with these options from now on."""
    connections.give_options(address, options)
    return connections.store_at(address)


def for_delta_rs(options: dict[str, str]) -> dict[str, str]:
    """The options as delta-rs spells them, where it differs."""
    return {**options, "allow_http": "true"}


def _server(name: str, port: int) -> StoreServer:
    endpoint = f"http://127.0.0.1:{port}"
    options = {
        "AWS_ACCESS_KEY_ID": USER, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true",
    }  # fmt: skip
    return StoreServer(name, endpoint, options)


@contextlib.contextmanager
def _process(command: list[str], port: int, environment: dict[str, str]) -> Iterator[None]:
    log = Path(tempfile.gettempdir()) / f"store-server-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **environment})
    try:
        _wait_for(port, process, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.unlink(missing_ok=True)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(log.read_text())
