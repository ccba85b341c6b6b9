"""A declarative pipeline with a mirrored table and a landing zone as sources, and a landing zone as sink."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.databases import Database
from tests.spark.test_spark_engine import clean, connect_server

from lakemirror.publisher import Landing
from lakemirror.settings import Settings
from lakemirror.spark_session import jars, java, jvm

sys.path.insert(0, str(Path(__file__).parents[1]))
pages = importlib.import_module("how_to_pages")

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(find_spec("pyspark.pipelines") is None, reason="PySpark 4.1 or newer is not installed"),
]

NO_MERGE = "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE"

SPEC = """
name: shop
storage: file://{folder}/storage
libraries:
  - glob:
      include: definitions/**
configuration:
  spark.sql.pipelines.maxFlowRetryAttempts: "{retries}"
  spark.sql.pipelines.execution.watchdog.minRetryTime: "1s"
  spark.sql.shuffle.partitions: "2"
"""

AUTO_CDC = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql.functions import struct

spark = SparkSession.active()


@dp.temporary_view
def arrivals():
    frame = spark.readStream.format("lakemirror").load("/data/shop/orders")
    return frame.withColumn("place", struct("__file__", "__row__"))


dp.create_streaming_table("current")
dp.create_auto_cdc_flow(
    target="current", source="arrivals", keys=["id"], sequence_by="place", apply_as_deletes="__rowMarker__ = 2",
    except_column_list=["__file__", "__row__", "__rowMarker__", "place"],
)
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A Connect server with Delta. Each Python process of its tasks and commits is killed behind the first file that it
    publishes for a batch.
    """
    options = {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars.ensure(Settings().with_environment()))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.sources.default": "delta",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    monkeypatch.setenv("LAKEMIRROR_FAILPOINT", "batch.file-published")
    with connect_server(Path(sys.executable), jvm.spark_home(), tmp_path, more=options) as address:
        monkeypatch.delenv("LAKEMIRROR_FAILPOINT")
        yield address


def run(folder: Path, definitions: str, server: str) -> str:
    """Runs a pipeline with these definitions, in which `/data` is the folder. What it prints."""
    (folder / "definitions").mkdir(exist_ok=True)
    (folder / "definitions/shop.py").write_text(definitions.replace('"/data/', f'"{folder}/'))
    (folder / "spark-pipeline.yml").write_text(SPEC.format(folder=folder, retries=0 if definitions == AUTO_CDC else 10))
    home = jvm.spark_home()
    places = {"SPARK_HOME": str(home), "JAVA_HOME": str(java.find().home), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [str(home / "bin/spark-pipelines"), "--remote", server, "run"], cwd=folder, capture_output=True, text=True,
        env={**clean(), **places}, check=False, timeout=900,
    )  # fmt: skip
    told = done.stdout + done.stderr
    assert done.returncode == 0 or NO_MERGE in told, told[-3000:]
    return told


def published(folder: Path) -> Database:
    table = Landing(folder / "shop").table("orders", keys=["id"])
    table.upsert([{"id": 1, "item": "cup"}, {"id": 2, "item": "tea"}])
    table.upsert([{"id": 1, "item": "mug"}])
    table.delete([{"id": 2}])
    shop = Database(str(folder / "shop"), {})
    shop.sync()
    return shop


def test_pipelines(server: str, tmp_path: Path) -> None:
    """The page's definitions; what publishes is killed again and again, and the flow is started again."""
    (definitions,) = [each.code for each in pages.blocks("how-to/spark-streams") if each.note == "in a pipeline"]
    shop, copy = published(tmp_path), Database(str(tmp_path / "copy"), {})
    told = run(tmp_path, definitions, server)
    assert "FAILED" in told, "a kill"
    copy.sync()
    assert copy.bag("orders") == shop.bag("orders")
    Landing(shop.address).table("orders").upsert([{"id": 3, "item": "mug"}])
    shop.sync()
    run(tmp_path, definitions, server)
    copy.sync()
    assert copy.bag("orders") == shop.bag("orders")
    assert len(list((tmp_path / "copy").rglob("0*.parquet"))) == 4, "each file once"
    items = DeltaTable(tmp_path / "warehouse/items").to_pyarrow_table().to_pylist()
    assert items == [{"item": "mug", "count": 2}]
    changes = DeltaTable(tmp_path / "warehouse/changes").to_pyarrow_table(columns=["id", "__rowMarker__"]).to_pylist()
    assert sorted((row["id"], row["__rowMarker__"]) for row in changes) == [(1, 4), (1, 4), (2, 2), (2, 4), (3, 4)]
    auto_cdc_makes_the_same_rows(server, tmp_path, shop)


def auto_cdc_makes_the_same_rows(server: str, folder: Path, shop: Database) -> None:
    """From the change source. Skipped while no connector here has row-level operations."""
    if not hasattr(importlib.import_module("pyspark.pipelines"), "create_auto_cdc_flow"):
        pytest.skip("PySpark 4.2 or newer is not installed")
    if NO_MERGE in run(folder, AUTO_CDC, server):
        pytest.skip(f"this Delta is no target of AutoCDC flows: {NO_MERGE}")
    rows = DeltaTable(folder / "warehouse/current").to_pyarrow_table(columns=["id", "item"]).to_pylist()
    assert sorted((row["id"], row["item"]) for row in rows) == sorted(shop.bag("orders", ["id", "item"]).elements())
