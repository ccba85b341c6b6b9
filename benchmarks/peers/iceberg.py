"""Apache Iceberg on the newest Spark that it has a runtime for: folded changes, one MERGE, merge-on-read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks import digest
from benchmarks.peers.on_spark import EXPERT, OnSpark


class Iceberg(OnSpark):
    """Format 3, so that deletes are deletion vectors; a catalog that is a folder."""

    folds = True
    settings = EXPERT

    def options(self) -> dict[str, str]:
        return {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(self.folder),
        }

    def name(self, table: str) -> str:
        return f"lake.db.{table}"

    def load_one(self, table: str, files: Sequence[Path]) -> None:
        writer = self.read(files).writeTo(self.name(table)).using("iceberg").tableProperty("format-version", "3")
        for act in ("merge", "update", "delete"):
            writer = writer.tableProperty(f"write.{act}.mode", "merge-on-read")
        writer.create()

    def append_one(self, table: str, files: Sequence[Path]) -> None:
        if (self.folder / "db" / table).exists():
            self.read(files).select(*digest.COLUMNS).writeTo(self.name(table)).append()
        else:
            self.load_one(table, files)

    def upsert_one(self, table: str, files: Sequence[Path]) -> None:
        self.fold(files)
        self.merge(table)

    def commits(self, table: str) -> int:
        return int(self.spark.table(f"{self.name(table)}.snapshots").count())
