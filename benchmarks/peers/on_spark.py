"""What the peers on Spark share: a session, a view of change files, the fold, the MERGE, the digest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from benchmarks import digest
from benchmarks.peers.peer import KEY, MARKER, Peer

EXPERT = {"spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1))}


class OnSpark(Peer):
    """A local session at Spark's defaults, but for what a subclass sets, and silence."""

    settings: ClassVar[dict[str, str]] = {}

    def jars(self) -> list[Path]:
        """The jars of its table format."""
        return sorted(Path(os.environ["BENCHMARK_JARS"]).glob("*.jar"))

    def options(self) -> dict[str, str]:
        """spark.* options of its table format."""
        return {}

    def name(self, table: str) -> str:
        """A table as SQL names it."""
        raise NotImplementedError

    def start(self, pending: int) -> None:
        from pyspark.sql import SparkSession

        builder = (
            SparkSession.builder.master("local[*]")
            .config("spark.jars", ",".join(map(str, self.jars())))
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.session.timeZone", "UTC")
        )
        for key, value in {**self.options(), **self.settings}.items():
            builder = builder.config(key, value)
        self.spark: Any = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("OFF")

    def digest(self, table: str, extra: Sequence[str] = ()) -> list[int]:
        return digest.numbers(self.spark.sql(digest.sql(self.name(table), extra)).collect()[0])

    def read(self, files: Sequence[Path]) -> Any:
        """The files as a DataFrame, without a marker."""
        reader = self.spark.read
        if files[0].suffix == ".csv":
            schema = "id bigint, amount bigint, price double, name string, changed timestamp"
            return reader.schema(schema).option("header", "true").csv(list(map(str, files)))
        rows = reader.option("mergeSchema", "true") if len(files) > 1 else reader
        return rows.parquet(*map(str, files)).drop(MARKER)

    def fold(self, files: Sequence[Path]) -> None:
        """The view `changes`: the last change per key."""
        self.spark.read.parquet(*map(str, files)).selectExpr(
            "*", "_metadata.file_name as f", "_metadata.row_index as r"
        ).createOrReplaceTempView("raw")
        latest = f"select *, row_number() over (partition by {KEY} order by f desc, r desc) n from raw"
        self.spark.sql(f"select * from ({latest}) where n = 1").drop("f", "r", "n").createOrReplaceTempView("changes")

    def merge(self, table: str) -> None:
        """MERGE of the view `changes`."""
        sets = ", ".join(f"t.{c} = s.{c}" for c in digest.COLUMNS)
        names, values = ", ".join(digest.COLUMNS), ", ".join(f"s.{c}" for c in digest.COLUMNS)
        self.spark.sql(
            f"merge into {self.name(table)} t using changes s on t.{KEY} = s.{KEY} "
            f"when matched and s.{MARKER} = 2 then delete "
            f"when matched and s.{MARKER} != 2 then update set {sets} "
            f"when not matched and s.{MARKER} != 2 then insert ({names}) values ({values})"
        )
