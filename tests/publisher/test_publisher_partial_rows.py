"""Publishing partial rows (contract section 3a): what becomes of them in the mirror, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.table_rows import table_rows

from lakemirror import LakemirrorError, MirroredDatabase
from lakemirror.publisher import Buffer, Landing


def rows_of(database: Path) -> Any:
    assert not MirroredDatabase(database, engine="local", durability="process").sync().failed
    return table_rows(database, "t", ["id", "a", "b"])


def test_one_list_for_all_rows_or_one_for_each(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("t", keys=["id"])
    table.load([{"id": 1, "a": "x", "b": 1}, {"id": 2, "a": "y", "b": 2}])
    table.upsert([{"id": 1, "b": 10}], unchanged=["a"])
    assert rows_of(tmp_path) == {(1, "x", 10): 1, (2, "y", 2): 1}
    table.update([{"id": 1, "a": "z", "b": 0}, {"id": 2, "a": "w", "b": 0}], unchanged=[["B"], None])
    assert rows_of(tmp_path) == {(1, "z", 10): 1, (2, "w", 0): 1}
    changes = [{"id": 3, "a": "n", "b": 3, "op": 0}, {"id": 3, "a": None, "b": 4, "op": 4}, {"id": 2, "op": 2}]
    table.changes(changes, marker="op", unchanged=pa.array([None, ["a"], []]))
    assert rows_of(tmp_path) == {(1, "z", 10): 1, (3, "n", 4): 1}
    table.upsert([{"id": 1, "b": 11}], unchanged=())  # complete rows
    assert rows_of(tmp_path) == {(1, None, 11): 1, (3, "n", 4): 1}


def test_gathered_rows(tmp_path: Path) -> None:
    with Landing(tmp_path).table("t", keys=["id"], buffer=Buffer(rows=100, seconds=60)) as table:
        table.insert([{"id": 1, "a": "x", "b": 1}])
        table.upsert([{"id": 1, "b": 2}], unchanged=["a"])
        table.upsert([{"id": 2, "a": "y", "b": 3}])
        table.upsert([{"id": 2, "a": "z"}], unchanged=["b"])
    assert rows_of(tmp_path) == {(1, "x", 2): 1, (2, "z", 3): 1}


@pytest.mark.parametrize(
    ("unchanged", "code"),
    [
        (["id"], "partial-row-invalid"),
        (["c"], "partial-row-invalid"),
        ([["a"], ["a"]], "input-invalid"),
        ([], None),
        (pa.array([1]), "input-invalid"),
        ([["a"], None, None], "input-invalid"),
        ("a", "input-invalid"),
    ],
)
def test_what_is_refused(tmp_path: Path, unchanged: Any, code: str | None) -> None:
    table = Landing(tmp_path).table("t", keys=["id"])
    table.load([{"id": 1, "a": "x", "b": 1}])
    if code is None:
        assert table.upsert([{"id": 1, "b": 2}], unchanged=unchanged) is not None
        return
    with pytest.raises(LakemirrorError) as refused:
        table.upsert([{"id": 1, "b": 2}], unchanged=unchanged)
    assert refused.value.code == code
    assert len(list(table.folder.glob("*.parquet"))) == 1


def test_inserts_and_deletes_are_complete(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("t", keys=["id"])
    with pytest.raises(LakemirrorError) as refused:
        table.changes([{"id": 1, "a": "x", "op": 4}, {"id": 2, "a": "x", "op": 0}], marker="op", unchanged=["a"])
    assert refused.value.code == "partial-row-invalid" and refused.value.row == 2
    with pytest.raises(LakemirrorError) as refused:
        table.upsert(pa.table({"id": [1], "__unchangedColumns__": [["a"]]}))
    assert refused.value.code == "input-invalid"
