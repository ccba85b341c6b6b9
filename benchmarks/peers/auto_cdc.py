"""Spark's declarative pipelines with AUTO CDC, and a Delta table as their target: the command line that Spark ships.

files ─▶ a folder that is a streaming source ─▶ `spark-pipelines run` (one triggered update) ─▶ table

Where the Delta release has no row-level operations for Spark's own MERGE, the pipeline refuses its target and that is
what this peer reports.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.on_spark import OnSpark
from benchmarks.peers.peer import Work

_FLOW = """
from pyspark import pipelines
from pyspark.sql import SparkSession, functions

COLUMNS = "id bigint, amount bigint, price double, name string, changed timestamp"

@pipelines.temporary_view
def changes():
    rows = SparkSession.active().readStream.schema(COLUMNS + ", __rowMarker__ int").parquet({inbox!r})
    file, row = functions.col("_metadata.file_name").alias("f"), functions.col("_metadata.row_index").alias("r")
    return rows.withColumn("sequence", functions.struct(file, row))

pipelines.create_streaming_table("orders", format="delta")
pipelines.create_auto_cdc_flow(
    target="orders", source="changes", keys=["id"], sequence_by="sequence",
    apply_as_deletes="coalesce(__rowMarker__, 4) = 2",
    column_list=["id", "amount", "price", "name", "changed"], stored_as_scd_type=1,
)
"""


class AutoCdc(OnSpark):
    """Every update is a process of its own, as the command line has it: its start is in the figure."""

    folds = True

    def start(self, pending: int) -> None:
        self._inbox = self.folder / "inbox"
        self._inbox.mkdir(parents=True)
        (self.folder / "transformations").mkdir()
        (self.folder / "transformations" / "flow.py").write_text(_FLOW.format(inbox=str(self._inbox)))
        (self.folder / "pipeline.yml").write_text(
            f"name: benchmark\nstorage: {(self.folder / 'storage').as_uri()}\n"
            "libraries:\n  - glob:\n      include: transformations/**\n"
        )
        (self.folder / "conf").mkdir()
        options = {**self.options(), "spark.jars": ",".join(map(str, self.jars()))}
        defaults = "".join(f"{key} {value}\n" for key, value in options.items())
        (self.folder / "conf" / "spark-defaults.conf").write_text(defaults)

    def options(self) -> dict[str, str]:
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.sql.catalogImplementation": "hive",  # tables are remembered from one update to the next
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }

    def offer(self, work: Work) -> None:
        for files in work.values():
            for file in files:
                number = len(list(self._inbox.iterdir())) + 1
                (self._inbox / f"{number:020}.parquet").write_bytes(file.read_bytes())

    def load_one(self, table: str, files: Sequence[Path]) -> None:
        self._update()

    def upsert_one(self, table: str, files: Sequence[Path]) -> None:
        self._update()

    def digest(self, table: str, extra: Sequence[str] = ()) -> list[int]:
        if not hasattr(self, "spark"):
            super().start(0)
        return super().digest(table, extra)

    def name(self, table: str) -> str:
        return f"delta.`{self.folder / 'warehouse' / table}`"

    def commits(self, table: str) -> int:
        return len(list((self.folder / "warehouse" / table / "_delta_log").glob("*[0-9].json")))

    def on_disk(self) -> list[Path]:
        return [path for path in (self.folder / "warehouse").rglob("*") if path.is_file()]

    def _update(self) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        done = subprocess.run(
            [str(home / "bin" / "spark-pipelines"), "run", "--spec", "pipeline.yml"],
            cwd=self.folder,
            env={
                **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
                "SPARK_HOME": str(home),
                "SPARK_CONF_DIR": str(self.folder / "conf"),
                "PYSPARK_PYTHON": sys.executable,
            },
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(_reason(done.stderr + done.stdout))


def _reason(output: str) -> str:
    """The last error with a name in capitals, as Spark gives its conditions, or else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    named = [line for line in lines if "Exception: [" in line or "Exception) [" in line]
    return (named or lines or ["it said nothing"])[-1]
