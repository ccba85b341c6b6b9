"""How long Spark takes to read a mirrored table, beside a plain Delta table of the same rows that Spark has written.

python -m benchmarks.reading                            2 million rows, a few minutes
python -m benchmarks.reading --rows 20000000 --reads 20
python -m benchmarks.reading --only first --only changes
python -m benchmarks.reading --partitions 50            with Delta's own number of tasks for the log

One session reads the tables in turn. The states: `first` load; with deletion `vectors`; while `changes` come; after
they were `compacted`. *plain* never changes and cannot have deletion vectors. Beside it, and beside lakemirror's table,
one of the tables that are fair to compare with is read:

without vectors    first: lakemirror's table under the setting deletion_vectors = false
allows vectors     first, compacted: the same rows written by Spark, deletion vectors allowed, no row deleted
Spark's vectors    vectors: Spark's own MERGE has made the same changes
appended to        changes: delta-rs appends the changed rows to a copy of plain, as often as lakemirror applies them
vectors, appended  changes: the same with a copy of the table with Spark's vectors

*time* and *cpu* are ratios to the plain table: of medians, and of the JVM's least processor time. *more*: milliseconds
that the median read takes longer than that of the plain table. *jobs*: Spark jobs and tasks of the last read.
*busiest*: the share of the table's bytes that the busiest core reads, times the cores; 1 is the best.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakemirror import MirroredDatabase
from lakemirror.maintenance.compaction import merge_when_idle
from lakemirror.publisher import Landing
from lakemirror.publisher.landing_table import LandingTable
from lakemirror.settings.settings import Settings
from lakemirror.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = {
    "all columns": "SELECT count(*), sum(id), sum(amount), sum(price), max(name) FROM {}",
    "a filter": "SELECT count(*), sum(price) FROM {} WHERE amount < 50000",
    "count": "SELECT count(*) FROM {}",
}
STATES = ("first", "vectors", "changes", "compacted")
_CHANGES, _EVERY = 2_000, 0.5  # rows of a change file; seconds from one to the next
_TICKS = os.sysconf("SC_CLK_TCK")


class Reader:
    """Reads tables in turn by one Spark session."""

    def __init__(self, spark: SparkSession, reads: int, most: float) -> None:
        self._spark, self._reads, self._most = spark, reads, most
        self._jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())
        self._warm = False

    def compare(self, state: str, plain: Path, others: dict[str, Path], *, same: bool = True) -> None:
        """Prints a line for each query and table. `same`: every table must give the same result."""
        tables = {"plain": plain, **others}
        shares = {name: f"{self._busiest(path):.2f}" for name, path in tables.items()}
        for query, text in QUERIES.items():
            taken: dict[str, list[_Read]] = {name: [] for name in tables}
            for _ in range(3 if self._warm else 8):
                found = {name: self._read(path, text).result for name, path in tables.items()}
                assert not same or len(set(found.values())) == 1, f"{state}: the tables differ: {found}"
            self._warm, end = True, time.monotonic() + self._most
            for turn in range(self._reads):
                for name in list(tables)[:: 1 if turn % 2 else -1]:
                    taken[name].append(self._read(tables[name], text))
                if turn >= 4 and time.monotonic() > end:
                    break
            wall = {name: statistics.median(each.seconds for each in all_) for name, all_ in taken.items()}
            cpu = {name: max(0.01, min(each.cpu for each in all_)) for name, all_ in taken.items()}
            work = {name: f"{all_[-1].jobs}/{all_[-1].tasks}" for name, all_ in taken.items()}
            for name in others:
                print(
                    f"{state:13} {name:17} {query:11} time {wall[name] / wall['plain']:5.2f}  "
                    f"cpu {cpu[name] / cpu['plain']:5.2f}  more {(wall[name] - wall['plain']) * 1000:5.0f} ms  "
                    f"jobs {work[name]} beside {work['plain']}  busiest {shares[name]} beside {shares['plain']}  "
                    f"plain {wall['plain']:.3f} s, {len(taken[name])} reads",
                    flush=True,
                )

    def _read(self, table: Path, query: str) -> _Read:
        context, group = self._spark.sparkContext, uuid.uuid4().hex
        context.setJobGroup(group, "a read")
        cpu, begun = self._cpu(), time.perf_counter()
        (row,) = self._spark.sql(query.format(f"delta.`{table}`")).collect()
        seconds, cpu = time.perf_counter() - begun, self._cpu() - cpu
        result = tuple(round(value, 3) if isinstance(value, float) else value for value in row)
        tracker = context.statusTracker()
        jobs = tracker.getJobIdsForGroup(group)
        stages = {stage for job in jobs if (info := tracker.getJobInfo(job)) for stage in info.stageIds}
        tasks = sum(found.numCompletedTasks for stage in stages if (found := tracker.getStageInfo(stage)))
        return _Read(result, seconds, cpu, len(jobs), tasks)

    def _cpu(self) -> float:
        fields = Path(f"/proc/{self._jvm}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def _busiest(self, table: Path) -> float:
        """The share of the bytes that the busiest of the cores reads, if each takes the next task; times the cores."""
        frame: Any = self._spark.read.format("delta").load(str(table))
        tasks = frame._jdf.queryExecution().toRdd().partitions()
        cores = [0.0] * self._spark.sparkContext.defaultParallelism
        for task in tasks:
            cores[cores.index(min(cores))] += sum(file.length() for file in task.files())
        return max(cores) * len(cores) / sum(cores)


@dataclass(frozen=True)
class _Read:
    """One read of a table: what it found, its time, the JVM's processor time, its Spark jobs and their tasks."""

    result: Any
    seconds: float
    cpu: float
    jobs: int
    tasks: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--reads", type=int, default=14, help="of each table for each query and state")
    parser.add_argument("--most", type=float, default=45.0, help="seconds for the reads of one query in one state")
    parser.add_argument("--only", action="append", choices=STATES, help="a state to measure; all, if not given")
    parser.add_argument("--partitions", type=int, help="tasks by which Delta reads the log; 2, if not given")
    parser.add_argument("--changes", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.changes:
        _publish(Path(given.changes[0]), int(given.changes[1]), given.changes[2:])
        return
    folder = Path(tempfile.mkdtemp(prefix="reading-"))
    try:
        _measure(folder, given.rows, given.reads, given.most, given.only or STATES, given.partitions)
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _measure(folder: Path, rows: int, reads: int, most: float, states: Sequence[str], partitions: int | None) -> None:
    database = folder / "shop"
    landing, mirror = _first_load(database, rows)
    table = database / "Tables/orders"
    spark = session.start(Settings().with_environment(), delta=True)
    if partitions is not None:
        spark.conf.set("spark.databricks.delta.snapshotPartitions", str(partitions))
    reader = Reader(spark, reads, most)
    if "first" in states:
        plain, allows = _copy(spark, table, folder / "plain-1"), _copy(spark, table, folder / "allows-1", vectors=True)
        _first_load(folder / "plain-shop", rows, deletion_vectors=False)
        without = folder / "plain-shop/Tables/orders"
        reader.compare("first", plain, {"lakemirror": table, "without vectors": without, "allows vectors": allows})
        shutil.rmtree(folder / "plain-shop")
    if list(states) == ["first"]:
        return

    merged = _copy(spark, table, folder / "merged", vectors=True)
    changed = []
    for seed in range(10):
        changed.append(_changes(rows, seed))
        landing.upsert(changed[-1])
        assert not mirror.sync().failed
    if {"vectors", "changes"} & set(states):
        _merge(spark, merged, changed, folder / "changes")
    plain = _copy(spark, table, folder / "plain-2")
    if "vectors" in states:
        reader.compare("vectors", plain, {"lakemirror": table, "Spark's vectors": merged})

    if "changes" in states:
        appended = shutil.copytree(plain, folder / "appended")
        others = {"appended to": appended, "vectors, appended": merged}
        with _changing(database, rows, others.values()):
            reader.compare("changes", plain, {"lakemirror": table, **others}, same=False)

    if "compacted" in states:
        while merge_when_idle(str(table), all_vectors=True):
            pass
        plain, allows = _copy(spark, table, folder / "plain-3"), _copy(spark, table, folder / "allows-3", vectors=True)
        reader.compare("compacted", plain, {"lakemirror": table, "allows vectors": allows})


def _first_load(database: Path, rows: int, **settings: Any) -> tuple[LandingTable, MirroredDatabase]:
    """A mirror with one table, which holds the rows."""
    (database / "Files/LandingZone").mkdir(parents=True)
    landing = Landing(database).table("orders", ["id"])
    for begin in range(0, rows, 1_000_000):
        part = _rows(np.arange(begin, min(rows, begin + 1_000_000)), seed=begin)
        landing.insert(part) if begin else landing.load(part)
    mirror = MirroredDatabase(database, engine="local", **settings)
    assert not mirror.sync().failed
    return landing, mirror


def _rows(ids: np.ndarray, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    names = pa.array([f"customer {number % 100_000}" for number in ids.tolist()])
    amounts = random.integers(0, 10**6, len(ids))
    return pa.table({"id": ids, "amount": amounts, "price": random.random(len(ids)), "name": names})


def _changes(rows: int, seed: int) -> pa.Table:
    random = np.random.default_rng(10**9 + seed)
    return _rows(np.unique(random.integers(0, rows, _CHANGES)), seed)


def _copy(spark: SparkSession, table: Path, to: Path, *, vectors: bool = False) -> Path:
    """The rows as Spark writes them, by as many tasks as four files take."""
    frame = spark.read.format("delta").load(str(table))
    writer = frame.repartition(max(4, frame.count() // 1_000_000)).write.format("delta")
    writer.option("delta.enableDeletionVectors", str(vectors).lower()).save(str(to))
    return to


def _merge(spark: SparkSession, table: Path, changes: Sequence[pa.Table], scratch: Path) -> None:
    """Spark's own way to make the same changes, in the same number of commits."""
    import pyarrow.parquet as pq

    scratch.mkdir()
    for number, rows in enumerate(changes):
        pq.write_table(rows, scratch / f"{number}.parquet")
        spark.sql(
            f"MERGE INTO delta.`{table}` t USING parquet.`{scratch}/{number}.parquet` s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )


@contextmanager
def _changing(database: Path, rows: int, others: Iterable[Path]) -> Iterator[None]:
    """Another process publishes and applies two files a second, and appends the same rows to the other tables."""
    given = [str(database), str(rows), *map(str, others)]
    command = [sys.executable, "-m", "benchmarks.reading", "--changes", *given]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None and child.stdout.readline(), "no change was applied"
        yield
    finally:
        child.terminate()
        printed = child.communicate()[0].splitlines()
    found = json.loads(printed[-1]) if printed else {"files": 0}
    print(f"{'changes':13} {found['files']} files applied", flush=True)


def _publish(database: Path, rows: int, others: Sequence[str]) -> None:
    from deltalake import write_deltalake

    landing, mirror = Landing(database).table("orders", ["id"]), MirroredDatabase(database, engine="local")
    for number in range(10**6):
        begun = time.monotonic()
        changes = _changes(rows, 1000 + number)
        landing.upsert(changes)
        assert not mirror.sync().failed
        for table in others:
            write_deltalake(table, changes, mode="append")
        print(json.dumps({"files": number + 1}), flush=True)
        time.sleep(max(0.0, _EVERY - (time.monotonic() - begun)))


if __name__ == "__main__":
    main()
