"""Apache Hudi on the newest Spark that it has a bundle for: folded changes, one upsert, record index.

By its own DataFrame writer: its MERGE fails on merge-on-read tables when a clause has a condition, which a delete
marker needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.on_spark import EXPERT, OnSpark
from benchmarks.peers.peer import KEY, MARKER

_DELETED = "_hoodie_is_deleted"


class Hudi(OnSpark):
    """Merge-on-read; loads by bulk_insert, keys found by the record index, deletes by Hudi's own marker column."""

    folds = True
    settings = EXPERT

    def options(self) -> dict[str, str]:
        return {
            "spark.driver.memory": "4g",  # with 1 GB its load of five million rows runs out of it
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
            "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        }

    def name(self, table: str) -> str:
        self.spark.read.format("hudi").load(str(self.folder / table)).createOrReplaceTempView("hudi_table")
        return "hudi_table"

    def load_one(self, table: str, files: Sequence[Path]) -> None:
        self._write(table, self.read(files).selectExpr("*", f"false as {_DELETED}"), "bulk_insert")

    def upsert_one(self, table: str, files: Sequence[Path]) -> None:
        self.fold(files)
        changes = self.spark.table("changes").selectExpr("*", f"{MARKER} = 2 as {_DELETED}").drop(MARKER)
        self._write(table, changes, "upsert")

    def commits(self, table: str) -> int:
        timeline = self.folder / table / ".hoodie" / "timeline"
        return len([p for p in timeline.glob("*") if p.suffix in (".commit", ".deltacommit")])

    def _write(self, table: str, rows: Any, operation: str) -> None:
        rows.write.format("hudi").mode("append").options(
            **{
                "hoodie.table.name": table,
                "hoodie.datasource.write.table.type": "MERGE_ON_READ",
                "hoodie.datasource.write.operation": operation,
                "hoodie.datasource.write.recordkey.field": KEY,
                "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
                "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
                "hoodie.metadata.enable": "true",
                "hoodie.metadata.record.index.enable": "true",
                "hoodie.metadata.record.index.min.filegroup.count": "2",
                "hoodie.index.type": "RECORD_INDEX",
            }
        ).save(str(self.folder / table))
