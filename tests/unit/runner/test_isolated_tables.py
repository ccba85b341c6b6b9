"""Whatever goes wrong with one table is the error of that table (contract section 5)."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.landing import folder, put, put_broken

from lakemirror import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone import archive
from lakemirror.landing_zone.zone import TableName
from lakemirror.mirror import scheduler as scheduling
from lakemirror.mirror import table_state
from lakemirror.mirror.dropped_tables import NOTE, DroppedTables
from lakemirror.mirror.observe import TableObserver
from lakemirror.mirror.scheduler import Scheduler
from lakemirror.mirror.step import Replicator
from lakemirror.settings.settings import Settings
from lakemirror.storage import LocalStorage

BAD, GOOD = TableName("", "bad"), TableName("", "good")


@pytest.fixture(autouse=True)
def log_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAKEMIRROR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache/logs"


@pytest.fixture(autouse=True)
def long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error is still there when the test looks."""
    monkeypatch.setattr(table_state, "FIRST_PAUSES", (60.0, 60.0, 60.0))


@pytest.fixture
def database(tmp_path: Path) -> Path:
    for table in ("bad", "good"):
        put(tmp_path / "shop", table, 1, {"id": [1, 2]})
    return tmp_path / "shop"


@pytest.fixture
def scheduler(database: Path) -> Iterator[Scheduler]:
    made = Scheduler(LocalStorage(database), Settings(drop_after=0.0), lambda _: None)  # type: ignore[arg-type, return-value]
    yield made
    made.stop(5)


def breaks(
    monkeypatch: pytest.MonkeyPatch, part: type[Replicator | TableObserver], method: str, failure: Exception
) -> None:
    """The method fails for the table `bad`."""
    true = getattr(part, method)

    def fails(self: Replicator | TableObserver, *rest: Any, **more: Any) -> Any:
        if self.name == BAD:
            raise failure
        return true(self, *rest, **more)

    monkeypatch.setattr(part, method, fails)


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (PermissionError(13, "Permission denied", "/x"), "storage-unavailable"),
        (MemoryError(), "memory-exhausted"),
        (ZeroDivisionError("nobody expected this"), "internal"),
        (pa.ArrowInvalid("not expected"), "internal"),
        (RecursionError("too deep"), "internal"),
        (UnicodeEncodeError("utf-8", "\udce9", 0, 1, "surrogates not allowed"), "internal"),
    ],
)
@pytest.mark.parametrize(
    ("part", "method"),
    [
        (TableObserver, "_with_table"),
        (TableObserver, "observe"),
        *((Replicator, each) for each in ("step", "quarantine", "merge_small")),
    ],
)
def test_a_failure_in_any_step_is_the_error_of_its_table(
    scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch,
    part: type[Replicator | TableObserver],
    method: str,
    failure: Exception,
    code: str,
    database: Path,
) -> None:
    if method == "quarantine":
        put_broken(database, "bad", 2)
    breaks(monkeypatch, part, method, failure)
    scheduler.tick()
    assert scheduler.wait(30)
    assert scheduler.states[GOOD].error is None
    assert scheduler.states[GOOD].position == 1
    error = scheduler.states[BAD].error
    assert error is not None
    assert error.code == code


def test_an_internal_failure_names_the_log_which_holds_it_once(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, log_folder: Path
) -> None:
    breaks(monkeypatch, TableObserver, "_with_table", ZeroDivisionError("nobody expected this"))
    for _ in range(5):
        scheduler.tick()
        scheduler.wait(30)
    error = scheduler.states[BAD].error
    assert error is not None
    assert error.message == f"ZeroDivisionError: nobody expected this; the log is {log_folder / 'failures.log'}"
    assert (log_folder / "failures.log").read_text().count("ZeroDivisionError: nobody expected this") == 1


def test_tidying_that_fails_stops_nothing(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, database: Path
) -> None:
    def fails(*_: object) -> int:
        raise RuntimeError("nobody expected this")

    scheduler.tick()
    assert scheduler.wait(30)
    (folder(database, "bad") / "_ProcessedFiles").mkdir()
    (folder(database, "bad") / "_ProcessedFiles" / f"{1:020}.parquet").write_bytes(b"x")
    monkeypatch.setattr(archive, "purge", fails)
    put(database, "good", 2, {"id": [3]})
    scheduler.tick()
    assert scheduler.wait(30)
    assert scheduler.states[GOOD].position == 2


def test_a_look_that_is_stuck_holds_up_nobody(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    true = TableObserver._with_table

    def slow(self: TableObserver, *rest: Any) -> Any:
        if self.name == BAD:
            release.wait(60)
        return true(self, *rest)

    monkeypatch.setattr(TableObserver, "_with_table", slow)
    try:
        scheduler.tick()
        until = time.monotonic() + 30
        while GOOD not in scheduler.states or scheduler.states[GOOD].position != 1:
            assert not scheduler.wait(0.05), "the look at the other one goes on"
            assert time.monotonic() < until
        assert not scheduler.wait(0.05)
        assert BAD not in scheduler.states
        scheduler.tick()
        with scheduler.paused(BAD) as is_free:
            assert not is_free
    finally:
        release.set()
    assert scheduler.wait(30)
    assert scheduler.states[BAD].position == 1


def test_a_look_without_end_is_an_error_of_its_table(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    true = TableObserver._with_table
    monkeypatch.setattr(scheduling, "LONGEST_LOOK", 0.5)
    monkeypatch.setattr(
        TableObserver, "_with_table", lambda self, *rest: release.wait(60) if self.name == BAD else true(self, *rest)
    )
    try:
        scheduler.tick()
        assert scheduler.wait()
        error = scheduler.states[BAD].error
        assert error is not None
        assert error.code == "storage-unavailable"
        assert scheduler.states[GOOD].position == 1
    finally:
        release.set()


def test_a_pass_ends_although_a_look_does_not(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release, results = threading.Event(), []
    true = TableObserver._with_table
    monkeypatch.setattr(scheduling, "LONGEST_LOOK", 0.5)
    monkeypatch.setattr(
        TableObserver, "_with_table", lambda self, *rest: release.wait(60) if self.name == BAD else true(self, *rest)
    )
    one_pass = threading.Thread(target=lambda: results.append(MirroredDatabase(database).sync()), daemon=True)
    one_pass.start()
    one_pass.join(30)
    release.set()
    assert results, "the pass waits for the look"
    assert results[0].failed["bad"].code == "storage-unavailable"
    assert results[0].tables["good"].commits == 1


def test_an_error_of_the_schema_folder_ends_with_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of a table at rest, of which the listing then shows no change."""
    put(tmp_path, "sales.orders", 1, {"id": [1]})
    MirroredDatabase(tmp_path).sync()
    os.utime(tmp_path / "Tables/sales/orders/_delta_log", (time.time() - 3600,) * 2)
    made = Scheduler(LocalStorage(tmp_path), Settings(), lambda _: None)  # type: ignore[arg-type, return-value]
    name, true = TableName("sales", "orders"), scheduling.scan

    def error() -> LakemirrorError | None:
        made.tick()
        assert made.wait(30)
        return made.states[name].error

    def unlisted(storage: Any) -> Any:
        zone = true(storage)
        zone.tables.clear()
        zone.errors[name.folder.rpartition("/")[0]] = LakemirrorError("storage-unavailable", "no permission")
        return zone

    assert error() is None
    with monkeypatch.context() as broken:
        broken.setattr(scheduling, "scan", unlisted)
        assert error() is not None
    assert error() is None
    made.stop(5)


def test_a_stop_does_not_wait_for_an_apply_without_end(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    release, begun = threading.Event(), threading.Event()

    def stuck(*_: object) -> None:
        begun.set()
        release.wait(60)

    monkeypatch.setattr(Replicator, "step", stuck)
    try:
        scheduler.tick()
        assert begun.wait(10)
        assert not scheduler.stop(0.2)
    finally:
        release.set()


def test_conflicts_count_in_a_row(database: Path, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another engine that is always faster is no error: it has applied the files."""
    true = Replicator.step
    other = Scheduler(LocalStorage(database), Settings(), lambda _: None)  # type: ignore[arg-type, return-value]

    def late(self: Replicator, *given: Any) -> Any:
        if self._storage is scheduler._storage:
            other.tick()
            assert other.wait(30)
        return true(self, *given)

    monkeypatch.setattr(Replicator, "step", late)
    for number in range(2, 10):
        put(database, "good", number, {"id": [number]})
        scheduler.tick()
        assert scheduler.wait(30)
        assert (scheduler.states[GOOD].position, scheduler.states[GOOD].error) == (number, None)
    other.stop(5)


@pytest.mark.parametrize("moment", ["before the table is noted", "after it"])
def test_an_event_during_a_listing_leads_to_a_look_after_it(
    database: Path, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The listing may be older than what the event tells of."""
    scheduler.tick()
    assert scheduler.wait(30)
    put(database, "good", 2, {"id": [2]})

    class Eventful(dict[TableName, Any]):
        """The event comes while the tick notes what it has listed."""

        def event(self, name: TableName) -> None:
            if name == GOOD and not (database / "told").exists():
                (database / "told").touch()
                put(database, "good", 3, {"id": [3]})
                scheduler.touch(name)

        def get(self, name: TableName, *default: Any) -> Any:
            before = super().get(name, *default)
            if moment.startswith("after"):
                self.event(name)
            return before

        def __setitem__(self, name: TableName, folder: Any) -> None:
            if moment.startswith("before"):
                self.event(name)
            super().__setitem__(name, folder)

    monkeypatch.setattr(scheduler, "_touched" if moment.startswith("after") else "_listed", Eventful())
    with scheduler.paused(GOOD) as is_free:  # so that there is one look
        assert is_free
        scheduler.tick()
    assert scheduler.wait(30)
    assert scheduler.states[GOOD].position == 3


def test_no_commit_begins_after_a_stop(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog of many batches: the table ends behind the commit it is at."""
    for number in range(2, 40):
        put(database, "bad", number, {"id": [number]})
    made = Scheduler(LocalStorage(database), Settings(batch_files=1), lambda _: None)  # type: ignore[arg-type, return-value]
    true = Replicator.step
    applied = []

    def step(self: Replicator, *rest: Any) -> Any:
        if self.name == BAD:
            applied.append(1)
            if len(applied) == 3:
                made.request_stop()
        return true(self, *rest)

    monkeypatch.setattr(Replicator, "step", step)
    made.tick()
    assert made.wait(30)
    assert made.stop(30)
    assert len(applied) == 3


def test_an_observer_that_fails_stops_nothing(database: Path) -> None:
    class Gone:
        def applied(self, *_: object) -> None:
            raise BrokenPipeError(32, "Broken pipe")

        failed = dropped = applied

    result = MirroredDatabase(database, maintenance=False).sync(Gone())  # type: ignore[arg-type]
    assert result.failed == {}
    assert result.tables["good"].commits == result.tables["bad"].commits == 1


def test_drops_are_put_off_not_the_tables(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> list[str]:
        raise LakemirrorError("storage-unavailable", "Tables: Permission denied")

    monkeypatch.setattr(DroppedTables, "look", fails)
    scheduler.tick()
    assert scheduler.wait(30)
    assert [state.position for state in scheduler.states.values()] == [1, 1]
    assert scheduler.tables.warnings["drop-postponed"].message.endswith(
        "storage-unavailable: Tables: Permission denied"
    )
    monkeypatch.undo()
    scheduler.tick()
    assert scheduler.tables.warnings == {}


def test_a_dropped_table_leaves_though_its_note_cannot_be_written(database: Path) -> None:
    class ReadOnly(LocalStorage):
        def write(self, path: str, data: bytes) -> None:
            raise LakemirrorError("storage-unavailable", f"{path}: Permission denied")

    MirroredDatabase(database, maintenance=False).sync()
    dropped = DroppedTables(ReadOnly(database), 0.0)
    assert dropped.look({"Tables/good"}, lambda _: False) == []
    assert not (database / NOTE).exists()
    assert dropped.look({"Tables/good"}, lambda _: False) == ["Tables/bad"]


def test_status_shows_the_others_where_one_table_cannot_be_looked_at(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MirroredDatabase(database, maintenance=False).sync()
    breaks(monkeypatch, TableObserver, "_with_table", ZeroDivisionError("nobody expected this"))
    found = {table.name: table for table in MirroredDatabase(database).status().tables}
    assert found["good"].position == 1
    assert found["bad"].error_code == "internal"


def test_equal_warnings_are_few(database: Path) -> None:
    for number in range(50):
        (folder(database, "good") / f"link-{number}").symlink_to("nowhere")
    MirroredDatabase(database, maintenance=False).sync()
    found = {table.name: table for table in MirroredDatabase(database).status().tables}
    assert len(found["good"].warnings) == 20
    assert found["good"].warnings[-1].message.endswith("(and 30 more)")


def test_a_waiting_table_keeps_the_first_time_and_says_how_far_it_is_behind(database: Path) -> None:
    put(database, "good", 3, {"id": [5]})
    mirror = MirroredDatabase(database, maintenance=False)
    mirror.sync()
    first = {table.name: table for table in mirror.status().tables}["good"]
    assert first.waiting_for is not None
    time.sleep(0.05)
    mirror.sync()
    again = {table.name: table for table in mirror.status().tables}["good"]
    assert again.waiting_for is not None
    assert again.waiting_for.since == pytest.approx(first.waiting_for.since, abs=0.001)
    assert again.lag(time.time() + 60) > 59
    assert json.loads((database / "Files/Monitoring/tables.json").read_text())["tables"][1]["oldestPendingTimeUtc"]


def test_a_table_that_cannot_leave_keeps_no_other(
    database: Path, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.tick()
    scheduler.wait(10)
    names = sorted(path.name for path in (database / "Tables").iterdir())
    for name in names:
        shutil.rmtree(folder(database, name))
    storage = scheduler._storage
    true = storage.move

    def move(source: str, target: str) -> None:
        if source == f"Tables/{names[0]}":
            raise LakemirrorError("storage-unavailable", "Input/output error")
        true(source, target)

    monkeypatch.setattr(storage, "move", move)
    for _ in range(3):
        scheduler.tick()
    assert [path.name for path in (database / "Tables").iterdir()] == names[:1]
    assert "drop-postponed" in scheduler.tables.warnings
