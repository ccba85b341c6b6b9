"""Two streams at once by `foreachBatch` of Spark Connect, with their checkpoints and with new ones; prints JSON.

python connect_streams_scenario.py FOLDER ADDRESS
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from lakemirror.publisher.spark_batches import publish_each_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("orders", "clicks")


def run(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Runs both streams until both have ended a batch; the published ids of each, and how many failed."""
    queries = []
    for name in NAMES:
        frame = spark.readStream.schema("id long").parquet(str(folder / "in"))
        writer = frame.writeStream.foreachBatch(publish_each_batch(str(folder / "shop" / name), name, mode="insert"))
        writer = writer.option("checkpointLocation", str(folder / "checkpoint" / name)).queryName(name)
        queries.append(writer.trigger(processingTime="1 second").start())
    deadline = time.monotonic() + 120
    while any(query.isActive and not query.lastProgress for query in queries) and time.monotonic() < deadline:
        time.sleep(0.2)
    failed = sum(query.exception() is not None for query in queries)
    for query in queries:
        query.stop()
    return {"failed": failed, "ids": [published(folder / "shop/Files/LandingZone" / name) for name in NAMES]}


def published(table: Path) -> list[int]:
    files = table.glob("[0-9]*.parquet")
    return sorted(row["id"] for file in files for row in pq.read_table(file, partitioning=None).to_pylist())


def main() -> None:
    from pyspark.sql import SparkSession

    folder = Path(sys.argv[1])
    spark = SparkSession.builder.remote(sys.argv[2]).getOrCreate()
    spark.range(2).write.parquet(str(folder / "in"))
    outcome = [run(spark, folder)]
    for name in NAMES:  # as if the server had died before Spark noted the end of the batch
        for note in (folder / "checkpoint" / name / "commits").iterdir():
            note.unlink()
    outcome.append(run(spark, folder))
    shutil.rmtree(folder / "checkpoint")
    outcome.append(run(spark, folder))
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
