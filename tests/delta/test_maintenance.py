"""Idle-time work: what it does to a table, and what it must not do (section 10)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.landing import MARKER, declare, put, table_bag

from lakemirror import MirroredDatabase
from lakemirror.replication import maintenance
from lakemirror.replication.maintenance import Maintenance, commits_since_compaction


def test_small_files_and_deleted_rows_are_compacted_and_the_mirror_goes_on(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "COMPACT_AFTER", 3)
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2, 3]})
    put(tmp_path, "t", 2, {"id": [4]})
    put(tmp_path, "t", 3, {"id": [1], MARKER: pa.array([2], pa.int32())})
    MirroredDatabase(tmp_path, spark=spark, batch_files=1).sync()
    table = str(tmp_path / "Tables/t")
    assert commits_since_compaction(table) == 3
    before = len(spark.read.format("delta").load(table).inputFiles())
    work = Maintenance(lambda path: str(tmp_path / path), retention_days=7)
    assert work.step(spark, ["Tables/t"]) == "Tables/t"
    work._pool.shutdown(wait=True)
    assert commits_since_compaction(table) == 0
    assert len(spark.read.format("delta").load(table).inputFiles()) < before
    assert Maintenance(str, 7).step(spark, [table]) is None, "nothing is due any more"
    put(tmp_path, "t", 4, {"id": [2], MARKER: pa.array([2], pa.int32())})
    assert not MirroredDatabase(tmp_path, spark=spark).sync().failed
    assert table_bag(spark, tmp_path, "t") == {(3,): 1, (4,): 1}
