"""Who is measured: each loads the table, applies the change files, and tells what its table then holds.

A peer's methods run in its own process. `load` and `changes` take Parquet files in order; `digest` gives a few sums
that two different tables hardly share.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

KEY = "id"
DIGEST = (
    "select count(*), sum(id), sum(amount), sum((id % 1009) * (amount % 1013)), "
    "sum((id % 997) * length(name)), count(price)"
)


class Peer(Protocol):
    """One way to keep a Delta table up to date with change files."""

    def __init__(self, folder: Path) -> None: ...
    def load(self, files: Sequence[Path]) -> None: ...
    def changes(self, files: Sequence[Path]) -> None: ...
    def digest(self) -> list[int]: ...


class Lakemirror:
    """lakemirror: the files are dropped into a landing zone, and one pass applies what is there."""

    def __init__(self, folder: Path) -> None:
        from lakemirror import spark
        from lakemirror.settings import Settings

        self._folder = folder / "db"
        self._zone = self._folder / "Files/LandingZone/orders"
        self._zone.mkdir(parents=True)
        (self._zone / "_metadata.json").write_text(f'{{"keyColumns": ["{KEY}"]}}')
        self._next = 1
        self._spark = spark.start(Settings(), short=False)

    def load(self, files: Sequence[Path]) -> None:
        self.changes(files)

    def changes(self, files: Sequence[Path]) -> None:
        from lakemirror import MirroredDatabase

        for file in files:
            shutil.copyfile(file, self._zone / f"{self._next:020}.parquet")
            self._next += 1
        result = MirroredDatabase(self._folder, spark=self._spark).sync()
        if result.failed:
            raise RuntimeError(str(result.failed))

    def digest(self) -> list[int]:
        return _spark_digest(self._spark, self._folder / "Tables/orders")


class _Spark:
    """A plain Spark session with Delta at its defaults, but for the memory and noise of the others."""

    properties = ""
    settings: ClassVar[dict[str, str]] = {}

    def __init__(self, folder: Path) -> None:
        from pyspark.sql import SparkSession

        from lakemirror import jars
        from lakemirror.settings import Settings

        paths = [str(p) for p in jars.ensure(Settings())]
        builder = (
            SparkSession.builder.master("local[*]")
            .config("spark.jars", ",".join(paths))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        )
        for key, value in self.settings.items():
            builder = builder.config(key, value)
        self._spark: Any = builder.getOrCreate()
        self._spark.sparkContext.setLogLevel("OFF")
        self._table = f"delta.`{folder / 'table'}`"
        self._path = folder / "table"

    def load(self, files: Sequence[Path]) -> None:
        writer = self._spark.read.parquet(*map(str, files)).write.format("delta")
        if self.properties:
            writer = writer.option("delta.enableDeletionVectors", "true")
        writer.save(str(self._path))

    def digest(self) -> list[int]:
        return _spark_digest(self._spark, self._path)

    def _merge(self, source: str) -> None:
        columns = ["id", "amount", "price", "name", "changed"]
        sets = ", ".join(f"{c} = s.{c}" for c in columns)
        names, values = ", ".join(columns), ", ".join(f"s.{c}" for c in columns)
        self._spark.sql(
            f"merge into {self._table} t using {source} s on t.id = s.id "
            f"when matched and s.__rowMarker__ = 2 then delete when matched then update set {sets} "
            f"when not matched and s.__rowMarker__ != 2 then insert ({names}) values ({values})"
        )


class PlainMerge(_Spark):
    """One MERGE per file, Delta's defaults: what most people write."""

    def changes(self, files: Sequence[Path]) -> None:
        for file in files:
            self._spark.read.parquet(str(file)).createOrReplaceTempView("changes")
            self._merge("changes")


class ExpertMerge(_Spark):
    """All files folded to the last change per key, one MERGE, deletion vectors, few shuffle partitions."""

    properties = "vectors"
    settings: ClassVar[dict[str, str]] = {"spark.sql.shuffle.partitions": "4"}

    def changes(self, files: Sequence[Path]) -> None:
        self._spark.read.parquet(*map(str, files)).selectExpr(
            "*", "_metadata.file_name as f", "_metadata.row_index as r"
        ).createOrReplaceTempView("raw")
        self._spark.sql(
            "select * except (f, r, n) from (select *, row_number() over (partition by id order by f desc, r desc) n "
            "from raw) where n = 1"
        ).createOrReplaceTempView("changes")
        self._merge("changes")


class DeltaRs:
    """delta-rs (the deltalake wheel), one MERGE per file: no JVM."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "table")

    def load(self, files: Sequence[Path]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from deltalake import write_deltalake

        write_deltalake(self._path, pa.concat_tables([pq.read_table(f) for f in files]))

    def changes(self, files: Sequence[Path]) -> None:
        import pyarrow.parquet as pq
        from deltalake import DeltaTable

        table = DeltaTable(self._path)
        columns = {c: f"s.{c}" for c in ("id", "amount", "price", "name", "changed")}
        for file in files:
            (
                table.merge(pq.read_table(file), "t.id = s.id", source_alias="s", target_alias="t")
                .when_matched_delete("s.__rowMarker__ = 2")
                .when_matched_update(columns)
                .when_not_matched_insert(columns, "s.__rowMarker__ != 2")
                .execute()
            )

    def digest(self) -> list[int]:
        from deltalake import DeltaTable, QueryBuilder

        rows = QueryBuilder().register("t", DeltaTable(self._path)).execute(f"{DIGEST} from t").read_all()
        return [int(column[0].as_py()) for column in rows.columns]


def _spark_digest(spark: Any, path: Path) -> list[int]:
    return [int(value) for value in spark.sql(f"{DIGEST} from delta.`{path}`").collect()[0]]


PEERS: dict[str, type[Any]] = {
    "lakemirror": Lakemirror,
    "plain-merge": PlainMerge,
    "expert-merge": ExpertMerge,
    "delta-rs": DeltaRs,
}
