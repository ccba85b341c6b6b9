"""The statistics columns that a user chose for a mirrored table: every writer of lakemirror keeps to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.landing import MARKER, declare, put

from lakemirror import MirroredDatabase
from lakemirror.delta.log import read_snapshot
from lakemirror.delta.statistics_columns import COUNT, NAMES
from lakemirror.engines.kernels import add_files
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.target import target_of
from lakemirror.maintenance import compaction

KINDS = ("minValues", "maxValues", "nullCount")


def sync(database: Path) -> None:
    assert not MirroredDatabase(database, maintenance=False, engine="local").sync().failed


def choose(table: Path, configuration: dict[str, str]) -> None:
    """ALTER TABLE … SET TBLPROPERTIES by another writer, by the log alone."""
    snapshot = read_snapshot(table)
    assert snapshot is not None
    metadata = {**snapshot.metadata.value, "configuration": {**snapshot.metadata.configuration, **configuration}}
    path = table / f"_delta_log/{snapshot.version + 1:020}.json"
    path.write_text(json.dumps({"metaData": metadata}) + "\n")


def statistics(table: Path) -> list[dict[str, Any]]:
    """Of each data file, the oldest first."""
    snapshot = read_snapshot(table)
    assert snapshot is not None
    return [json.loads(add["stats"]) for add in snapshot.files.values()]


def living(table: Path) -> list[tuple[Any, ...]]:
    snapshot = read_snapshot(table)
    assert snapshot is not None
    target = target_of(str(table), snapshot.metadata.value, ())
    parts = [part for add in snapshot.files.values() for part in live_rows(add, target)]
    return sorted(tuple(row.values()) for part in parts for row in part.to_pylist())


@pytest.mark.parametrize(
    ("configuration", "names"),
    [
        ({COUNT: "0"}, []),
        ({COUNT: "1"}, ["id"]),
        ({COUNT: "-1"}, ["id", "v", "w"]),
        ({NAMES: ""}, []),
        ({NAMES: "W"}, ["w"]),
        ({NAMES: "w,v", COUNT: "0"}, ["v", "w"]),
    ],
)
@pytest.mark.parametrize("as_it_is", [False, True])
def test_every_writer_keeps_to_the_user_s_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configuration: dict[str, str], names: list[str], as_it_is: bool
) -> None:
    """Applies, files that become data files as they are, and compaction; key look-ups need no statistics."""
    if as_it_is:
        monkeypatch.setattr(add_files, "large_enough", lambda sizes: True)
    table = tmp_path / "Tables/t"
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2], "v": ["a", None], "w": [0.5, 1.5]})
    sync(tmp_path)
    choose(table, configuration)
    put(tmp_path, "t", 2, {"id": [3, 4], "v": ["c", "d"], "w": [2.5, None]})
    sync(tmp_path)
    newest = next((tmp_path / "Files/LandingZone").rglob(f"{2:020}.parquet")).read_bytes()
    assert any(path.read_bytes() == newest for path in table.glob("*.parquet")) == as_it_is
    before, after = statistics(table)
    assert list(before["nullCount"]) == ["id", "v", "w"], "files that are there keep theirs"
    assert after["numRecords"] == 2
    assert all(list(after[kind]) == names for kind in KINDS)
    put(tmp_path, "t", 3, {"id": [1, 4, 5], "v": ["A", None, "e"], "w": [9.5, None, 3.5],
                           MARKER: pa.array([1, 2, 0], pa.int32())})  # fmt: skip
    sync(tmp_path)
    rows = [(1, "A", 9.5), (2, None, 1.5), (3, "c", 2.5), (5, "e", 3.5)]
    assert living(table) == rows, "updates and deletes find the rows"
    assert compaction.merge_when_idle(str(table), all_vectors=True)
    (merged,) = statistics(table)
    assert merged["numRecords"] == 4 and all(list(merged[kind]) == names for kind in KINDS)
    assert living(table) == rows
