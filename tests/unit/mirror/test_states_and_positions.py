"""Positions, manifests, table states and dropped tables: decisions without a JVM."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.delta.test_delta_log import METADATA, PROTOCOL, add

from lakemirror.delta.checkpoint import write_checkpoint
from lakemirror.delta.log import read_snapshot
from lakemirror.delta.log_folder import RecentLog
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.change_file import ChangeFile, TableFiles, Waiting
from lakemirror.landing_zone.pending import Pending
from lakemirror.landing_zone.zone import TableFolder, TableName
from lakemirror.mirror import table_state
from lakemirror.mirror.apply import Applied
from lakemirror.mirror.dropped_tables import NOTE, DroppedTables
from lakemirror.mirror.observe import View
from lakemirror.mirror.position import Manifest, Position, current_position, parse_manifest
from lakemirror.mirror.table_log import TableLog, read_table_log
from lakemirror.mirror.table_state import LastApply, TableState, next_state
from lakemirror.mirror.table_states import TableStates
from lakemirror.storage import Entry, LocalStorage

MANIFEST = Manifest("abc", 1, 7, "f", 10, 20, ("id",), 5, 6, 1.5, ("note",))


def commit(table: Path, version: int, *actions: dict[str, Any]) -> None:
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020}.json").write_text("".join(json.dumps(a) + "\n" for a in actions))


def applied(
    number: int, identity: str = "abc", generation: int = 1, manifest: Manifest | None = MANIFEST
) -> list[dict[str, Any]]:
    info = {"commitInfo": {"operation": "WRITE", "userMetadata": manifest.to_json() if manifest else "mine"}}
    return [info, {"txn": {"appId": f"lakemirror:{generation}:{identity}", "version": number}}]


def test_the_highest_generation_is_the_current_one() -> None:
    assert current_position({"lakemirror:1:a": 900, "lakemirror:2:b": 3, "stream": 5}) == Position("b", 2, 3)
    assert current_position({"stream": 5, "lakemirror:x:y": 1, "lakemirror:1:": 1, "lakemirrors:1:a": 1}) is None


def test_a_manifest_comes_back_as_it_was() -> None:
    assert parse_manifest(MANIFEST.to_json()) == MANIFEST
    for other in (None, "", "{}", "[]", '{"lakemirror": 3}', '{"lakemirror": {"more": 1}}'):
        assert parse_manifest(other) is None


def test_the_position_is_found_behind_commits_of_others(tmp_path: Path) -> None:
    assert read_table_log(str(tmp_path)) is None
    commit(tmp_path, 0, *applied(3))
    commit(tmp_path, 1, *applied(7))
    commit(tmp_path, 2, {"commitInfo": {"operation": "OPTIMIZE"}})
    found = read_table_log(str(tmp_path))
    assert found is not None
    assert (found.position, found.manifest, found.key_columns) == (Position("abc", 1, 7), MANIFEST, ("id",))


def test_a_position_before_the_known_end_of_the_log_is_found(tmp_path: Path) -> None:
    commit(tmp_path, 0, PROTOCOL, METADATA, *applied(7))
    for version in range(1, 50):
        commit(tmp_path, version, {"commitInfo": {"operation": "WRITE"}}, add(f"{version}"))
        if version % 10 == 0:
            snapshot = read_snapshot(tmp_path)
            assert snapshot is not None
            write_checkpoint(snapshot, durable=False)
    known = RecentLog(tmp_path).read()
    assert known is not None and min(known.commits) == 20
    found = read_table_log(str(tmp_path), listed=known)
    assert found is not None and found.position is not None
    assert found.manifest == MANIFEST, "the commit that holds it is older than what is known"
    assert found == read_table_log(str(tmp_path))


def test_a_table_of_somebody_else_has_no_position(tmp_path: Path) -> None:
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    schema = json.dumps({"type": "struct", "fields": []})
    metadata = {
        "metaData": {"id": "x", "format": {"provider": "parquet"}, "schemaString": schema, "partitionColumns": []}
    }
    commit(tmp_path, 0, protocol, metadata)
    found = read_table_log(str(tmp_path))
    assert found is not None
    assert found.position is None


FILE = ChangeFile(Entry("Files/LandingZone/t/1.parquet", 1, 1), 1, None)


def plan(
    position: int = 0, pending: int = 0, *, file: str = "a", work: bool = True, identity: str = "i",
    waiting: Waiting | None = None, error: LakemirrorError | None = None,
) -> View:  # fmt: skip
    """What a look found. `file`: the etag of the file that failed; `work`: there is something to apply."""
    log = TableLog(Position("i", 1, position), None) if position else None
    folder = TableFolder(TableName("", "t"), files=[Entry("bad", 1, 0, file)])
    waits = Pending((FILE,) if work else (), pending, waiting=waiting)
    return View(TableFiles(folder), log, identity=identity, pending=waits, failure=error)


def after(state: TableState, look: View, done: Any = None, now: float = 0.0) -> TableState:
    return next_state(state, look, done, now=now, longest=60.0)


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        ({}, "Initialized"),
        ({"pending": 2, "waiting": Waiting("number 1", 0.0)}, "Initialized"),
        ({"pending": 2}, "Snapshotting"),
        ({"position": 3}, "Replicating"),
        ({"position": 3, "pending": 1, "waiting": Waiting("number 4", 0.0)}, "Replicating"),
        ({"position": 3, "identity": "j"}, "Reseeding"),
        ({"position": 3, "error": TableError("type-changed", "m")}, "Failed"),
        ({"position": 3, "error": LakemirrorError("storage-unavailable", "m")}, "Replicating"),
    ],
)
def test_states_after_a_look(facts: dict[str, Any], status: str) -> None:
    assert after(TableState(), plan(work=False, **facts)).status == status


def test_a_permanent_failure_stays_until_what_it_failed_on_changes() -> None:
    error = TableError("row-marker-invalid", "m", file="bad")
    state = after(TableState(position=1), plan(1), error)
    assert state.status == "Failed"
    assert [state.is_due(plan(1, file=file), 10.0**9) for file in "ab"] == [False, True]
    assert not state.is_due(plan(1, file="b", work=False), 10.0**9)
    assert after(state, plan(1)).error is error
    assert after(state, plan(1, file="b")).error is None


def test_an_error_goes_with_what_it_was_about() -> None:
    for code in ("concurrent-commit", "row-marker-invalid"):
        state = after(TableState(position=1), plan(1), LakemirrorError(code, "m"))
        assert after(state, plan(1)).error is not None
        assert after(state, plan(1, work=False)).error is None


def test_a_look_that_fails_is_tried_again_and_delays_no_apply() -> None:
    error = LakemirrorError("storage-unavailable", "m")
    state, pauses = TableState(position=1), []
    for _ in range(6):
        state = after(state, plan(1, work=False, error=error), now=100.0)
        assert state.failure is not None and state.status == "Replicating"
        pauses.append(state.failure.next_try - 100.0)
    assert pauses == pytest.approx([*table_state.FIRST_PAUSES, 8.0, 16.0, 32.0])
    state = after(state, plan(1), now=100.0)
    assert state.failure is None and state.is_due(plan(1), 100.0)


def test_what_may_pass_is_tried_again_with_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_state, "FIRST_PAUSES", (1.0, 2.0, 4.0))
    error = LakemirrorError("concurrent-commit", "m")
    state, pauses, statuses = TableState(position=1), [], []
    for _ in range(9):
        state = after(state, plan(1), error, now=100.0)
        assert state.failure is not None
        pauses.append(state.failure.next_try - 100.0)
        statuses.append(after(state, plan(1)).status)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert statuses == ["Replicating"] * 4 + ["Failed"] * 5, "also after a look"
    assert [state.is_due(plan(1), now) for now in (159.0, 160.0)] == [False, True]
    batch: Any = SimpleNamespace(files=[1])
    done = Applied(batch, Position("i", 1, 2), MANIFEST, 5, "local", "small")
    state = after(state, plan(1), done, now=8.0)
    assert (state.status, state.failure, state.position) == ("Replicating", None, 2)
    assert state.last == LastApply(MANIFEST.rows, MANIFEST.bytes, MANIFEST.committed, 8.0, "local", "small")


@pytest.fixture
def database(tmp_path: Path) -> LocalStorage:
    for target in ("Tables/gone", "Tables/sales/gone"):
        commit(tmp_path / target, 0, *applied(1))
    commit(tmp_path / "Tables/kept", 0, *applied(1))
    commit(tmp_path / "Tables/foreign", 0, {"txn": {"appId": "stream", "version": 1}})
    (tmp_path / "Tables/a-file").write_text("")
    (tmp_path / NOTE).parent.mkdir(parents=True)
    return LocalStorage(tmp_path)


def pass_over(dropped: DroppedTables) -> list[str]:
    return sorted(dropped.look({"Tables/kept"}, lambda _: False))


def test_a_table_is_dropped_when_its_folder_was_missed_twice(database: LocalStorage, tmp_path: Path) -> None:
    dropped = DroppedTables(database, 0.0)
    assert pass_over(dropped) == []
    assert sorted(json.loads(database.read(NOTE))) == ["Tables/gone", "Tables/sales/gone"]
    assert pass_over(DroppedTables(database, 0.0)) == ["Tables/gone", "Tables/sales/gone"], "by another process"
    assert not database.exists(NOTE)
    assert sorted(p.name for p in (tmp_path / "Tables").iterdir()) == ["a-file", "foreign", "kept", "sales"]
    assert len(list((tmp_path / "Files/_DroppedTables").glob("gone-*"))) == 1
    assert len(list((tmp_path / "Files/_DroppedTables/sales").glob("gone-*"))) == 1


def test_losing_the_note_delays_the_drop_by_a_pass(database: LocalStorage) -> None:
    dropped = DroppedTables(database, 0.0)
    pass_over(dropped)
    database.delete(NOTE)
    assert pass_over(dropped) == []
    assert pass_over(dropped) == ["Tables/gone", "Tables/sales/gone"]


def test_a_folder_that_came_back_is_not_counted_any_more(database: LocalStorage) -> None:
    dropped = DroppedTables(database, 0.0)
    pass_over(dropped)
    assert dropped.look({"Tables/kept", "Tables/gone", "Tables/sales/gone"}, lambda _: False) == []
    assert pass_over(dropped) == []


def test_a_table_at_work_is_not_dropped(database: LocalStorage) -> None:
    dropped = DroppedTables(database, 0.0)
    for _ in range(3):
        assert dropped.look({"Tables/kept", "Tables/sales/gone"}, lambda t: t == "Tables/gone") == []


def test_dropped_tables_rest_for_a_while(database: LocalStorage, tmp_path: Path) -> None:
    dropped = DroppedTables(database, 0.0)
    pass_over(dropped)
    pass_over(dropped)
    (resting,) = (tmp_path / "Files/_DroppedTables").glob("gone-*")
    dropped.purge(7.0)
    assert resting.exists()
    then = time.time() - 8 * 86400
    os.utime(resting, (then, then))
    dropped.purge(7.0)
    assert not resting.exists()
    assert len(list((tmp_path / "Files/_DroppedTables/sales").glob("gone-*"))) == 1


def test_only_dropped_tables_are_purged(database: LocalStorage, tmp_path: Path) -> None:
    dropped = DroppedTables(database, 0.0)
    pass_over(dropped)
    pass_over(dropped)
    folder, stamp = tmp_path / "Files/_DroppedTables", "20200101T000000000000000"
    (table,) = (folder / "sales").glob("gone-*")
    foreign = [folder / "notes", folder / "sales/notes", folder / f"notes-{stamp}", folder / f"sales/notes-{stamp}"]
    for each in foreign:
        each.mkdir()
        (each / "thesis.txt").write_text("somebody's")
    (folder / f"linked-{stamp}").symlink_to(foreign[0])
    for each in [*foreign, table]:
        os.utime(each, (1, 1))
    dropped.purge(7.0)
    assert not table.exists()
    assert all((each / "thesis.txt").exists() for each in foreign)


def test_an_observer_that_fails_keeps_no_other_from_being_told() -> None:
    told: list[str] = []
    fails: Any = SimpleNamespace(dropped=lambda target: 1 // 0)
    hears: Any = SimpleNamespace(dropped=told.append)
    TableStates((fails, hears), (), 60.0).tell(lambda observer: observer.dropped("Tables/t"))
    assert told == ["Tables/t"]
