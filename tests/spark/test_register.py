"""`MirroredDatabase.register`: external tables in the session's catalog that follow the mirror."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lakemirror import MirroredDatabase
from lakemirror.publisher import Landing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_registered_tables_follow(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "it's a shop"
    orders = Landing(folder).table("orders", ["id"])
    orders.insert([{"id": 1}])
    Landing(folder).table("customers", ["id"], "sales").insert([{"id": 1}, {"id": 2}])
    database = MirroredDatabase(folder, spark=spark)
    database.sync()
    try:
        names = {"orders": "spark_catalog_test.orders", "sales.customers": "spark_catalog_test.sales_customers"}
        assert database.register(spark, "spark_catalog_test") == names
        assert spark.sql("SELECT count(*) FROM spark_catalog_test.sales_customers").first()[0] == 2
        orders.upsert([{"id": 2, "item": "tea"}])
        database.sync()
        assert database.register(spark, "spark_catalog_test") == names
        rows = spark.sql("SELECT id, item FROM spark_catalog_test.orders ORDER BY id").collect()
        assert [tuple(row) for row in rows] == [(1, None), (2, "tea")]
    finally:
        spark.sql("DROP SCHEMA spark_catalog_test CASCADE")
    assert (folder / "Tables/orders/_delta_log").is_dir()
