"""OpenLineage and OpenTelemetry: nobody waits for them, and nothing fails with them."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.landing import declare, put

from lakemirror import MirroredDatabase
from lakemirror.executions import telemetry
from lakemirror.executions.execution import Execution

ONE = Execution(1.0, "Replicating", "", "t")


@pytest.fixture(autouse=True)
def another_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    telemetry._sender.cache_clear()
    for name in ("OPENLINEAGE_URL", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("name", "value", "lineage", "traces"),
    [
        ("UNRELATED", "1", False, False),
        ("OPENLINEAGE_URL", "http://127.0.0.1:1", True, False),
        ("OPENLINEAGE_CONFIG", "openlineage.yml", True, False),
        ("OPENLINEAGE__TRANSPORT__TYPE", "console", True, False),
        ("OTEL_TRACES_EXPORTER", "console", False, True),
        ("OTEL_TRACES_EXPORTER", "none", False, False),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1", False, True),
    ],
)
def test_what_is_configured(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, lineage: bool, traces: bool
) -> None:
    monkeypatch.setenv(name, value)
    assert (telemetry.wants_lineage(), telemetry.wants_traces()) == (lineage, traces)
    assert bool(telemetry.configured("/srv/shop")) == (lineage or traces)
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert telemetry.configured("/srv/shop") == ()


def test_what_is_configured_and_not_installed_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "lakemirror")

    def missing() -> Any:
        raise ImportError("No module named 'openlineage'")

    monkeypatch.setattr(telemetry, "_lineage", missing)
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    declare(tmp_path, "orders", ["id"])
    put(tmp_path, "orders", 1, {"id": [1]})
    assert not MirroredDatabase(tmp_path, engine="local", durability="process").sync().failed
    telemetry._sender().end()
    assert "openlineage-python is configured and not installed" in caplog.text


def test_a_target_that_never_answers_delays_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "lakemirror")
    stuck = threading.Event()
    sent: list[Execution] = []

    def send(_: str, each: Execution) -> None:
        stuck.wait(20)
        sent.append(each)

    sender = telemetry.Sender(lambda: [telemetry._Target(send, lambda: None)])
    begun = time.monotonic()
    for _ in range(telemetry._MOST_WAITING + 100):
        sender.give("/srv/shop", ONE)
    assert time.monotonic() - begun < 5
    assert not sent
    assert caplog.text.count("too many wait") == 1
    begun = time.monotonic()
    sender.end(0.1)
    assert time.monotonic() - begun < 5
    stuck.set()


def test_a_target_that_fails_is_asked_again_and_others_get_theirs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "lakemirror")
    tried: list[Execution] = []
    sent: list[Execution] = []

    def broken(_: str, each: Execution) -> None:
        tried.append(each)
        raise OSError("connection refused")

    def ended() -> None:
        raise OSError("connection refused")

    targets = [telemetry._Target(broken, ended), telemetry._Target(lambda _, each: sent.append(each), lambda: None)]
    sender = telemetry.Sender(lambda: targets)
    for _ in range(3):
        sender.give("/srv/shop", ONE)
    sender.end()
    assert len(tried) == len(sent) == 3
    assert caplog.text.count("connection refused") == 1


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("/srv/shop", ("file", "/srv/shop")),
        ("s3://lake/a/shop", ("s3://lake", "a/shop")),
        ("s3://lake", ("s3://lake", "")),
    ],
)
def test_names_of_data_sets(address: str, named: tuple[str, str]) -> None:
    assert telemetry._dataset(address) == named
