"""Delimited text: lakemirror's converter beside Spark's CSV reader, on the same file and cores; ratios alone count.

    python -m benchmarks.delimited [--megabytes 200] [--rounds 3]

Spark reads with the declared schema and writes Parquet, and, to be fair to its parser, also only counts what it parsed
(the noop sink). The converter writes Parquet in the order of the file; Spark in the order of its splits.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lakemirror.landing_zone.delimited import convert
from lakemirror.landing_zone.metadata import DeclaredColumn, DelimitedFormat, TableMetadata
from lakemirror.settings.settings import Settings
from lakemirror.spark_session.session import start, stop

TYPES = {
    "id": "bigint",
    "name": "string",
    "amount": "decimal(12,2)",
    "ratio": "double",
    "at": "timestamp",
    "day": "date",
    "open": "boolean",
    "note": "string",
    "__rowMarker__": "int",
}


def write_file(path: Path, megabytes: int) -> None:
    """Rows as a program exports them: one text column quoted, a line break in some."""
    chance = random.Random(1)
    rows = []
    for number in range(20_000):
        at = f"2026-{number % 12 + 1:02}-{number % 28 + 1:02}T{number % 24:02}:{number % 60:02}:07.{number % 1000:03}Z"
        note = f'"some words, {chance.random()}{chr(10) if number % 50 == 0 else " "}""{number}"""'
        name, amount = f"name {chance.randrange(10**6)}", f"{number % 9999}.{number % 90 + 10}"
        rows.append(f"{name},{amount},{chance.random()},{at},{at[:10]},true,{note},4")
    with path.open("w", newline="") as file:
        file.write(",".join(TYPES) + "\n")
        count = 0
        while file.tell() < megabytes * 1024**2:
            file.write("".join(f"{count + number},{row}\n" for number, row in enumerate(rows)))
            count += len(rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    columns = tuple(DeclaredColumn(name, "", type_) for name, type_ in TYPES.items() if name != "__rowMarker__")
    metadata = TableMetadata(file_format="CSV", delimited=DelimitedFormat("\n"), columns=columns)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        write_file(path, arguments.megabytes)
        spark = start(Settings(master="local[2]"), delta=True)
        schema = ", ".join(f"`{name}` {type_}" for name, type_ in TYPES.items())
        frame = spark.read.csv(str(path), schema=schema, header=True, multiLine=True, escape='"', mode="FAILFAST")
        split = spark.read.csv(str(path), schema=schema, header=True, escape='"')

        def ours() -> None:
            with path.open("rb") as source:
                convert(source, f"{folder}/ours.parquet", file="rows.csv", metadata=metadata)

        runs: dict[str, Callable[[], None]] = {
            "lakemirror, to Parquet": ours,
            "Spark, line breaks in values allowed, parse only": lambda: (
                frame.write.format("noop").mode("overwrite").save()
            ),
            "Spark, line breaks in values broken, parse only": lambda: (
                split.write.format("noop").mode("overwrite").save()
            ),
            "Spark, line breaks in values broken, to Parquet": lambda: split.write.mode("overwrite").parquet(
                f"{folder}/p"
            ),
        }
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(arguments.rounds):
            for name, run in runs.items():
                begin = time.perf_counter()
                run()
                seconds[name].append(time.perf_counter() - begin)
        stop(spark)
    first = statistics.median(seconds["lakemirror, to Parquet"])
    for name, taken in seconds.items():
        print(f"{statistics.median(taken):7.2f} s  {statistics.median(taken) / first:5.2f}×  {name}")


if __name__ == "__main__":
    main()
