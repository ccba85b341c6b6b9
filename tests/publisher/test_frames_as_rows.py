"""Frames of other libraries are rows: upsert takes them as they are, or says what to pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from published_contents import changes

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing

pytestmark = pytest.mark.usefixtures("door")

ROWS = [{"id": 1, "item": "tea"}, {"id": 2, "item": None}]


def frame(library: str) -> Any:
    module = pytest.importorskip(library)
    if library == "duckdb":
        return module.sql("SELECT * FROM (VALUES (1, 'tea'), (2, NULL)) AS t(id, item)")
    if library == "polars":
        return module.DataFrame(ROWS)
    if library == "pandas":
        return module.DataFrame(ROWS)
    return pa.Table.from_pylist(ROWS)


@pytest.mark.parametrize("library", ["pyarrow", "pandas", "polars", "duckdb"])
def test_frames(library: str, tmp_path: Path) -> None:
    table = Landing(tmp_path).table("orders", ["id"])
    table.upsert(frame(library))
    assert changes(table.folder) == [(4, row) for row in ROWS]


@pytest.mark.parametrize(("rows", "what"), [(5, "builtins.int"), ("orders", "builtins.str"), ([1], "builtins.list")])
def test_what_is_no_rows_is_said(rows: Any, what: str, tmp_path: Path) -> None:
    with pytest.raises(LakemirrorError) as caught:
        Landing(tmp_path).table("orders", ["id"]).upsert(rows)
    assert what in caught.value.message and "polars" in caught.value.hint


def test_a_lazy_frame_is_to_be_collected(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    with pytest.raises(LakemirrorError) as caught:
        Landing(tmp_path).table("orders", ["id"]).upsert(polars.LazyFrame(ROWS))
    assert "collect()" in caught.value.hint
