"""The store of a test run, and a mirrored database on each kind of storage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.databases import Database
from tests.object_stores import (
    StoreServer,
    azurite,
    azurite_binary,
    fake_gcs,
    fake_gcs_binary,
    minio,
    minio_binary,
    moto,
)

from lakemirror.storage import connections


@pytest.fixture(scope="session")
def s3() -> Iterator[StoreServer]:
    """An S3 server: moto."""
    pytest.importorskip("moto")
    with moto() as server:
        yield server


@pytest.fixture(scope="session")
def minio_server() -> Iterator[StoreServer]:
    if not minio_binary():
        pytest.skip("MINIO_BINARY does not name a MinIO")
    with minio(minio_binary()) as server:
        yield server


@pytest.fixture(scope="session")
def azurite_server() -> Iterator[StoreServer]:
    if not azurite_binary():
        pytest.skip("AZURITE_BINARY does not name an Azurite")
    with azurite(azurite_binary()) as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[StoreServer]:
    if not fake_gcs_binary():
        pytest.skip("FAKE_GCS_BINARY does not name a fake-gcs-server")
    with fake_gcs(fake_gcs_binary()) as server:
        yield server


STORES = [
    "s3",
    *(pytest.param(name, marks=pytest.mark.full) for name in ("minio_server", "azurite_server", "gcs_server")),
]


@pytest.fixture(params=STORES)
def server(request: pytest.FixtureRequest) -> StoreServer:
    """Each store in turn; moto alone in the short run."""
    found: StoreServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["local", *STORES])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A new mirrored database, on a local disk and in a bucket."""
    if request.param == "local":
        (tmp_path / "shop").mkdir()
        yield Database(str(tmp_path / "shop"), {})
        return
    server: StoreServer = request.getfixturevalue(request.param)
    yield Database(f"{server.bucket()}/shop", server.options)
    connections.forget_all()
