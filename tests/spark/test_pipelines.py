"""A declarative pipeline with a mirrored table and a landing zone as sources, and a landing zone as sink."""

from __future__ import annotations

import importlib
import json
import os
import random
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
from lakemirror.settings.settings import Settings
from lakemirror.spark_session import jars, java, jvm

sys.path.insert(0, str(Path(__file__).parents[1]))
pages = importlib.import_module("how_to_pages")

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(find_spec("pyspark.pipelines") is None, reason="PySpark 4.1 or newer is not installed"),
]

NO_MERGE = "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE"
CATALOGS = "org.apache.spark.sql.connector.catalog"

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


dp.create_streaming_table("TARGET")
dp.create_auto_cdc_flow(
    target="TARGET", source="arrivals", keys=["id"], sequence_by="place", apply_as_deletes="__rowMarker__ = 2",
    except_column_list=["__file__", "__row__", "__rowMarker__", "place"],
)
"""


IVY = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tests" module="pipelines"/>
  <dependencies>
    <dependency org="org.apache.spark" name="spark-catalyst_2.13" rev="{version}" transitive="false">
      <artifact name="spark-catalyst_2.13" type="jar" ext="jar" m:classifier="tests"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


def delta_options(folder: Path) -> dict[str, str]:
    return {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars.ensure(Settings().with_environment()))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.sources.default": "delta",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }


ROWS = """
import json, sys
from pyspark.sql import SparkSession

rows = SparkSession.builder.remote(sys.argv[1]).getOrCreate().read.table("memory.default.current").collect()
print(json.dumps(sorted([row.id, row.item] for row in rows)))
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A Connect server with Delta. Each Python process of its tasks and commits is killed behind the first file that it
    publishes for a batch.
    """
    monkeypatch.setenv("LAKEMIRROR_FAILPOINT", "batch.file-published")
    with connect_server(Path(sys.executable), jvm.spark_home(), tmp_path, more=delta_options(tmp_path)) as address:
        monkeypatch.delenv("LAKEMIRROR_FAILPOINT")
        yield address


@pytest.fixture
def tables_with_merge(tmp_path: Path) -> Iterator[str]:
    """A Connect server whose catalog `memory` has tables with row-level operations: those of Spark's own tests."""
    options = {
        "spark.driver.extraClassPath": str(jar_of_sparks_tests()),
        "spark.sql.catalog.memory": f"{CATALOGS}.SharedTablesInMemoryRowLevelOperationTableCatalog",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    with connect_server(Path(sys.executable), jvm.spark_home(), tmp_path, more=options) as address:
        yield address


def jar_of_sparks_tests() -> Path:
    """The jar, fetched once by the Ivy that is in PySpark."""
    version = importlib.import_module("pyspark").__version__
    folder = jars.cache_folder(Settings().with_environment()) / "environments" / "test-jars"
    jar = folder / f"spark-catalyst_2.13-{version}-tests.jar"
    if not jar.exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ivy.xml").write_text(IVY.format(version=version))
        (ivy,) = (jvm.spark_home() / "jars").glob("ivy-*.jar")
        words = ["-ivy", "ivy.xml", "-cache", "ivy", "-retrieve", "[artifact]-[revision]-[classifier].[ext]"]
        command = [str(java.find().home / "bin/java"), "-jar", str(ivy), *words]
        fetched = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if not jar.exists():
            pytest.skip(f"{jar.name} cannot be fetched here: {fetched.stdout[-300:]}")
    return jar


def run(folder: Path, definitions: str, server: str, *, fails: bool = False) -> str:
    """Runs a pipeline with these definitions, in which `/data` is the folder. What it prints."""
    (folder / "definitions").mkdir(exist_ok=True)
    (folder / "definitions/shop.py").write_text(definitions.replace('"/data/', f'"{folder}/'))
    (folder / "spark-pipeline.yml").write_text(SPEC.format(folder=folder, retries=0 if fails else 10))
    home = jvm.spark_home()
    places = {"SPARK_HOME": str(home), "JAVA_HOME": str(java.find().home), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [str(home / "bin/spark-pipelines"), "--remote", server, "run"], cwd=folder, capture_output=True, text=True,
        env={**clean(), **places}, check=False, timeout=900,
    )  # fmt: skip
    told = done.stdout + done.stderr
    assert (done.returncode != 0) == fails, told[-3000:]
    return told


def published(folder: Path) -> Database:
    table = Landing(folder / "shop").table("orders", keys=["id"])
    table.upsert([{"id": 1, "item": "cup"}, {"id": 2, "item": "tea"}])
    table.upsert([{"id": 1, "item": "mug"}])
    table.delete([{"id": 2}])
    shop = Database(str(folder / "shop"), {})
    shop.sync()
    return shop


def test_a_pipeline(server: str, tmp_path: Path) -> None:
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


has_auto_cdc = pytest.mark.skipif(
    find_spec("pyspark.pipelines") is None
    or not hasattr(importlib.import_module("pyspark.pipelines"), "create_auto_cdc_flow"),
    reason="PySpark 4.2 or newer is not installed",
)


@has_auto_cdc
def test_auto_cdc_refuses_delta(server: str, tmp_path: Path) -> None:
    """As the page says. When this fails, Delta has row-level operations: give it the test below."""
    published(tmp_path)
    assert NO_MERGE in run(tmp_path, AUTO_CDC.replace("TARGET", "current"), server, fails=True)


@has_auto_cdc
def test_auto_cdc_makes_the_same_rows(tables_with_merge: str, tmp_path: Path) -> None:
    """From the change source, beside a table of ours, in two runs."""
    shop, chance = published(tmp_path), random.Random(5)
    table = Landing(shop.address).table("orders")
    for _ in range(2):
        for number in range(8):
            keys = chance.sample(range(20), 6)
            table.upsert([{"id": key, "item": f"{number}-{key}"} for key in keys[:4]])
            table.delete([{"id": key} for key in keys[4:]])
        shop.sync()
        run(tmp_path, AUTO_CDC.replace("TARGET", "memory.default.current"), tables_with_merge)
        command = [sys.executable, "-c", ROWS, tables_with_merge]
        told = subprocess.run(command, check=True, capture_output=True, text=True, env=clean())
        assert json.loads(told.stdout) == sorted(map(list, shop.bag("orders", ["id", "item"]).elements()))
