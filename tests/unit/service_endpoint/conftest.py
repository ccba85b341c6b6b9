from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from endpoint_double import EndpointServer
from wire import Wire


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[EndpointServer]:
    server = EndpointServer(tmp_path)
    yield server
    server.close()


@pytest.fixture
def wire(endpoint: EndpointServer) -> Iterator[Wire]:
    connection = Wire(endpoint.port)
    yield connection
    connection.close()
