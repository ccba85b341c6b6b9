"""Last-update detection, partitions and quarantine on real tables (contract sections 4 and 5)."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from tests.landing import MARKER, declare, folder, put, put_broken
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase
from lakemirror.api import SyncResult
from lakemirror.mirror.position import DETECTION_PROPERTY, SEGMENTS, parse_detection
from lakemirror.mirror.table_log import read_table_log

LAST_UPDATE = {"fileDetectionStrategy": "LastUpdateTimeFileDetection"}


def put_path(
    database: Path, table: str, path: str, rows: dict[str, Any], *, at: float | None = None, data: bytes | None = None
) -> Path:
    """Writes a file at a path below the table folder, last modified at that time."""
    target = folder(database, table) / path
    target.parent.mkdir(parents=True, exist_ok=True)
    if data is None:
        pq.write_table(pa.table(rows), target)
    else:
        target.write_bytes(data)
    if at is not None:
        os.utime(target, (at, at))
    return target


def markers(*values: int) -> pa.Array:
    return pa.array(values, pa.int32())


def sync(database: Path, **options: Any) -> SyncResult:
    return MirroredDatabase(database, **options).sync()


def count(result: SyncResult) -> int:
    """How many files a pass applied."""
    return sum(table.files for table in result.tables.values())


def test_files_are_applied_by_their_time_and_late_ones_late(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], **LAST_UPDATE)
    now = time.time() - 1000
    put_path(tmp_path, "t", "z.parquet", {"id": [1], "v": ["first"]}, at=now)
    put_path(tmp_path, "t", "deep/er/a b%20ü+.parquet", {"id": [1], "v": ["second"], MARKER: markers(4)}, at=now + 1)
    put_path(tmp_path, "t", "b:c.parquet", {"id": [2], "v": ["colon"], MARKER: markers(4)}, at=now + 1)
    assert count(sync(tmp_path)) == 3
    assert table_rows(tmp_path, "t") == {(1, "second"): 1, (2, "colon"): 1}
    put_path(tmp_path, "t", "late.parquet", {"id": [1], "v": ["late"], MARKER: markers(4)}, at=now - 500)
    assert count(sync(tmp_path)) == 1
    assert table_rows(tmp_path, "t") == {(1, "late"): 1, (2, "colon"): 1}
    left = [p.name for p in folder(tmp_path, "t").rglob("*.parquet") if "_ProcessedFiles" not in p.parts]
    assert left == ["late.parquet"]  # the newest applied one stays
    assert (folder(tmp_path, "t") / "_ProcessedFiles/deep/er/a b%20ü+.parquet").exists()
    assert not list((tmp_path / "Files/_Staged").rglob("*.parquet"))


def test_a_path_is_never_applied_again_whatever_is_lost(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], **LAST_UPDATE)
    for n in range(7):
        put_path(tmp_path, "t", f"f{n}.parquet", {"id": [n]}, at=time.time() - 1000 + n)
        sync(tmp_path, batch_files=1)
    expected = {(n,): 1 for n in range(7)}
    assert table_rows(tmp_path, "t") == expected
    shutil.rmtree(folder(tmp_path, "t") / "_ProcessedFiles")
    shutil.rmtree(tmp_path / "Files/Monitoring")
    for n in range(6):
        put_path(tmp_path, "t", f"f{n}.parquet", {"id": [n]})  # published again, and newer
    result = sync(tmp_path)
    assert (count(result), result.failed) == (0, {})
    assert table_rows(tmp_path, "t") == expected
    table_log = read_table_log(str(tmp_path / "Tables/t"))
    assert table_log is not None
    detection = parse_detection(table_log.detection, "t")
    assert [(tmp_path / "Tables/t" / SEGMENTS / each).stat().st_size // 16 for each in detection.segments] == [4, 2, 1]
    properties = DeltaTable(tmp_path / "Tables/t").metadata().configuration
    assert properties[DETECTION_PROPERTY] == table_log.detection


def test_switching_from_sequence_counts_what_the_position_covers_and_never_back(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"])
    for n in (1, 2, 3):
        put(tmp_path, "t", n, {"id": [n]})
    sync(tmp_path)
    declare(tmp_path, "t", ["id"], **LAST_UPDATE)
    put(tmp_path, "t", 2, {"id": [2]})  # covered: not applied again
    put(tmp_path, "t", 9, {"id": [9]})
    put_path(tmp_path, "t", "x.parquet", {"id": [10]})
    assert count(sync(tmp_path)) == 2
    assert table_rows(tmp_path, "t") == {(n,): 1 for n in (1, 2, 3, 9, 10)}
    declare(tmp_path, "t", ["id"])
    failed = sync(tmp_path).failed
    assert {t: e.code for t, e in failed.items()} == {"t": "detection-strategy-changed"}
    declare(tmp_path, "t", ["id"], **LAST_UPDATE)
    put_path(tmp_path, "t", "y.parquet", {"id": [11]})
    assert count(sync(tmp_path)) == 1


def test_each_partition_is_a_sequence_and_a_column(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id", "region"], isPartitionEnabled=True)
    for region, numbers in {
        "region=eu": (1, 2, 4),
        "region=us%2Fwest": (1, 2),
        "region=__HIVE_DEFAULT_PARTITION__": (1,),
    }.items():
        for n in numbers:
            put_path(tmp_path, "t", f"{region}/{n:020}.parquet", {"id": [1, n], MARKER: markers(4, 4)})
    put(tmp_path, "t", 1, {"id": [5]})  # lies in no partition
    result = sync(tmp_path)
    assert (count(result), result.failed) == (5, {})
    rows = {(1, "eu"): 1, (2, "eu"): 1, (1, "us/west"): 1, (2, "us/west"): 1, (1, None): 1}
    assert table_rows(tmp_path, "t") == rows
    status = MirroredDatabase(tmp_path).status().tables[0]
    assert status.waiting_for is not None and status.waiting_for.what == "number 3 in region=eu"
    assert "file-ignored" in {w.code for w in status.warnings}
    put_path(tmp_path, "t", f"region=eu/{3:020}.parquet", {"id": [1], MARKER: markers(2)})
    put_path(tmp_path, "t", f"region=eu/{1:020}.parquet", {"id": [77]})  # applied before
    assert count(sync(tmp_path, batch_files=1)) == 2
    rows = {(2, "eu"): 1, (1, "eu"): 1, (4, "eu"): 1} | {k: v for k, v in rows.items() if k[1] != "eu"}
    assert table_rows(tmp_path, "t") == rows
    assert count(sync(tmp_path)) == 0
    left = sorted(str(p.relative_to(folder(tmp_path, "t"))) for p in folder(tmp_path, "t").glob("region*/*"))
    assert left == [
        "region=__HIVE_DEFAULT_PARTITION__/00000000000000000001.parquet",
        "region=eu/00000000000000000004.parquet",
        "region=us%2Fwest/00000000000000000002.parquet",
    ]
    declare(tmp_path, "t", ["id", "region"])
    assert {e.code for e in sync(tmp_path).failed.values()} == {"detection-strategy-changed"}


def test_a_column_in_the_file_wins_over_its_folder(tmp_path: Path) -> None:
    declare(tmp_path, "t", [], isPartitionEnabled=True, **LAST_UPDATE)
    put_path(tmp_path, "t", "day=1/part=a/x.parquet", {"id": [1], "Day": ["own"]}, at=1000)
    put_path(tmp_path, "t", "day=2/part=b/x.parquet", {"id": [2]}, at=1001)
    put_path(tmp_path, "t", "x.parquet", {"id": [3]}, at=1002)
    assert count(sync(tmp_path)) == 2
    assert table_rows(tmp_path, "t", ["id", "Day", "part"]) == {(1, "own", "a"): 1, (2, "2", "b"): 1}


def test_a_bad_file_is_set_aside_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "Files/LandingZone").mkdir(parents=True)
    (tmp_path / "mirroring.json").write_text(json.dumps({"lakemirror": {"on_bad_file": "quarantine"}}))
    declare(tmp_path, "t", ["id"])
    put_broken(tmp_path, "t", 1)
    put(tmp_path, "t", 2, {"id": [1]})
    put(tmp_path, "t", 3, {"id": [2], MARKER: markers(7)})
    put(tmp_path, "t", 4, {"id": ["text"]})
    put(tmp_path, "t", 5, {"id": [3], MARKER: markers(4)})
    result = sync(tmp_path)
    assert result.failed == {}
    assert table_rows(tmp_path, "t") == {(1,): 1, (3,): 1}
    aside = folder(tmp_path, "t") / "_QuarantinedFiles"
    codes = {p.name[19]: json.loads(p.read_text())["code"] for p in aside.glob("*.error.json")}
    assert codes == {"1": "file-unreadable", "3": "row-marker-invalid", "4": "type-changed"}
    status = MirroredDatabase(tmp_path).status().tables[0]
    assert [w.code for w in status.warnings if w.code == "file-quarantined"] == ["file-quarantined"] * 3
    assert any("row marker '7'" in w.message for w in status.warnings)
    assert status.position == 5
    put_broken(tmp_path, "t", 6)
    sync(tmp_path)
    put(tmp_path, "t", 6, {"id": [6]})  # a good one in its place, before anything followed
    put(tmp_path, "t", 7, {"id": [7]})
    assert count(sync(tmp_path)) == 2
    assert table_rows(tmp_path, "t") == {(n,): 1 for n in (1, 3, 6, 7)}


def test_a_recreated_folder_starts_its_record_anew(tmp_path: Path) -> None:
    declare(tmp_path, "t", ["id"], **LAST_UPDATE)
    put_path(tmp_path, "t", "a.parquet", {"id": [1], "old": [1]})
    sync(tmp_path)
    shutil.rmtree(folder(tmp_path, "t"))
    declare(tmp_path, "t", ["id"], **LAST_UPDATE)
    put_path(tmp_path, "t", "a.parquet", {"id": [2], "new": [1]})
    put_path(tmp_path, "t", "b.parquet", {"id": [3], "new": [1]})
    assert count(sync(tmp_path, batch_files=1)) == 2
    assert table_rows(tmp_path, "t") == {(2, 1): 1, (3, 1): 1}
    shutil.rmtree(folder(tmp_path, "t"))
    put(tmp_path, "t", 1, {"id": [4]})  # and as a sequence
    assert count(sync(tmp_path)) == 1
    assert table_rows(tmp_path, "t") == {(4,): 1}
    assert count(sync(tmp_path)) == 0
