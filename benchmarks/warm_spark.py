"""`python -m benchmarks.warm_spark 1024`: the same batch by the local engine and by a warm Spark session, in turn.

Sizes are in MiB of decoded rows, on a table of a million rows. For each pass: seconds, and CPU seconds of the driver,
the JVM (of which JIT: its compilers) and the Python workers. `--warm` pairs of the first size warm Spark up. For each
size, the last line has the medians of Spark's seconds, and of all CPU seconds but JIT, as times of the local engine's.
`--java-options` are those of the JVM.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.engine_switch import _changes, _load
from benchmarks.mirror import TABLE, Mirror
from benchmarks.process import family, processes

_ENGINES = ("local", "spark")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=int, nargs="+", metavar="MIB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=3)
    parser.add_argument("--java-options", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        table = Mirror(place / "table")
        table.put(*_load(place / "load"))
        table.apply()
        session, warm = _session(given.java_options), given.warm
        for size in given.sizes:
            files = _changes(place / str(size), size)
            pairs = [[_pass(place, files, engine, session) for engine in _ENGINES] for _ in range(warm + given.rounds)]
            for (local, local_cpu), (spark, spark_cpu) in pairs:
                print(f"{size} MiB local: {_told(local, local_cpu)}; spark: {_told(spark, spark_cpu)}")
            measured, warm = pairs[warm:], 0
            seconds = statistics.median(spark[0] / local[0] for local, spark in measured)
            cpu = statistics.median(_work(spark[1]) / _work(local[1]) for local, spark in measured)
            print(
                f"{size} MiB: {seconds:.2f} times the seconds, {cpu:.2f} the CPU; load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
            shutil.rmtree(place / str(size))


def _pass(place: Path, files: Sequence[Path], engine: str, session: Any) -> tuple[float, Counter[str]]:
    """Seconds, and CPU seconds as from `_cpu`."""
    import lakemirror

    copy = place / "copy"
    shutil.copytree(place / "table", copy)
    for number, file in enumerate(files, 2):
        shutil.copyfile(file, copy / "Files/LandingZone" / TABLE / f"{number:020}.parquet")
    spark = session if engine == "spark" else None
    # the key index is built behind an apply, and would count as part of the next one
    database = lakemirror.MirroredDatabase(copy, engine=engine, spark=spark, key_index=False)
    before, begun = _cpu(), time.monotonic()
    failed = database.sync().failed
    seconds, used = time.monotonic() - begun, _cpu() - before
    assert not failed, failed
    shutil.rmtree(copy)
    return seconds, used


def _work(cpu: Counter[str]) -> float:
    """All CPU seconds but those of the JVM's compilers, which a session that has run for long does not use."""
    return float(cpu["driver"] + cpu["JVM"] - cpu["JIT"] + cpu["workers"])


def _told(seconds: float, cpu: Counter[str]) -> str:
    parts = ", ".join(f"{name} {cpu[name]:.2f}" for name in ("driver", "JVM", "JIT", "workers") if cpu[name])
    return f"{seconds:.2f} s, CPU {cpu['driver'] + cpu['JVM'] + cpu['workers']:.2f} ({parts})"


def _cpu() -> Counter[str]:
    seen, found = processes(), Counter[str]()
    for pid in family(os.getpid(), seen):
        with contextlib.suppress(OSError):
            is_java = "java" in Path(f"/proc/{pid}/cmdline").read_text()[:80]
            kind = "driver" if pid == os.getpid() else "JVM" if is_java else "workers"
            found[kind] += seen[pid].cpu  # type: ignore[assignment]
            if is_java:
                found["JIT"] += sum(map(_compiles, Path(f"/proc/{pid}/task").iterdir()))  # type: ignore[assignment]
    return found


def _compiles(thread: Path) -> float:
    """CPU seconds of a thread, if it is one of the JVM's compilers."""
    name, _, rest = (thread / "stat").read_text().partition("(")[2].rpartition(")")
    fields = rest.split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if name.startswith(("C1 ", "C2 ")) else 0.0


def _session(java_options: str) -> Any:
    from pyspark.sql import SparkSession

    options = {
        "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.memory": "2g",
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": java_options,
    }  # fmt: skip
    builder = SparkSession.builder.master("local[2]")
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    main()
