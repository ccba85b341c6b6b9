"""The mirror as a streaming query: killed, started again, with and without its checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.databases import Database

import lakemirror.spark
from lakemirror.publisher import Landing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    return Landing(tmp_path / "shop")


@pytest.fixture(autouse=True)
def no_query_stays(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def ids(tmp_path: Path, table: str = "orders") -> list[int]:
    """Rows are only inserted: one that is applied twice is there twice."""
    return sorted(row[0] for row in Database(str(tmp_path / "shop"), {}).bag(table, ["id"]).elements())


def once(spark: SparkSession, tmp_path: Path, checkpoint: str = "checkpoint", **settings: Any) -> StreamingQuery:
    stream = lakemirror.spark.mirror(spark, tmp_path / "shop", **settings)
    query = stream.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def until(holds: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + 100
    while not holds():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.05)


def test_each_start_is_a_pass(spark: SparkSession, landing: Landing, tmp_path: Path) -> None:
    """With its checkpoint, with another one, and after a batch that Spark repeats."""
    orders = landing.table("orders")
    orders.insert([{"id": 1}])
    query = once(spark, tmp_path)
    assert ids(tmp_path) == [1]
    assert [each["numInputRows"] for each in query.recentProgress] == [1]
    (tmp_path / "checkpoint/commits/0").unlink()  # as if the process had died before Spark noted the end of the batch
    (tmp_path / "checkpoint/commits/.0.crc").unlink()
    orders.insert([{"id": 2}])
    once(spark, tmp_path)
    assert ids(tmp_path) == [1, 2]
    orders.insert([{"id": 3}])
    once(spark, tmp_path, "another")
    once(spark, tmp_path)
    assert ids(tmp_path) == [1, 2, 3]


def test_what_arrives_is_applied(spark: SparkSession, landing: Landing, tmp_path: Path) -> None:
    landing.table("orders").insert([{"id": 1}])
    query = lakemirror.spark.mirror(spark, tmp_path / "shop").trigger(processingTime="50 milliseconds").start()
    assert query.name == "lakemirror: shop"
    until(lambda: query.lastProgress is not None, query)
    landing.table("orders").insert([{"id": 2}])
    landing.table("customers", schema="sales").insert([{"id": 7}])
    until(lambda: (tmp_path / "shop/Tables/sales/customers").exists() and ids(tmp_path) == [1, 2], query)
    query.stop()
    assert not spark.streams.active
