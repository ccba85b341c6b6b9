"""Versions with a sequence (history.md, sections 2 and 3): late changes find their place, in any order of arrival."""

from __future__ import annotations

import itertools
import math
import shutil
import time
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.change_tables import UNCHANGED, marked
from tests.landing import declare, put
from tests.rounds import rounds
from tests.table_rows import read_table, table_rows
from tests.unit.test_history_model import (
    EMPLOYEE_CHANGES,
    EMPLOYEE_VERSIONS,
    EMPLOYEES,
    NAME_VERSIONS,
    USER_CHANGES,
    USER_VERSIONS,
    USERS,
)

from lakemirror import LakemirrorError, MirroredDatabase, failpoints
from lakemirror.delta.log import read_snapshot
from lakemirror.engines import late_deletes
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.maintenance.late_days import forget_old
from lakemirror.mirror import table_state
from lakemirror.mirror.history.open_versions import end_dropped
from lakemirror.storage import LocalStorage
from lakemirror.verify import verify_database
from lakemirror.verify.proof import Options

EXAMPLES: dict[
    str, tuple[dict[str, Any], str, list[Any], Any, Any]
] = {  # of Databricks' documentation: changes in its order, the rows (SCD type 1), the versions (type 2)
    "users": ({}, "id name city n", USER_CHANGES, USERS, USER_VERSIONS),
    "names": ({"track": ["name"]}, "id name city n", USER_CHANGES, USERS, NAME_VERSIONS),
    "employees": ({}, "id name role n", EMPLOYEE_CHANGES, EMPLOYEES, EMPLOYEE_VERSIONS),
}


def begun(database: Path, **more: Any) -> None:
    declare(database, "t", ["id"], lakemirror={"sequence": "n", "history": "scd2", **more})


def sync(database: Path, **settings: Any) -> None:
    result = MirroredDatabase(database, settle=0, **settings).sync()
    assert not result.failed, result.failed


def failure(database: Path) -> LakemirrorError:
    error: LakemirrorError = MirroredDatabase(database, settle=0).sync().failed["t"]
    return error


def change(database: Path, number: int, *rows: tuple[int, int, str | None]) -> None:
    """A change file of key 1; `rows`: marker, sequence, value."""
    marks, numbers, values = (list(column) for column in zip(*rows, strict=True))
    put(database, "t", number, marked(marks, id=[1] * len(rows), n=numbers, v=values))


def versions(database: Path) -> list[tuple[Any, ...]]:
    rows = read_table(database / "Tables/t__history").to_pylist()
    return sorted(((row["v"], row["__START_AT"], row["__END_AT"]) for row in rows), key=lambda row: row[1])


def step(database: Path, number: int, *rows: tuple[int, int, str | None]) -> list[tuple[Any, ...]]:
    change(database, number, *rows)
    sync(database)
    return versions(database)


def test_a_late_change_splits_the_version_it_falls_into(tmp_path: Path) -> None:
    begun(tmp_path)
    assert step(tmp_path, 1, (4, 1, "a")) == [("a", 1, None)]
    assert step(tmp_path, 2, (4, 9, "c")) == [("a", 1, 9), ("c", 9, None)]
    assert step(tmp_path, 3, (4, 5, "b")) == [("a", 1, 5), ("b", 5, 9), ("c", 9, None)]
    assert table_rows(tmp_path, "t") == {(1, 9, "c"): 1}
    assert step(tmp_path, 4, (4, 0, "first"))[:2] == [("first", 0, 1), ("a", 1, 5)]


def test_a_late_change_splits_a_run_of_equal_rows_where_its_events_were(tmp_path: Path) -> None:
    begun(tmp_path)
    step(tmp_path, 1, (4, 1, "a"))
    assert step(tmp_path, 2, (4, 5, "a")) == [("a", 1, None)]
    assert step(tmp_path, 3, (4, 8, "a"), (4, 9, "c")) == [("a", 1, 9), ("c", 9, None)]
    assert step(tmp_path, 4, (4, 3, "b")) == [("a", 1, 3), ("b", 3, 5), ("a", 5, 9), ("c", 9, None)]
    rows = {row["__START_AT"]: row["n"] for row in read_table(tmp_path / "Tables/t__history").to_pylist()}
    assert rows == {1: 1, 3: 3, 5: 8, 9: 9}, "a version has the last row of its run"


def test_a_late_delete_ends_the_version_there_and_equal_neighbours_coalesce(tmp_path: Path) -> None:
    begun(tmp_path)
    step(tmp_path, 1, (4, 1, "a"))
    step(tmp_path, 2, (4, 5, "a"))
    assert step(tmp_path, 3, (2, 3, None)) == [("a", 1, 3), ("a", 5, None)]
    assert step(tmp_path, 4, (4, 3, "a")) == [("a", 1, None)], "of equal sequences the later one counts"
    assert step(tmp_path, 5, (2, 7, None)) == [("a", 1, 7)]
    assert step(tmp_path, 6, (4, 6, "b")) == [("a", 1, 6), ("b", 6, 7)]
    assert table_rows(tmp_path, "t") == {}


@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_every_order_of_arrival_gives_the_same_versions(tmp_path: Path, deletes: str) -> None:
    changes = ((4, 1, "a"), (2, 3, None), (4, 2, "a"), (4, 5, "b"), (4, 6, "b"))
    found = set()
    for place, order in enumerate(itertools.islice(itertools.permutations(changes), 0, 120, rounds(31, 17))):
        database = tmp_path / str(place)
        begun(database, deletes=deletes)
        for number, one in enumerate(order, 1):
            step(database, number, one)
        found.add((*versions(database),))
    assert found == {(("a", 1, 3), ("b", 5, None))}


@pytest.mark.parametrize("batch_files", [1, 3])
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_worked_examples(tmp_path: Path, name: str, batch_files: int) -> None:
    history, columns, changes, rows, expected = EXAMPLES[name]
    begun(tmp_path, history={"mode": "scd2", **history})
    for number, (mark, *values) in enumerate(changes, 1):
        row = {column: [value] for column, value in zip(columns.split(), values, strict=True)}
        put(tmp_path, "t", number, marked([mark], **row))
    sync(tmp_path, batch_files=batch_files)
    assert table_rows(tmp_path, "t") == rows
    assert table_rows(tmp_path, "t__history") == expected


def test_an_ignored_delete_is_not_remembered(tmp_path: Path) -> None:
    begun(tmp_path, deletes="ignore")
    step(tmp_path, 1, (4, 1, "a"), (2, 9, None))
    assert step(tmp_path, 2, (4, 4, "b")) == [("a", 1, 4), ("b", 4, None)]
    assert table_rows(tmp_path, "t") == {(1, 4, "b"): 1}
    assert set(read_table(tmp_path / "Tables/t__late")["__operation"].to_pylist()) == {"upsert"}


def test_a_delete_from_before_deletes_are_ignored_stays(tmp_path: Path) -> None:
    begun(tmp_path)
    step(tmp_path, 1, (4, 4, "a"), (4, 6, "c"), (2, 6, None))
    begun(tmp_path, deletes="ignore")
    assert step(tmp_path, 2, (4, 1, "b"), (2, 2, None)) == [("b", 1, 4), ("a", 4, 6)]
    found = verify_database(LocalStorage(tmp_path), (), Options(against_files=True)).findings
    assert not [each for each in found if each.code == "verify-row-differs"], found


def test_the_mirrored_table_looks_at_files_of_remembered_deletes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also once small files are one: the 21st and later changes see the deletes of the first ones."""
    begun(tmp_path)
    for number in range(1, 44, 2):
        change(tmp_path, number, (4, number, "a"), (2, number + 1, None))
        change(tmp_path, number + 1, (4, number + 1, "b"))
        sync(tmp_path, batch_files=1)
    path = tmp_path / "Tables/t__late"
    snapshot = read_snapshot(path)
    assert snapshot is not None and len(snapshot.files) < 66, "small files were merged"
    kinds = [set(pq.read_table(path / add["path"])["__operation"].to_pylist()) for add in snapshot.files.values()]
    assert {frozenset(kind) for kind in kinds} == {frozenset({"delete"}), frozenset({"upsert"})}
    looked: list[str] = []
    monkeypatch.setattr(late_deletes, "_known", _noting(late_deletes._known, looked))
    assert step(tmp_path, 45, (4, 0, "late"))[0] == ("late", 0, 1)
    assert set(looked) == {"delete"}, "files without a delete are not read"
    assert table_rows(tmp_path, "t") == {(1, 44, "b"): 1}


def _noting(known: Any, looked: list[str]) -> Any:
    def noted(rows: pa.Table, *more: Any) -> Any:
        looked.extend(rows["__operation"].cast(pa.string()).to_pylist())
        return known(rows, *more)

    return noted


@pytest.mark.parametrize("commits", [1, 2])
def test_after_a_crash_between_the_commits_each_table_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """The tables of versions and of remembered changes are committed before the mirrored table."""
    begun(tmp_path)
    step(tmp_path, 1, (4, 1, "a"), (4, 5, "a"), (4, 9, "c"))
    change(tmp_path, 2, (4, 3, "b"), (4, 10, "d"), (4, 4, "b"))
    met: list[str] = []

    def reach(name: str) -> None:
        met.append(name)
        if met.count("history.after-commit") >= commits and name.startswith(("history.", "apply.")):
            raise OSError("the disk fails")

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", reach)
        patch.setattr(table_state, "FIRST_PAUSES", (0.01,) * 3)
        assert MirroredDatabase(tmp_path, settle=0).sync().failed
    assert table_rows(tmp_path, "t") == {(1, 9, "c"): 1}
    found = step(tmp_path, 3, (4, 2, "z"))
    assert found == [("a", 1, 2), ("z", 2, 3), ("b", 3, 5), ("a", 5, 9), ("c", 9, 10), ("d", 10, None)]
    assert table_rows(tmp_path, "t") == {(1, 10, "d"): 1}


def test_a_change_that_is_older_than_the_memory_is_warned_of(tmp_path: Path) -> None:
    begun(tmp_path)
    step(tmp_path, 1, (4, 1, "a"))
    step(tmp_path, 2, (4, 5, "a"), (4, 9, "c"))
    assert forget_old(str(tmp_path / "Tables/t__late"), now=time.time() + 8 * 86400)
    assert step(tmp_path, 3, (4, 3, "b")) == [("a", 1, 3), ("b", 3, 5), ("a", 5, 9), ("c", 9, None)]
    sync(tmp_path)
    assert "late-beyond-memory" in (tmp_path / "Files/Monitoring/tables.json").read_text()


def test_a_history_that_begins_later_begins_at_the_sequences_of_the_rows(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"sequence": "n"})
    change(tmp_path, 1, (4, 1, "old"), (4, 5, "a"))
    sync(tmp_path)
    begun(tmp_path)
    assert step(tmp_path, 2, (4, 7, "b")) == [("a", 5, 7), ("b", 7, None)]
    assert step(tmp_path, 3, (4, 3, "late")) == [("late", 3, 5), ("a", 5, 7), ("b", 7, None)]


def test_a_table_of_versions_that_was_off_goes_on(tmp_path: Path) -> None:
    begun(tmp_path)
    put(tmp_path, "t", 1, marked([4, 4], id=[1, 2], n=[5, 6], v=["a", "gone"]))
    sync(tmp_path)
    declare(tmp_path, "t", ["id"], lakemirror={"sequence": "n"})
    put(tmp_path, "t", 2, marked([4, 2], id=[1, 2], n=[7, 8], v=["b", None]))
    sync(tmp_path)
    begun(tmp_path)
    assert step(tmp_path, 3, (4, 9, "c")) == [("a", 5, 7), ("gone", 6, 8), ("b", 7, 9), ("c", 9, None)]


def test_another_sequence_is_refused(tmp_path: Path) -> None:
    begun(tmp_path)
    step(tmp_path, 1, (4, 1, "a"))
    begun(tmp_path, sequence="v")
    change(tmp_path, 2, (4, 3, "c"))
    error = failure(tmp_path)
    assert error.code == "history-track-changed" and "sequence" in error.message
    found = {
        each.table: [finding.code for finding in each.findings]
        for each in verify_database(LocalStorage(tmp_path), options=Options(against_files=True)).tables
    }
    assert found == {"t": [], "t__late": [], "t__history": []}, "what is there was made by the options before"
    begun(tmp_path)
    assert step(tmp_path, 3, (4, 4, "d"))[-1] == ("d", 4, None)


Partial = tuple[int, int, str | None, str | None]
"""Marker, sequence, v, w of a change of key 1. None in an update: the column keeps its value."""


def put_partial(database: Path, number: int, *rows: Partial) -> None:
    marks, numbers, v, w = (list(column) for column in zip(*rows, strict=True))
    names = [[n for n, value in (("v", a), ("w", b)) if mark == 1 and value is None] for mark, _, a, b in rows]
    table = marked(marks, id=[1] * len(rows), n=numbers, v=pa.array(v, pa.string()), w=pa.array(w, pa.string()))
    put(database, "t", number, table.append_column(UNCHANGED, pa.array(names, pa.list_(pa.string()))))


def kept(database: Path) -> list[tuple[Any, ...]]:
    rows = read_table(database / "Tables/t__history").to_pylist()
    return sorted(((r["v"], r["w"], r["__START_AT"], r["__END_AT"]) for r in rows), key=lambda row: row[2])


STORY: list[Partial] = [
    (4, 1, "a", "p"), (4, 9, "c", "r"), (1, 10, "d", None), (1, 5, "b", None), (4, 4, "z", "q"), (1, 6, None, "s"),
    (2, 7, None, None), (1, 3, "a", None), (1, 8, "y", None), (4, 2, "x", "o"), (2, 3, None, None),
]  # fmt: skip
KEPT = [  # each partial row has the values of the row before it, of those that had come
    ("a", "p", 1, 2), ("x", "o", 2, 3), ("z", "q", 4, 5), ("b", "p", 5, 6), ("b", "s", 6, 7),
    ("y", None, 8, 9), ("c", "r", 9, 10), ("d", "r", 10, None),
]  # fmt: skip


EVERY_WAY = [
    pytest.param(files, fits, marks=[] if fits is (files == 3) else pytest.mark.full)
    for files in (1, 3, 10)
    for fits in (True, False)
]


@pytest.mark.parametrize(("batch_files", "fits"), EVERY_WAY)
def test_a_partial_row_takes_the_values_of_the_row_before_it_by_the_sequence(
    tmp_path: Path, batch_files: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fits:
        monkeypatch.setattr(LocalEngine, "read_small", lambda *_: None)
    begun(tmp_path, history={"mode": "scd2", "track": ["v", "w"]})
    for number, row in enumerate(STORY, 1):
        put_partial(tmp_path, number, row)
    sync(tmp_path, batch_files=batch_files)
    assert kept(tmp_path) == KEPT and table_rows(tmp_path, "t") == {(1, 10, "d", "r"): 1}
    late = {(row["n"], row["v"], row["w"]) for row in read_table(tmp_path / "Tables/t__late").to_pylist()}
    assert {(v, w) for at, v, w in late if at == 5} == {("b", "p")} and (10, "d", "r") in late, "complete"
    MirroredDatabase(tmp_path).build_history("t")
    assert kept(tmp_path) == KEPT
    MirroredDatabase(tmp_path).resync("t")
    sync(tmp_path, batch_files=batch_files)
    assert kept(tmp_path) == KEPT and table_rows(tmp_path, "t") == {(1, 10, "d", "r"): 1}
    again = {(row["n"], row["v"], row["w"]) for row in read_table(tmp_path / "Tables/t__late").to_pylist()}
    assert again == late


def test_a_version_that_is_split_has_the_values_that_its_partial_rows_had(tmp_path: Path) -> None:
    begun(tmp_path, history={"mode": "scd2", "track": ["v"]})
    for number, row in enumerate([(4, 1, "a", "p"), (1, 5, "a", None), (4, 8, "a", "r"), (4, 3, "b", "q")], 1):
        put_partial(tmp_path, number, row)
        sync(tmp_path)
    assert kept(tmp_path) == [("a", "p", 1, 3), ("b", "q", 3, 5), ("a", "r", 5, None)]
    put_partial(tmp_path, 5, (4, 7, "c", "s"))
    sync(tmp_path)
    assert kept(tmp_path)[2] == ("a", "p", 5, 7)


def test_a_late_partial_row_of_a_deleted_key_changes_the_row_that_stays(tmp_path: Path) -> None:
    begun(tmp_path, deletes="soft")
    for number, row in enumerate([(4, 1, "a", "p"), (2, 9, None, None), (1, 5, "b", None), (1, 3, "x", None)], 1):
        put_partial(tmp_path, number, row)
        sync(tmp_path)
    (row,) = read_table(tmp_path / "Tables/t").to_pylist()
    assert (row["n"], row["v"], row["w"], row["__deleted"]) == (5, "b", "p", True)
    assert kept(tmp_path) == [("a", "p", 1, 3), ("x", "p", 3, 5), ("b", "p", 5, 9)]
    put_partial(tmp_path, 5, (1, 10, None, "s"))
    sync(tmp_path)
    assert kept(tmp_path)[-1] == ("b", "s", 10, None) and (1, 10, "b", "s") in {
        row[:4] for row in table_rows(tmp_path, "t")
    }


def made_again(database: Path) -> None:
    shutil.rmtree(database / "Files/LandingZone/t")
    begun(database)


@pytest.mark.parametrize("was_dropped", [False, True])
def test_versions_of_a_folder_that_was_made_again_begin_where_those_before_end(
    tmp_path: Path, was_dropped: bool
) -> None:
    """Its rows come with sequences of before: each has one open version, and no closed version changes."""
    begun(tmp_path)
    put(tmp_path, "t", 1, marked([4, 4, 4], id=[1, 2, 3], n=[5, 2, 3], v=["a", "x", "y"]))
    put(tmp_path, "t", 2, marked([2], id=[2], n=[7], v=[None]))
    sync(tmp_path)
    closed = [("x", 2, 7), ("y", 3, 7), ("a", 5, 7)]
    if was_dropped:
        end_dropped(LocalStorage(tmp_path), "Tables/t", time.time_ns() // 1000)
        assert versions(tmp_path) == closed
        shutil.rmtree(tmp_path / "Tables/t")
    made_again(tmp_path)
    put(tmp_path, "t", 1, marked([4, 4, 4], id=[1, 1, 2], n=[3, 4, 9], v=["b", "c", "z"]))
    sync(tmp_path)
    assert versions(tmp_path) == [*closed, ("c", 7, None), ("z", 9, None)]
    assert step(tmp_path, 2, (4, 2, "older"), (2, 1, None)) == [*closed, ("c", 7, None), ("z", 9, None)]
    assert step(tmp_path, 3, (4, 6, "d"), (4, 10, "d")) == [*closed, ("d", 7, None), ("z", 9, None)]
    assert step(tmp_path, 4, (4, 8, "e"))[-3:] == [("e", 8, 10), ("z", 9, None), ("d", 10, None)]
    assert step(tmp_path, 5, (2, 7, None)) == [*closed, ("e", 8, 10), ("z", 9, None), ("d", 10, None)]
    assert table_rows(tmp_path, "t") == {(1, 10, "d"): 1, (2, 9, "z"): 1}


def test_a_folder_that_is_made_again_and_again_has_no_empty_version(tmp_path: Path) -> None:
    begun(tmp_path)
    step(tmp_path, 1, (4, 5, "a"))
    for value, end in (("b", 7), ("c", 8)):
        made_again(tmp_path)
        assert step(tmp_path, 1, (4, 1, value))[-1] == (value, end - 1, None)
    made_again(tmp_path)
    assert step(tmp_path, 1, (4, 20, "d")) == [("a", 5, 6), ("b", 6, 7), ("c", 7, 8), ("d", 20, None)]


@pytest.mark.parametrize(
    ("top", "low"), [(2**63 - 1, 1), (math.nan, 1.0), (math.inf, 1.0), (date(9999, 12, 31), date(2020, 1, 1))], ids=str
)
def test_a_folder_that_is_made_again_after_the_highest_value_of_the_type(tmp_path: Path, top: Any, low: Any) -> None:
    begun(tmp_path)
    for value, at in (("a", low), ("b", top), ("c", low)):
        if value == "c":
            made_again(tmp_path)
        number = 2 if value == "b" else 1
        put(tmp_path, "t", number, marked([4], id=[1], n=[at], v=[value]))
        sync(tmp_path)
    open_ = [row for row in versions(tmp_path) if row[2] is None]
    assert [row[0] for row in open_] == ["c"] and repr(open_[0][1]) == repr(top)
    assert (low, "a") in {(row[1], row[0]) for row in versions(tmp_path)}


def test_a_folder_that_is_made_again_while_history_is_off(tmp_path: Path) -> None:
    begun(tmp_path)
    put(tmp_path, "t", 1, marked([4, 4], id=[1, 2], n=[5, 6], v=["a", "x"]))
    sync(tmp_path)
    made_again(tmp_path)
    declare(tmp_path, "t", ["id"], lakemirror={"sequence": "n"})
    put(tmp_path, "t", 1, marked([4, 4], id=[1, 3], n=[2, 9], v=["b", "z"]))
    sync(tmp_path)
    begun(tmp_path)
    assert step(tmp_path, 2, (4, 1, "older")) == [("a", 5, 7), ("x", 6, 7), ("b", 7, None), ("z", 9, None)]


def test_a_folder_that_is_made_again_after_a_day_that_has_no_text(tmp_path: Path) -> None:
    begun(tmp_path)
    for value, day in (("a", 2_933_297), ("b", 5)):  # the first is in the year 10001
        days = pa.array([day], pa.int32()).cast(pa.date32())
        put(tmp_path, "t", 1, marked([4], id=[1], n=days, v=[value]))
        sync(tmp_path)
        if value == "a":
            made_again(tmp_path)
    rows = read_table(tmp_path / "Tables/t__history")
    assert rows.filter(rows["__END_AT"].is_null())["v"].to_pylist() == ["b"]


@pytest.mark.parametrize(("marker", "at"), [(0, 6), (4, None)], ids=["several of a key", "without a sequence"])
def test_history_goes_on_with_rows_that_came_while_its_options_were_off(
    tmp_path: Path, marker: int, at: int | None
) -> None:
    begun(tmp_path)
    step(tmp_path, 1, (4, 5, "a"))
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 2, marked([marker] * 2, id=[1, 2], n=pa.array([at] * 2, pa.int64()), v=["b", "b"]))
    sync(tmp_path)
    begun(tmp_path)
    put(tmp_path, "t", 3, marked([4], id=[2], n=[7], v=["c"]))
    sync(tmp_path)
    assert set(versions(tmp_path)) == {("a", 5, 6), ("b", 6, None), ("b", 6, 7), ("c", 7, None)}


def test_a_resync_leaves_versions_as_they_are(tmp_path: Path) -> None:
    begun(tmp_path)
    step(tmp_path, 1, (4, 1, "a"))
    before = step(tmp_path, 2, (4, 5, "a"), (4, 9, "c"))
    MirroredDatabase(tmp_path).resync("t")
    sync(tmp_path, batch_files=1)
    assert versions(tmp_path) == before and table_rows(tmp_path, "t") == {(1, 9, "c"): 1}
    assert step(tmp_path, 3, (4, 3, "b")) == [("a", 1, 3), ("b", 3, 5), ("a", 5, 9), ("c", 9, None)]


def test_rows_that_are_back_begin_where_their_versions_ended(tmp_path: Path) -> None:
    """The mirrored table comes back from where dropped ones are kept."""
    begun(tmp_path)
    put(tmp_path, "t", 1, marked([4, 4], id=[1, 2], n=[5, 5], v=["a", "x"]))
    sync(tmp_path)
    end_dropped(LocalStorage(tmp_path), "Tables/t", time.time_ns() // 1000)
    change(tmp_path, 2, (4, 7, "b"))
    sync(tmp_path)
    assert sorted(versions(tmp_path)) == [("a", 5, 6), ("a", 6, 7), ("b", 7, None), ("x", 5, 6), ("x", 6, None)]


def test_a_row_that_is_older_than_a_version_of_its_key_begins_where_all_of_them_end(tmp_path: Path) -> None:
    """While the option was off, a key came back with an older sequence than that of its forgotten delete."""
    begun(tmp_path)
    put(tmp_path, "t", 1, marked([4, 4, 2], id=[1, 2, 1], n=[5, 6, 8], v=["a", "x", None]))
    sync(tmp_path)
    assert forget_old(str(tmp_path / "Tables/t__late"), now=time.time() + 8 * 86400)
    declare(tmp_path, "t", ["id"], lakemirror={"sequence": "n"})
    put(tmp_path, "t", 2, marked([4], id=[1], n=[7], v=["back"]))
    sync(tmp_path)
    begun(tmp_path)
    put(tmp_path, "t", 3, marked([4], id=[3], n=[1], v=["z"]))
    sync(tmp_path)
    assert sorted(versions(tmp_path)) == [("a", 5, 8), ("back", 8, None), ("x", 6, 8), ("x", 8, None), ("z", 8, None)]


@pytest.mark.parametrize(
    ("last", "end"),
    [
        (7, 8),
        (1.0, math.nextafter(1.0, 2.0)),
        ("b", "b\0"),
        (date(2020, 1, 31), date(2020, 2, 1)),
        (Decimal("1.25"), Decimal("1.26")),
        (datetime(2020, 1, 1, tzinfo=timezone.utc), datetime(2020, 1, 1, 0, 0, 0, 1, tzinfo=timezone.utc)),
    ],
    ids=str,
)
def test_the_versions_of_a_dropped_table_end_right_after_the_highest_sequence(
    tmp_path: Path, last: Any, end: Any
) -> None:
    begun(tmp_path)
    put(tmp_path, "t", 1, marked([4], id=[1], n=[last], v=["a"]))
    sync(tmp_path)
    end_dropped(LocalStorage(tmp_path), "Tables/t", time.time_ns() // 1000)
    (row,) = read_table(tmp_path / "Tables/t__history").to_pylist()
    assert (row["v"], row["n"], row["__START_AT"], row["__END_AT"]) == ("a", last, last, end)


def test_what_is_remembered_of_files_that_are_not_applied_yet_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash the memory is ahead of the mirrored table, and a history that begins then is not."""
    begun(tmp_path)
    step(tmp_path, 1, (4, 5, "a"), (4, 9, "c"))
    change(tmp_path, 2, (4, 3, "b"))
    change(tmp_path, 3, (4, 7, "x"))
    met: list[str] = []

    def reach(name: str) -> None:
        met.append(name)
        if met.count("history.after-commit") >= 2 and name.startswith(("history.", "apply.")):
            raise OSError("the disk fails")

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", reach)
        patch.setattr(table_state, "FIRST_PAUSES", (0.01,) * 3)
        assert MirroredDatabase(tmp_path, settle=0).sync().failed
    assert read_table(tmp_path / "Tables/t__late").num_rows == 4 and table_rows(tmp_path, "t") == {(1, 9, "c"): 1}
    MirroredDatabase(tmp_path).drop_history("t")
    found: list[Any] = []
    monkeypatch.setattr(
        failpoints, "reach", lambda name: found.append(versions(tmp_path)) if name == "history.after-commit" else None
    )
    sync(tmp_path, batch_files=1)
    assert [("b", 3, 5), ("a", 5, 9), ("c", 9, None)] in found, found
    assert versions(tmp_path) == [("b", 3, 5), ("a", 5, 7), ("x", 7, 9), ("c", 9, None)]


@pytest.mark.parametrize("deletes", ["hard", "soft"])
def test_a_change_before_a_delete_that_is_forgotten_is_warned_of(tmp_path: Path, deletes: str) -> None:
    """The mirrored table has its row again, the history knows better: nobody may think that both are right."""
    begun(tmp_path, late_days=1, deletes=deletes)
    step(tmp_path, 1, (4, 1, "a"), (2, 5, None))
    step(tmp_path, 2, (4, 4, "in time"))
    status = tmp_path / "Files/Monitoring/tables.json"
    assert "late-beyond-memory" not in status.read_text()
    assert forget_old(str(tmp_path / "Tables/t__late"), now=time.time() + 2 * 86_400) == 3
    assert step(tmp_path, 3, (4, 3, "z")) == [("a", 1, 3), ("z", 3, 4), ("in time", 4, 5)]
    sync(tmp_path)
    assert "late-beyond-memory" in status.read_text()
