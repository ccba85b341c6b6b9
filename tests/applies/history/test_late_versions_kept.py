"""Versions with a sequence where tables are partitioned, merged, dropped, or have forgotten a part of their changes."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.applies.history.test_late_versions import begun, step, sync, versions
from tests.change_tables import marked
from tests.landing import declare, folder, put
from tests.table_rows import read_table, table_rows

from lakemirror import MirroredDatabase
from lakemirror.engines import versions as read_versions
from lakemirror.maintenance import compaction
from lakemirror.maintenance.late_days import forget_old
from lakemirror.parquet.page_index import has_page_index
from lakemirror.storage import LocalStorage
from lakemirror.verify import verify_database
from lakemirror.verify.proof import Options

DAY = 86_400
LATE, HISTORY = "Tables/t__late", "Tables/t__history"


def warned(database: Path) -> bool:
    sync(database)
    return "late-beyond-memory" in (database / "Files/Monitoring/tables.json").read_text()


def days_ago(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """Applies are made so many days ago."""
    clock = SimpleNamespace(time=lambda: time.time() - days * DAY)
    monkeypatch.setattr("lakemirror.mirror.history.target_plans.time", clock)


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_change_into_a_run_of_which_a_part_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_merged: bool
) -> None:
    begun(tmp_path)
    with monkeypatch.context() as patched:
        days_ago(patched, 10)
        step(tmp_path, 1, (4, 1, "a"), (4, 2, "a"))
    assert step(tmp_path, 2, (4, 5, "a"), (4, 8, "a")) == [("a", 1, None)]
    if is_merged:
        assert compaction.merge_when_idle(str(tmp_path / LATE), all_vectors=True)
    assert forget_old(str(tmp_path / LATE)) == 1
    assert sorted(read_table(tmp_path / LATE)["n"].to_pylist()) == [5, 8]
    found = step(tmp_path, 3, (4, 6, "c"))
    assert found == [("a", 1, 6), ("c", 6, 8), ("a", 8, None)] and warned(tmp_path), "the begin of the run is forgotten"
    assert step(tmp_path, 4, (4, 3, "b"))[:3] == [("a", 1, 3), ("b", 3, 5), ("a", 5, 6)]
    assert table_rows(tmp_path, "t") == {(1, 8, "a"): 1}


def test_a_change_into_a_run_whose_begin_is_remembered_is_not_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(tmp_path)
    with monkeypatch.context() as patched:
        days_ago(patched, 10)
        step(tmp_path, 1, (4, 1, "a"))
    step(tmp_path, 2, (4, 3, "b"), (4, 5, "b"))
    assert forget_old(str(tmp_path / LATE)) == 1
    assert step(tmp_path, 3, (4, 4, "c")) == [("a", 1, 3), ("b", 3, 4), ("c", 4, 5), ("b", 5, None)]
    assert not warned(tmp_path)


def test_tables_that_are_merged_go_on(tmp_path: Path) -> None:
    begun(tmp_path)
    for number, row in enumerate([(4, 1, "a"), (4, 9, "c"), (4, 5, "a"), (2, 12, None), (4, 10, "c"), (4, 20, "d")], 1):
        step(tmp_path, number, row)
    before = versions(tmp_path)
    for table in (LATE, HISTORY):
        assert compaction.merge_when_idle(str(tmp_path / table), all_vectors=True)
    assert versions(tmp_path) == before
    assert step(tmp_path, 7, (4, 3, "b"), (4, 11, "x"), (2, 6, None)) == [
        ("a", 1, 3), ("b", 3, 5), ("a", 5, 6), ("c", 9, 11), ("x", 11, 12), ("d", 20, None),
    ]  # fmt: skip
    assert not verify_database(LocalStorage(tmp_path), (), Options(against_files=True)).exit_code


def test_a_history_that_was_dropped_begins_with_the_rows_and_late_changes_find_their_place(tmp_path: Path) -> None:
    begun(tmp_path)
    step(tmp_path, 1, (4, 1, "a"), (4, 9, "c"))
    MirroredDatabase(tmp_path).drop_history("t")
    assert not (tmp_path / HISTORY).exists() and (tmp_path / LATE).exists()
    assert step(tmp_path, 2, (4, 5, "b")) == [("b", 5, 9), ("c", 9, None)]
    assert step(tmp_path, 3, (2, 7, None), (4, 12, "d")) == [("b", 5, 7), ("c", 9, 12), ("d", 12, None)]


@pytest.mark.parametrize("settings", [{}, {"deletion_vectors": False, "change_data_feed": True}])
def test_partition_folders(tmp_path: Path, settings: dict[str, Any]) -> None:
    """As if the column were in the files: a key may move from one partition to another, and back by a late change."""
    rows = [
        ("x", 4, 1, 1),
        ("y", 4, 1, 9),
        ("x", 4, 2, 3),
        ("y", 4, 1, 5),
        ("x", 2, 1, 7),
        ("y", 4, 2, 2),
        ("x", 4, 1, 12),
    ]
    for database, is_folder in ((tmp_path / "folders", True), (tmp_path / "column", False)):
        declare(
            database, "t", ["id"], lakemirror={"sequence": "n", "history": "scd2"}, isPartitionEnabled=is_folder
        )  # fmt: skip
        count = Counter[str]()
        for number, (part, mark, key, at) in enumerate(rows, 1):
            count[part] += 1
            values = {"id": [key], "n": [at], "v": [f"{part}{at}"]}
            path = put(database, "t", number, marked([mark], **values, **({} if is_folder else {"p": [part]})))
            if is_folder:
                home = folder(database, "t") / f"p={part}"
                home.mkdir(exist_ok=True)
                path = path.rename(home / f"{count[part]:020}.parquet")
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
            sync(database, **settings)
    found = [read_table(each / HISTORY).to_pylist() for each in (tmp_path / "folders", tmp_path / "column")]
    one, other = (Counter((r["id"], r["p"], r["v"], r["__START_AT"], r["__END_AT"]) for r in each) for each in found)
    assert one == other == Counter([
        (1, "x", "x1", 1, 5), (1, "y", "y5", 5, 7), (1, "y", "y9", 9, 12), (1, "x", "x12", 12, None),
        (2, "y", "y2", 2, 3), (2, "x", "x3", 3, None),
    ])  # fmt: skip
    assert table_rows(tmp_path / "folders", "t", ["id", "p", "n"]) == {(1, "x", 12): 1, (2, "x", 3): 1}


def test_only_late_changes_are_looked_up_in_what_was_remembered_long_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that are new, or were deleted before, are not looked up in files that end before the changes."""
    begun(tmp_path)
    put(tmp_path, "t", 1, marked([4, 4], id=[1, 2], n=[1, 2], v=["a", "b"]))
    put(tmp_path, "t", 2, marked([2, 4, 4], id=[2, 1, 1], n=[3, 8, 9], v=[None, "a", "c"]))
    sync(tmp_path, batch_files=1)
    files = list((tmp_path / LATE).glob("*.parquet"))
    assert len(files) == 3 and all(has_page_index(pq.read_metadata(path)) for path in files)
    looked: dict[tuple[int, ...], int] = {}
    find = read_versions._found

    def found(target: Any, files: Any, numbers: Any, keys: Any, look: Any) -> Any:
        if target.path.endswith(LATE):
            looked[tuple(keys["id"].to_pylist())] = len(numbers)
        return find(target, files, numbers, keys, look)

    monkeypatch.setattr(read_versions, "_found", found)
    put(tmp_path, "t", 3, marked([4, 4, 4], id=[1, 2, 3], n=[7, 8, 9], v=["late", "back", "new"]))
    sync(tmp_path)
    assert looked == {(1,): 2, (1, 2, 3): 1}
    rows = [
        (row["id"], row["v"], row["__START_AT"], row["__END_AT"]) for row in read_table(tmp_path / HISTORY).to_pylist()
    ]
    assert sorted(rows) == [
        (1, "a", 1, 7), (1, "a", 8, 9), (1, "c", 9, None), (1, "late", 7, 8), (2, "b", 2, 3),
        (2, "back", 8, None), (3, "new", 9, None)
    ]  # fmt: skip
    looked.clear()
    assert {("a", 1, 6), ("z", 6, 7), ("again", 9, None)} < set(step(tmp_path, 4, (4, 9, "again"), (4, 6, "z")))
    assert not looked, "into versions of one event: all that came later is in the versions"
