"""The session of the run, as code meets it that finds a session there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lakemirror.settings.settings import Settings
from lakemirror.spark_session import session as lakemirror_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_active_session_is_used_and_not_changed(spark: SparkSession) -> None:
    other = Settings(spark=(("spark.sql.session.timeZone", "CET"), ("spark.sql.shuffle.partitions", "77")))
    again = lakemirror_spark.start(other)
    assert again.sparkContext is spark.sparkContext
    assert again.conf.get("spark.sql.session.timeZone") == "UTC"
    assert again.conf.get("spark.sql.shuffle.partitions") == "2"


def test_the_fixture_s_session_writes_delta(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    spark.range(5).write.format("delta").save(path)
    assert spark.read.format("delta").load(path).count() == 5
    assert spark.sparkContext.defaultParallelism == 2
