"""Idle-time work seen by Spark: it reads what was compacted, checkpointed and vacuumed (section 10)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.landing import MARKER, declare, folder, put, table_bag

from lakemirror import MirroredDatabase
from lakemirror.maintenance.idle_work import Maintenance, Pace, commits_since_compaction
from lakemirror.mirror import position
from lakemirror.mirror.position import SEGMENTS


def _step(work: Maintenance, target: str) -> str | None:
    work._not_before = 0.0
    found = work.step([target])
    if work._work is not None:
        work._work.result(timeout=60)
    return found


def test_small_files_and_deleted_rows_are_compacted_and_the_mirror_goes_on(spark: Any, tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2, 3]})
    put(tmp_path, "t", 2, {"id": [4]})
    put(tmp_path, "t", 3, {"id": [1], MARKER: pa.array([2], pa.int32())})
    MirroredDatabase(tmp_path, spark=spark, batch_files=1).sync()
    table = str(tmp_path / "Tables/t")
    assert commits_since_compaction(table) == 3
    before = len(spark.read.format("delta").load(table).inputFiles())
    work = Maintenance(lambda path: str(tmp_path / path), 7, pace=Pace(compact_after=3, quiet=3600.0))
    assert _step(work, "Tables/t") is None, "it is not idle"
    work.pace = soon = Pace(compact_after=3, quiet=0.0)
    assert _step(work, "Tables/t") == "Tables/t"
    assert commits_since_compaction(table) == 0
    assert len(spark.read.format("delta").load(table).inputFiles()) < before
    assert _step(Maintenance(str, 7, pace=soon), table) is None, "nothing is due any more"
    put(tmp_path, "t", 4, {"id": [2], MARKER: pa.array([2], pa.int32())})
    assert not MirroredDatabase(tmp_path, spark=spark).sync().failed
    assert table_bag(spark, tmp_path, "t") == {(3,): 1, (4,): 1}


def test_every_reader_reads_from_our_checkpoints_alone(spark: Any, tmp_path: Path) -> None:
    """The commits before the newest checkpoint are gone."""
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": list(range(100))})
    for number in range(2, 42):
        put(tmp_path, "t", number, {"id": [number], "v": [number], MARKER: pa.array([4], pa.int32())})
    assert not MirroredDatabase(tmp_path, batch_files=1, deletion_vectors=False).sync().failed
    table = tmp_path / "Tables/t"
    log = table / "_delta_log"
    newest = max(int(path.name[:20]) for path in log.glob("*.checkpoint.parquet"))
    assert newest >= 30
    for path in log.iterdir():
        if path.is_file() and path.name < f"{newest:020}.checkpoint" and path.name[0].isdigit():
            path.unlink()
    frame = spark.read.format("delta").load(str(table))
    assert frame.count() == 100
    assert sorted(row.id for row in frame.where("v is not null").collect()) == list(range(2, 42))
    assert len(deltalake.DeltaTable(str(table)).to_pyarrow_table()) == 100


@pytest.mark.full
def test_vacuum_by_spark_and_ours_remove_the_same(spark: Any, tmp_path: Path) -> None:
    """Both after compaction, with files of failed attempts: what one leaves, the other has nothing to remove of."""
    declare(tmp_path, "t", ["id"])
    for number in range(1, 20):
        put(tmp_path, "t", number, {"id": [number, 100], MARKER: pa.array([4, 4], pa.int32())})
    MirroredDatabase(tmp_path, batch_files=1).sync()
    table = tmp_path / "Tables/t"
    unused = table / "part-unused.parquet"
    pq.write_table(pa.table({"id": [9]}), unused)
    for path in table.rglob("*"):
        if path.is_file():
            os.utime(path, (1, 1))
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    commits = len(list((table / "_delta_log").glob("*[0-9].json")))
    would = spark.sql(f"VACUUM delta.`{table}` RETAIN 0 HOURS DRY RUN").count()
    never = Pace(quiet=1e12, rested=1e12)  # to compact: only the vacuum is due
    work = Maintenance(lambda path: str(tmp_path / path), retention_days=0, pace=never)
    work._vacuumed["Tables/t"] = -1e9
    assert _step(work, "Tables/t") == "Tables/t" and would > 0
    assert not unused.exists()
    assert spark.sql(f"VACUUM delta.`{table}` RETAIN 0 HOURS DRY RUN").count() == 0
    assert len(list((table / "_delta_log").glob("*[0-9].json"))) == commits, "nothing is committed"
    assert table_bag(spark, tmp_path, "t") == {**{(n,): 1 for n in range(1, 20)}, (100,): 1}


def test_the_record_of_applied_paths_survives_vacuum_and_its_loss_stops_the_table(spark: Any, tmp_path: Path) -> None:
    declare(tmp_path, "t", [], fileDetectionStrategy="LastUpdateTimeFileDetection")
    pq.write_table(pa.table({"id": [1]}), folder(tmp_path, "t") / "a.parquet")
    MirroredDatabase(tmp_path).sync()
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"VACUUM delta.`{tmp_path / 'Tables/t'}` RETAIN 0 HOURS").collect()
    spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    pq.write_table(pa.table({"id": [2]}), folder(tmp_path, "t") / "b.parquet")
    assert MirroredDatabase(tmp_path).sync().tables["t"].files == 1
    shutil.rmtree(tmp_path / "Tables/t" / SEGMENTS)
    pq.write_table(pa.table({"id": [3]}), folder(tmp_path, "t") / "c.parquet")
    position._read_segment.cache_clear()
    result = MirroredDatabase(tmp_path).sync()
    assert {t: e.code for t, e in result.failed.items()} == {"t": "table-unreadable"}
    assert table_bag(spark, tmp_path, "t") == {(1,): 1, (2,): 1}
