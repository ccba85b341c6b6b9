"""Gathered changes become one file at the first limit that is met, in their order, and none is lost."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from published_contents import change_files, changes

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Buffer, Landing, LandingTable
from lakemirror.publisher.declared_types import TypeWarning

pytestmark = pytest.mark.usefixtures("door")

NEVER = 3600.0


def buffered(tmp_path: Path, **limits: float) -> LandingTable:
    return Landing(tmp_path).table("t", ["id"], buffer=Buffer(**{"seconds": NEVER, **limits}))  # type: ignore[arg-type]


def test_rows(tmp_path: Path) -> None:
    table = buffered(tmp_path, rows=3)
    assert table.insert([{"id": 1}]) is None
    table.update([{"id": 1}])
    assert not change_files(table.folder) if table.folder.is_dir() else True
    table.delete([{"id": 1}])
    assert [marker for marker, _ in changes(table.folder)] == [0, 1, 2]
    assert list(change_files(table.folder)) == [1]


def test_bytes(tmp_path: Path) -> None:
    table = buffered(tmp_path, bytes=10_000)
    table.insert([{"id": 1, "text": "x" * 5_000}])
    assert not table.folder.exists()
    table.insert([{"id": 2, "text": "x" * 5_000}])
    assert [row["id"] for _, row in changes(table.folder)] == [1, 2]


def test_seconds(tmp_path: Path) -> None:
    table = buffered(tmp_path, seconds=0.05)
    table.insert([{"id": 1}])
    deadline = time.monotonic() + 10
    while not change_files(table.folder) if table.folder.is_dir() else True:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert changes(table.folder) == [(0, {"id": 1})]


def test_the_end_of_a_with_block_and_flush(tmp_path: Path) -> None:
    with buffered(tmp_path) as table:
        table.insert([{"id": 1}])
        table.flush()
        assert list(change_files(table.folder)) == [1]
        table.flush()
        table.upsert([{"id": 2}])
    assert list(change_files(table.folder)) == [1, 2]


def test_columns_that_come_and_go(tmp_path: Path) -> None:
    with buffered(tmp_path) as table:
        table.insert([{"id": 1, "a": 1}])
        table.delete([{"id": 1}])
        table.insert([{"id": 2, "b": "x"}])
    assert changes(table.folder) == [
        (0, {"id": 1, "a": 1, "b": None}),
        (2, {"id": 1, "a": None, "b": None}),
        (0, {"id": 2, "a": None, "b": "x"}),
    ]
    assert pq.read_schema(change_files(table.folder)[1]).names == ["id", "a", "b", "__rowMarker__"]


def test_types_that_do_not_go_together_become_two_files(tmp_path: Path) -> None:
    import pyarrow as pa

    kinds = [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")]
    with buffered(tmp_path) as table:
        with pytest.warns(TypeWarning, match="column at has times without a zone"):
            for number, kind in enumerate(kinds):
                table.insert(pa.table({"id": [number], "at": pa.array([0], kind)}))
        with pytest.raises(LakemirrorError, match="type-changed"):  # what is gathered stays
            table.insert(pa.table({"id": ["3"]}))
    assert [row["id"] for _, row in changes(table.folder)] == [0, 1, 2]
    assert list(change_files(table.folder)) == [1, 2]


def test_a_load_and_a_snapshot_come_after_what_is_gathered(tmp_path: Path) -> None:
    with buffered(tmp_path) as table:
        table.insert([{"id": 1}])
        table.load([{"id": 2}])
    assert changes(table.folder) == [(0, {"id": 1}), (None, {"id": 2})]


def test_failed_changes_are_kept_for_the_next_try(tmp_path: Path) -> None:
    table = buffered(tmp_path)
    table.insert([{"id": 1}])
    table.folder.mkdir(parents=True)
    (table.folder / "_metadata.json").write_text("{")
    with pytest.raises(LakemirrorError, match="metadata-invalid"):
        table.flush()
    (table.folder / "_metadata.json").unlink()
    table.flush()
    assert changes(table.folder) == [(0, {"id": 1})]


def test_what_failed_in_the_background_is_raised_by_the_next_call(tmp_path: Path) -> None:
    table = buffered(tmp_path, seconds=0.01)
    table.folder.mkdir(parents=True)
    (table.folder / "_metadata.json").write_text('{"keyColumns": ["other"]}')
    table.insert([{"id": 1}])
    deadline = time.monotonic() + 60
    while table._gathered is not None and table._gathered._failed is None and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(LakemirrorError, match="key-columns-changed"):
        table.insert([{"id": 2}])
    (table.folder / "_metadata.json").unlink()
    table.flush()
    assert [row["id"] for _, row in changes(table.folder)] == [1]


def test_a_number_of_its_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakemirrorError, match="input-invalid"):
        buffered(tmp_path).insert([{"id": 1}], number=1)


def test_drop_forgets_what_is_gathered(tmp_path: Path) -> None:
    table = buffered(tmp_path)
    table.insert([{"id": 1}])
    table.drop()
    table.flush()
    assert not table.folder.exists()


def test_many_threads(tmp_path: Path) -> None:
    table = buffered(tmp_path, rows=50)

    def add(writer: int) -> None:
        for number in range(100):
            table.insert([{"id": writer * 100 + number}])

    threads = [threading.Thread(target=add, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table.flush()
    assert sorted(row["id"] for _, row in changes(table.folder)) == list(range(400))
    assert len(change_files(table.folder)) == 8
