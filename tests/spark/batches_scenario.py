"""A stream into a landing zone by `foreachBatch`, one batch of it twice; prints what was published, as JSON.

Runs in any supported PySpark: python batches_scenario.py FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from lakemirror.publisher.spark_batches import publish_each_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def published(spark: SparkSession, folder: Path) -> list[list[dict[str, Any]]]:
    """The rows of every change file, after two batches of which the second is run again."""
    source, checkpoint = folder / "source", folder / "checkpoint"
    publish = publish_each_batch(str(folder / "shop" / "clicks"), "clicks-stream", keys="id")

    def run() -> None:
        frame = spark.readStream.schema("id long, at timestamp, amount decimal(9,2)").parquet(str(source))
        writer = frame.writeStream.foreachBatch(publish).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    for first in (0, 10):
        frame = spark.range(first, first + 10).selectExpr(
            "id", "timestamp_seconds(1700000000 + id) AS at", "CAST(id AS decimal(9,2)) AS amount"
        )
        frame.repartition(2).write.mode("append").parquet(str(source))
        run()
    for note in ("1", ".1.crc"):  # as if the process had died before Spark noted the end of the batch
        (checkpoint / "commits" / note).unlink()
    run()
    files = sorted((folder / "shop/Files/LandingZone/clicks").glob("[0-9]*.parquet"))
    return [pq.read_table(file, partitioning=None).to_pylist() for file in files]


def main() -> None:
    from pyspark.sql import SparkSession

    folder = Path(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    options = {
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        print(json.dumps(published(spark, folder), default=str))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
