"""Spark reads a table at the address that the catalog tells, with the table's temporary credentials: the driver
(hadoop-azure, by its coordinates) with the settings that Unity Catalog's connector for Spark makes of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the extra `service` is not installed")
sys.path.insert(0, str(Path(__file__).parents[1] / "service"))

from running_service import Running
from tests.landing import declare, put
from tests.spark.test_spark_abfs import hadoop_azure, run, trust_of

from lakemirror.api import MirroredDatabase
from lakemirror.service.auth.principals import Principals
from lakemirror.settings.settings import Settings
from lakemirror.spark_session import jars

SCRIPT = """
import json, sys
from pyspark.sql import SparkSession

given = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.jars.packages", given["package"]).config("spark.jars", given["jars"])
builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
trust = f"-Djavax.net.ssl.trustStore={given['trust']} -Djavax.net.ssl.trustStorePassword=changeit"
builder = builder.config("spark.driver.extraJavaOptions", trust).config("spark.driver.memory", "512m")
azure = {
    "account.auth.type": "SAS", "sas.fixed.token": given["sas"], "account.hns.enabled": "true",
    "io.retry.max.retries": "1",
}
for name, value in azure.items():
    builder = builder.config(f"spark.hadoop.fs.azure.{name}", value)
spark = builder.getOrCreate()
found = {"read": sorted(tuple(row) for row in spark.read.format("delta").load(given["place"]).collect())}
for name, act in {
    "other": lambda: spark.read.format("delta").load(given["place"].replace("orders", "items")).collect(),
    "write": lambda: spark.range(1).write.format("delta").mode("append").save(given["place"]),
}.items():
    try:
        act()
        found[name] = ""
    except Exception as error:
        found[name] = str(error)
print("FOUND " + json.dumps(found))
spark.stop()
"""


@pytest.mark.full
def test_spark_reads_one_table_with_its_credentials(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for table in ("orders", "items"):
        declare(root / "sales/shop", table, ["id"])
        put(root / "sales/shop", table, 1, {"id": [1, 2], "name": ["a", "b"], "__rowMarker__": [0, 0]})
    MirroredDatabase(root / "sales/shop", engine="local").sync()
    issued = Principals(root).add("analyst", ["sales=contribute"])
    running = Running(root)
    try:
        token, api = running.token(issued), "/api/2.1/unity-catalog"
        headers = {"Host": f"127.0.0.1:{running.port}"}  # a name with dots: the driver takes no other
        row = running.send("GET", f"{api}/tables/sales.shop.orders", token=token, headers=headers).json
        body = {"table_id": row["table_id"], "operation": "READ"}
        key: Any = running.send("POST", f"{api}/temporary-table-credentials", body, token=token).json
        given = {
            "place": row["storage_location"], "sas": key["azure_user_delegation_sas"]["sas_token"],
            "trust": str(trust_of(running.ca, tmp_path)), "package": hadoop_azure(),
            "jars": ",".join(str(path) for path in jars.ensure(Settings().with_environment())),
        }  # fmt: skip
        found = run(tmp_path, SCRIPT, given)
    finally:
        running.stop()
    assert found["read"] == [[1, "a"], [2, "b"]]
    assert "403" in found["other"] and "403" in found["write"], found
