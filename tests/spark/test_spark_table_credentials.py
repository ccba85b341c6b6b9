"""Spark reads a table at the address that the catalog tells, with the table's temporary credentials: the driver
(hadoop-azure, by its coordinates) with the settings that Unity Catalog's connector for Spark makes of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the extra `service` is not installed")
sys.path.insert(0, str(Path(__file__).parents[1] / "service"))

from running_service import Running, until
from tests.landing import declare, put
from tests.spark.test_spark_abfs import run

from lakemirror.api import MirroredDatabase
from lakemirror.readers.catalog_of_unity import CONNECTOR
from lakemirror.service.auth.principals import Principals

pytestmark = pytest.mark.full
SCRIPT = """
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
BY_NAME = """
rows = spark.sql("SELECT * FROM sales.shop.orders").collect()
found = {"read": sorted(tuple(row) for row in rows)}
found["tables"] = sorted(row["tableName"] for row in spark.sql("SHOW TABLES IN sales.shop").collect())
try:
    spark.sql("INSERT INTO sales.shop.orders VALUES (3, 'c')")
    found["write"] = ""
except Exception as error:
    found["write"] = str(error)
print("FOUND " + json.dumps(found))
spark.stop()
"""


@pytest.fixture(scope="module", params=["endpoint", "file locations"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("root")
    for table in ("orders", "items"):
        declare(root / "sales/shop", table, ["id"])
        put(root / "sales/shop", table, 1, {"id": [1, 2], "name": ["a", "b"], "__rowMarker__": [0, 0]})
    MirroredDatabase(root / "sales/shop", engine="local").sync()
    service = Running(root, file_locations=request.param == "file locations")
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture(scope="module")
def token(running: Running) -> str:
    issued = Principals(running.root).add("analyst", ["sales=contribute"])
    until(lambda: running.ask_token(issued).status == 200)
    return running.token(issued)


@pytest.mark.parametrize("running", ["endpoint"], indirect=True)
def test_spark_reads_one_table_with_its_credentials(running: Running, token: str, tmp_path: Path) -> None:
    api = "/api/2.1/unity-catalog"
    headers = {"Host": f"127.0.0.1:{running.port}"}  # a name with dots: the driver takes no other
    row = running.send("GET", f"{api}/tables/sales.shop.orders", token=token, headers=headers).json
    body = {"table_id": row["table_id"], "operation": "READ"}
    key: Any = running.send("POST", f"{api}/temporary-table-credentials", body, token=token).json
    sas = key["azure_user_delegation_sas"]["sas_token"]
    azure = {"account.auth.type": "SAS", "sas.fixed.token": sas, "account.hns.enabled": "true"}
    found = run(tmp_path, SCRIPT, running, azure, place=row["storage_location"])
    assert found["read"] == [[1, "a"], [2, "b"]]
    assert "403" in found["other"] and "403" in found["write"], found


def test_unity_catalogs_connector_reads_tables_by_name(running: Running, token: str, tmp_path: Path) -> None:
    connector = os.environ.get("UNITY_SPARK_JARS")
    if not connector:
        pytest.skip("UNITY_SPARK_JARS does not name unitycatalog-spark and what it needs, with commas")
    catalog = "spark.sql.catalog.sales"
    options = {
        "spark.jars": connector, catalog: CONNECTOR, f"{catalog}.uri": f"https://127.0.0.1:{running.port}",
        f"{catalog}.token": token, f"{catalog}.deltaRestApi.enabled": "false",  # the service has Unity's own interface
    }  # fmt: skip
    found = run(tmp_path, BY_NAME, running, {}, options)
    assert found["read"] == [[1, "a"], [2, "b"]] and found["tables"] == ["items", "orders"]
    is_a_path = running.service.options.file_locations  # whose rights are those of the file system
    assert bool(found["write"]) is not is_a_path, "the catalog is read-only"
