"""A sequence (history.md section 2): changes in any order of arrival give the same rows, and deletes are remembered."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.change_tables import UNCHANGED, marked
from tests.landing import declare, folder, put
from tests.table_rows import read_table, table_rows

from lakemirror import LakemirrorError, MirroredDatabase, failpoints
from lakemirror.delta.log import read_snapshot
from lakemirror.maintenance import late_days
from lakemirror.maintenance.idle_work import Maintenance
from lakemirror.maintenance.late_days import forget_old
from lakemirror.mirror import table_state
from lakemirror.mirror.table_log import read_table_log
from lakemirror.readers.table_readers import readable_tables

CHANGES = ((4, 1, "a"), (2, 3, None), (4, 2, "late"), (4, 5, "b"), (2, 4, None))


def sync(database: Path, **settings: Any) -> None:
    result = MirroredDatabase(database, settle=0, **settings).sync()
    assert not result.failed, result.failed


def failure(database: Path, **settings: Any) -> Any:
    return MirroredDatabase(database, settle=0, **settings).sync().failed["t"]


def begun(database: Path, sequence: Any = "n", **more: Any) -> None:
    declare(database, "t", ["id"], lakemirror={"sequence": sequence, **more})


def change(database: Path, number: int, *rows: tuple[int, int, str | None]) -> None:
    """A change file of key 1; `rows`: marker, sequence, value."""
    marks, numbers, values = (list(column) for column in zip(*rows, strict=True))
    put(database, "t", number, marked(marks, id=[1] * len(rows), n=numbers, v=values))


def late_changes(database: Path) -> int:
    tables = json.loads((database / "Files/Monitoring/tables.json").read_text())["tables"]
    return int(tables[0]["metrics"].get("lateChanges", 0))


def remembered(database: Path) -> list[tuple[int, int]]:
    return sorted((row["id"], row["n"]) for row in read_table(database / "Tables/t__late").to_pylist())


@pytest.mark.parametrize(("missing", "counted"), [("error", 2), ("null", 3)])
@pytest.mark.parametrize("batch_files", [1, 10])
def test_late_partial_rows_that_nothing_completes_are_counted(
    tmp_path: Path, missing: str, counted: int, batch_files: int
) -> None:
    begun(tmp_path, deletes="soft")
    put(tmp_path, "t", 1, marked([2, 2, 4], id=[1, 2, 3], n=[9, 9, 1], a=[None, None, "a"]))
    rows = {"id": [1, 2, 3, 4], "n": [5, 6, 2, 1], "a": ["x"] * 4, "b": ["b"] * 4}
    names = [["a"], ["a", "b"], ["a"], ["a"]]
    count = 4 if missing == "null" else 3  # the fourth is in order, and would stop the table
    its = {name: values[:count] for name, values in rows.items()}
    put(tmp_path, "t", 2, marked([4] * count, **its, **{UNCHANGED: names[:count]}))
    sync(tmp_path, partial_row_missing=missing, batch_files=batch_files)
    table = read_table(tmp_path / "Tables/t").select(["id", "a", "b", "__deleted"]).to_pylist()
    expected = [(1, None, "b", True), (2, None, None, True), (3, "a", "b", False), (4, None, "b", False)]
    assert sorted(tuple(row.values()) for row in table) == expected[:count]
    (shown,) = json.loads((tmp_path / "Files/Monitoring/tables.json").read_text())["tables"]
    (warned,) = [each for each in shown["warnings"] if each["code"] == "partial-row-missing"]
    assert warned["message"].startswith(f"{counted} partial rows had no row")


@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_every_order_of_arrival_gives_the_same_rows(tmp_path: Path, deletes: str) -> None:
    found = set()
    for place, order in enumerate(itertools.islice(itertools.permutations(CHANGES), 0, 120, 17)):
        database = tmp_path / str(place)
        begun(database, deletes=deletes)
        for number, one in enumerate(order, 1):
            change(database, number, one)
            sync(database)
        rows = read_table(database / "Tables/t").select(["id", "n", "v"]).to_pylist()
        found.add(json.dumps(rows))
        assert remembered(database) == [(1, 3), (1, 4)]
    assert found == {json.dumps([{"id": 1, "n": 5, "v": "b"}])}


def test_a_late_upsert_does_not_bring_a_deleted_row_back(tmp_path: Path) -> None:
    begun(tmp_path, history="changes")
    change(tmp_path, 1, (4, 1, "a"))
    change(tmp_path, 2, (2, 7, None))
    sync(tmp_path)
    change(tmp_path, 3, (4, 6, "late"))
    sync(tmp_path)
    assert table_rows(tmp_path, "t") == {} and late_changes(tmp_path) == 1
    assert read_table(tmp_path / "Tables/t__changes").num_rows == 3
    change(tmp_path, 4, (4, 7, "equal: the later one counts"))
    sync(tmp_path)
    assert table_rows(tmp_path, "t") == {(1, 7, "equal: the later one counts"): 1} and late_changes(tmp_path) == 1


def test_ignored_deletes_need_no_memory(tmp_path: Path) -> None:
    begun(tmp_path, deletes="ignore")
    change(tmp_path, 1, (4, 3, "a"), (2, 9, None), (4, 4, "b"), (4, 2, "late"))
    sync(tmp_path)
    assert table_rows(tmp_path, "t") == {(1, 4, "b"): 1} and late_changes(tmp_path) == 1
    assert not (tmp_path / "Tables/t__late").exists()


def test_what_is_wrong_is_said_with_file_and_row(tmp_path: Path) -> None:
    begun(tmp_path)
    put(tmp_path, "t", 1, marked([4, 4], id=[1, 2], n=[1, None], v=["a", "b"]))
    error = failure(tmp_path)
    assert error.code == "sequence-null" and error.file.endswith(f"{1:020}.parquet") and "row 2" in error.message
    put(tmp_path, "t", 1, marked([4], id=[1], v=["a"]))
    error = failure(tmp_path)
    assert error.code == "sequence-missing" and error.file.endswith(f"{1:020}.parquet")
    wrong = pa.array([["x"]]), pa.array([{"x": 1}]), pa.array([1], pa.time64("us")), pa.array([True]), pa.array([b"x"])
    for kind, values in zip(("list", "struct", "time", "bool", "binary"), wrong, strict=True):
        put(tmp_path, "t", 1, marked([4], id=[1], n=values, v=["a"]))
        error = failure(tmp_path)
        assert f"is {kind}" in error.message and "another column" in str(error.hint), error
    change(tmp_path, 1, (4, 1, "a"))
    sync(tmp_path)
    names = pa.array([["n"]], pa.list_(pa.string()))
    put(tmp_path, "t", 2, marked([1], id=[1], n=[2], v=["b"]).append_column(UNCHANGED, names))
    error = failure(tmp_path)
    assert error.code == "partial-row-invalid" and "row 1" in error.message and "sequence" in error.message
    assert table_rows(tmp_path, "t") == {(1, 1, "a"): 1}


def test_a_partial_row_takes_values_by_the_sequence(tmp_path: Path) -> None:
    begun(tmp_path)
    names = pa.array([["v"]], pa.list_(pa.string()))
    change(tmp_path, 1, (4, 5, "a"))
    sync(tmp_path)
    put(tmp_path, "t", 2, marked([1], id=[1], n=[3], v=[None], w=["late"]).append_column(UNCHANGED, names))
    sync(tmp_path)
    put(tmp_path, "t", 3, marked([1], id=[1], n=[6], v=[None], w=["in time"]).append_column(UNCHANGED, names))
    sync(tmp_path)
    assert table_rows(tmp_path, "t") == {(1, 6, "a", "in time"): 1} and late_changes(tmp_path) == 1


@pytest.mark.parametrize("batch_files", [1, 10])
@pytest.mark.parametrize("deletes", ["hard", "soft"])
@pytest.mark.parametrize("strategy", ["SequentialFileName", "LastUpdateTimeFileDetection"])
def test_a_batch_does_not_meet_its_own_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deletes: str, batch_files: int, strategy: str
) -> None:
    """The memory is committed first. After a failure between the commits, it has rows of the batch itself, and another
    file comes: where times count, one that is older than those of the batch."""
    declare(tmp_path, "t", ["id"], fileDetectionStrategy=strategy, lakemirror={"sequence": "n", "deletes": deletes})
    change(tmp_path, 1, (4, 1, "a"))
    sync(tmp_path)
    change(tmp_path, 2, (4, 4, "b"), (2, 5, None))
    change(tmp_path, 3, (2, 9, None))
    met: list[str] = []

    def reach(name: str) -> None:
        met.append(name)
        if "history.after-commit" in met and name.startswith(("history.", "apply.")):
            raise OSError("the disk fails")

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", reach)
        patch.setattr(table_state, "FIRST_PAUSES", (0.01,) * 3)
        assert MirroredDatabase(tmp_path, settle=0).sync().failed
    ahead, behind = (read_table_log(str(tmp_path / "Tables" / name)) for name in ("t__late", "t"))
    assert ahead is not None and behind is not None and ahead.position is not None and behind.position is not None
    assert (ahead.position.number, behind.position.number) == (3, 1)
    change(tmp_path, 4, (4, 8, "late"))
    past = folder(tmp_path, "t") / f"{2:020}.parquet"
    os.utime(folder(tmp_path, "t") / f"{4:020}.parquet", ns=(past.stat().st_mtime_ns - 1000,) * 2)
    sync(tmp_path, batch_files=batch_files)
    assert late_changes(tmp_path) == 1 and remembered(tmp_path) == [(1, 5), (1, 9)]
    rows = read_table(tmp_path / "Tables/t").to_pylist()
    assert [(row["v"], row["__deleted"]) for row in rows] == ([("late", True)] if deletes == "soft" else [])


def test_a_folder_made_again_begins_with_an_empty_memory(tmp_path: Path) -> None:
    begun(tmp_path)
    change(tmp_path, 1, (4, 1, "a"), (2, 9, None))
    sync(tmp_path)
    shutil.rmtree(folder(tmp_path, "t"))
    begun(tmp_path)
    change(tmp_path, 1, (4, 2, "new"), (2, 1, None))
    sync(tmp_path)
    assert table_rows(tmp_path, "t") == {(1, 2, "new"): 1} and remembered(tmp_path) == [(1, 1)]


def test_an_option_that_comes_goes_and_is_back(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    change(tmp_path, 1, (4, 5, "a"))
    sync(tmp_path)
    begun(tmp_path)
    change(tmp_path, 2, (4, 4, "late"), (2, 6, None))
    sync(tmp_path)
    assert table_rows(tmp_path, "t") == {} and remembered(tmp_path) == [(1, 6)]
    declare(tmp_path, "t", ["id"])
    change(tmp_path, 3, (4, 1, "in the order of files"))
    sync(tmp_path)
    begun(tmp_path)
    change(tmp_path, 4, (4, 2, "b"))
    sync(tmp_path)
    assert table_rows(tmp_path, "t") == {(1, 2, "b"): 1} and remembered(tmp_path) == []
    begun(tmp_path, sequence="v")
    change(tmp_path, 5, (4, 1, "a"), (4, 1, "c"), (2, 0, "d"), (4, 0, "cc"))
    sync(tmp_path)
    assert table_rows(tmp_path, "t") == {}
    change(tmp_path, 6, (4, 1, "ca"))
    sync(tmp_path)
    assert table_rows(tmp_path, "t") == {}


def test_a_resync_applies_all_again(tmp_path: Path) -> None:
    begun(tmp_path)
    for number, one in enumerate(CHANGES, 1):
        change(tmp_path, number, one)
        sync(tmp_path)
    before = read_snapshot(str(tmp_path / "Tables/t__late"))
    MirroredDatabase(tmp_path, settle=0).resync("t")
    sync(tmp_path)
    after = read_snapshot(str(tmp_path / "Tables/t__late"))
    assert before is not None and after is not None and not set(before.files) & set(after.files)
    assert table_rows(tmp_path, "t") == {(1, 5, "b"): 1} and remembered(tmp_path) == [(1, 3), (1, 4)]


def test_old_deletes_are_forgotten_and_young_ones_stay(tmp_path: Path) -> None:
    begun(tmp_path, late_days=2)
    path = str(tmp_path / "Tables/t__late")
    change(tmp_path, 1, (2, 5, None))
    sync(tmp_path)
    now = time.time()
    assert forget_old(path, now=now + 86_400) == 0 and remembered(tmp_path) == [(1, 5)]
    assert forget_old(str(tmp_path / "Tables/t"), now=now + 1e9) == 0
    assert forget_old(path, now=now + 2 * 86_400 + 60) == 1 and remembered(tmp_path) == []
    change(tmp_path, 2, (4, 1, "later than the memory"))
    sync(tmp_path)
    assert table_rows(tmp_path, "t") == {(1, 1, "later than the memory"): 1} and late_changes(tmp_path) == 0


def test_an_idle_table_forgets_old_deletes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path, late_days=2)
    change(tmp_path, 1, (2, 5, None))
    sync(tmp_path)
    work, target = Maintenance(str, 7), str(tmp_path / "Tables/t__late")
    work._vacuum(target, lambda _: nullcontext(True))
    assert remembered(tmp_path) == [(1, 5)]
    now = time.time()
    monkeypatch.setattr(late_days.time, "time", lambda: now + 3 * 86_400)
    work._vacuum(target, lambda _: nullcontext(True))
    work.stop()
    assert remembered(tmp_path) == []


def test_of_a_file_only_the_old_deletes_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_days, "_TOO_OLD", 0)
    begun(tmp_path, late_days=2)
    path = str(tmp_path / "Tables/t__late")
    for number in range(1, 41):
        change(tmp_path, number, (2, number, None))
        sync(tmp_path, batch_files=1)
        if number == 31:
            between = time.time()
    snapshot = read_snapshot(path)
    assert snapshot is not None and len(snapshot.files) < 35, "some have become one"
    assert forget_old(path, now=between + 2 * 86_400) > 0
    assert remembered(tmp_path) == [(1, number) for number in range(32, 41)]


def test_the_memory_goes_with_a_dropped_table(tmp_path: Path) -> None:
    begun(tmp_path)
    change(tmp_path, 1, (4, 1, "a"), (2, 9, None))
    sync(tmp_path)
    shutil.rmtree(folder(tmp_path, "t"))
    for _ in range(2):
        sync(tmp_path, drop_after=0)
    assert not (tmp_path / "Tables/t__late").exists() and not (tmp_path / "Tables/t").exists()
    begun(tmp_path)
    change(tmp_path, 1, (4, 2, "new"))
    sync(tmp_path)
    assert table_rows(tmp_path, "t") == {(1, 2, "new"): 1} and remembered(tmp_path) == []


def test_nobody_lists_the_memory_or_drops_it_as_history(tmp_path: Path) -> None:
    begun(tmp_path)
    change(tmp_path, 1, (2, 9, None))
    sync(tmp_path)
    assert [table.name for table in readable_tables(tmp_path)] == ["t"]
    with pytest.raises(LakemirrorError) as raised:
        MirroredDatabase(tmp_path).drop_history("t")
    assert raised.value.code == "table-unknown" and remembered(tmp_path) == [(1, 9)]


def test_our_own_cleaning_is_no_change_by_others(tmp_path: Path) -> None:
    begun(tmp_path, late_days=1)
    change(tmp_path, 1, (2, 9, None))
    sync(tmp_path)
    assert forget_old(str(tmp_path / "Tables/t__late"), now=time.time() + 3 * 86_400) == 1
    change(tmp_path, 2, (4, 1, "a"))
    sync(tmp_path)
    tables = json.loads((tmp_path / "Files/Monitoring/tables.json").read_text())["tables"]
    assert tables[0]["warnings"] == []
