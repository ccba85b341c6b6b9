"""A Spark session with Delta for these tests, and the public tables where they are at hand."""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One small local session; jars from LAKEMIRROR_JARS (a glob), else through the package's own start."""
    jars = sorted(glob.glob(os.environ.get("LAKEMIRROR_JARS", "")))
    if not jars:
        module = pytest.importorskip("lakemirror.spark")
        from lakemirror.settings import Settings

        yield module.start(Settings(master="local[2]"))
        return
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.extraClassPath", ":".join(jars))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    yield session
    session.stop()


def tables_folder() -> Path | None:
    """Where the public Delta tables lie, or None."""
    named = os.environ.get("LAKEMIRROR_DELTA_TABLES")
    root = Path(__file__).resolve().parents[3]
    for folder in (Path(named) if named else None, root.parent / "shared" / "delta-tables"):
        if folder and folder.is_dir():
            return folder
    return None


@pytest.fixture
def public_table(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a public Delta table; skips where they are not at hand."""

    def copy(name: str) -> Path:
        folder = tables_folder()
        if folder is None:
            pytest.skip("the public Delta tables are not here: set LAKEMIRROR_DELTA_TABLES")
        target = tmp_path / name
        shutil.copytree(folder / name, target)
        return target

    return copy
