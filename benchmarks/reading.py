"""How long Spark takes to read a mirrored table, beside a plain Delta table of the same rows that Spark has written.

python -m benchmarks.reading                            2 million rows, a few minutes
python -m benchmarks.reading --rows 20000000 --reads 20

Both tables are read in turn by one session. The states: after the first load; with deletion vectors; while changes
come; after compaction. Beside the second a table in which Spark's own MERGE has made the same changes with vectors.
*time* and *cpu* are ratios to the plain table: of medians, and of the JVM's least processor time. *busiest*: the share
of the table's bytes that the busiest core reads, times the cores; 1 is the best.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakemirror import MirroredDatabase
from lakemirror.maintenance.compaction import merge_at_rest
from lakemirror.publisher import Landing
from lakemirror.settings import Settings
from lakemirror.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = {
    "all columns": "SELECT count(*), sum(id), sum(amount), sum(price), max(name) FROM {}",
    "a filter": "SELECT count(*), sum(price) FROM {} WHERE amount < 50000",
    "count": "SELECT count(*) FROM {}",
}
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
            taken: dict[str, list[tuple[float, float]]] = {name: [] for name in tables}
            for _ in range(3 if self._warm else 8):
                found = {name: self._read(path, text)[0] for name, path in tables.items()}
                assert not same or len(set(found.values())) == 1, f"{state}: the tables differ: {found}"
            self._warm, end = True, time.monotonic() + self._most
            for turn in range(self._reads):
                for name in list(tables)[:: 1 if turn % 2 else -1]:
                    taken[name].append(self._read(tables[name], text)[1:])
                if turn >= 4 and time.monotonic() > end:
                    break
            wall = {name: statistics.median(each[0] for each in all_) for name, all_ in taken.items()}
            cpu = {name: max(0.01, min(each[1] for each in all_)) for name, all_ in taken.items()}
            for name in others:
                print(
                    f"{state:20} {name:15} {query:12} time {wall[name] / wall['plain']:5.2f}  "
                    f"cpu {cpu[name] / cpu['plain']:5.2f}  busiest {shares[name]} beside {shares['plain']}  "
                    f"plain {wall['plain']:.3f} s, {len(taken[name])} reads",
                    flush=True,
                )

    def _read(self, table: Path, query: str) -> tuple[Any, float, float]:
        cpu, begun = self._cpu(), time.perf_counter()
        (row,) = self._spark.sql(query.format(f"delta.`{table}`")).collect()
        seconds = time.perf_counter() - begun
        result = tuple(round(value, 3) if isinstance(value, float) else value for value in row)
        return result, seconds, self._cpu() - cpu

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--reads", type=int, default=14, help="of each table for each query and state")
    parser.add_argument("--most", type=float, default=60.0, help="seconds for the reads of one query in one state")
    parser.add_argument("--changes", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.changes:
        _publish(Path(given.changes[0]), int(given.changes[1]))
        return
    folder = Path(tempfile.mkdtemp(prefix="reading-"))
    try:
        _measure(folder, given.rows, given.reads, given.most)
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _measure(folder: Path, rows: int, reads: int, most: float) -> None:
    database = folder / "shop"
    (database / "Files/LandingZone").mkdir(parents=True)
    landing = Landing(database).table("orders", ["id"])
    for begin in range(0, rows, 1_000_000):
        part = _rows(np.arange(begin, min(rows, begin + 1_000_000)), seed=begin)
        landing.insert(part) if begin else landing.load(part)
    mirror = MirroredDatabase(database, engine="local")
    assert not mirror.sync().failed
    table = database / "Tables/orders"
    spark = session.start(Settings().with_environment(), delta=True)
    reader = Reader(spark, reads, most)
    reader.compare("first load", _copy(spark, table, folder / "plain-1"), {"lakemirror": table})

    merged = _copy(spark, table, folder / "merged", vectors=True)
    changed = []
    for seed in range(10):
        changed.append(_changes(rows, seed))
        landing.upsert(changed[-1])
        assert not mirror.sync().failed
    _merge(spark, merged, changed, folder / "changes")
    plain = _copy(spark, table, folder / "plain-2")
    reader.compare("vectors", plain, {"lakemirror": table, "Spark's vectors": merged})

    with _changing(database, rows):
        reader.compare("changes come", plain, {"lakemirror": table}, same=False)

    while merge_at_rest(str(table), all_vectors=True):
        pass
    reader.compare("compacted", _copy(spark, table, folder / "plain-3"), {"lakemirror": table})


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
def _changing(database: Path, rows: int) -> Iterator[None]:
    """Changes are published and applied by another process, two files a second."""
    command = [sys.executable, "-m", "benchmarks.reading", "--changes", str(database), str(rows)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None and child.stdout.readline(), "no change was applied"
        yield
    finally:
        child.terminate()
        printed = child.communicate()[0].splitlines()
    print(
        f"{'changes come':20} {json.loads(printed[-1])['files']} files applied" if printed else "no change", flush=True
    )


def _publish(database: Path, rows: int) -> None:
    landing, mirror = Landing(database).table("orders", ["id"]), MirroredDatabase(database, engine="local")
    for number in range(10**6):
        begun = time.monotonic()
        landing.upsert(_changes(rows, 1000 + number))
        assert not mirror.sync().failed
        print(json.dumps({"files": number + 1}), flush=True)
        time.sleep(max(0.0, _EVERY - (time.monotonic() - begun)))


if __name__ == "__main__":
    main()
