"""Apache Hudi on the newest Spark that it has a bundle for: folded changes, one MERGE, record index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.on_spark import EXPERT, OnSpark


class Hudi(OnSpark):
    """Merge-on-read; loads by bulk_insert, changes by MERGE, keys found by the record index."""

    folds = True
    settings = EXPERT

    def options(self) -> dict[str, str]:
        return {
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
            "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
            "spark.sql.warehouse.dir": str(self.folder),
        }

    def name(self, table: str) -> str:
        return table

    def load_one(self, table: str, files: Sequence[Path]) -> None:
        self.spark.sql(
            f"create table {table} (id bigint, amount bigint, price double, name string, changed timestamp) using hudi "
            f"location '{self.folder / table}' tblproperties (type = 'mor', primaryKey = 'id', "
            "'hoodie.metadata.enable' = 'true', 'hoodie.metadata.record.index.enable' = 'true', "
            "'hoodie.metadata.record.index.min.filegroup.count' = '2', 'hoodie.index.type' = 'RECORD_INDEX')"
        )
        self.spark.sql("set hoodie.spark.sql.insert.into.operation = bulk_insert")
        self.spark.sql("set hoodie.metadata.record.index.enable = true")
        self.spark.sql("set hoodie.index.type = RECORD_INDEX")
        self.read(files).createOrReplaceTempView("rows_to_load")
        self.spark.sql(f"insert into {table} select id, amount, price, name, changed from rows_to_load")

    def upsert_one(self, table: str, files: Sequence[Path]) -> None:
        self.fold(files)
        self.merge(table)

    def commits(self, table: str) -> int:
        timeline = self.folder / table / ".hoodie" / "timeline"
        return len([p for p in timeline.glob("*") if p.suffix in (".commit", ".deltacommit")])
