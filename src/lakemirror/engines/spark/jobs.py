"""Runs units of work as Spark jobs: small results, with PySpark's public API only.

    units ─▶ range(n) ─▶ mapInArrow ─▶ results, collected
         └─▶ range(n) ─▶ mapInArrow ─▶ blobs by bucket ─▶ repartition ─▶ mapInArrow ─▶ results, collected

A range of n rows gives each of n tasks its number. The units of all tasks, and the data they share, are sent with the
tasks' function. Only collected results count, because Spark may run a task twice.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lakemirror.engines.spark.messages import dumps, loads
from lakemirror.engines.spark.store_options import StoreOptions
from lakemirror.engines.spark.task_code import task
from lakemirror.engines.unit_kernels import Kernel
from lakemirror.engines.units import ChangeFiles, DataFiles, Shared, size_of, weight_of
from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.spark_session.connect_server import is_remote
from lakemirror.spark_session.python_workers import running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_RESULTS = "unit bigint, result binary"
_BLOBS = "bucket int, kind int, payload binary"
_TASK_BYTES = 512 << 20  # a task costs up to 0.1 s of CPU beside its work, in the JVM and in its Python worker
_PARALLELISM = 8  # tasks at once, if a Connect server does not say how many


@dataclass(frozen=True)
class Stage:
    """A kernel, what all its units share, and the units. All values can be pickled (`messages`)."""

    kernel: Kernel
    shared: Any
    units: Sequence[Any]


class Jobs:
    """Runs stages on one Spark session, classic or Connect. Safe for several threads.

    `interpreter`: the Python of its tasks; empty: the session's own.
    """

    def __init__(self, session: SparkSession, interpreter: str = "") -> None:
        self.session = session
        self._interpreter = interpreter
        self.is_remote = is_remote(session)
        self._store_options = StoreOptions(session, is_remote=self.is_remote)

    @property
    def parallelism(self) -> int:
        """The number of tasks that the cluster runs at once, as far as the session knows."""
        if not self.is_remote:
            return max(1, int(self.session.sparkContext.defaultParallelism))
        return self._remote_parallelism

    @cached_property
    def _remote_parallelism(self) -> int:
        """What the server's settings say. Each look at a setting is a request."""
        known = self._setting("spark.default.parallelism")
        local = re.fullmatch(r"local\[(\d+)\]", self._setting("spark.master"))
        cores, executors = self._setting("spark.executor.cores"), self._setting("spark.executor.instances")
        if known.isdigit():
            return max(1, int(known))
        if local:
            return max(1, int(local[1]))
        return int(cores) * int(executors) if cores.isdigit() and executors.isdigit() else _PARALLELISM

    def run(self, description: str, stage: Stage) -> list[list[Any]]:
        """The results of each unit, in the order of the units. Error: `spark-job-failed`."""
        if not stage.units:
            return []
        with spark_errors(description):
            frame = self._started(stage, "results", _RESULTS)
        return self._collect(f"{description}{amounts(stage)}", frame, len(stage.units))

    def run_by_bucket(
        self, description: str, stages: Sequence[Stage], buckets: int, partitions: int, kernel: Kernel, shared: Any
    ) -> list[Any]:
        """Groups the tables of the stages by bucket of key. Returns the results of `kernel` in any order.

        `kernel` gets `shared` and tables by bucket and kind, which is the place of their stage among `stages`.
        """
        with spark_errors(description):
            made = [
                self._started(stage, "blobs", _BLOBS, kind, buckets)
                for kind, stage in enumerate(stages) if stage.units
            ]  # fmt: skip
            blobs = made[0]
            for more in made[1:]:
                blobs = blobs.union(more)
            run = task("gathered", dumps((kernel, shared)), store_options=self._store_options.reference())
            with running(self.session, self._interpreter):
                frame = blobs.repartition(partitions, "bucket").mapInArrow(run, _RESULTS)
        return self._collect(f"{description}{amounts(*stages)}", frame, 1)[0]

    def rows(self, stage: Stage, schema: str) -> DataFrame:
        """The rows of a stage as a DataFrame, not computed yet."""
        return self._started(stage, "rows", schema)

    @contextlib.contextmanager
    def described(self, description: str) -> Iterator[None]:
        """While the block runs, jobs of this thread have this description in Spark's pages and logs, and with Connect
        this tag, in which a comma is not allowed.
        """
        if self.is_remote:
            tag = description.replace(",", " ")
            self.session.addTag(tag)
            try:
                yield
            finally:
                self.session.removeTag(tag)
            return
        context = self.session.sparkContext
        before = context.getLocalProperty("spark.job.description")
        context.setJobDescription(description)
        try:
            yield
        finally:
            context.setJobDescription(before)  # type: ignore[arg-type]

    def _started(self, stage: Stage, how: str, schema: str, *more: Any) -> DataFrame:
        shares = [
            {number: dumps(stage.units[number]) for number in numbers}
            for numbers in shares_of(stage.units, self.parallelism)
        ]
        shared = dumps((stage.kernel, stage.shared))
        run = task(how, shared, shares, *more, store_options=self._store_options.reference())
        with running(self.session, self._interpreter):
            return self.session.range(0, len(shares), 1, len(shares)).mapInArrow(run, schema)

    def _collect(self, description: str, frame: DataFrame, units: int) -> list[list[Any]]:
        begun = time.monotonic()
        with self.described(description), spark_errors(description):
            rows = frame.collect()
        log.debug("%s: %.1f s", description, time.monotonic() - begun)
        results: list[list[Any]] = [[] for _ in range(units)]
        for row in rows:
            results[row["unit"]].append(loads(bytes(row["result"])))
        return results

    def _setting(self, name: str) -> str:
        with contextlib.suppress(Exception):  # a managed server may refuse to show its settings
            return str(self.session.conf.get(name, "") or "")
        return ""


def shares_of(units: Sequence[Any], at_once: int) -> list[list[int]]:
    """The numbers of the units of each task. Tasks have about equally much to do, so that no core waits for another.

    There is a task for each that can run at once, and there are more if these would have much to do.
    """
    weights = [weight_of(unit) for unit in units]
    rounds = -(-sum(weights) // (at_once * _TASK_BYTES))
    shares: list[list[int]] = [[] for _ in range(min(len(units), at_once * max(1, rounds)))]
    least = [(0, 0, task) for task in range(len(shares))]  # what each has to do: bytes, units
    for number in sorted(range(len(units)), key=weights.__getitem__, reverse=True):
        weight, count, task = least[0]
        heapq.heapreplace(least, (weight + weights[number], count + 1, task))
        shares[task].append(number)
    return shares


def amounts(*stages: Stage) -> str:
    """What a job is given, as Spark's pages show it behind its step: files, bytes, rows of changes, keys to find."""
    units = [unit for stage in stages for unit in stage.units]
    changes = [unit for unit in units if isinstance(unit, ChangeFiles)]
    data = [file.add for unit in units if isinstance(unit, DataFiles) and not unit.part for file in unit.files]
    wanted = [stage.shared.wanted for stage in stages if isinstance(stage.shared, Shared)]
    shown = {
        "change files": sum(len(unit.files) for unit in changes),
        "changes": sum(unit.rows for unit in changes),
        "data files": len(data),
        "bytes": sum(unit.bytes for unit in changes) + sum(map(size_of, data)),
        "keys": max((each.keys.num_rows for each in wanted if each is not None), default=0),
    }
    told = [f"{count} {name}" for name, count in shown.items() if count]
    return f": {'; '.join(told)}" if told else ""


@contextlib.contextmanager
def spark_errors(description: str) -> Iterator[None]:
    """Turns Spark's errors into LakemirrorError `spark-job-failed`, or `spark-unsupported` if a package is missing.

    The errors of a lost connection to Spark's own process are raised unchanged.
    """
    try:
        yield
    except LakemirrorError:
        raise
    except Exception as error:
        names = {kind.__name__ for kind in type(error).__mro__}
        if isinstance(error, ConnectionError) or "Py4JNetworkError" in names:
            raise
        if isinstance(error, ImportError):
            hint = "Install it beside PySpark: pip install pyarrow 'pandas>=2.2,<3'"
            raise SetupError("spark-unsupported", f"{description}: {_telling_line(error)}", hint=hint) from error
        raise LakemirrorError("spark-job-failed", f"{description}: {_telling_line(error)}") from error


def _telling_line(error: Exception) -> str:
    """The most useful line of a Spark error: the last line of a Python traceback, or else the first line."""
    text = str(vars(error).get("java_exception") or error).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt): ", line)]
    return (told[-1] if told else lines[0] if lines else type(error).__name__)[:500]
