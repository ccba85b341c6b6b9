"""The jobs of the Spark engine, run in this process without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pyarrow as pa

from lakemirror.engines.spark import SparkEngine, tasks
from lakemirror.engines.spark.jobs import Stage
from lakemirror.engines.spark.messages import dumps, loads


class JobsHere:
    """Runs the units of stages in this process, as tasks do, one after the other."""

    parallelism = 2

    def __init__(self) -> None:
        self.stages: list[str] = []

    def run(self, _: str, stage: Stage) -> list[list[Any]]:
        if stage.units:
            self.stages.append(stage.kernel.__name__)
        results: list[list[Any]] = [[] for _ in stage.units]
        for batch in tasks.results([_TASK], dumps((stage.kernel, stage.shared)), [_share(stage)]):
            for row in batch.to_pylist():
                results[row["unit"]].append(loads(row["result"]))
        return results

    def run_by_bucket(
        self, _: str, stages: Sequence[Stage], buckets: int, partitions: int, kernel: Any, shared: Any
    ) -> list[Any]:
        self.stages.append(kernel.__name__)
        parts: list[list[pa.RecordBatch]] = [[] for _ in range(partitions)]
        for kind, stage in enumerate(stages):
            for batch in tasks.blobs([_TASK], dumps((stage.kernel, stage.shared)), [_share(stage)], kind, buckets):
                for row in range(batch.num_rows):
                    parts[batch.column(0)[row].as_py() % partitions].append(batch.slice(row, 1))
        work = dumps((kernel, shared))
        return [
            loads(row["result"])
            for part in parts
            for batch in tasks.gathered(part, work)
            for row in batch.to_pylist()
        ]  # fmt: skip


def spark_engine_here(**options: Any) -> SparkEngine:
    """A Spark engine whose tasks run here. `options`: of it."""
    engine = SparkEngine(Mock(), **options)
    engine._jobs = JobsHere()  # type: ignore[assignment]
    return engine


_TASK = pa.record_batch({"id": pa.array([0], pa.int64())})


def _share(stage: Stage) -> dict[int, bytes]:
    return {number: dumps(unit) for number, unit in enumerate(stage.units)}
