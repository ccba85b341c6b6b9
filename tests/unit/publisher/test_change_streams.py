"""Offsets of a stream of change files, without a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakemirror.errors import LakemirrorError
from lakemirror.publisher import Landing

source = pytest.importorskip("lakemirror.publisher.spark", reason="PySpark 4.0 or newer is not installed")


def reader(tmp_path: Path) -> Any:
    return source.LakemirrorSource({"path": str(tmp_path / "shop/orders")}).streamReader(None)


def numbers(stream: Any, start: dict[str, Any]) -> tuple[list[int], dict[str, Any]]:
    """The files of the next batch, and its end; no batch where nothing is new."""
    end = stream.latestOffset()
    return ([each.number for each in stream.partitions(start, end)] if end != start else []), end


def test_files_are_read_once(tmp_path: Path) -> None:
    table = Landing(tmp_path / "shop").table("orders")
    table.insert([{"id": 1}])
    stream = reader(tmp_path)
    read, at = numbers(stream, stream.initialOffset())
    assert read == [1]
    assert numbers(stream, at) == ([], at)
    table.insert([{"id": 2}])
    table.insert([{"id": 3}])
    read, at = numbers(stream, at)
    assert read == [2, 3]
    assert numbers(reader(tmp_path), at) == ([], at), "another process goes on there"
    older = {"number": at["number"]}
    assert numbers(reader(tmp_path), older)[0] == [], "the offset of an earlier version"
    (table.folder / "_ProcessedFiles").mkdir()
    for number in (1, 2, 3):
        name = f"{number:020}.parquet"
        (table.folder / name).rename(table.folder / "_ProcessedFiles" / name)
    assert numbers(stream, at) == ([], at)
    table.insert([{"id": 4}])
    (table.folder / "_ProcessedFiles" / f"{3:020}.parquet").unlink()
    assert numbers(stream, at)[0] == [4], "the retention has removed what was read"


@pytest.mark.parametrize("again", [1, 3, 5])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_recreated_folder_is_an_error(tmp_path: Path, again: int, restarted: bool) -> None:
    """With fewer, as many and more files than were read. Once, the rows of the new folder were not read, silently."""
    table = Landing(tmp_path / "shop").table("orders")
    for number in range(3):
        table.insert([{"id": number}])
    stream = reader(tmp_path)
    _, at = numbers(stream, stream.initialOffset())
    table.recreate()
    for number in range(again):
        table.insert([{"id": number}])
    stream = reader(tmp_path) if restarted else stream
    if again == 3 and not restarted:
        assert numbers(stream, at) == ([], at), "which nobody asked about yet"
        table.insert([{"id": 9}])
    with pytest.raises(LakemirrorError, match="the table folder was recreated"):
        numbers(stream, at)
    fresh = reader(tmp_path)
    assert numbers(fresh, fresh.initialOffset())[0][:again] == list(range(1, again + 1))
