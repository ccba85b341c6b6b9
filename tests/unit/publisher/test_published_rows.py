"""The rows that a table's change files hold together are those that the model of the contract computes."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rounds import rounds

from lakemirror.publisher import Landing, LandingTable, published_rows

SCHEMA = pa.schema([("k", pa.float64()), ("name", pa.string()), ("v", pa.int64()), ("late", pa.string())])
KEYS = ("k", "name")
KEY = st.tuples(st.sampled_from([0.0, -0.0, math.nan, 1.5, None]), st.sampled_from(["a", "b", None]))
FILE = st.lists(
    st.tuples(KEY, st.sampled_from(["upsert", "delete", "partial"]), st.integers(0, 9)), min_size=1, max_size=6
)


def files_of(tmp_path: Path, files: list[list[tuple[Any, str, int]]]) -> LandingTable:
    """A table folder with these files; the later half has a column more."""
    table = Landing(tmp_path).table("t", list(KEYS))
    for number, changes in enumerate(files):
        late = SCHEMA if number * 2 >= len(files) else SCHEMA.remove(3)
        given = [{"k": k, "name": name, "v": v, "late": "x"} for (k, name), _, v in changes]
        rows = pa.Table.from_pylist(given, schema=late)
        marker = [2 if what == "delete" else 4 for _, what, _ in changes]
        unchanged = [["v"] if what == "partial" else None for _, what, _ in changes]
        rows = rows.append_column("__rowMarker__", pa.array(marker, pa.int32()))
        table.changes(rows, unchanged=unchanged if any(unchanged) else None)
    return table


def found(table: LandingTable) -> published_rows.PublishedRows | None:
    with table.room():
        return published_rows.published_rows(table.place, KEYS, SCHEMA)


def as_key(k: float | None, name: str | None) -> tuple[str, str | None]:
    return str(k if k is None else k + 0.0), name


@settings(max_examples=rounds(30, 300), deadline=None)
@given(st.lists(FILE, min_size=1, max_size=5), st.sampled_from([2, 500_000]))
def test_the_last_row_of_each_key(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[tuple[Any, str, int]]], at_once: int
) -> None:
    place = tmp_path_factory.mktemp("db")
    table = files_of(place, files)
    expected: dict[Any, tuple[str, Any]] = {}
    for number, changes in enumerate(files):
        for key, what, v in changes:
            expected[as_key(*key)] = what, (v, "x" if number * 2 >= len(files) else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published_rows, "ROWS_AT_ONCE", at_once)
        rows = found(table)
    shutil.rmtree(place)
    assert rows is not None
    held = {as_key(row["k"], row["name"]): (row["v"], row["late"]) for row in rows.rows.to_pylist()}
    assert len(held) == rows.rows.num_rows
    assert held == {key: values for key, (what, values) in expected.items() if what == "upsert"}
    unknown = sorted(str(as_key(row["k"], row["name"])) for row in rows.unknown.to_pylist())
    assert unknown == sorted(str(key) for key, (what, _) in expected.items() if what == "partial")


def test_a_load_without_markers_and_files_that_were_applied(tmp_path: Path) -> None:
    table = Landing(tmp_path).table("t", list(KEYS))
    table.load(pa.Table.from_pylist([{"k": 1.0, "name": "a", "v": 1}, {"k": 2.0, "name": "a", "v": 2}], schema=SCHEMA))
    table.delete(pa.Table.from_pylist([{"k": 2.0, "name": "a"}], schema=SCHEMA))
    table.upsert(pa.Table.from_pylist([{"k": 3.0, "name": "a", "v": 3}], schema=SCHEMA))
    applied = table.folder / "_ProcessedFiles"
    applied.mkdir()
    first = table.folder / f"{1:020}.parquet"
    first.rename(applied / first.name)
    rows = found(table)
    assert rows is not None and sorted(rows.rows["v"].to_pylist()) == [1, 3]


@pytest.mark.parametrize(
    "cause", ["gone", "quarantined", "another type", "no marker of the contract", "no Parquet", "too many"]
)
def test_rows_that_cannot_be_known(tmp_path: Path, cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = files_of(tmp_path, [[((1.5, "a"), "upsert", 1)], [((1.5, "b"), "upsert", 2)]])
    assert found(table) is not None
    first = table.folder / f"{1:020}.parquet"
    if cause == "gone":
        first.unlink()
    elif cause == "quarantined":
        (table.folder / "_QuarantinedFiles").mkdir()
        first.rename(table.folder / "_QuarantinedFiles" / first.name)
    elif cause == "another type":
        pq.write_table(pa.table({"k": [1.0], "name": ["a"], "v": ["text"]}), first)
    elif cause == "no marker of the contract":
        pq.write_table(pa.table({"k": [1.5], "name": ["a"], "v": [1], "__rowMarker__": [7]}), first)
    elif cause == "no Parquet":
        first.write_bytes(b"broken")
    else:
        monkeypatch.setattr(published_rows, "MOST_FILES", 1)
    assert found(table) is None
