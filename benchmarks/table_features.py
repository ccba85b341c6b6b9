"""Dropping table features: lakemirror beside Delta Spark's own statement, on copies of the same tables, in turn.

    python -m benchmarks.table_features [--rows 1000000] [--tables 200] [--rounds 3]

Four questions: a drop that rewrites no data (10 files, 50 commits), in a running program and from the shell; a drop
that rewrites the files with deletion vectors, one in twenty, in a running program and from the shell; a drop of column
mapping, which rewrites all files; a plan for many tables. The kernels and Delta Spark rewrite the same files in turn.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import read_snapshot
from lakemirror.features import Wish, drop, kernel_route, plan
from lakemirror.features.route import Route
from lakemirror.settings.settings import Settings
from lakemirror.spark_session import jars
from lakemirror.spark_session.session import start, stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 20
_BY_SPARK = """
import sys
from lakemirror.cli.main import main
from lakemirror.features import plan
from lakemirror.features.route import Route
plan.route_of = lambda *_: Route("Delta Spark", "the benchmark asks for it")
sys.argv = ["lakemirror", *sys.argv[1:]]
main()
"""
_COLD = """
import sys
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[*]")
    .config("spark.jars", sys.argv[1])
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
spark.sql(sys.argv[2])
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table with deletion vectors")
    parser.add_argument("--tables", type=int, default=200, help="tables to plan for")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        spark = start(Settings(master="local[2]"), delta=True)
        try:
            small = make_small(spark, folder / "small")
            large = make_large(spark, folder / "large", given.rows)
            without_rewrite(spark, small, folder, given.rounds)
            for feature in ("deletionVectors", "columnMapping"):
                with_rewrite(spark, large, folder, given.rounds, feature)
        finally:
            stop(spark)
        from_the_shell(small, folder, given.rounds)
        rewrite_from_the_shell(large, folder, given.rounds)
        many(small, folder, given.tables)


def make_small(spark: SparkSession, table: Path) -> Path:
    """10 files, 50 commits, V2 checkpoints."""
    spark.sql(f"CREATE TABLE delta.`{table}` (id BIGINT) USING delta TBLPROPERTIES ('delta.checkpointPolicy'='v2')")
    for number in range(10):
        spark.sql(f"INSERT INTO delta.`{table}` SELECT id FROM range({number * 100}, {number * 100 + 100}, 1, 1)")
    for number in range(39):
        spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('step'='{number}')")
    return table


def make_large(spark: SparkSession, table: Path, rows: int) -> Path:
    """Files of equal size, one in twenty of which has a deletion vector."""
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT, name STRING, amount DOUBLE, note STRING) USING delta TBLPROPERTIES "
        "('delta.columnMapping.mode'='name')"
    )
    spark.sql(
        f"INSERT INTO delta.`{table}` SELECT id, concat('name ', id % 1000), rand(1), sha2(cast(id AS string), 256) "
        f"FROM range(0, {rows}, 1, {FILES})"
    )
    spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.enableDeletionVectors'='true')")
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id < {rows // FILES} AND id % 100 = 7")
    return table


def without_rewrite(spark: SparkSession, table: Path, folder: Path, rounds: int) -> None:
    """v2Checkpoint, in a program that runs."""

    def statement(copy: Path) -> None:
        spark.sql(f"ALTER TABLE delta.`{copy}` DROP FEATURE v2Checkpoint")

    ways = {"lakemirror": lambda copy: drop(copy, Wish(("v2Checkpoint",))), "Delta Spark's statement": statement}
    measure("v2Checkpoint of 10 files and 50 commits, warm", table, folder, rounds, ways, "v2Checkpoint")


def with_rewrite(spark: SparkSession, table: Path, folder: Path, rounds: int, feature: str) -> None:
    """A drop that rewrites data files, in a program that runs: by the kernels, by Delta Spark, by its own statement."""

    def statement(copy: Path) -> None:
        spark.sql(f"ALTER TABLE delta.`{copy}` DROP FEATURE {feature}")

    def by_spark(copy: Path) -> None:
        with mock.patch.object(plan, "route_of", lambda *_: Route("Delta Spark", "the benchmark asks for it")):
            drop(copy, Wish((feature,)), session=lambda: spark)

    ways: dict[str, Callable[[Path], object]] = {
        "lakemirror, kernels": lambda copy: drop(copy, Wish((feature,))),
        "lakemirror, Delta Spark rewrites": by_spark,
    }
    if feature == "deletionVectors":  # the statement for columnMapping wants the property to be unset before
        ways["Delta Spark's statement"] = statement
    found = read_snapshot(table)
    assert found is not None
    size = sum(int(add["size"]) for add in found.files.values())
    files = len(kernel_route.files_with_traces(found, feature))
    title = f"{feature} in {files} of {len(found.files)} files, {size / 1e6:,.0f} MB, warm"
    for name, copy in measure(title, table, folder, rounds, ways, feature).items():
        after = read_snapshot(copy)
        assert after is not None
        new = [add for key, add in after.files.items() if key[0] not in {path for path, _ in found.files}]
        print(f"    {name}: {len(new)} new files, {sum(int(add['size']) for add in new) / 1e6:,.1f} MB")


def rewrite_from_the_shell(table: Path, folder: Path, rounds: int) -> None:
    """deletionVectors, by a command: the kernels need no JVM."""

    def command(copy: Path) -> None:
        run(["-m", "lakemirror.cli", "features", "drop", str(copy), "deletionVectors", "--yes"])

    def by_spark(copy: Path) -> None:
        run(["-c", _BY_SPARK, "features", "drop", str(copy), "deletionVectors", "--yes"])

    ways = {"lakemirror features drop, kernels": command, "the same, Delta Spark rewrites": by_spark}
    measure("deletionVectors in 1 of 20 files, from the shell", table, folder, rounds, ways, "deletionVectors")


def from_the_shell(table: Path, folder: Path, rounds: int) -> None:
    """v2Checkpoint, by a command or a program that first has to start."""
    paths = ",".join(map(str, jars.ensure(Settings().with_environment())))

    def command(copy: Path) -> None:
        run(["-m", "lakemirror.cli", "features", "drop", str(copy), "v2Checkpoint", "--yes"])

    def statement(copy: Path) -> None:
        run(["-c", _COLD, paths, f"ALTER TABLE delta.`{copy}` DROP FEATURE v2Checkpoint"])

    ways = {"lakemirror features drop": command, "a Spark session and its statement": statement}
    measure("v2Checkpoint of 10 files and 50 commits, from the shell", table, folder, rounds, ways, "v2Checkpoint")


def many(table: Path, folder: Path, tables: int) -> None:
    """The plan for a database of many tables."""
    database = folder / "many"
    for number in range(tables):
        shutil.copytree(table, database / "Tables" / f"t{number}")
    begin = time.perf_counter()
    run(["-m", "lakemirror.cli", "features", "plan", str(database), "--drop", "v2Checkpoint", "--json"])
    print(f"\n{tables} tables planned: {time.perf_counter() - begin:.2f} s, the whole command, no JVM")


def run(words: list[str]) -> None:
    """A Python program to its end; raises where it fails."""
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure(
    title: str, table: Path, folder: Path, rounds: int, ways: dict[str, Callable[[Path], object]], feature: str
) -> dict[str, Path]:
    """Prints the median time of each way, after one round that does not count; gives back its last copy each."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    last: dict[str, Path] = {}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            copy = shutil.copytree(table, Path(tempfile.mkdtemp(dir=folder)) / "t")
            begin = time.perf_counter()
            way(copy)
            seconds[name].append(time.perf_counter() - begin)
            after = read_snapshot(copy)
            assert after is not None and feature not in features_of(after.protocol), f"{name} did not drop it"
            if name in last:
                shutil.rmtree(last[name])
            last[name] = copy
    print(f"\n{title}")
    medians = {name: statistics.median(taken[1:]) for name, taken in seconds.items()}
    for name, median in medians.items():
        spread = f"{min(seconds[name][1:]):.2f} to {max(seconds[name][1:]):.2f}"
        print(f"    {median:6.2f} s ({spread})  {median / next(iter(medians.values())):5.1f}×  {name}")
    return last


if __name__ == "__main__":
    main()
