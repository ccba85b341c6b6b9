"""`python -m benchmarks.spark_small`: small applies by a warm Spark session on a table of five million rows.

For each number of changes: seconds of a pass (median, 95 %), CPU seconds of all processes (median), and Spark jobs.
Each third pass also merges the three files of the last ones.
`--connect`: the session is one of a Connect server that is started for it. With `PYTHONPATH=OTHER/src`: the code of
another checkout, to compare the two in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.process import Meter

_ROWS = 5_000_000
_UPSERT = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--changes", type=int, nargs="+", default=[1_000, 300_000])
    parser.add_argument("--connect", action="store_true")
    parser.add_argument("--engine", default="spark")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a key index may still be written
        for changes in given.changes:
            print(json.dumps(_measured(Path(folder) / str(changes), changes, given)), flush=True)


def _measured(folder: Path, changes: int, given: argparse.Namespace) -> dict[str, Any]:
    import lakemirror

    inbox = folder / "shop/Files/LandingZone/orders"
    inbox.mkdir(parents=True)
    (inbox / "_metadata.json").write_text(json.dumps({"keyColumns": ["id"]}))
    random, cache = np.random.default_rng(7), {"cache_dir": str(folder / "cache")}
    _write(inbox / f"{1:020}.parquet", np.arange(_ROWS), random, marked=False)
    lakemirror.MirroredDatabase(folder / "shop", engine="local", **cache).sync()
    session = _session(connect=given.connect) if given.engine == "spark" else None
    database = lakemirror.MirroredDatabase(folder / "shop", engine=given.engine, spark=session, **cache)
    seconds, jobs, cpu = [], [], []
    for number in range(3 + given.rounds):
        _write(inbox / f"{2 + number:020}.parquet", random.integers(0, _ROWS, changes), random)
        time.sleep(0.3)  # the key index of new files is built meanwhile
        before = _jobs(session)
        with Meter() as meter:
            begun = time.monotonic()
            result = database.sync()
            seconds.append(time.monotonic() - begun)
        cpu.append(meter.cpu)
        jobs.append(_jobs(session) - before)
        assert result.tables["orders"].files == 1, result
    seconds, jobs, cpu = seconds[3:], jobs[3:], cpu[3:]
    return {
        "changes": changes, "median": round(statistics.median(seconds), 3),
        "p95": round(sorted(seconds)[int(0.95 * len(seconds))], 3), "cpu": round(statistics.median(cpu), 3),
        "jobs": statistics.median(jobs), "load": os.getloadavg()[0],
    }  # fmt: skip


def _write(path: Path, ids: np.ndarray, random: np.random.Generator, *, marked: bool = True) -> None:
    rows = {
        "id": ids,
        "name": pa.array([f"customer {n}" for n in (ids % 50_000).tolist()]),
        "n": random.random(len(ids)),
    }
    if marked:
        rows["__rowMarker__"] = np.full(len(ids), _UPSERT, np.int32)
    temporary = path.with_suffix(".tmp")
    pq.write_table(pa.table(rows), temporary)
    temporary.rename(path)


def _session(*, connect: bool) -> Any:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of the workers of the server that `--connect` starts
    builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.driver.bindAddress", "127.0.0.1")
    builder = (
        builder.config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
    )
    return builder.remote("local[2]").getOrCreate() if connect else builder.master("local[2]").getOrCreate()


def _jobs(session: Any) -> int:
    """How many jobs the session has run; 0 on Connect, which does not tell."""
    if session is None or type(session).__module__.startswith("pyspark.sql.connect"):
        return 0
    return int(session.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


if __name__ == "__main__":
    main()
