"""The Spark engine does what the local one does, in the session of the run."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.change_tables import expected, held, marked
from tests.landing import MARKER, declare, put
from tests.spark.engine_scenario import differences
from tests.table_rows import table_rows

from lakemirror.api import MirroredDatabase
from lakemirror.errors import LakemirrorError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("which", ["fewer", pytest.param("all", marks=pytest.mark.full)])
def test_classic(spark: SparkSession, tmp_path: Path, which: str) -> None:
    assert differences(spark, tmp_path, which) == []


def test_a_table_of_changes_by_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """Every change once, by tasks and by few rows in the driver; a bad row ends the batch in both tables."""
    declare(tmp_path, "t", ["id"], lakemirror={"history": "changes"})
    rows = list(range(3000))
    put(tmp_path, "t", 1, marked([4] * 3000, id=rows, v=[str(row % 7) for row in rows]))
    partial = pa.array([["v"] if row % 2 else None for row in rows])
    put(tmp_path, "t", 2, marked([1] * 3000, id=rows, v=["x"] * 3000).append_column("__unchangedColumns__", partial))
    for few in (1, 0):
        result = MirroredDatabase(tmp_path, engine="spark", spark_from_bytes=few, spark=spark, batch_files=1).sync()
        assert not result.failed, result.failed
        assert held(tmp_path, "t__changes") == expected(tmp_path, "t")
        if few:
            put(tmp_path, "t", 3, marked([2, 4], id=[1, 2], v=[None, "y"]))
    assert table_rows(tmp_path, "t")[(2, "y")] == 1 and sum(table_rows(tmp_path, "t").values()) == 2999
    before = held(tmp_path, "t__changes")
    put(tmp_path, "t", 4, marked([7], id=[1], v=["z"]))
    assert MirroredDatabase(tmp_path, engine="spark", spark_from_bytes=1, spark=spark).sync().failed
    assert held(tmp_path, "t__changes") == before


def test_a_job_that_fails_has_a_code(spark: SparkSession, tmp_path: Path) -> None:
    from lakemirror.engines.spark.jobs import Jobs, Stage

    with pytest.raises(LakemirrorError, match=r"orders: fail: .*ZeroDivisionError: ") as caught:
        Jobs(spark).run("orders: fail", Stage(operator.truediv, 1, [0]))
    assert caught.value.code == "spark-job-failed" and caught.value.retry


def test_a_constraint_that_a_user_put_on_the_table(spark: SparkSession, tmp_path: Path) -> None:
    """Spark evaluates it, as it does for its own writes: false and NULL break it. `local` says why it cannot."""
    database = MirroredDatabase(tmp_path, spark=spark)
    declare(tmp_path, "orders", ["id"])
    put(tmp_path, "orders", 1, {"id": [1, 2], "n": [5, 6]})
    assert database.sync().failed == {}
    table = f"delta.`{tmp_path / 'Tables' / 'orders'}`"
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT small CHECK (n < 10)")
    put(tmp_path, "orders", 2, {"id": [1, 2, 3], "n": [7, None, 8], MARKER: pa.array([4, 2, 4], pa.int32())})
    told = MirroredDatabase(tmp_path, engine="local").sync().failed
    assert [error.code for error in told.values()] == ["spark-needed"]
    assert database.sync().failed == {}
    assert sorted(tuple(row) for row in spark.sql(f"SELECT id, n FROM {table}").collect()) == [(1, 7), (3, 8)]
    put(tmp_path, "orders", 3, {"id": [4, 5], "n": [9, None], MARKER: pa.array([4, 4], pa.int32())})
    (error,) = database.sync().failed.values()
    assert (error.code, error.row) == ("constraint-violated", 2)
    with pytest.raises(Exception, match=r"(?i)check constraint"):
        spark.sql(f"INSERT INTO {table} VALUES (5, NULL)")


def test_jobs_name_table_and_step(spark: SparkSession, tmp_path: Path) -> None:
    from lakemirror.engines.spark.jobs import Jobs

    with Jobs(spark).described("lakemirror: sales/orders: read keys"):
        assert spark.sparkContext.getLocalProperty("spark.job.description") == "lakemirror: sales/orders: read keys"
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None
