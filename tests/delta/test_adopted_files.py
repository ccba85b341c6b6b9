"""Files of inserts that become data files of the table as they are (contract sections 3, 5 and 9)."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.landing import MARKER, declare, folder, put, table_bag
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase
from lakemirror.delta.log import read_snapshot

MOMENT = dt.datetime(2024, 2, 29, 12, 34, 56, 789123, tzinfo=dt.timezone.utc)
ROWS = pa.table({
    "i": pa.array([1, 2, None]), "s": ["a", None, "ü" * 50], "d": pa.array([MOMENT.date(), None, None]),
    "t": pa.array([MOMENT, None, MOMENT], pa.timestamp("us", "UTC")), "x": [1.5, -2.5, None],
    "n": pa.array([Decimal("1.50"), None, Decimal("-9.99")], pa.decimal128(9, 2)), "b": [True, False, None],
    "raw": [b"\x00", b"", None], "h": pa.array([1, 2, 3], pa.int16()),
})  # fmt: skip


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakemirror.engines.kernels.add_files.SMALLEST_BYTES", 0)
    monkeypatch.setattr("lakemirror.engines.kernels.add_files._SMALLEST_OF_FEW", 0)


def data_files(database: Path, table: str) -> list[bytes]:
    return sorted(path.read_bytes() for path in (database / "Tables" / table).glob("part-*.parquet"))


def test_files_are_copied_and_read_by_everybody(spark: Any, tmp_path: Path, any_size: None) -> None:
    declare(tmp_path, "t", ["i"])
    files = [put(tmp_path, "t", 1, ROWS), put(tmp_path, "t", 2, ROWS.slice(0, 2), compression="zstd")]
    contents = sorted(path.read_bytes() for path in files)
    assert not MirroredDatabase(tmp_path, spark=spark).sync().failed
    assert data_files(tmp_path, "t") == contents
    bag = table_bag(spark, tmp_path, "t")
    assert sum(bag.values()) == 5
    frame = spark.read.format("delta").load(str(tmp_path / "Tables/t"))
    assert frame.where("i = 1").count() == 2 and frame.where("t > '2024-02-29 12:34:56.7891Z'").count() == 3
    assert frame.agg({"i": "max"}).collect()[0][0] == 2
    deltalake = pytest.importorskip("deltalake")
    mirror = deltalake.DeltaTable(str(tmp_path / "Tables/t"))
    assert sum(json.loads(a)["numRecords"] for a in _stats(tmp_path)) == 5
    assert mirror.version() == 0
    # the publisher may write into its file again, and changes come by deletion vectors
    (folder(tmp_path, "t") / f"{2:020}.parquet").write_bytes(b"something else")
    put(tmp_path, "t", 3, pa.table({"i": [1, 9], "s": ["new", "nine"], MARKER: pa.array([4, 4], pa.int32())}))
    assert not MirroredDatabase(tmp_path, spark=spark).sync().failed
    found = table_bag(spark, tmp_path, "t", ["i", "s"])
    assert found == {(1, "new"): 1, (9, "nine"): 1, (2, None): 2, (None, "ü" * 50): 1}


def _stats(database: Path) -> list[str]:
    snapshot = read_snapshot(str(database / "Tables/t"))
    assert snapshot is not None
    log = sorted((database / "Tables/t/_delta_log").glob("*.json"))[0].read_text().splitlines()
    return [action["add"]["stats"] for action in map(json.loads, log) if "add" in action]


def test_pages_that_do_not_decode_never_enter_the_table(spark: Any, tmp_path: Path, any_size: None) -> None:
    declare(tmp_path, "t", [])
    put(tmp_path, "t", 1, {"id": [1]})
    bad = put(tmp_path, "t", 2, pa.table({"id": range(1000), "s": [str(n) for n in range(1000)]}))
    data = bytearray(bad.read_bytes())
    data[100:300] = bytes(200)
    bad.write_bytes(data)
    put(tmp_path, "t", 3, {"id": [3]})
    (error,) = MirroredDatabase(tmp_path, spark=spark).sync().failed.values()
    assert (error.code, error.file) == ("file-unreadable", f"Files/LandingZone/t/{2:020}.parquet")
    assert table_rows(tmp_path, "t") == {(1,): 1}
    assert len(data_files(tmp_path, "t")) == 1


def test_columns_that_come_later_and_a_folder_made_again(spark: Any, tmp_path: Path, any_size: None) -> None:
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1], "old": ["a"]})
    put(tmp_path, "t", 2, {"new": [2.5], "id": [2]})
    assert not MirroredDatabase(tmp_path, spark=spark, change_data_feed=True).sync().failed
    assert table_rows(tmp_path, "t") == {(1, "a", None): 1, (2, None, 2.5): 1}
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    rows = feed.load(str(tmp_path / "Tables/t")).select("id", "_change_type").collect()
    assert sorted((row[0], row[1]) for row in rows) == [(1, "insert"), (2, "insert")]
    shutil.rmtree(folder(tmp_path, "t"))
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [7], "other": ["z"]})
    assert not MirroredDatabase(tmp_path, spark=spark, change_data_feed=True).sync().failed
    assert table_rows(tmp_path, "t") == {(7, "z"): 1}


def test_small_files_are_written_as_one(spark: Any, tmp_path: Path) -> None:
    declare(tmp_path, "t", [])
    for number in (1, 2, 3):
        put(tmp_path, "t", number, {"id": [number]})
    assert not MirroredDatabase(tmp_path, spark=spark).sync().failed
    (data,) = data_files(tmp_path, "t")
    assert pq.read_metadata(pa.BufferReader(data)).num_rows == 3
