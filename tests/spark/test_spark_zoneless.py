"""Times without a zone by Spark's tasks, and the tables as Delta Spark reads them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.landing import MARKER, declare, put

from lakemirror import MirroredDatabase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MORNING = dt.datetime(2026, 7, 1, 9, 0, 0, 5)


@pytest.mark.parametrize(
    ("setting", "kind", "seconds"),
    [pytest.param("utc", "timestamp", 9, marks=pytest.mark.full), ("ntz", "timestamp_ntz", 9),
     ("Europe/Berlin", "timestamp", 7)],
)  # fmt: skip
def test_each_setting(spark: SparkSession, tmp_path: Path, setting: str, kind: str, seconds: int) -> None:
    declare(tmp_path, "t", ["at"])
    put(tmp_path, "t", 1, {"at": pa.array([MORNING, MORNING + dt.timedelta(days=1)], pa.timestamp("us")), "n": [1, 2]})
    put(tmp_path, "t", 2, {"at": pa.array([MORNING], pa.timestamp("us")), "n": [3], MARKER: [4]})
    settings = {"engine": "spark", "spark_from_bytes": 1, "zoneless": setting, "batch_files": 1}
    assert MirroredDatabase(tmp_path, spark=spark, **settings).sync().failed == {}
    frame = spark.read.format("delta").load(str(tmp_path / "Tables/t"))
    assert frame.schema["at"].dataType.simpleString() == kind
    hour = MORNING.replace(hour=seconds)
    rows = frame.selectExpr("cast(at as string)", "n").orderBy("n").collect()
    assert [tuple(row) for row in rows] == [(str(hour + dt.timedelta(days=1)), 2), (str(hour), 3)]
    day = "timestamp_ntz" if setting == "ntz" else "timestamp"
    assert frame.where(f"at = {day}'{hour}'").count() == 1, "statistics"
