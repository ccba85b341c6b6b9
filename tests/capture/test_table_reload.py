"""What a table that is loaded again publishes: what differs from its files, or else it must be made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rounds import rounds
from tests.table_rows import read_table

from lakemirror import MirroredDatabase
from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing, table_writer
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.capture_position import (
    FilePosition,
    Position,
    TableState,
    newest_position,
    write_state,
)
from lakemirror.publisher.capture.captured_tables import CapturedTable, CapturedTables
from lakemirror.publisher.capture.loaded_rows import Publish
from lakemirror.publisher.capture.source_tables import SourceColumn, SourceTable
from lakemirror.publisher.capture.table_reload import publish_differences
from lakemirror.publisher.folders import local_folder

Row = dict[str, Any]


def column(name: str, kind: pa.DataType) -> SourceColumn:
    return SourceColumn(name, str(kind), kind, name == "id", name, lambda values: values, lambda values: values)


ID, V = column("id", pa.int64()), column("v", pa.string())


def captured(db: Path, *columns: SourceColumn, key: tuple[str, ...] = ("id",), **options: Any) -> CapturedTable:
    source = SourceTable("public", "t", "public.t", 1, columns or (ID, V), key)
    (table,) = CapturedTables(Landing(db), [source], CaptureOptions("postgresql://x/y", **options))
    return table


def loaded(db: Path, rows: list[Row], **state: Any) -> CapturedTable:
    """A table whose first load has ended."""
    table = captured(db)
    given = pa.Table.from_pylist(rows, as_schema(table))
    table.landing.publish(table.landing.take(given), empty=True, footer=at(5).footer())
    write_state(table.landing.place, replace(TableState("p", "c", "loading", 5, is_complete=True), **state))
    return captured(db)


def at(position: int) -> FilePosition:
    return FilePosition("p", "c", Position(), Position(position))


def as_schema(table: CapturedTable) -> pa.Schema:
    return pa.schema([(each.name, each.arrow_type) for each in table.source.columns])


def giving(table: CapturedTable, rows: list[Row]) -> Callable[[Publish], int]:
    """A load that gives these rows, two at a time."""
    schema = as_schema(table)

    def load(publish: Publish) -> int:
        parts = [rows[place : place + 2] for place in range(0, len(rows), 2)] or [[]]
        return sum(publish(pa.Table.from_pylist(part, schema).to_reader()) for part in parts)

    return load


def mirrored(db: Path) -> list[Row]:
    result = MirroredDatabase(db, engine="local").sync()
    assert not result.failed, result.failed
    rows: list[Row] = read_table(db / "Tables/public/t").to_pylist()
    return sorted(rows, key=lambda row: int(row["id"]))


def test_only_what_differs_is_published_and_the_file_has_the_position(tmp_path: Path) -> None:
    table = loaded(tmp_path, [{"id": number, "v": "same"} for number in range(10)])
    new = [{"id": number, "v": "same" if number else "other"} for number in range(9)] + [{"id": 20, "v": None}]
    found = publish_differences(table, at(7), giving(table, new))
    assert found is not None and (found.rows, found.changes) == (10, 3)
    newest = newest_position(table.landing.place)
    assert newest.number == 2 and newest.position == at(7)
    changes = pq.read_table(table.landing.folder / f"{2:020}.parquet").to_pylist()
    assert sorted((row["id"], row["__rowMarker__"]) for row in changes) == [(0, 4), (9, 2), (20, 4)]
    assert mirrored(tmp_path) == new
    found = publish_differences(table, at(3), giving(table, new))
    assert found is not None and found.changes == 0
    assert newest_position(table.landing.place).position == at(3), "as of a source whose log began again"
    assert mirrored(tmp_path) == new


def test_a_column_that_was_added_with_a_default(tmp_path: Path) -> None:
    loaded(tmp_path, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    wider = captured(tmp_path, ID, V, column("given", pa.int32()))
    rows = [{"id": 1, "v": "a", "given": 7}, {"id": 2, "v": "b", "given": None}]
    found = publish_differences(wider, at(7), giving(wider, rows))
    assert found is not None and found.changes == 1
    assert mirrored(tmp_path) == rows


@pytest.mark.parametrize(
    "cause", ["not complete", "another type", "another key", "no key", "a file is gone", "ordered", "a key twice"]
)
def test_a_table_that_is_made_again(tmp_path: Path, cause: str) -> None:
    table = loaded(tmp_path, [{"id": 1, "v": "a"}], is_complete=cause != "not complete")
    if cause == "another type":
        table = captured(tmp_path, ID, column("v", pa.int32()))
    elif cause == "another key":
        table = captured(tmp_path, key=("v",))
    elif cause == "no key":
        table = captured(tmp_path, insert_only=("*.t",))
    elif cause == "a file is gone":
        table.landing.upsert([{"id": 2, "v": "b"}])
        (table.landing.folder / f"{1:020}.parquet").unlink()
    elif cause == "ordered":
        table.landing.declare(sequence="v")
    before = sorted(table.landing.folder.iterdir())
    rows = [{"id": 1, "v": "b"}, {"id": 1, "v": "c"}] if cause == "a key twice" else []
    assert publish_differences(table, at(7), giving(table, rows)) is None
    assert sorted(table.landing.folder.iterdir()) == before


POINTS = ["publish.file-written", "publish.before-link", "publish.after-link", "publish.done"]


@pytest.mark.parametrize("point", POINTS)
def test_an_end_in_the_midst(tmp_path: Path, point: str) -> None:
    table = loaded(tmp_path, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    rows = [{"id": 1, "v": "new"}, {"id": 3, "v": "c"}]

    def reach(name: str) -> None:
        if name == point:
            raise OSError(point)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(LakemirrorError, match=point):
        for module in (table_writer, local_folder):
            patch.setattr(module, "reach", reach)
        publish_differences(table, at(7), giving(table, rows))
    again = captured(tmp_path)
    later = [*rows, {"id": 4, "v": "later"}]
    assert publish_differences(again, at(9), giving(again, later)) is not None
    assert mirrored(tmp_path) == later


@settings(max_examples=rounds(20, 200), deadline=None)
@given(
    st.lists(st.dictionaries(st.integers(0, 6), st.sampled_from(["a", "b", None]), max_size=6), min_size=2, max_size=4)
)
def test_whatever_the_table_held_before(
    tmp_path_factory: pytest.TempPathFactory, contents: list[dict[int, Any]]
) -> None:
    db = tmp_path_factory.mktemp("db")
    stories = [[{"id": key, "v": value} for key, value in sorted(each.items())] for each in contents]
    table = loaded(db, stories[0])
    for position, rows in enumerate(stories[1:]):
        found = publish_differences(table, at(position), giving(table, rows))
        before = contents[position]
        now = contents[position + 1]
        assert found is not None
        assert found.changes == sum(before.get(key, 0) != now.get(key, 0) for key in before.keys() | now.keys())
    assert mirrored(db) == stories[-1]
