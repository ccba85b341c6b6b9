"""Tables as other writers leave them: applies go on, or say what is wrong (contract sections 5 and 10)."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.applies.test_applies import changes, no_spark, rows, sync
from tests.landing import MARKER, declare, folder, put

from lakemirror import MirroredDatabase
from lakemirror.delta import deletion_vectors
from lakemirror.delta.log import read_commit, read_snapshot
from lakemirror.delta.log_folder import list_log

__all__ = ["no_spark"]


def foreign(table: Path, operation: str, **action: Any) -> None:
    """Another writer's commit with one action."""
    snapshot = read_snapshot(table)
    assert snapshot is not None
    lines = [{"commitInfo": {"operation": operation, "engineInfo": "Other/1"}}, action]
    path = table / "_delta_log" / f"{snapshot.version + 1:020}.json"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))


def mirrored(database: Path, **settings: Any) -> Path:
    """A table with the rows 1, 2 and 3, of which 2 is deleted."""
    declare(database, "t", ["id"])
    put(database, "t", 1, {"id": [1, 2, 3]})
    sync(database, **settings)
    put(database, "t", 2, changes([2], [2]))
    sync(database, **settings)
    return database / "Tables/t"


@pytest.mark.parametrize(
    "stats",
    [
        None, "[]", "null", "3", '{"numRecords":3,"minValues":[1],"maxValues":3,"nullCount":7}', '{"numRecords":"3"}',
        '{"numRecords":3,"minValues":{"id":NaN},"maxValues":{"id":1e400}}',
        '{"numRecords":3,"minValues":{"id":"x"},"maxValues":{"id":[1]},"nullCount":{"id":null}}',
    ],
)  # fmt: skip
def test_statistics_that_make_no_sense(tmp_path: Path, stats: str | None) -> None:
    table = mirrored(tmp_path)
    snapshot = read_snapshot(table)
    assert snapshot is not None
    (add,) = snapshot.files.values()
    told = {} if stats is None else {"stats": stats}
    kept = {name: value for name, value in add.items() if name != "stats"}
    foreign(table, "COMPUTE STATISTICS", add={**kept, **told, "dataChange": False})
    put(tmp_path, "t", 3, changes([3, 4], [2, 4]))
    sync(tmp_path, maintenance=False)
    assert rows(table) == Counter({(1,): 1, (4,): 1})


def test_columns_that_were_replaced_are_no_restore(tmp_path: Path) -> None:
    table = mirrored(tmp_path)
    snapshot = read_snapshot(table)
    assert snapshot is not None
    foreign(table, "REPLACE COLUMNS", metaData=dict(snapshot.metadata.value))
    put(tmp_path, "t", 3, {"id": [4]})
    sync(tmp_path)
    assert rows(table) == Counter({(1,): 1, (3,): 1, (4,): 1})


def without_vectors(table: Path) -> None:
    snapshot = read_snapshot(table)
    assert snapshot is not None
    metadata = dict(snapshot.metadata.value)
    metadata["configuration"] = {**metadata["configuration"], "delta.enableDeletionVectors": "false"}
    foreign(table, "SET TBLPROPERTIES", metaData=metadata)


@pytest.mark.parametrize("feed", [False, True])
@pytest.mark.parametrize("vectors", [False, True])
def test_a_damaged_vector_has_a_name(tmp_path: Path, feed: bool, vectors: bool) -> None:
    table = mirrored(tmp_path, change_data_feed=feed)
    for path in table.glob("deletion_vector*"):
        path.write_bytes(b"\1" + bytes(40))
    if not vectors:
        without_vectors(table)
    put(tmp_path, "t", 3, changes([3], [4]))
    failed = MirroredDatabase(tmp_path, change_data_feed=feed).sync().failed["t"]
    assert failed.code == "table-unreadable" and "deletion_vector_" in str(failed)


def test_rows_that_a_vector_deleted_are_not_written_again(tmp_path: Path) -> None:
    """A feed without a file of changes says that every row of a file that is written again has gone and come."""
    table = mirrored(tmp_path, change_data_feed=True)
    without_vectors(table)
    put(tmp_path, "t", 3, changes([2], [4]))
    sync(tmp_path, change_data_feed=True)
    log = list_log(table)
    assert log is not None
    actions = read_commit(log.commits[log.version])
    assert not any("remove" in action for action in actions) and sum("add" in action for action in actions) == 1
    assert rows(table) == Counter({(1,): 1, (2,): 1, (3,): 1})


def test_a_full_disk_where_vectors_are_written_leaves_no_data_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = mirrored(tmp_path)
    put(tmp_path, "t", 3, changes([1], [4]))

    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = set(table.glob("*.parquet"))
    with monkeypatch.context() as patch:
        patch.setattr(deletion_vectors, "write_vectors", full)
        assert MirroredDatabase(tmp_path).sync().failed["t"].code == "storage-unavailable"
    assert set(table.glob("*.parquet")) == before
    sync(tmp_path)
    assert rows(table) == Counter({(1,): 1, (3,): 1})


def test_an_empty_partition_value_is_a_key(tmp_path: Path) -> None:
    """Delta keeps it as NULL: an update of such a key finds its row, whether the folder or the file gives it."""
    declare(tmp_path, "t", ["id", "region"], isPartitionEnabled=True)
    places = ["region=", "region=", "region=eu", "region=eu"]
    given: list[dict[str, Any]] = [{}, {}, {"region": [""]}, {"region": [""]}]
    for number, (place, more) in enumerate(zip(places, given, strict=True)):
        path = folder(tmp_path, "t") / place / f"{number % 2 + 1:020}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": [1], "v": [number], **more, MARKER: [4]}), path)
        sync(tmp_path, maintenance=False)
        assert rows(tmp_path / "Tables/t") == Counter({(1, number): 1}), number
