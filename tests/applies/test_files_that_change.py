"""Change files that are replaced between the listing and the commit: the table holds one content or none."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.databases import Database
from tests.landing import MARKER, declare, put
from tests.table_rows import read_table

from lakemirror import failpoints
from lakemirror.engines import pipeline
from lakemirror.engines.local_engine import LocalEngine

ROWS = 200_000  # large enough for a file that becomes a data file as it is
Meanwhile = Callable[[str, Callable[[], Any]], None]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Does something once, when the apply reaches a failpoint."""
    waiting: dict[str, Callable[[], Any]] = {}
    reach = failpoints.reach

    def reached(name: str) -> None:
        if name in waiting:
            waiting.pop(name)()
        reach(name)

    monkeypatch.setattr(failpoints, "reach", reached)
    return waiting.__setitem__


def replaced(path: Path, rows: pa.Table, *, later: bool = True) -> None:
    """Another file at the same place, with another time, or with the same time and size."""
    new, old = path.with_name("_new"), path.stat()
    pq.write_table(rows, new)
    os.utime(new, ns=(old.st_mtime_ns + later * 5 * 10**9,) * 2)
    assert later or new.stat().st_size == old.st_size
    new.replace(path)


def test_a_file_with_markers_in_the_place_of_one_that_becomes_a_data_file(tmp_path: Path, meanwhile: Meanwhile) -> None:
    declare(tmp_path, "t", ["id"])
    path = put(tmp_path, "t", 1, {"id": pa.array(range(ROWS))})
    assert path.stat().st_size > 1 << 20 or ROWS
    other = pa.table({"id": pa.array(range(ROWS)), MARKER: pa.array([0] * (ROWS - 2) + [2, 2], pa.int32())})
    meanwhile("apply.before-write", lambda: replaced(path, other))
    database = Database(str(tmp_path), {})
    database.sync()
    assert database.bag("t") == Counter((number,) for number in range(ROWS - 2))


@pytest.mark.parametrize("later", [True, False], ids=["another time", "the same time and size"])
def test_a_file_that_is_replaced_between_its_two_readings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    """Keys of the one file and rows of the other would leave the old row of key 3 beside the new one."""
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    database = Database(str(tmp_path), {})
    database.sync()
    path = put(tmp_path, "t", 2, {"id": [1, 2], "v": ["x", "y"], MARKER: [1, 1]})

    monkeypatch.setattr(LocalEngine, "read_small", lambda *_: None)
    look_up, done = pipeline.find_keys, []

    def looked_up(*given: Any) -> Any:
        found = look_up(*given)
        if not done:
            done.append(True)
            replaced(path, pa.table({"id": [1, 3], "v": ["x", "z"], MARKER: [1, 1]}), later=later)
        return found

    monkeypatch.setattr(pipeline, "find_keys", looked_up)
    database.sync()
    assert done and database.bag("t") == Counter([(1, "x"), (2, "b"), (3, "z")])


def test_text_that_is_replaced_while_it_is_converted(tmp_path: Path, meanwhile: Meanwhile) -> None:
    declare(tmp_path, "t", ["id"], fileFormat="CSV")
    path = tmp_path / f"Files/LandingZone/t/{1:020}.csv"
    path.write_text("id,v\r\n1,a\r\n")
    os.utime(path, (1, 1))
    meanwhile("apply.before-write", lambda: path.write_text("id,v\r\n1,b\r\n2,c\r\n"))
    database = Database(str(tmp_path), {})
    database.sync(settle=0)
    assert database.bag("t") == Counter([("1", "b"), ("2", "c")])


def test_a_file_that_goes_after_it_was_read_is_not_applied(tmp_path: Path, meanwhile: Meanwhile) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1]})
    path = put(tmp_path, "t", 2, {"id": [2]})
    database = Database(str(tmp_path), {})
    meanwhile("apply.before-commit", path.unlink)
    database.sync()
    assert database.bag("t") in (Counter([(1,)]), Counter([(1,), (2,)]))
    put(tmp_path, "t", 2 if database.bag("t") == Counter([(1,)]) else 3, {"id": [3]})
    database.sync()
    assert Counter([(1,), (3,)]) <= database.bag("t")


def test_all_targets_have_one_content_of_a_file_that_is_replaced_between_their_commits(
    tmp_path: Path, meanwhile: Meanwhile
) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"history": ["changes", "scd2"]})
    path = put(tmp_path, "t", 1, {"id": [1], "v": ["read"]})
    put(tmp_path, "t", 2, {"id": [2], "v": ["b"]})
    meanwhile("history.after-commit", lambda: replaced(path, pa.table({"id": [1], "v": ["another"]})))
    database = Database(str(tmp_path), {})
    database.sync()
    for table in ("t", "t__changes", "t__history"):
        rows = read_table(tmp_path / "Tables" / table).select(["id", "v"]).to_pylist()
        assert [tuple(row.values()) for row in rows] == [(1, "read"), (2, "b")], table
