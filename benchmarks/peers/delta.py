"""Delta Lake's own MERGE and append: as most people write them, and as an expert would."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.on_spark import EXPERT, OnSpark


class Plain(OnSpark):
    """One MERGE or append per file, Delta's defaults: what most people write."""

    properties: dict[str, str] = {}  # noqa: RUF012

    def jars(self) -> list[Path]:
        from lakemirror.settings.settings import Settings
        from lakemirror.spark_session import jars

        return list(jars.ensure(Settings().with_environment()))

    def options(self) -> dict[str, str]:
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }

    def name(self, table: str) -> str:
        return f"delta.`{self.folder / table}`"

    def load_one(self, table: str, files: Sequence[Path]) -> None:
        self._write(table, files)

    def append_one(self, table: str, files: Sequence[Path]) -> None:
        for file in files:
            self._write(table, [file])

    def upsert_one(self, table: str, files: Sequence[Path]) -> None:
        for file in files:
            self.fold([file])
            self.merge(table)

    def commits(self, table: str) -> int:
        return len(list((self.folder / table / "_delta_log").glob("*[0-9].json")))

    def delta_table(self, table: str) -> Path:
        return self.folder / table

    def _write(self, table: str, files: Sequence[Path]) -> None:
        writer = self.read(files).write.format("delta").mode("append").option("mergeSchema", "true")
        writer.options(**self.properties).save(str(self.folder / table))


class Expert(Plain):
    """All files folded to the last change per key, one MERGE, deletion vectors, few shuffle partitions."""

    folds = True
    settings = {**EXPERT, "spark.databricks.delta.snapshotPartitions": "2"}  # noqa: RUF012
    properties = {"delta.enableDeletionVectors": "true"}  # noqa: RUF012

    def append_one(self, table: str, files: Sequence[Path]) -> None:
        self._write(table, files)

    def upsert_one(self, table: str, files: Sequence[Path]) -> None:
        self.fold(files)
        self.merge(table)
