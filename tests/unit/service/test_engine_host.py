"""The engine host: wakes at once, starts engines again, and one failing database holds up no other."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running_service import until

from lakemirror.errors import SetupError
from lakemirror.service import host as host_module
from lakemirror.service.host import EngineHost, WakeableStop
from lakemirror.service.interface import DatabaseEntry, WorkspaceEntry
from lakemirror.service.landing_watch import LandingWatch
from lakemirror.service.operator_settings import OperatorSettings
from lakemirror.service.rest.registry import FolderRegistry
from lakemirror.settings import ProcessSettings, Settings
from lakemirror.spark_session import session as spark_session
from lakemirror.status import read_status
from lakemirror.storage import LocalStorage


def entry(folder: Path, state: str = "Running") -> DatabaseEntry:
    (folder / "Files/LandingZone").mkdir(parents=True, exist_ok=True)
    workspace = WorkspaceEntry("w", "sales", folder.parent)
    return DatabaseEntry(folder.name, folder.name, folder, workspace, "", state)


def publish(database: DatabaseEntry, number: int) -> None:
    zone = database.folder / "Files/LandingZone/orders"
    if not zone.exists():
        zone.mkdir()
        (zone / "_metadata.json").write_text('{"keyColumns": ["id"]}')
    pq.write_table(pa.table({"id": [number]}), zone / "new.tmp")
    (zone / "new.tmp").rename(zone / f"{number:020}.parquet")


def rows(database: DatabaseEntry) -> int:
    found = read_status(LocalStorage(database.folder))
    return sum(table.processed_rows for table in found.tables) if found else 0


def test_a_stop_that_can_be_woken() -> None:
    stop = WakeableStop()
    assert not stop.waited
    stop.wake()
    assert stop.wait(30) is False
    assert stop.waited
    assert stop.wait(0.01) is False
    threading.Timer(0.05, stop.wake).start()
    assert stop.wait(30) is False
    threading.Timer(0.05, stop.set).start()
    assert stop.wait(30) is True
    assert stop.wait(30) is True


def test_engines_follow_the_registry(tmp_path: Path) -> None:
    host = EngineHost()
    one, two = entry(tmp_path / "one"), entry(tmp_path / "two", "Initialized")
    publish(one, 1)
    publish(two, 1)
    host.follow([one, two])
    assert host.state(one)[0] in ("Starting", "Running")
    assert host.state(two)[0] == "Initialized"
    assert host.not_looked_at([one, two]) in ([], [one])
    until(lambda: rows(one) == 1)
    assert host.not_looked_at([one, two]) == []
    assert rows(two) == 0
    host.follow([two])
    until(lambda: host.wait_stopped(one.id, 10))
    publish(one, 2)
    again = entry(tmp_path / "one")
    host.follow([again])
    until(lambda: rows(again) == 2)
    assert len(host.history(again.id, "orders")) == 2
    assert host.shutdown(20)
    host.start(two)
    assert host.wait_stopped(two.id, 0)


def test_a_failing_database_holds_up_no_other(tmp_path: Path) -> None:
    host = EngineHost()
    bad, good = entry(tmp_path / "bad"), entry(tmp_path / "good")
    (bad.folder / "mirroring.json").write_text("{")
    host.follow([bad, good])
    publish(good, 1)
    host.wake(good.id)
    until(lambda: rows(good) == 1)
    error = until(lambda: host.state(bad)[1])
    assert error.code == "definition-invalid"
    assert host.not_looked_at([bad, good]) == []
    (bad.folder / "mirroring.json").unlink()
    publish(bad, 1)
    host.wake(bad.id)
    until(lambda: rows(bad) == 1)
    assert host.state(bad) == ("Running", None)
    assert host.shutdown(20)


def test_a_dead_engine_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    ended: list[Any] = []
    monkeypatch.setattr(spark_session, "start", lambda settings, delta: started.append(object()) or started[-1])
    monkeypatch.setattr(spark_session, "stop", ended.append)

    class Dying:
        """Needs Spark, and loses it the first time."""

        is_restless = False

        def __init__(self, storage: Any, resolve: Any, start_spark: Any, **_: Any) -> None:
            self._start = start_spark

        def sign_of_life(self) -> None: ...

        def run(self, stop: threading.Event) -> None:
            found = self._start(Settings(), 0)
            if found is started[0]:
                raise SetupError("spark-failed", "Spark's process ended")
            stop.wait()

    monkeypatch.setattr(host_module, "Runner", Dying)
    host = EngineHost()
    databases = [entry(tmp_path / name) for name in ("one", "two")]
    host.follow(databases)
    until(lambda: all(host.state(each) == ("Running", None) for each in databases))
    assert len(started) == 2
    assert ended == [started[0]]
    assert host.shutdown(10)


def test_spark_takes_no_orders_from_a_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[ProcessSettings, bool]] = []
    monkeypatch.setattr(spark_session, "start", lambda settings, delta: seen.append((settings, delta)))
    host = EngineHost()
    host.spark(delta=False)
    assert seen == [(OperatorSettings.from_environment().process, False)]


def test_folders_by_hand(tmp_path: Path) -> None:
    for name in ("sales/shop/Files/LandingZone", "sales/_x", "Sales/other", "v1/db", "-bad/db", "stock/a"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "linked").symlink_to(tmp_path / "stock")
    (tmp_path / "stock/b").symlink_to(tmp_path / "sales")
    registry = FolderRegistry(tmp_path)
    found = {(each.workspace.name, each.display_name) for each in registry.all_databases() if each.workspace}
    assert found in ({("sales", "shop"), ("stock", "a")}, {("Sales", "other"), ("stock", "a")})
    stock = registry.workspace("STOCK")
    assert stock is not None
    first = registry.database(stock, "A.mirroreddatabase")
    assert first is not None
    # a copy of a database is another one; one that is moved stays the same
    shutil.copytree(tmp_path / "stock/a", tmp_path / "stock/copy")
    (tmp_path / "stock/a").rename(tmp_path / "stock/moved")
    time.sleep(0.01)
    registry.look()
    registry.look()
    names = {each.folder.name: each for each in registry.databases(stock)}
    assert set(names) == {"copy", "moved"}
    assert len({each.id for each in names.values()}) == 2
    assert first.id in {each.id for each in names.values()}
    shutil.rmtree(tmp_path / "stock")
    registry.look()
    assert registry.workspace("stock") is None


def test_a_watch_sees_what_is_put_there(tmp_path: Path) -> None:
    database = entry(tmp_path / "shop")
    zone = database.folder / "Files/LandingZone"
    (zone / "dbo.schema/orders").mkdir(parents=True)
    watch = LandingWatch(database.folder)
    assert watch.has_changed()

    def noted() -> bool:
        watch.note()
        return not watch.has_changed()

    for change in (
        lambda: (zone / "dbo.schema/orders/1.parquet").write_bytes(b"x"),
        lambda: (zone / "dbo.schema/orders/1.parquet").rename(zone / "dbo.schema/orders/2.parquet"),
        lambda: (zone / "dbo.schema/orders/2.parquet").unlink(),
        lambda: (zone / "customers").mkdir(),
        lambda: (database.folder / "mirroring.json").write_text("{}"),
        lambda: shutil.rmtree(zone),
    ):
        until(noted)
        change()
        assert watch.has_changed()
    watch.note()
    (zone / "fresh").mkdir(parents=True)
    watch.note()
    assert watch.has_changed()  # too fresh to tell


def test_an_idle_database_is_looked_at_rarely_and_reacts_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = entry(tmp_path / "shop")
    monkeypatch.setattr(host_module, "REST_AFTER", 0.0)
    monkeypatch.setattr(host_module, "LONGEST_REST", 60.0)
    monkeypatch.setattr(host_module, "_IDLE_PAUSE", 0.05)
    watch = LandingWatch(database.folder)
    stop = WakeableStop(watch)
    time.sleep(0.15)
    watch.note()
    ended: list[float] = []

    def rest() -> None:
        stop.wait(0.05)
        ended.append(time.monotonic())

    for act in (stop.wake, lambda: publish(database, 1), stop.set):
        stop._last_change = 0.0
        until(lambda: watch.note() or not watch.has_changed())
        resting = threading.Thread(target=rest)
        resting.start()
        time.sleep(0.3)
        assert resting.is_alive()
        act()
        resting.join(10)
        assert not resting.is_alive()


def test_a_long_rest_gives_signs_of_life_and_is_kept_from_a_runner_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = entry(tmp_path / "shop")
    for name, seconds in (("REST_AFTER", 0.0), ("LONGEST_REST", 0.1), ("TOLD_REST", 60.0), ("_IDLE_PAUSE", 0.01)):
        monkeypatch.setattr(host_module, name, seconds)
    watch = LandingWatch(database.folder)
    if not watch.is_told:
        pytest.skip("the system does not say what changes here")
    stop = WakeableStop(watch)
    signs: list[float] = []
    stop.sign_of_life = lambda: signs.append(time.monotonic())
    for restless in (True, False):
        stop.is_restless = lambda restless=restless: restless  # type: ignore[misc]
        time.sleep(0.15)
        watch.note()
        stop._last_change = 0.0
        until(lambda: watch.note() or not watch.has_changed())
        resting = threading.Thread(target=stop.wait, args=(0.02,))
        resting.start()
        if restless:
            resting.join(10)
            assert not resting.is_alive()
        else:
            until(lambda: len(signs) > 3)
            assert resting.is_alive()
            publish(database, 1)
            resting.join(10)
            assert not resting.is_alive()


def test_idle_databases_ask_for_long_rests(tmp_path: Path) -> None:
    """A Runner whose tables are all applied waits for nothing; one with a gap does."""
    host = EngineHost()
    calm, waiting = entry(tmp_path / "calm"), entry(tmp_path / "waiting")
    publish(calm, 1)
    publish(waiting, 2)
    host.follow([calm, waiting])
    until(lambda: rows(calm) == 1 and host.not_looked_at([calm, waiting]) == [])
    stops = {database.id: host._engines[database.id].stop for database in (calm, waiting)}
    assert until(lambda: stops["waiting"].is_restless())
    publish(waiting, 1)
    until(lambda: rows(waiting) == 2)
    assert host.shutdown(20)
