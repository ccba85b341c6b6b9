"""The engine host: wakes at once, starts engines again, and one failing database holds up no other."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running_service import until

from lakemirror.errors import SetupError
from lakemirror.mirror import idle_time, loop, status_writer
from lakemirror.mirror.scheduler import Scheduler
from lakemirror.service import host as host_module
from lakemirror.service.host import EngineHost
from lakemirror.service.interface import DatabaseEntry, WorkspaceEntry
from lakemirror.service.operator_settings import OperatorSettings
from lakemirror.service.rest.registry import FolderRegistry
from lakemirror.settings.settings import ProcessSettings, Settings
from lakemirror.spark_session import session as spark_session
from lakemirror.status.status_reader import read_status
from lakemirror.storage import LocalStorage
from lakemirror.storage.folder_watch import NotWatched, not_watched


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
    until(lambda: host.has_stopped(one.id))
    publish(one, 2)
    again = entry(tmp_path / "one")
    host.follow([again])
    until(lambda: rows(again) == 2)
    assert len(host.history(again.id, "orders")) == 2
    assert host.shutdown(20)
    host.start(two)
    assert host.has_stopped(two.id)


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

        has_looked = False
        ended_by: SetupError | None = None

        def __init__(self, storage: Any, resolve: Any, start_spark: Any, **_: Any) -> None:
            self._start = start_spark

        def begin(self) -> None:
            self.has_looked = True
            if self._start(Settings()) is started[0]:
                self.ended_by = SetupError("spark-failed", "Spark's process ended")
                threading.Timer(0.05, lambda: self.on_end()).start()

        def on_end(self) -> None: ...
        def end(self) -> None: ...

    monkeypatch.setattr(host_module, "Runner", Dying)
    host = EngineHost()
    databases = [entry(tmp_path / name) for name in ("one", "two")]
    host.follow(databases)
    until(lambda: len(started) == 2 and all(host.state(each) == ("Running", None) for each in databases))
    assert ended == [started[0]]
    assert host.shutdown(10)


def test_a_session_that_was_stopped_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(spark_session, "start", lambda settings, delta: started.append(object()) or started[-1])
    monkeypatch.setattr(spark_session, "is_over", lambda session: session is started[0])
    host = EngineHost()
    assert host.spark(delta=False) is started[0]
    assert host.spark(delta=False) is host.spark(delta=False) is started[1]


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


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the landing zone of each database was listed."""
    counted: Counter[str] = Counter()
    tick = Scheduler.tick

    def counting(self: Scheduler) -> None:
        counted[Path(self._storage.uri()).name] += 1
        tick(self)

    monkeypatch.setattr(Scheduler, "tick", counting)
    return counted


def heartbeat(database: DatabaseEntry) -> float:
    found = read_status(LocalStorage(database.folder))
    return found.process.heartbeat if found and found.process else 0.0


def test_an_idle_database_is_listed_rarely_gives_signs_of_life_and_reacts_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: Counter[str]
) -> None:
    for name, seconds in (("_REST", 0.0), ("_QUIET", 0.0), ("HEARTBEAT", 0.2)):
        monkeypatch.setattr(loop, name, seconds)
    monkeypatch.setattr(status_writer, "HEARTBEAT", 0.2)
    monkeypatch.setattr(idle_time, "_LATELY", 0.0)
    host = EngineHost()
    database = entry(tmp_path / "shop")
    if not_watched(database.folder):
        pytest.skip("the system does not say what changes here")
    publish(database, 1)
    host.follow([database])
    until(lambda: rows(database) == 1)
    until(lambda: not_listed(listed, 1.0))
    before, beat = listed.copy(), heartbeat(database)
    until(lambda: heartbeat(database) > beat)
    for number, act in ((2, lambda: None), (3, lambda: host.wake(database.id))):
        begun = time.monotonic()
        publish(database, number)
        act()
        until(lambda number=number: rows(database) == number)  # type: ignore[misc]
        assert time.monotonic() - begun < 5.0
    assert listed == before, "the system named the table"
    (database.folder / "Files/LandingZone/new").mkdir()
    until(lambda: listed["shop"] > before["shop"])
    assert host.shutdown(20)


def not_listed(listed: Counter[str], seconds: float) -> bool:
    before = listed.copy()
    time.sleep(seconds)
    return listed == before


def test_a_database_that_is_polled_is_listed_at_once_after_a_publish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStorage, "watchable", lambda _: NotWatched("a test"))
    monkeypatch.setattr(loop, "_QUIET", 0.0)
    monkeypatch.setenv("LAKEMIRROR_POLL_IDLE", "3600")
    host = EngineHost()
    database = entry(tmp_path / "shop")
    publish(database, 1)
    host.follow([database])
    until(lambda: rows(database) == 1)
    until(lambda: host.shared.queue.commits(host._engines["shop"]._runner._lane) == 0)  # type: ignore[union-attr]
    time.sleep(0.5)
    publish(database, 2)
    time.sleep(0.5)
    assert rows(database) == 1, "nobody has said so"
    host.wake(database.id)
    until(lambda: rows(database) == 2)
    assert host.shutdown(20)


def test_a_database_that_waits_asks_for_no_long_rest(tmp_path: Path) -> None:
    """A Runner whose tables are all applied waits for nothing; one with a gap does."""
    host = EngineHost()
    calm, waiting = entry(tmp_path / "calm"), entry(tmp_path / "waiting")
    publish(calm, 1)
    publish(waiting, 2)
    host.follow([calm, waiting])
    until(lambda: rows(calm) == 1 and host.not_looked_at([calm, waiting]) == [])
    runners = {name: host._engines[name]._runner for name in ("calm", "waiting")}
    assert until(lambda: runners["waiting"].is_restless)
    publish(waiting, 1)
    until(lambda: rows(waiting) == 2)
    assert host.shutdown(20)


def test_many_databases_need_few_threads_and_share_one_memory(tmp_path: Path) -> None:
    before = threading.active_count()
    host = EngineHost()
    databases = [entry(tmp_path / f"db{number}") for number in range(40)]
    for database in databases:
        publish(database, 1)
    host.follow(databases)
    until(lambda: all(rows(database) == 1 for database in databases))
    until(lambda: threading.active_count() - before < 80)
    schedulers = [engine._runner._scheduler for engine in host._engines.values()]  # type: ignore[union-attr]
    assert len({id(each.engines.get("local")) for each in schedulers}) == 1
    assert host.shutdown(60)
