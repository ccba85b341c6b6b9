from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from endpoint_double import EndpointServer
from tests.object_stores import StoreServer, s3_server
from wire import Wire

from lakemirror.storage import connections, place


@pytest.fixture(scope="session")
def s3() -> Iterator[StoreServer]:
    """An S3 server."""
    with s3_server() as server:
        yield server


@pytest.fixture(params=["disk", pytest.param("bucket", marks=pytest.mark.full)])
def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EndpointServer]:
    """The endpoint of databases on a disk, and in a bucket."""
    if request.param == "disk":
        server = EndpointServer(tmp_path)
    else:
        s3: StoreServer = request.getfixturevalue("s3")
        connections.give_options("", s3.options)
        server = EndpointServer(tmp_path, served=place(f"{s3.bucket()}/lake"))
    yield server
    server.close()
    connections.forget_all()


@pytest.fixture
def wire(endpoint: EndpointServer) -> Iterator[Wire]:
    connection = Wire(endpoint.port)
    yield connection
    connection.close()
