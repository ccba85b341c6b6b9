"""Rows that are written while old rows are read: one file, the same table, and nothing left of a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.landing import MARKER, declare, put
from tests.random_histories import play, stories
from tests.rounds import rounds
from tests.table_rows import read_table

from lakemirror import MirroredDatabase
from lakemirror.delta.log import read_snapshot
from lakemirror.engines import early_rows
from lakemirror.engines.early_rows import EarlyRows
from lakemirror.landing_zone.row_markers import UNCHANGED

NAMES = pa.list_(pa.string())


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Any row may be early; how many were, and how many were added to them."""
    found: list[tuple[int, int]] = []
    add = EarlyRows.add

    def counted(early: EarlyRows, rows: pa.Table) -> None:
        found.append((len(early.positions), rows.num_rows))
        add(early, rows)

    monkeypatch.setattr(early_rows, "FEWEST_ROWS", 1)
    monkeypatch.setattr(EarlyRows, "add", counted)
    return found


def sync(database: Path, **options: Any) -> Any:
    result = MirroredDatabase(database, engine="local", durability="process", settle=0, **options).sync()
    return result.tables["t"].error


def data_files(database: Path) -> tuple[set[str], set[str]]:
    """The data files in the folder, and those that the table names."""
    snapshot = read_snapshot(database / "Tables/t")
    assert snapshot is not None
    return {path.name for path in (database / "Tables/t").glob("*.parquet")}, {path for path, _ in snapshot.files}


@pytest.mark.parametrize(("deletes", "sequence"), [("soft", ""), ("soft", "number"), ("hard", "number")])
def test_the_table_is_the_same(deletes: str, sequence: str, added: list[tuple[int, int]]) -> None:
    @settings(max_examples=rounds(10, 150), deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def compare(data: Any) -> None:
        play(data.draw(stories(deletes, sequence, None, partial=data.draw(st.booleans()))), own_cache=True)

    compare()
    assert any(early for early, _ in added)


def test_one_file_has_all_rows(tmp_path: Path, added: list[tuple[int, int]]) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"deletes": "soft"})
    put(tmp_path, "t", 1, {"id": [1, 2, 3], "v": ["a", "b", "c"]})
    assert sync(tmp_path) is None
    before = data_files(tmp_path)[1]
    put(tmp_path, "t", 2, {"id": [3, 2, 4, 1], "v": ["z", None, "d", "y"], MARKER: [4, 2, 4, 4]})
    assert sync(tmp_path) is None
    (new,) = data_files(tmp_path)[1] - before
    found = read_table(tmp_path / "Tables/t").sort_by("id")
    assert found.select(["id", "v", "__deleted"]).to_pydict() == {
        "id": [1, 2, 3, 4], "v": ["y", "b", "z", "d"], "__deleted": [False, True, False, False]
    }  # fmt: skip
    assert added == [(3, 1)], new


def test_an_early_file_of_a_failure_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"deletes": "soft"})
    put(tmp_path, "t", 1, {"id": [1], "v": ["a"]})
    assert sync(tmp_path) is None
    names = pa.array([["v"], None], NAMES)
    begun: list[int] = []
    begin = EarlyRows.begin

    def counted(early: EarlyRows, positions: Any) -> None:
        begin(early, positions)
        begun.append(len(early.positions))

    monkeypatch.setattr(EarlyRows, "begin", counted)
    put(tmp_path, "t", 2, {"id": [7, 8], "v": [None, "b"], MARKER: [4, 4], UNCHANGED: names})
    assert sync(tmp_path).code == "partial-row-missing"
    there, named = data_files(tmp_path)
    assert begun == [1] and there == named


def test_rows_that_take_much_memory_are_read_again_without_the_early_ones(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"deletes": "soft"})
    texts = [f"{number}" * 1500 for number in range(100, 200)]
    put(tmp_path, "t", 1, {"id": range(100), "v": texts})
    assert sync(tmp_path, memory=1 << 20) is None
    changes = {"id": range(100), "v": [None, "new"] * 50, MARKER: [2, 4] * 50}
    put(tmp_path, "t", 2, changes)
    assert sync(tmp_path, memory=1 << 20) is None
    found = read_table(tmp_path / "Tables/t").sort_by("id")
    assert found["v"].to_pylist() == [texts[number] if number % 2 == 0 else "new" for number in range(100)]
    assert found["__deleted"].to_pylist() == [True, False] * 50


def test_rows_that_are_looked_up_together_are_not_taken_for_each_other(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], lakemirror={"deletes": "soft"})
    put(tmp_path, "t", 1, {"id": range(6)})
    put(tmp_path, "t", 2, {"id": [0, 1, 2], MARKER: [2] * 3})
    assert sync(tmp_path, batch_files=1) is None
    since = read_table(tmp_path / "Tables/t").sort_by("id")["__deleted_at"].to_pylist()
    put(tmp_path, "t", 3, {"id": [0, 3, 4, 2, 5], MARKER: [2, 4, 2, 4, 0]})
    assert sync(tmp_path) is None
    found = read_table(tmp_path / "Tables/t").sort_by([("id", "ascending"), ("__deleted_at", "ascending")])
    assert found["id"].to_pylist() == [0, 1, 2, 3, 4, 5, 5], "an insert replaces no living row"
    assert found["__deleted"].to_pylist() == [True, True, False, False, True, False, False]
    assert found["__deleted_at"].to_pylist()[:2] == since[:2], "what is dead stays as it is"
