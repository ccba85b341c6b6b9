"""A warning about a state stays as long as the state; one about an event for a day (contract section 11)."""

from __future__ import annotations

import ast
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from tests.landing import MARKER, declare, folder, put
from tests.source import nodes

import lakemirror
from lakemirror import MirroredDatabase
from lakemirror.landing_zone.findings import EVENT_LASTS, EVENTS, Warned, lasting
from lakemirror.mirror import declared_readers, table_states
from lakemirror.mirror.dropped_tables import MISSING
from lakemirror.mirror.history.history_tables import GAP
from lakemirror.mirror.loop import Runner
from lakemirror.mirror.position import BEYOND
from lakemirror.settings import spelling
from lakemirror.storage import LocalStorage

STATES = {
    "column-added-again", "column-mapping", "detection-undeclared", "drop-postponed", "file-ignored",
    "file-quarantined", "file-stray", "folder-missing", "folder-renamed", "folder-skipped", "history-gap",
    "key-name-empty", "late-beyond-memory",
    "metadata-lenient", "not-a-file", "partial-row-missing", "partner-events-invalid", "property-unknown",
    "readers-unmet", "schema-undeclared", "separator-doubtful", "sequence-changed",
    "setting-unknown", "status-unreadable", "table-paused",
    "text-looks-typed", "value-converted",
}  # fmt: skip
"""The codes of warnings about a state, beside those of errors and of `verify`, which are about a state too."""

MADE_BY = {"Warned", "_warned", "warn"}


def codes_in_the_source() -> set[str]:
    """Every code that a warning is made with, as it is written in the source."""
    found = {spelling.CODE, declared_readers.UNMET, BEYOND, GAP, MISSING}
    for path in Path(lakemirror.__file__).parent.rglob("*.py"):
        for node in nodes(path):
            if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            code = node.args[0].value
            if name in MADE_BY and isinstance(code, str) and code.replace("-", "").isalpha() and "-" in code:
                found.add(code)
    return found


def test_every_code_is_a_state_or_an_event() -> None:
    assert not STATES & EVENTS
    assert codes_in_the_source() == STATES | EVENTS, "say of a new code which it is, in EVENTS or here"


A, B = Warned("marker-lost", "m", "f"), Warned("changed-by-others", "version 3")


def test_an_event_stays_for_a_day_and_a_state_as_long_as_it_is_found() -> None:
    state = Warned("file-ignored", "x is no change file", "x")
    first = lasting((), [A, state], 100.0)
    assert first == (A._replace(since=100.0), state._replace(since=100.0))
    second = lasting(first, [state, B], 200.0)
    assert {each.code: each.since for each in second} == {
        "file-ignored": 100.0,
        "changed-by-others": 200.0,
        "marker-lost": 100.0,
    }
    assert [each.code for each in lasting(second, [], 100.0 + EVENT_LASTS - 1)] == [B.code, A.code]
    assert [each.code for each in lasting(second, [], 100.0 + EVENT_LASTS)] == [B.code]
    assert lasting(second, [B], 9e9)[0].since == 200.0, "what is still found is shown"


def test_an_event_that_happens_again_lasts_from_then() -> None:
    first = lasting((), [A._replace(since=100.0)], 100.0)
    (again,) = lasting(first, [A._replace(since=5000.0)], 5000.0)
    assert again.since == 5000.0


@pytest.mark.parametrize("since", [0.0, 9e9])
def test_an_event_of_an_unknown_time_or_of_the_future_ends_too(since: float) -> None:
    (kept,) = lasting([A._replace(since=since)], [], 100.0)
    assert kept.since == 100.0
    assert lasting([kept], [], 100.0 + EVENT_LASTS) == ()


def test_events_are_few() -> None:
    events: tuple[Warned, ...] = ()
    for number in range(100):
        events = lasting(events, [Warned("changed-by-others", f"version {number}")], float(number))
    assert len(events) == 20
    assert events[-1].message.endswith(" more)") and events[-1].message.count("more)") == 1
    assert events == lasting(events, [], 100.0)


class Clock:
    """Goes ahead of the clock of everything else."""

    def __init__(self) -> None:
        self.now = time.time() + 60.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(table_states, "time", clock)
    return clock


def sync(database: Path) -> None:
    result = MirroredDatabase(database, engine="local", durability="process", maintenance=False).sync()
    assert not result.failed, result.failed


def written(database: Path) -> dict[str, str]:
    """The warnings of the table in the status file, each with its time."""
    tables = json.loads((database / "Files/Monitoring/tables.json").read_text())["tables"]
    return {each["code"]: each["since"] for each in tables[0]["warnings"]}


def change(number: int) -> dict[str, Any]:
    return {"id": [1], "v": [str(number)], MARKER: pa.array([4], pa.int32())}


def lose_marker(database: Path) -> None:
    (folder(database, "t") / "_mirror.json").unlink()


def publish_again(database: Path) -> None:
    put(database, "t", 1, change(7))


def change_rows(database: Path) -> None:
    deltalake.write_deltalake(str(database / "Tables/t"), pa.table({"id": [9], "v": ["x"]}), mode="append")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    declare(tmp_path, "t", ["id"])
    for number in (1, 2):
        put(tmp_path, "t", number, change(number))
    sync(tmp_path)
    return tmp_path


HAPPENS: dict[str, Callable[[Path], None]] = {
    "already-applied": publish_again,
    "changed-by-others": change_rows,
    "marker-lost": lose_marker,
}


@pytest.mark.parametrize("code", sorted(EVENTS))
def test_an_event_outlives_looks_applies_and_processes(database: Path, clock: Clock, code: str) -> None:
    HAPPENS[code](database)
    sync(database)
    first = written(database)[code]
    for number in (3, 4):
        clock.now += 3600.0
        put(database, "t", number, change(number))
        sync(database)
        assert written(database)[code] == first
    (shown,) = MirroredDatabase(database).status().tables
    assert code in {each.code for each in shown.warnings}
    shutil.rmtree(folder(database, "t") / "_ProcessedFiles")
    clock.now += EVENT_LASTS
    sync(database)
    assert code not in written(database)


@pytest.mark.parametrize("code", sorted(EVENTS))
def test_a_lost_status_loses_nothing_but_warnings(database: Path, clock: Clock, code: str) -> None:
    HAPPENS[code](database)
    sync(database)
    shutil.rmtree(database / "Files/Monitoring")
    put(database, "t", 3, change(3))
    sync(database)
    (shown,) = MirroredDatabase(database).status().tables
    assert (shown.position, shown.error_code) == (3, "")


def test_a_warning_about_a_state_goes_with_it(database: Path, clock: Clock) -> None:
    stray = folder(database, "t") / "x.parquet"
    stray.write_bytes(b"")
    sync(database)
    first = written(database)["file-ignored"]
    clock.now += 60.0
    sync(database)
    assert written(database)["file-ignored"] == first
    stray.unlink()
    sync(database)
    assert "file-ignored" not in written(database)


def test_an_event_outlives_a_folder_that_is_away_for_a_moment(database: Path) -> None:
    lose_marker(database)
    sync(database)
    folder(database, "t").rename(database / "away")
    put(database, "other", 1, {"id": [1]})
    sync(database)
    sync(database)
    (database / "away").rename(folder(database, "t"))
    sync(database)
    tables = {each.name: each for each in MirroredDatabase(database).status().tables}
    assert [each.code for each in tables["t"].warnings] == ["marker-lost"]


def test_an_event_outlives_a_change_of_the_settings_in_run(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new scheduler starts from what the one before knows, not from a status that may be older."""
    mirror = MirroredDatabase(database, engine="local", durability="process", maintenance=False)
    runner = Runner(LocalStorage(database), mirror._resolve, lambda *_: None)  # type: ignore[arg-type, return-value]
    lose_marker(database)
    runner._list()
    assert runner._scheduler.wait(30)
    shutil.rmtree(database / "Files/Monitoring")
    (database / "mirroring.json").write_text('{"lakemirror": {"retention": 1}}')
    before = runner._scheduler
    assert runner._followed.follow()
    runner._use_settings()
    assert runner._scheduler is not before
    runner._list()
    assert runner._scheduler.wait(30)
    (state,) = runner._scheduler.states.values()
    assert [each.code for each in state.warnings] == ["marker-lost"]
    runner.end()
