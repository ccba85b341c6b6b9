"""Idle-time work: what it does to a table, and what it must not do (section 10)."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.landing import MARKER, declare, put, spark_alone, table_bag

from lakemirror import MirroredDatabase
from lakemirror.delta.delta_at_work import delta_at_work, without_delta
from lakemirror.maintenance import compaction as small_files
from lakemirror.maintenance import idle_work as maintenance
from lakemirror.maintenance.idle_work import Maintenance, commits_since_compaction


def test_small_files_and_deleted_rows_are_compacted_and_the_mirror_goes_on(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "COMPACT_AFTER", 3)
    monkeypatch.setattr(maintenance, "QUIET", 3600.0)
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1, 2, 3]})
    put(tmp_path, "t", 2, {"id": [4]})
    put(tmp_path, "t", 3, {"id": [1], MARKER: pa.array([2], pa.int32())})
    MirroredDatabase(tmp_path, spark=spark, batch_files=1).sync()
    table = str(tmp_path / "Tables/t")
    assert commits_since_compaction(table) == 3
    before = len(spark.read.format("delta").load(table).inputFiles())
    monkeypatch.setattr(small_files, "against", lambda *_: "Spark's")
    work = Maintenance(lambda path: str(tmp_path / path), retention_days=7)
    assert work.step(lambda: spark, ["Tables/t"]) is None, "it does not rest"
    monkeypatch.setattr(maintenance, "QUIET", 0.0)
    work._not_before = 0
    assert work.step(lambda: spark, ["Tables/t"]) == "Tables/t"
    work._pool.shutdown(wait=True)
    assert commits_since_compaction(table) == 0
    assert len(spark.read.format("delta").load(table).inputFiles()) < before
    assert Maintenance(str, 7).step(lambda: spark, [table]) is None, "nothing is due any more"
    put(tmp_path, "t", 4, {"id": [2], MARKER: pa.array([2], pa.int32())})
    assert not MirroredDatabase(tmp_path, spark=spark).sync().failed
    assert table_bag(spark, tmp_path, "t") == {(3,): 1, (4,): 1}


def test_checkpoints_come_without_a_spark_job_but_for_one_in_ten(spark: Any, tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": list(range(100))})
    MirroredDatabase(tmp_path, spark=spark).sync()
    table = tmp_path / "Tables/t"
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.checkpointInterval' = '20')")
    for number in range(2, 23):
        put(tmp_path, "t", number, {"id": [number], "v": [number], MARKER: pa.array([4], pa.int32())})
    with spark_alone():
        assert not MirroredDatabase(tmp_path, spark=spark, batch_files=1).sync().failed
    log = table / "_delta_log"
    writers = {int(p.name[:20]): pq.read_metadata(p).created_by for p in log.glob("*.checkpoint.parquet")}
    assert sorted(writers) == [10, 20]
    assert "parquet-cpp" in writers[10] and "parquet-mr" in writers[20]
    # everything before a checkpoint of ours goes, and nothing is missed
    for path in log.iterdir():
        old = path.name.startswith(f"{20:020}.checkpoint") or path.name < f"{10:020}.checkpoint"
        if path.is_file() and (old or path.name == "_last_checkpoint" or path.suffix == ".crc"):
            path.unlink()
    other = tmp_path / "elsewhere"
    table.rename(other)
    frame = spark.read.format("delta").load(str(other))
    assert frame.count() == 100
    assert sorted(row.id for row in frame.where("v is not null").collect()) == list(range(2, 23))
    assert deltalake.DeltaTable(str(other)).version() == 22


def test_new_tables_ask_delta_for_fewer_checkpoints(spark: Any, tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"id": [1]})
    MirroredDatabase(tmp_path, spark=spark).sync()
    found = spark.sql(f"SHOW TBLPROPERTIES delta.`{tmp_path / 'Tables/t'}`").collect()
    assert {row.key: row.value for row in found}["delta.checkpointInterval"] == "100"


def test_compaction_ends_when_an_apply_comes(spark: Any, tmp_path: Path) -> None:
    work = Maintenance(lambda path: str(tmp_path / path), retention_days=7)
    endless = "SELECT sum(a.id * b.id) FROM range(1000000) a CROSS JOIN range(1000000000) b"

    def compact() -> None:
        with delta_at_work(str(tmp_path / "Tables/t"), work._give_way):
            work._run(lambda: spark, endless, {})

    future = work._pool.submit(work._carry_out, compact, "Tables/t")
    busy = spark.sparkContext.statusTracker()
    deadline = time.monotonic() + 60
    while not busy.getJobIdsForGroup("lakemirror-maintenance") and time.monotonic() < deadline:
        time.sleep(0.05)
    with without_delta(str(tmp_path / "Tables/t")) as alone:
        assert alone
    future.result(timeout=30)
    work.stop()
    with ThreadPoolExecutor(8) as pool:  # one of these has the thread in the JVM that compacted
        counts = list(pool.map(lambda n: spark.range(n).count(), range(8)))
    assert counts == list(range(8)), "nobody else is cancelled"


def test_vacuum_commits_nothing_and_removes_what_is_unused(spark: Any, tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1]})
    MirroredDatabase(tmp_path, spark=spark).sync()
    table = tmp_path / "Tables/t"
    unused = table / "part-unused.parquet"
    pq.write_table(pa.table({"id": [9]}), unused)
    os.utime(unused, (1, 1))
    work = Maintenance(lambda path: str(tmp_path / path), retention_days=7)
    work._vacuumed["Tables/t"] = -1e9
    assert work.step(lambda: spark, ["Tables/t"]) == "Tables/t"
    work._pool.shutdown(wait=True)
    assert not unused.exists()
    assert len(list((table / "_delta_log").glob("*[0-9].json"))) == 1
    assert table_bag(spark, tmp_path, "t") == {(1,): 1}
