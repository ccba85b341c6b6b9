"""The loop of `run`: settings that change, stores that fail, several databases at once."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.landing import put

from lakemirror import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.status.status import STALE, DatabaseStatus, EngineProcess, write_status
from lakemirror.status.status_reader import read_status
from lakemirror.storage import Listing, LocalStorage


def define(database: Path, text: str) -> None:
    """Replaces the definition at once: a running engine never reads a part of it."""
    (database / "definition.new").write_text(text)
    (database / "definition.new").rename(database / "mirroring.json")


@contextmanager
def running(mirror: MirroredDatabase) -> Iterator[None]:
    stop, raised = threading.Event(), []

    def run() -> None:
        try:
            mirror.run(stop)
        except BaseException as failure:
            raised.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()
    assert raised == []


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def status(database: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((database / "Files/Monitoring/replicator.json").read_text()))
    except (OSError, ValueError):
        return {}


def position(database: Path, table: str) -> int:
    try:
        rows = json.loads((database / "Files/Monitoring/tables.json").read_text())["tables"]
    except (OSError, ValueError):
        return 0
    return next((int(row["position"]) for row in rows if row["normalizedTableName"] == table), 0)


def mirror(database: Path, storage: LocalStorage | None = None) -> MirroredDatabase:
    return MirroredDatabase(database, storage=storage, maintenance=False, poll_idle=0.05, poll=0.05)


def test_several_databases_run_in_one_process(tmp_path: Path) -> None:
    shops = [tmp_path / name for name in ("a", "b", "c")]
    for shop in shops:
        put(shop, "orders", 1, {"id": [1]})
    with running(mirror(shops[0])), running(mirror(shops[1])), running(mirror(shops[2])):
        for shop in shops:
            wait_for(lambda shop=shop: position(shop, "orders") == 1)  # type: ignore[misc]
            assert status(shop)["status"] == "Running"
    assert [status(shop)["status"] for shop in shops] == ["Stopped"] * 3


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"lakemirror": {"readers": ["duckbd"]}}', "client-unknown"),
        ('{"lakemirror": {"poll": "often"}}', "setting-invalid"),
        ('{"lakemirror": {"po', "definition-invalid"),
        ("[" * 100_000, "definition-invalid"),
        ('{"properties": {"target": {"typeProperties": {"retentionInDays": 99}}}}', "definition-invalid"),
    ],
)
def test_an_invalid_definition_leaves_the_last_valid_settings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, code: str
) -> None:
    caplog.set_level(logging.ERROR, "lakemirror")
    put(tmp_path, "orders", 1, {"id": [1]})
    with running(mirror(tmp_path)):
        wait_for(lambda: position(tmp_path, "orders") == 1)
        define(tmp_path, text)
        wait_for(lambda: status(tmp_path).get("errorCode") == code)
        assert status(tmp_path)["status"] == "Running"
        put(tmp_path, "orders", 2, {"id": [2]})
        wait_for(lambda: position(tmp_path, "orders") == 2)
        define(tmp_path, '{"lakemirror": {"settle": 1}}')
        wait_for(lambda: status(tmp_path).get("errorCode") == "")
    said = [record.message for record in caplog.records if "the last valid settings stay in force" in record.message]
    assert len(said) == 1


def test_a_landing_zone_that_cannot_be_listed_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakemirror.mirror.loop.SELDOM", 0.5)

    class Failing(LocalStorage):
        fails = False

        def list(self, path: str, *arguments: object, **options: object) -> Listing:
            if self.fails and path == LANDING_ZONE:
                raise LakemirrorError("storage-unavailable", "Input/output error")
            return super().list(path, *arguments, **options)  # type: ignore[arg-type]

    storage = Failing(tmp_path)
    put(tmp_path, "orders", 1, {"id": [1]})
    with running(mirror(tmp_path, storage)):
        wait_for(lambda: position(tmp_path, "orders") == 1)
        storage.fails = True
        wait_for(lambda: status(tmp_path).get("errorCode") == "storage-unavailable")
        assert position(tmp_path, "orders") == 1
        storage.fails = False
        put(tmp_path, "orders", 2, {"id": [2]})
        wait_for(lambda: position(tmp_path, "orders") == 2)
        wait_for(lambda: status(tmp_path).get("errorCode") == "")
    assert [record.message for record in caplog.records].count("storage-unavailable: Input/output error") == 1


def test_what_nobody_expected_does_not_end_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LAKEMIRROR_CACHE_DIR", str(tmp_path / "cache"))
    put(tmp_path / "shop", "orders", 1, {"id": [1]})
    calls = []

    def fails(*_: object) -> object:
        calls.append(1)
        raise ZeroDivisionError("nobody expected this")

    monkeypatch.setattr("lakemirror.mirror.scheduler.collisions", fails)
    with running(mirror(tmp_path / "shop")):
        wait_for(lambda: status(tmp_path / "shop").get("errorCode") == "internal")
        monkeypatch.undo()
        wait_for(lambda: position(tmp_path / "shop", "orders") == 1)
    assert str(tmp_path / "cache/logs/failures.log") in caplog.text


def test_maintenance_that_fails_does_not_end_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEMIRROR_CACHE_DIR", str(tmp_path / "cache"))
    calls = []

    def fails(*_: object, **__: object) -> None:
        calls.append(1)
        raise KeyError("nobody expected this")

    monkeypatch.setattr("lakemirror.maintenance.idle_work.Maintenance.step", fails)
    put(tmp_path / "shop", "orders", 1, {"id": [1]})
    with running(MirroredDatabase(tmp_path / "shop", poll_idle=0.05, poll=0.05)):
        wait_for(lambda: calls)
        wait_for(lambda: status(tmp_path / "shop").get("errorCode") == "internal")
        put(tmp_path / "shop", "orders", 2, {"id": [2]})
        wait_for(lambda: position(tmp_path / "shop", "orders") == 2)


def test_each_warning_is_in_the_log_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "lakemirror")
    place = put(tmp_path, "orders", 1, {"id": [1]}).parent
    (place / "link").symlink_to("nowhere")
    with running(mirror(tmp_path)):
        wait_for(lambda: position(tmp_path, "orders") == 1)
        time.sleep(0.5)
    assert [record.message for record in caplog.records] == [
        "orders: warning not-a-file: link is a link: it is never opened"
    ]


def test_a_misspelt_database_is_not_made(tmp_path: Path) -> None:
    for act in ("run", "sync", "status"):
        with pytest.raises(LakemirrorError) as caught:
            getattr(MirroredDatabase(tmp_path / "shpo"), act)()
        assert caught.value.code == "database-missing"
    assert list(tmp_path.iterdir()) == []


def test_a_heartbeat_tells_a_running_engine_from_a_killed_one(tmp_path: Path) -> None:
    alive = EngineProcess.this()
    assert alive.is_alive(time.time())
    assert not alive.is_alive(time.time() + STALE + 1)
    gone = EngineProcess(2**22 + 1, alive.host, alive.started, alive.heartbeat)
    assert not gone.is_alive(time.time())
    assert EngineProcess(2**22 + 1, "another", alive.started, alive.heartbeat).is_alive(time.time())
    storage = LocalStorage(tmp_path)
    write_status(storage, DatabaseStatus("Running", process=gone))
    found = read_status(storage)
    assert found is not None
    assert found.not_running_since(time.time()) == pytest.approx(gone.heartbeat, abs=0.001)
    write_status(storage, DatabaseStatus("Stopped", process=gone))
    stopped = read_status(storage)
    assert stopped is not None
    assert stopped.not_running_since(time.time()) is None, "it said so itself"


def test_the_heartbeat_is_written_while_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemirror.mirror.status_writer.HEARTBEAT", 0.1)
    put(tmp_path, "orders", 1, {"id": [1]})
    with running(mirror(tmp_path)):
        wait_for(lambda: position(tmp_path, "orders") == 1)
        first = status(tmp_path)["process"]["heartbeatTimeUtc"]
        wait_for(lambda: status(tmp_path)["process"]["heartbeatTimeUtc"] > first)
