"""A broker for tests of topics: librdkafka's own, and in the full run a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.debezium_topics import Topics
from tests.kafka_server import kafka_broker


@pytest.fixture(scope="module", params=["mock", pytest.param("broker", marks=pytest.mark.full)])
def topics(request: pytest.FixtureRequest) -> Iterator[Topics]:
    if request.param == "mock":
        yield Topics()
        return
    with kafka_broker() as servers:
        yield Topics(servers)
