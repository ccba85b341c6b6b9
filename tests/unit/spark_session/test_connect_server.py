"""A Connect address where nobody listens is an error within seconds, not after PySpark's retries of ten minutes."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from lakemirror.errors import SetupError
from lakemirror.settings.settings import Settings
from lakemirror.spark_session import connect_server, session
from lakemirror.spark_session.connect_server import check_listens


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def closed() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def test_where_nobody_listens(closed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)  # other tests have one
    begun = time.monotonic()
    with pytest.raises(SetupError) as raised:
        session.start(Settings(master=f"sc://127.0.0.1:{closed}/;token=a-secret"))
    assert time.monotonic() - begun < 60
    assert raised.value.code == "spark-failed" and f"127.0.0.1:{closed}" in raised.value.message
    assert "spark_remote" in str(raised.value.hint) and "a-secret" not in str(raised.value)


def test_where_somebody_listens(listening: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_listens(f"sc://127.0.0.1:{listening}")
    check_listens(f"sc://127.0.0.1:{listening}/;use_ssl=true;user_id=x")
    monkeypatch.setattr(connect_server, "_PORT", listening)
    check_listens("sc://127.0.0.1")


def test_an_answer_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    def waits(_: object, seconds: float) -> None:
        assert seconds <= 10
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", waits)
    with pytest.raises(SetupError, match="timed out"):
        check_listens("sc://host")


@pytest.mark.parametrize("address", ["local[2]", "spark://host:7077", "sc://host:what", "sc:///"])
def test_other_addresses_are_left_to_pyspark(address: str) -> None:
    check_listens(address)


def test_behind_a_proxy_nothing_is_checked_but_what_it_leaves_out(closed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    check_listens(f"sc://127.0.0.1:{closed}")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(SetupError):
        check_listens(f"sc://127.0.0.1:{closed}")
