"""`run` with inotify: what is listed, and what is not, while tables are idle or one of them is touched."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.landing import declare, folder, put

from lakemirror import MirroredDatabase
from lakemirror.landing_zone.zone import LANDING_ZONE
from lakemirror.mirror import loop
from lakemirror.mirror.dropped_tables import NOTE
from lakemirror.mirror.loop import Shared
from lakemirror.storage import Listing, LocalStorage
from lakemirror.storage.folder_watch import NotWatched, not_watched, open_watch

TABLES = [f"t{number}" for number in range(8)]


class Counting(LocalStorage):
    """Counts what is listed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.listed: Counter[str] = Counter()

    def list(self, path: str, enter: Callable[[str], bool] = lambda _: True) -> Listing:
        self.listed[path] += 1
        return super().list(path, enter)


@contextmanager
def running(storage: Counting, **settings: object) -> Iterator[Counter[str]]:
    """`run` of this database; how often each table had an apply."""
    applied: Counter[str] = Counter()
    stop = threading.Event()

    class Count:
        def applied(self, name: object, what: object) -> None:
            applied[str(name)] += 1

        def failed(self, name: object, error: object) -> None:
            applied["failed"] += 1

        def dropped(self, target: str) -> None:
            applied["dropped"] += 1

    given = {"maintenance": False, "verify_idle": False, "poll": 0.0, **settings}
    mirror = MirroredDatabase(storage.root, storage=storage, **given)
    thread = threading.Thread(target=lambda: mirror.run(stop, Count()))
    thread.start()
    try:
        yield applied
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def storage(tmp_path: Path) -> Counting:
    if isinstance(open_watch(tmp_path), NotWatched) or not_watched(tmp_path):
        pytest.skip("no inotify here")
    for table in TABLES:
        put(tmp_path, table, 1, {"id": [1]})
    return Counting(tmp_path)


def settled(storage: Counting) -> None:
    """Waits until nothing is listed any more."""
    before: Counter[str] | None = None
    while before != storage.listed:
        before = storage.listed.copy()
        time.sleep(0.4)


def test_an_idle_engine_lists_nothing_and_a_new_file_lists_its_table(
    storage: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "Shared", partial(Shared, seldom=3600.0))
    with running(storage) as applied:
        wait_for(lambda: all(applied[table] for table in TABLES))
        settled(storage)
        before = storage.listed.copy()
        put(tmp_path, "t3", 2, {"id": [2]})
        wait_for(lambda: applied["t3"] == 2)
        settled(storage)
        assert set(storage.listed - before) == {f"{LANDING_ZONE}/t3"}


def test_tables_and_partitions_that_come_while_it_runs(
    storage: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is found by an event: no listing comes due by itself."""
    monkeypatch.setattr(loop, "Shared", partial(Shared, seldom=3600.0))
    monkeypatch.setattr(loop, "SELDOM", 3600.0)
    with running(storage) as applied:
        wait_for(lambda: all(applied[table] for table in TABLES))
        settled(storage)
        declare(tmp_path, "late", ["id"], isPartitionEnabled=True)
        settled(storage)
        made = put(tmp_path, "elsewhere", 1, {"id": [1]}).read_bytes()
        wait_for(lambda: applied["elsewhere"])
        settled(storage)
        partition = folder(tmp_path, "late") / "region=eu"
        partition.mkdir()
        (partition / "00000000000000000001.parquet").write_bytes(made)
        wait_for(lambda: applied["late"] or applied["failed"])
        settled(storage)
        (partition / "00000000000000000002.parquet").write_bytes(made)
        wait_for(lambda: applied["late"] == 2 or applied["failed"])
        assert not applied["failed"]


def test_files_that_come_while_their_table_is_at_work_are_not_forgotten(
    storage: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "Shared", partial(Shared, seldom=3600.0))
    with running(storage, poll=0.2):
        for number in range(2, 12):
            put(tmp_path, "t0", number, {"id": [number]})
        tables = MirroredDatabase(tmp_path)
        wait_for(lambda: next(t.position for t in tables.status().tables if t.name == "t0") == 11)


def test_without_a_watch_everything_is_polled(
    storage: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStorage, "watchable", lambda _: NotWatched("a test"))
    with running(storage, poll_idle=0.05) as applied:
        wait_for(lambda: all(applied[table] for table in TABLES))
        before = storage.listed[LANDING_ZONE]
        wait_for(lambda: storage.listed[LANDING_ZONE] > before + 3)
        put(tmp_path, "t3", 2, {"id": [2]})
        wait_for(lambda: applied["t3"] == 2)


def test_a_folder_that_is_gone_is_looked_for_again_when_its_drop_is_due(
    storage: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "Shared", partial(Shared, seldom=3600.0))
    with running(storage, drop_after=0.5) as applied:
        wait_for(lambda: all(applied[table] for table in TABLES))
        settled(storage)
        folder(tmp_path, "t3").rename(tmp_path / "t3")
        wait_for(lambda: applied["dropped"])
        settled(storage)
    assert not (tmp_path / "Tables/t3").exists()
    assert not (tmp_path / NOTE).exists()


def test_a_folder_that_is_away_for_a_moment_keeps_its_table(storage: Counting, tmp_path: Path) -> None:
    with running(storage, drop_after=3600) as applied:
        wait_for(lambda: all(applied[table] for table in TABLES))
        folder(tmp_path, "t3").rename(tmp_path / "t3")
        wait_for((tmp_path / NOTE).exists)
        put(tmp_path, "t4", 2, {"id": [2]})
        wait_for(lambda: applied["t4"] == 2)
        (tmp_path / "t3").rename(folder(tmp_path, "t3"))
        put(tmp_path, "t3", 2, {"id": [2]})
        wait_for(lambda: applied["t3"] == 2 and not (tmp_path / NOTE).exists())
    assert not applied["dropped"]
