"""Two engines of this process run one database: each table by one of them, one status of all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakemirror import MirroredDatabase
from lakemirror.mirror import engine_group
from lakemirror.publisher import Landing
from lakemirror.status.status_reader import read_status
from lakemirror.storage import Storage

TABLES = [f"t{number}" for number in range(24)]


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BEAT", "FENCED", "SETTLES", "GONE"):
        monkeypatch.setattr(engine_group, name, getattr(engine_group, name) / 8)


@contextmanager
def engine(path: Path, drop_after: float = 10.0) -> Iterator[MirroredDatabase]:
    database, stop = (
        MirroredDatabase(path, engine="local", share=True, poll_idle=0.1, drop_after=drop_after),
        threading.Event(),
    )
    thread = threading.Thread(target=database.run, args=(stop,))
    thread.start()
    try:
        yield database
    finally:
        stop.set()
        thread.join(30)


def publish(path: Path, number: int) -> None:
    for name in TABLES:
        Landing(path).table(name, keys=["id"]).upsert([{"id": number, "v": name}])


def versions(path: Path) -> dict[str, int]:
    return {name: DeltaTable(str(path / "Tables" / name)).version() for name in TABLES}


def positions(storage: Storage) -> dict[str, int]:
    status = read_status(storage)
    return {table.table: table.position for table in status.tables} if status else {}


def wait(condition: Callable[[], bool], seconds: float = 40.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def test_tables_are_shared_out_and_come_back(tmp_path: Path) -> None:
    publish(tmp_path, 1)
    with engine(tmp_path) as one:
        assert wait(lambda: positions(one.storage) == dict.fromkeys(TABLES, 1))
        with engine(tmp_path):
            folder = tmp_path / engine_group.FOLDER
            assert wait(lambda: len(list(folder.glob("*.tables.json"))) == 2), "both have written states"
            publish(tmp_path, 2)
            assert wait(lambda: positions(one.storage) == dict.fromkeys(TABLES, 2)), "one status of all"
            both = [text for each in folder.glob("*.tables.json") if "sourceTableName" in (text := each.read_text())]
            assert len(both) == 2, "both have tables"
        publish(tmp_path, 3)
        assert wait(lambda: positions(one.storage) == dict.fromkeys(TABLES, 3)), "the first has all of them again"
    assert versions(tmp_path) == dict.fromkeys(TABLES, 2), "each change file is one commit: no engine was beaten"
    assert read_status(one.storage).status == "Stopped"  # type: ignore[union-attr]
    assert not list((tmp_path / engine_group.FOLDER).iterdir())


def test_a_dropped_folder_is_dropped_by_the_engine_that_leads(tmp_path: Path) -> None:
    publish(tmp_path, 1)
    with engine(tmp_path, drop_after=0.5) as one, engine(tmp_path, drop_after=0.5):
        assert wait(lambda: positions(one.storage) == dict.fromkeys(TABLES, 1))
        (tmp_path / "Files/LandingZone/t3").rename(tmp_path / "gone")
        assert wait(lambda: not (tmp_path / "Tables/t3").exists())
        assert wait(lambda: "t3" not in positions(one.storage))
