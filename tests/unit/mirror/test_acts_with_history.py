"""Acts on a table that has history tables: pause and restore."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.landing import MARKER, declare, put
from tests.table_rows import read_table

from lakemirror import MirroredDatabase

SETTINGS: dict[str, Any] = {"engine": "local", "durability": "process", "settle": 0, "drop_after": 0}
HISTORY = {"history": ["changes", "scd2"]}


def sync(database: Path) -> None:
    done = MirroredDatabase(database, **SETTINGS).sync()
    assert all(each.error is None for each in done.tables.values()), done


def counts(database: Path) -> list[int]:
    return [read_table(database / "Tables" / name).num_rows for name in ("t", "t__changes", "t__history")]


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    declare(tmp_path, "t", ["id"], lakemirror=HISTORY)
    put(tmp_path, "t", 1, {"id": [1, 2], "v": ["a", "b"]})
    sync(tmp_path)
    assert counts(tmp_path) == [2, 2, 2]
    return tmp_path


def test_a_pause_holds_for_every_table_of_the_folder(mirror: Path) -> None:
    database = MirroredDatabase(mirror, **SETTINGS)
    database.pause("t")
    put(mirror, "t", 2, {"id": [1], "v": ["c"], MARKER: [4]})
    sync(mirror)
    assert counts(mirror) == [2, 2, 2]
    database.resume("t")
    sync(mirror)
    assert counts(mirror) == [2, 3, 3]


def test_a_restored_table_goes_on_with_its_history(mirror: Path) -> None:
    shutil.rmtree(mirror / "Files/LandingZone/t")
    for _ in range(3):
        sync(mirror)
    assert not (mirror / "Tables/t").exists()
    assert MirroredDatabase(mirror, **SETTINGS).restore("t").changed
    sync(mirror)
    assert counts(mirror) == [2, 2, 2]
    declare(mirror, "t", ["id"], lakemirror=HISTORY)
    put(mirror, "t", 1, {"id": [3], "v": ["d"]})
    sync(mirror)
    assert counts(mirror) == [1, 3, 3]
    found = read_table(mirror / "Tables/t__history").sort_by("id")
    assert [end is None for end in found["__END_AT"].to_pylist()] == [False, False, True]
