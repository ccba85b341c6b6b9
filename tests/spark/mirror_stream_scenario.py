"""One run of a mirror as a streaming query; prints as JSON what is in the table then, and whether the query failed.

Runs in any supported PySpark: python mirror_stream_scenario.py FOLDER [FAILPOINT] [--remote ADDRESS]

FAILPOINT kills the process that runs the batch: this one, or with Spark Connect a worker of the server.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lakemirror.spark
from lakemirror.spark.mirror_stream import Pass

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def killed(batch: Pass, point: str) -> Any:
    """The batch, whose process is killed at the failpoint. It travels to a server by value, as this file is no module
    there.
    """

    def run(frame: DataFrame, number: int) -> None:
        os.environ["LAKEMIRROR_FAILPOINT"] = point
        batch(frame, number)

    return run


def started(remote: str) -> SparkSession:
    from pyspark.sql import SparkSession

    if remote:
        return SparkSession.builder.remote(remote).getOrCreate()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    return builder.config("spark.driver.host", "127.0.0.1").getOrCreate()


def run(folder: Path, point: str, remote: str) -> dict[str, Any]:
    spark = started(remote)
    database = str(folder / "shop")
    stream = lakemirror.spark.mirror(spark, database, engine="spark", spark_from_bytes=1)
    if point:
        stream = stream.foreachBatch(killed(Pass(database, settings={"engine": "spark", "spark_from_bytes": 1}), point))
    query = stream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    outcome: dict[str, Any] = {"failed": ""}
    try:
        query.awaitTermination()
        outcome["arrived"] = sum(progress["numInputRows"] or 0 for progress in query.recentProgress)
    except Exception as error:
        outcome["failed"] = str(error)[:300]
    if not remote:
        spark.stop()
    return outcome


def main() -> None:
    words = sys.argv[1:]
    remote = words.pop() if "--remote" in words else ""
    point = words[1] if len(words) > 1 and words[1] != "--remote" else ""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    print(json.dumps(run(Path(words[0]), point, remote)))


if __name__ == "__main__":
    main()
