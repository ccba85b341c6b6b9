"""`python -m benchmarks.warm_spark 1024`: the same batch by the local engine and by a warm Spark session, in turn.

The size is in MiB of decoded rows, on a table of a million rows. For each pass: seconds, and CPU seconds of the driver,
the JVM (of which JIT: its compilers) and the Python workers. The first pair, of a quarter of the size, warms Spark up.
`--java-options` are those of the JVM.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.engine_switch import _changes, _load
from benchmarks.mirror import TABLE, Mirror
from benchmarks.process import family, processes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", type=int, metavar="MIB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--java-options", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        warm, files = _changes(place / "warm", given.size // 4), _changes(place / "changes", given.size)
        table = Mirror(place / "table")
        table.put(*_load(place / "load"))
        table.apply()
        session = _session(given.java_options)
        for number in range(given.rounds + 1):
            for engine in ("local", "spark"):
                told = _pass(place, warm if not number else files, engine, session)
                print(f"{number} {engine}: {told}; load {os.getloadavg()[0]:.1f}", flush=True)


def _pass(place: Path, files: Sequence[Path], engine: str, session: Any) -> str:
    import lakemirror

    copy = place / "copy"
    shutil.copytree(place / "table", copy)
    for number, file in enumerate(files, 2):
        shutil.copyfile(file, copy / "Files/LandingZone" / TABLE / f"{number:020}.parquet")
    spark = session if engine == "spark" else None
    database = lakemirror.MirroredDatabase(copy, engine=engine, spark=spark, cache_dir=str(place / "cache"))
    before, begun = _cpu(), time.monotonic()
    failed = database.sync().failed
    seconds, used = time.monotonic() - begun, _cpu() - before
    assert not failed, failed
    shutil.rmtree(copy)
    parts = ", ".join(f"{name} {used[name]:.1f}" for name in ("driver", "JVM", "JIT", "workers"))
    return f"{seconds:.1f} s, CPU {used.total() - used['JIT']:.1f} ({parts})"


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
