"""A database that is deleted while it runs stays deleted (contract section 7: a publisher's delete always succeeds)."""

from __future__ import annotations

import math
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tests.landing import MARKER, declare, put
from tests.unit.runner.test_run_loop import mirror, position, running, status, wait_for

from lakemirror import MirroredDatabase
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.row_work import RowResult, RowWork
from lakemirror.errors import SetupError
from lakemirror.mirror import status_writer
from lakemirror.mirror.status_writer import StatusWriter
from lakemirror.storage.durable import make_folders


@pytest.mark.parametrize("where", ["before rows are written", "after rows are written"])
@pytest.mark.parametrize("number", [1, 2])
def test_an_apply_does_not_bring_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, number: int
) -> None:
    database = tmp_path / "shop"
    declare(database, "sales.orders", ["id"])
    put(database, "sales.orders", 1, {"id": [1]})
    if number == 2:
        assert not MirroredDatabase(database, maintenance=False).sync().failed
    put(database, "sales.orders", 2, {"id": [1], MARKER: pa.array([4], pa.int32())})
    true: Callable[[LocalEngine, RowWork], RowResult] = LocalEngine.run

    def deleted(engine: LocalEngine, work: RowWork) -> RowResult:
        if where == "before rows are written":
            shutil.rmtree(database)
            return true(engine, work)
        result = true(engine, work)
        shutil.rmtree(database)
        return result

    monkeypatch.setattr(LocalEngine, "run", deleted)
    failed = MirroredDatabase(database, maintenance=False, retry_limit=0.0).sync().failed
    assert {error.code for error in failed.values()} <= {"concurrent-commit"}, failed
    assert not database.exists(), list(database.rglob("*"))


def test_rm_r_while_it_runs(tmp_path: Path) -> None:
    """Files keep arriving and being applied while the folder is deleted from another thread, as `rm -r` does."""
    for attempt in range(4):
        database = tmp_path / f"shop{attempt}"
        tables = [f"t{number}" for number in range(3)]
        for table in tables:
            declare(database, table, ["id"])
            for number in range(1, 30):
                put(database, table, number, {"id": [number], MARKER: pa.array([4], pa.int32())})
        stop, ended = threading.Event(), threading.Event()

        def run(place: Path = database, stop: threading.Event = stop, ended: threading.Event = ended) -> None:
            with pytest.raises(SetupError, match=r"there is no folder|has no Files/LandingZone"):
                mirror(place).run(stop)
            ended.set()

        thread = threading.Thread(target=run)
        thread.start()
        wait_for(lambda place=database: position(place, "t0"))  # type: ignore[misc]
        while database.exists():  # an entry that comes between two calls ends one `rm -r`, and another follows
            shutil.rmtree(database, ignore_errors=True)
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            assert not database.exists(), list(database.rglob("*"))
            time.sleep(0.01)
        wait_for(ended.is_set)
        stop.set()
        thread.join(30)
        assert not database.exists()


def test_a_status_folder_that_is_gone_is_made_again_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held_back, true = threading.Event(), StatusWriter._may_write

    def may_write(self: StatusWriter) -> bool:
        found = true(self)
        if not found:
            held_back.set()
        return found

    monkeypatch.setattr(StatusWriter, "_may_write", may_write)
    monkeypatch.setattr(status_writer, "_DELETED", math.inf)
    put(tmp_path, "t", 1, {"id": [1]})
    with running(mirror(tmp_path)):
        wait_for(lambda: position(tmp_path, "t"))
        (tmp_path / "Files/Monitoring").rename(tmp_path / "away")  # in one step: the status is written all the time
        put(tmp_path, "t", 2, {"id": [2]})
        assert held_back.wait(60)
        assert not (tmp_path / "Files/Monitoring").exists()
        monkeypatch.setattr(status_writer, "_DELETED", 0.0)
        wait_for(lambda: status(tmp_path))


def test_folders_are_made_below_one_that_is_there(tmp_path: Path) -> None:
    make_folders(tmp_path / "a/b/c", tmp_path)
    make_folders(tmp_path / "a/b/c", tmp_path)
    assert (tmp_path / "a/b/c").is_dir()
    with pytest.raises(FileNotFoundError):
        make_folders(tmp_path / "gone/b", tmp_path / "gone")
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_folders(tmp_path / "file", tmp_path)
    assert not (tmp_path / "gone").exists()
