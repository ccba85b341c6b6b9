"""A table is dropped when two passes missed its folder, ten seconds apart, whatever the clocks say (section 7)."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.landing import declare, folder, put
from tests.rounds import rounds
from tests.unit.mirror.test_states_and_positions import applied, commit

from lakemirror import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone import pending
from lakemirror.landing_zone.zone import TableName
from lakemirror.mirror.dropped_tables import MISSING, NOTE, DroppedTables, Look, note_of, read_note
from lakemirror.mirror.observe import TableObserver
from lakemirror.mirror.scheduler import Scheduler
from lakemirror.settings.settings import Settings
from lakemirror.storage import Entry, LocalStorage

GONE = "Tables/gone"


class Stamping(LocalStorage):
    """A storage with a clock of its own, which stamps the note."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.clock = 1_000_000.0
        self.refuses = False
        self._written = 0.0

    def write(self, path: str, data: bytes) -> None:
        if self.refuses:
            raise LakemirrorError("storage-unavailable", f"{path}: Permission denied")
        super().write(path, data)
        self._written = self.clock

    def stat(self, path: str) -> Entry | None:
        found = super().stat(path)
        return found if found is None or path != NOTE else replace(found, modified=round(self._written * 1e9))


@dataclass
class Engine:
    """One process: what it drops in each look, by the clock of its machine."""

    storage: Stamping
    machine: str = "a"
    ahead: float = 0.0
    after: float = 10.0

    def __post_init__(self) -> None:
        self.true = 0.0
        self.dropped = DroppedTables(self.storage, self.after, lambda: Look(self.machine, self.true + self.ahead))

    def at(self, moment: float, *, present: bool = False) -> list[str]:
        self.true = moment
        return self.dropped.look({"Tables/kept", *([GONE] if present else [])}, lambda _: False)


@pytest.fixture
def storage(tmp_path: Path) -> Stamping:
    for target in ("Tables/kept", GONE):
        commit(tmp_path / target, 0, *applied(1))
    (tmp_path / NOTE).parent.mkdir(parents=True)
    return Stamping(tmp_path)


def at(engine: Engine, moment: float, **more: bool) -> list[str]:
    """A look while both clocks are right."""
    engine.storage.clock = 1_000_000.0 + moment
    return engine.at(moment, **more)


def test_two_looks_are_ten_seconds_apart(storage: Stamping) -> None:
    engine = Engine(storage)
    assert [at(engine, moment) for moment in (0.0, 0.001, 5.0, 9.99)] == [[], [], [], []]
    assert [warned.file for warned in engine.dropped.warnings] == [GONE]
    assert engine.dropped.due == 10.0
    assert at(engine, 10.0) == [GONE]
    assert not engine.dropped.warnings
    assert engine.dropped.due == float("inf")
    assert not storage.exists(NOTE)


def test_a_folder_that_is_back_begins_again(storage: Stamping) -> None:
    engine = Engine(storage)
    at(engine, 0.0)
    at(engine, 5.0, present=True)
    assert not engine.dropped.warnings
    assert [at(Engine(storage), moment) for moment in (30.0, 39.0)] == [[], []]
    assert at(Engine(storage), 40.0) == [GONE]


@pytest.mark.parametrize("jump", [3600.0, -3600.0, 1e9, -1e9])
def test_a_clock_that_is_set_drops_nothing_in_haste(storage: Stamping, jump: float) -> None:
    """The machine's wall clock, which stamps the note of a local folder."""
    assert at(Engine(storage), 0.0) == []
    storage.clock += jump
    assert Engine(storage).at(1.0) == []
    storage.clock += 9.1
    assert Engine(storage).at(10.1) == ([GONE] if jump > 0 else [])
    storage.clock += 10.0
    assert Engine(storage).at(20.1) == ([] if jump > 0 else [GONE])


@pytest.mark.parametrize("ahead", [-300 * 86_400.0, 86_400.0])
def test_an_engine_with_a_wrong_clock_drops_nothing_in_haste(storage: Stamping, ahead: float) -> None:
    wrong, right = Engine(storage, ahead=ahead), Engine(storage)
    for moment in (0.0, 1.0, 2.0, 5.0, 8.0):
        assert [at(wrong, moment), at(right, moment)] == [[], []]
    assert GONE in {*at(right, 12.0), *at(wrong, 13.0), *at(right, 24.0)}


def test_engines_on_several_machines_go_by_the_storage(storage: Stamping) -> None:
    assert at(Engine(storage, "a", ahead=-1e6), 0.0) == []
    assert at(Engine(storage, "b", ahead=1e6), 9.9) == []
    assert at(Engine(storage, "c"), 10.0) == [GONE]


def test_without_a_note_the_machine_s_clock_counts(storage: Stamping) -> None:
    storage.refuses = True
    engine = Engine(storage)
    assert [at(engine, moment) for moment in (0.0, 9.9)] == [[], []]
    assert at(Engine(storage), 9.9) == [], "another process knows nothing of it"
    assert at(engine, 10.0) == [GONE]


@pytest.mark.parametrize(
    "note",
    [
        "", "[]", "{", '{"Tables/gone": 5.0}', '{"Tables/gone": null}', '{"Tables/gone": {"clock": 1}}',
        '{"Tables/gone": {"machine": "a", "clock": NaN, "since": 5}}',
        '{"Tables/gone": {"machine": "a", "clock": true}}',
        '{"Tables/gone": {"machine": "a", "clock": -1e9, "since": "x"}}',
    ],
)  # fmt: skip
def test_a_note_that_makes_no_sense_only_delays(storage: Stamping, note: str) -> None:
    (storage.root / NOTE).write_text(note)
    assert at(Engine(storage), 0.0) == []
    assert at(Engine(storage), 10.0) == [GONE]


def test_a_note_comes_back() -> None:
    missed = {"Tables/a": Look("m", 5.0, 7.0), "Tables/b": Look("m", 6.0)}
    assert read_note(note_of(missed), 9.0) == {"Tables/a": Look("m", 5.0, 7.0), "Tables/b": Look("m", 6.0, 9.0)}


@pytest.mark.parametrize("wrong", ["machines", "storage"])
def test_random_looks_by_random_clocks(storage: Stamping, tmp_path: Path, wrong: str) -> None:
    """A drop has two looks behind it that missed the folder ten seconds apart, if one of the clocks is right."""
    drops = 0
    for seed in range(rounds(25, 60)):
        chance = random.Random(seed)
        machines = [(f"m{n}", chance.uniform(-1e6, 1e6) if wrong == "machines" else 0.0) for n in range(3)]
        engines = [Engine(storage, *each) for each in machines]
        moment, misses = 0.0, list[float]()
        for _ in range(40):
            moment += chance.choice([0.001, 0.5, 3.0, 8.0])
            if wrong == "storage":
                storage.clock += chance.choice([0.0, 1.0, 3600.0, -3600.0])
            else:
                storage.clock = 1e6 + moment
            which = chance.randrange(3) if wrong == "machines" else 0
            if chance.random() < 0.2:
                engines[which] = Engine(storage, *machines[which])
            if chance.random() < 0.05:
                storage.delete(NOTE)
            present = chance.random() < 0.1
            dropped = engines[which].at(moment, present=present)
            misses = [] if present else [*misses, moment]
            if dropped:
                drops += 1
                assert misses[-1] - misses[0] >= 9.999, seed
                (tmp_path / "Files/_DroppedTables").rename(tmp_path / f"Files/{seed}-{drops}")
                commit(tmp_path / GONE, 0, *applied(1))
                misses = []
        storage.delete(NOTE)
    assert drops > 20


def sync(database: Path, **settings: Any) -> Any:
    return MirroredDatabase(database, engine="local", durability="process", maintenance=False, **settings).sync()


def rows_of(database: Path, table: str) -> int:
    return next(each.processed_rows for each in MirroredDatabase(database).status().tables if each.name == table)


def test_a_sync_that_looks_several_times_drops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending, "_STEADY", 0.05)
    for name in ("orders", "sales.orders"):
        put(tmp_path, name, 1, {"id": [1]})
    sync(tmp_path)
    for name in ("orders", "sales.orders"):
        folder(tmp_path, name).rename(tmp_path / name)
    declare(tmp_path, "text", [], fileFormat="CSV")
    (folder(tmp_path, "text") / f"{1:020}.csv").write_text("id\r\n1\r\n")
    looks: list[str] = []
    observe = TableObserver.observe

    def counted(self: TableObserver, *given: Any, **more: Any) -> Any:
        looks.append(str(self.name))
        return observe(self, *given, **more)

    monkeypatch.setattr(TableObserver, "observe", counted)
    assert sync(tmp_path, drop_after=0).dropped == []
    assert looks == ["text", "text"], "it looked twice"
    status = MirroredDatabase(tmp_path).status()
    missing = [warned.file for warned in status.warnings if warned.code == MISSING]
    assert missing == ["Tables/orders", "Tables/sales/orders"]
    assert {each.name for each in status.tables} == {"orders", "sales.orders", "text"}, "the table is still there"
    for name in ("orders", "sales.orders"):
        (tmp_path / name).rename(folder(tmp_path, name))
        put(tmp_path, name, 2, {"id": [2]})
    assert MISSING not in {warned.code for warned in MirroredDatabase(tmp_path).status().warnings}
    assert sync(tmp_path, drop_after=0).dropped == []
    assert rows_of(tmp_path, "orders") == rows_of(tmp_path, "sales.orders") == 2
    assert not (tmp_path / NOTE).exists()


def test_two_syncs_at_once_after_another_drop_nothing(tmp_path: Path) -> None:
    put(tmp_path, "orders", 1, {"id": [1]})
    sync(tmp_path)
    shutil.rmtree(folder(tmp_path, "orders"))
    assert [sync(tmp_path).dropped for _ in range(3)] == [[], [], []]
    assert json.loads((tmp_path / NOTE).read_text()).keys() == {"Tables/orders"}
    assert sync(tmp_path, drop_after=0).dropped == ["Tables/orders"]
    assert not MirroredDatabase(tmp_path).status().tables


@pytest.mark.parametrize("other", ["orders_old", "sales.orders"])
def test_a_folder_that_has_another_name_for_a_while_is_the_same(tmp_path: Path, other: str) -> None:
    declare(tmp_path, "orders", ["id"])
    for number in (1, 2):
        put(tmp_path, "orders", number, {"id": [number]})
    sync(tmp_path)
    folder(tmp_path, other).parent.mkdir(exist_ok=True)
    folder(tmp_path, "orders").rename(folder(tmp_path, other))
    assert sync(tmp_path).dropped == []
    assert not (tmp_path / "Tables" / other.replace(".", "/")).exists(), "number 1 is awaited there"
    folder(tmp_path, other).rename(folder(tmp_path, "orders"))
    put(tmp_path, "orders", 3, {"id": [3]})
    assert not sync(tmp_path).failed
    (found,) = MirroredDatabase(tmp_path).status().tables
    assert (found.name, found.position, found.processed_rows, found.warnings) == ("orders", 3, 3, ())


def test_a_folder_that_was_filled_again_under_another_name_is_a_new_table(tmp_path: Path) -> None:
    declare(tmp_path, "orders", ["id"])
    for number in (1, 2):
        put(tmp_path, "orders", number, {"id": [number]})
    sync(tmp_path)
    away = folder(tmp_path, "other")
    folder(tmp_path, "orders").rename(away)
    sync(tmp_path)
    (away / f"{2:020}.parquet").unlink()
    put(tmp_path, "other", 1, {"id": [7]})
    away.rename(folder(tmp_path, "orders"))
    sync(tmp_path)
    (found,) = MirroredDatabase(tmp_path).status().tables
    assert (found.name, found.position, found.processed_rows) == ("orders", 1, 1)


def test_a_table_that_cannot_move_to_another_schema_is_not_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is there, and only its place below `Tables/` is an older one."""
    put(tmp_path, "orders", 1, {"id": [1]})
    sync(tmp_path)
    move = LocalStorage.move

    def refuses(self: LocalStorage, source: str, target: str) -> None:
        if source == "Tables/orders" and target.startswith("Tables/"):
            raise LakemirrorError("storage-unavailable", "Input/output error")
        move(self, source, target)

    monkeypatch.setattr(LocalStorage, "move", refuses)
    scheduler = Scheduler(LocalStorage(tmp_path), Settings(default_schema="dbo", drop_after=0.0), lambda _: None)  # type: ignore[arg-type, return-value]
    for _ in range(3):
        scheduler.tick()
        assert scheduler.wait(10)
    error = scheduler.states[TableName("", "orders")].error
    assert error is not None and error.code == "concurrent-commit"
    assert (tmp_path / "Tables/orders").exists()
    assert not scheduler.dropped.warnings
    scheduler.stop(5)
