"""Entries in a Hive metastore that follow a mirror; prints what each step did, as JSON.

python hive_scenario.py PLACE first|later [thrift://HOST:PORT]     without an address: Derby, in this process
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakemirror import MirroredDatabase
from lakemirror.publisher import Landing
from lakemirror.settings.settings import Settings
from lakemirror.spark_session.session import start, stop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(place: Path, address: str = "") -> SparkSession:
    options = {"spark.sql.catalogImplementation": "hive", "spark.sql.warehouse.dir": str(place / "warehouse")}
    if address:
        options["spark.hadoop.hive.metastore.uris"] = address
    else:
        derby = f"jdbc:derby:;databaseName={place / 'metastore'};create=true"
        options["spark.hadoop.javax.jdo.option.ConnectionURL"] = derby
        options["spark.driver.extraJavaOptions"] = f"-Dderby.system.home={place}"
    return start(Settings(master="local[2]", spark=tuple(options.items())), delta=True, short=True)


class Steps:
    """What is done to a database, and what its entries are afterwards."""

    def __init__(self, place: Path, spark: SparkSession) -> None:
        self.folder, self.spark = place / "shop", spark
        self.folder.mkdir(exist_ok=True)
        (self.folder / "mirroring.json").write_text('{"lakemirror": {"drop_after": 0}}')
        self.database = MirroredDatabase(self.folder, engine="local")
        self.said: dict[str, Any] = {}

    def sync(self) -> None:
        """Two passes: the second drops a table whose folder the first one missed."""
        self.database.sync()
        self.database.sync()

    def register(self, step: str) -> None:
        self.sync()
        done = self.database.register(self.spark, "reg").to_json()
        self.said[step] = {key: done[key] for key in ("created", "changed", "dropped", "failed")}
        self.said[step]["entries"] = self.entries()

    def entries(self) -> dict[str, str]:
        """What the metastore has about each entry, without what changes with reading alone."""
        told = {}
        for schema in ("reg", "sales"):
            for row in self.spark.sql(f"SHOW TABLE EXTENDED IN {schema} LIKE '*'").collect():
                lines = [line for line in row["information"].splitlines() if not line.startswith("Last Access")]
                told[f"{schema}.{row['tableName']}"] = "\n".join(lines)
        return told

    def rows(self, step: str, query: str) -> None:
        self.said[step] = [list(row) for row in self.spark.sql(query).collect()]


def of_others(spark: SparkSession, folder: Path) -> None:
    """A view, a table at a place of the mirror, and a table with the comment of its entries."""
    for statement in (
        "CREATE SCHEMA reg",
        "CREATE VIEW reg.viewed AS SELECT 1 AS id",
        f"CREATE TABLE reg.alias USING delta LOCATION '{folder}/Tables/orders'",
        f"CREATE TABLE reg.said (id BIGINT) USING parquet COMMENT 'Mirrored by lakemirror from {folder}'",
        "INSERT INTO reg.said VALUES (7)",
    ):
        spark.sql(statement)


def first(steps: Steps) -> None:
    folder = steps.folder
    Landing(folder).table("orders", ["id"]).insert([{"id": 1}])
    Landing(folder).table("customers", ["id"], "sales").insert([{"id": 1}, {"id": 2}])
    steps.database.sync()
    of_others(steps.spark, folder)
    steps.register("made")
    steps.register("again")
    Landing(folder).table("orders", ["id"]).upsert([{"id": 2, "item": "tea"}])
    for name in ("new", "viewed"):
        Landing(folder).table(name, ["id"]).insert([{"id": 1}])
    steps.register("new")
    steps.rows("widened", "SELECT id, item FROM reg.orders ORDER BY id")
    shutil.rmtree(folder / "Files/LandingZone/orders")
    steps.sync()
    Landing(folder).table("orders", ["code"]).insert([{"code": "a"}])
    steps.register("recreated")
    steps.rows("of recreated", "SELECT * FROM reg.orders")
    shutil.rmtree(folder / "Files/LandingZone/new")
    Landing(folder).table("new", ["id"], "reg").insert([{"id": 5}])
    steps.register("moved")
    steps.rows("of moved", "SELECT id FROM reg.new")
    shutil.rmtree(folder / "Files/LandingZone/orders")
    steps.register("dropped")


def later(steps: Steps) -> None:
    steps.said["found"] = steps.entries()
    steps.rows("customers", "SELECT id FROM sales.customers ORDER BY id")
    steps.rows("said", "SELECT id FROM reg.said")
    steps.register("again")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    spark = session(place, *sys.argv[3:])
    steps = Steps(place, spark)
    {"first": first, "later": later}[sys.argv[2]](steps)
    print(json.dumps(steps.said))
    stop(spark)
