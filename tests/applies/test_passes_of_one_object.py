"""One `MirroredDatabase` remembers from pass to pass what it has read. It must find what a new one finds."""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.landing import MARKER, declare, folder, put, put_broken
from tests.rounds import rounds
from tests.table_rows import read_table

from lakemirror import MirroredDatabase
from lakemirror.delta.commit import commit
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.log import read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.mirror.observe import TableObserver

SETTINGS: dict[str, Any] = {"drop_after": 0.0, "settle": 0.0, "durability": "process"}


class History:
    """What happens to one table of several databases alike, between their passes."""

    def __init__(self, databases: list[Path], seed: int) -> None:
        self._random = random.Random(seed)
        self._databases = databases
        self._last = 0
        self.acts: list[Callable[[Path], None]] = [
            self._publish, self._publish, self._publish, self._break_and_mend, self._recreate, self._delete,
            self._other_keys, self._resync, self._pause_or_resume, self._other_engine, self._other_writer,
            self._restore,
        ]  # fmt: skip

    def go_on(self) -> str:
        act = self._random.choice(self.acts)
        state, last = self._random.getstate(), self._last
        for database in self._databases:
            self._random.setstate(state)
            self._last = last
            with contextlib.suppress(LakemirrorError, FileNotFoundError):
                act(database)
        return act.__name__

    def _publish(self, database: Path) -> None:
        place = folder(database, "t")
        if not place.exists():
            self._last = 0
            declare(database, "t", ["id"])
        self._last += 1
        ids = self._random.sample(range(9), 3)
        markers = [self._random.choice([2, 4]) for _ in ids]
        put(database, "t", self._last, {"id": ids, "text": [f"{self._last}-{i}" for i in ids], MARKER: markers})

    def _break_and_mend(self, database: Path) -> None:
        bad = put_broken(database, "t", self._last + 1)
        with contextlib.suppress(LakemirrorError):
            MirroredDatabase(database, **SETTINGS).sync()
        bad.unlink()

    def _recreate(self, database: Path) -> None:
        shutil.rmtree(folder(database, "t"), ignore_errors=True)
        self._publish(database)

    def _delete(self, database: Path) -> None:
        shutil.rmtree(folder(database, "t"))

    def _other_keys(self, database: Path) -> None:
        declare(database, "t", self._random.choice([["id"], ["text"]]))

    def _resync(self, database: Path) -> None:
        MirroredDatabase(database, **SETTINGS).resync("t")

    def _pause_or_resume(self, database: Path) -> None:
        other = MirroredDatabase(database, **SETTINGS)
        (other.resume if (folder(database, "t") / "_paused.json").exists() else other.pause)("t")

    def _other_engine(self, database: Path) -> None:
        self._publish(database)
        MirroredDatabase(database, **SETTINGS).sync()

    def _other_writer(self, database: Path) -> None:
        """Removes a data file, with its rows."""
        table = str(database / "Tables/t")
        snapshot = read_snapshot(table)
        adds = sorted(snapshot.files.values(), key=lambda add: str(add["modificationTime"])) if snapshot else []
        for add in adds[:1]:
            removal = {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}}
            info = {**commit_info(snapshot, "DELETE", {}), "engineInfo": "another"}
            if add.get("deletionVector"):
                removal["remove"]["deletionVector"] = add["deletionVector"]
            commit(table, snapshot, [{"commitInfo": info}, removal], durability="process")

    def _restore(self, database: Path) -> None:
        MirroredDatabase(database, **SETTINGS).restore("t")


def seen(database: Path) -> tuple[Any, ...]:
    """Rows, position and error of the table, as far as they do not depend on ids and times."""
    found = MirroredDatabase(database, **SETTINGS).status()
    states = [(row.status, row.error_code, row.position, row.pending_files) for row in found.tables]
    rows = read_table(database / "Tables/t").to_pylist() if (database / "Tables/t/_delta_log").exists() else None
    return states, rows and sorted(rows, key=repr), sorted({each.code for each in found.warnings})


@pytest.mark.parametrize("seed", range(rounds(3, 25)))
def test_a_later_pass_of_an_object_finds_what_a_new_one_finds(tmp_path: Path, seed: int) -> None:
    kept_place, new_place = tmp_path / "kept", tmp_path / "new"
    for place in (kept_place, new_place):
        (place / "Files/LandingZone").mkdir(parents=True)
    kept, history, done = MirroredDatabase(kept_place, **SETTINGS), History([kept_place, new_place], seed), []
    for _ in range(14):
        done.append(history.go_on())
        kept.sync()
        MirroredDatabase(new_place, **SETTINGS).sync()
        assert seen(kept_place) == seen(new_place), (seed, done)


def test_what_is_read_once_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[TableObserver] = []
    begin = TableObserver.__init__

    def counted(self: TableObserver, *given: Any) -> None:
        made.append(self)
        begin(self, *given)

    monkeypatch.setattr(TableObserver, "__init__", counted)
    database = MirroredDatabase(tmp_path, **SETTINGS)
    for number in (1, 2, 3):
        put(tmp_path, "t", number, {"id": [number]})
        assert database.sync().tables["t"].rows == 1
    assert len(made) == 1


def test_passes_at_the_same_time_share_nothing(tmp_path: Path) -> None:
    database = MirroredDatabase(tmp_path, **SETTINGS)
    put(tmp_path, "t", 1, {"id": [1]})
    database.sync()
    for number in range(2, 30):
        put(tmp_path, "t", number, {"id": [number]})
    errors: list[object] = []

    def one_pass() -> None:
        errors.extend(database.sync().failed.values())

    threads = [threading.Thread(target=one_pass) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not database.sync().failed, errors
    assert sorted(read_table(tmp_path / "Tables/t")["id"].to_pylist()) == list(range(1, 30))
