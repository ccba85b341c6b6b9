"""A look that found nothing to do is not repeated while the listing and the log's folder stay as they are."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from tests.landing import declare, put

from lakemirror import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import TableName
from lakemirror.mirror import table_states
from lakemirror.mirror.dropped_tables import NOTE
from lakemirror.mirror.observe import TableObserver
from lakemirror.mirror.scheduler import Scheduler
from lakemirror.settings.settings import Settings
from lakemirror.storage import Entry, LocalStorage

TABLES = ["a", "b", "c"]


class Opening(LocalStorage):
    """Counts what is opened."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.opened: Counter[str] = Counter()

    def open(self, path: str, known: Entry | None = None) -> BinaryIO:
        self.opened[path] += 1
        return super().open(path, known)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each table was looked into."""
    counted: Counter[str] = Counter()
    observe = TableObserver._with_table

    def counting(self: TableObserver, *given: Any, **more: Any) -> Any:
        counted[str(self.name)] += 1
        return observe(self, *given, **more)

    monkeypatch.setattr(TableObserver, "_with_table", counting)
    return counted


def log_of(database: Path, table: str) -> Path:
    return database / "Tables" / table / "_delta_log"


def grow_old(database: Path) -> None:
    """The log's folders have not changed for an hour."""
    for table in TABLES:
        before = time.time() - 3600
        os.utime(log_of(database, table), (before, before))


@pytest.fixture
def scheduler(tmp_path: Path) -> Scheduler:
    for table in TABLES:
        put(tmp_path, table, 1, {"id": [1]})
    MirroredDatabase(tmp_path).sync()
    grow_old(tmp_path)

    def no_spark(_: int) -> Any:
        raise AssertionError("Spark was wanted")

    made = Scheduler(Opening(tmp_path), Settings(settle=0.0, maintenance=False), no_spark)
    made.tick()  # what a process before left is looked into once
    assert made.wait(30)
    return made


def ticked(scheduler: Scheduler, looked: Counter[str]) -> set[str]:
    """The tables that a tick looks into."""
    looked.clear()
    scheduler.tick()
    assert scheduler.wait(30)
    return set(looked)


def test_nothing_is_opened_that_a_listing_shows_unchanged(scheduler: Scheduler, looked: Counter[str]) -> None:
    storage = scheduler._storage
    assert isinstance(storage, Opening)
    storage.opened.clear()
    assert ticked(scheduler, looked) == set()
    assert set(storage.opened) <= {NOTE}, "one file for all tables"


@pytest.mark.parametrize(
    "change",
    [
        lambda database: put(database, "b", 2, {"id": [2]}),
        lambda database: declare(database, "b", ["id"], isUpsertDefaultRowMarker=True),
        lambda database: (log_of(database, "b") / "00000000000000000009.json.tmp").touch(),
        lambda database: log_of(database, "b").rename(log_of(database, "b").with_name("gone")),
        lambda database: (database / "Files/LandingZone/b/_paused.json").write_text("{}"),
        lambda database: (database / "Files/LandingZone/b/_mirror.json").unlink(),
    ],
    ids=["file", "metadata", "log", "no log", "paused", "marker"],
)
def test_what_changed_is_looked_into(
    scheduler: Scheduler, looked: Counter[str], tmp_path: Path, change: Callable[[Path], object]
) -> None:
    change(tmp_path)
    assert ticked(scheduler, looked) == {"b"}


def test_a_log_that_has_just_changed_is_not_trusted(scheduler: Scheduler, looked: Counter[str], tmp_path: Path) -> None:
    put(tmp_path, "b", 2, {"id": [2]})
    assert ticked(scheduler, looked) == {"b"}
    assert ticked(scheduler, looked) == {"b"}, "its folder's time may stay the same at the next commit"
    grow_old(tmp_path)
    assert ticked(scheduler, looked) == set(TABLES), "a time that is another one, older or not"
    assert ticked(scheduler, looked) == set()


def test_a_table_with_an_error_is_looked_into(
    scheduler: Scheduler, looked: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = TableName("", "b")
    with monkeypatch.context() as patch:
        patch.setattr(TableObserver, "_with_table", lambda *_, **__: 1 / 0)
        put(tmp_path, "b", 2, {"id": [2]})
        scheduler.tick()
        assert scheduler.wait(30)
    assert isinstance(scheduler.states[name].error, LakemirrorError)
    (tmp_path / f"Files/LandingZone/b/{2:020}.parquet").unlink()
    assert ticked(scheduler, looked) == {"b"}
    assert scheduler.states[name].error is None


def test_a_look_is_valid_for_a_limited_time(
    scheduler: Scheduler, looked: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the table is due without an event or a listing."""
    monkeypatch.setattr(table_states, "LASTS", 0.3)
    for table in TABLES:
        (log_of(tmp_path, table) / "00000000000000000009.json.tmp").touch()
    grow_old(tmp_path)
    ticked(scheduler, looked)
    looked.clear()
    assert scheduler.wait(30), "nothing is due now"
    assert not scheduler.wait(0.7, within=0.4)
    assert set(looked) == set(TABLES)
