"""`register`, in Python and as a command: external tables in the session's catalog that follow the mirror."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer
from tests.commands import CommandRunner

from lakemirror import MirroredDatabase
from lakemirror.cli import register as cli_register
from lakemirror.publisher import Landing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMAS = ("reg_shop", "reg_sales", "reg_other")


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A database with `orders`, and `customers` in the schema `reg_sales`; both are applied."""
    folder = tmp_path / "it's a shöp 20%25"
    Landing(folder).table("orders", ["id"]).insert([{"id": 1}])
    Landing(folder).table("customers", ["id"], "reg_sales").insert([{"id": 1}, {"id": 2}])
    MirroredDatabase(folder, engine="local").sync()
    yield folder
    for schema in SCHEMAS:
        spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    assert (folder / "Tables/reg_sales/customers/_delta_log").is_dir()  # no entry took a table's files with it


def entries(spark: SparkSession) -> set[str]:
    there = {row[0] for row in spark.sql("SHOW NAMESPACES").collect()} & {*SCHEMAS}
    return {
        f"{schema}.{row['tableName']}"
        for schema in there
        for row in spark.sql(f"SHOW TABLES IN {schema}").collect()
        if not row["isTemporary"]  # the session's temporary views, of any other test, are listed in each schema
    }


def test_entries_follow_the_tables(spark: SparkSession, folder: Path) -> None:
    database = MirroredDatabase(folder, engine="local")
    first = database.register(spark, "reg_shop")
    orders, customers = "spark_catalog.reg_shop.orders", "spark_catalog.reg_sales.customers"
    assert first.names == {"orders": orders, "reg_sales.customers": customers}
    assert (sorted(first.created), first.changed, first.dropped, first.failed) == ([customers, orders], [], [], {})
    assert spark.sql("SELECT count(*) FROM reg_sales.customers").first()[0] == 2
    Landing(folder).table("orders", ["id"]).upsert([{"id": 2, "item": "tea"}])
    Landing(folder).table("new", ["id"]).insert([{"id": 1}])
    database.sync()
    again = database.register(spark, "reg_shop")
    assert (again.created, again.changed, again.dropped) == (["spark_catalog.reg_shop.new"], [], [])
    rows = spark.sql("SELECT id, item FROM reg_shop.orders ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(1, None), (2, "tea")]
    shutil.rmtree(folder / "Tables/orders")
    gone = database.register(spark, "reg_shop")
    assert (gone.created, gone.changed, gone.dropped, gone.failed) == ([], [], [orders], {})
    assert entries(spark) == {"reg_shop.new", "reg_sales.customers"}
    moved = database.register(spark, "reg_other")
    assert (moved.created, moved.dropped) == (["spark_catalog.reg_other.new"], ["spark_catalog.reg_shop.new"])


def test_an_entry_with_another_place_is_changed(spark: SparkSession, folder: Path) -> None:
    database = MirroredDatabase(folder, engine="local")
    database.register(spark, "reg_sales")
    shutil.copytree(folder / "Tables/orders", folder / "Tables/reg_sales/orders")
    shutil.rmtree(folder / "Tables/orders")
    done = database.register(spark, "reg_sales")
    assert (done.created, done.changed, done.dropped) == ([], ["spark_catalog.reg_sales.orders"], [])
    assert spark.sql("SELECT count(*) FROM reg_sales.orders").first()[0] == 1


def test_entries_of_others_stay(spark: SparkSession, folder: Path) -> None:
    """By name, by place alone, by comment alone, and one of another database."""
    place = str(folder / "Tables/orders").replace("'", "\\'")
    spark.sql("CREATE SCHEMA reg_shop")
    spark.sql("CREATE VIEW reg_shop.orders AS SELECT 1 AS id")
    spark.sql(f"CREATE TABLE reg_shop.alias USING delta LOCATION '{place}'")
    comment = f"Mirrored by lakemirror from {folder}".replace("'", "\\'")
    spark.sql(f"CREATE TABLE reg_shop.said (id BIGINT) USING parquet COMMENT '{comment}'")
    second = folder.parent / f"{folder.name}2"
    shutil.copytree(folder, second)
    MirroredDatabase(second).register(spark, "reg_other")
    before = entries(spark)
    done = MirroredDatabase(folder).register(spark, "reg_shop")
    assert {name: error.code for name, error in done.failed.items()} == {
        "orders": "catalog-name-taken", "reg_sales.customers": "catalog-name-taken",
    }  # fmt: skip
    assert "a view" in done.failed["orders"].message and str(second) in done.failed["reg_sales.customers"].message
    assert (done.created, done.changed, done.dropped) == ([], [], [])
    assert entries(spark) == before


def test_one_table_s_error_stops_no_other(spark: SparkSession, folder: Path) -> None:
    """Names that are one in the catalog, a name that it refuses, and a log that cannot be read."""
    for name in ("customers", "a-b", "torn", "good"):
        Landing(folder).table(name, ["id"]).insert([{"id": 1}])
    database = MirroredDatabase(folder, engine="local")
    database.sync()
    assert "torn" in database.register(spark, "reg_shop").names
    for commit in (folder / "Tables/torn/_delta_log").glob("*.json"):
        commit.write_text("{")
    done = database.register(spark, "reg_sales")
    assert {name: error.code for name, error in done.failed.items()} == {
        "customers": "catalog-name-taken", "reg_sales.customers": "catalog-name-taken", "a-b": "catalog-refused",
        "torn": "table-unreadable",
    }  # fmt: skip
    assert done.names.keys() == {"orders", "good"}


def test_the_command_s_exit_code_tells(spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_register, "spark_of", lambda *_: spark)
    app = typer.Typer()
    app.command()(cli_register.register)
    words = [str(folder), "--schema", "reg_shop"]
    first = CommandRunner().invoke(app, words)
    assert first.exit_code == 0 and "spark_catalog.reg_shop.orders  created" in first.stdout
    assert "forgets" in first.stderr  # the test's session has Spark's catalog in memory
    assert "spark_catalog.reg_shop.orders  unchanged" in CommandRunner().invoke(app, words).stdout
    spark.sql("DROP TABLE reg_shop.orders")
    spark.sql("CREATE VIEW reg_shop.orders AS SELECT 1 AS id")
    taken = CommandRunner().invoke(app, [*words, "--json"])
    assert taken.exit_code == 3
    assert json.loads(taken.stdout)["failed"]["orders"]["code"] == "catalog-name-taken"
    unknown = CommandRunner().invoke(app, [*words, "--catalog", "nowhere"])
    assert unknown.exit_code != 0
