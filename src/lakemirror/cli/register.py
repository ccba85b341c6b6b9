"""`lakemirror register DB`: the tables of a database as entries of a catalog that Spark knows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from lakemirror.cli.options import Database, Json, SessionOptions, StorageOptions, require, with_groups
from lakemirror.cli.printable import say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakemirror.settings.settings import Settings

Catalog = Annotated[str, typer.Option(help="The catalog in Spark; without it, the session's current one.")]
Schema = Annotated[str, typer.Option(help="The catalog's schema of tables without one; else the database's name.")]


@with_groups
def register(
    database: Database,
    session: SessionOptions,
    catalog: Catalog = "",
    schema: Schema = "",
    storage: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Make the tables external tables of a catalog. Entries of dropped tables are dropped; others stay.

    Run it again when there are new tables, or start `lakemirror run` with --register.

    Example: lakemirror register shop --catalog spark_catalog --schema shop
    """
    from lakemirror.api import MirroredDatabase

    require(database)
    opened = MirroredDatabase(database, **session.settings)
    spark = spark_of(opened.settings, catalog)
    done = opened.register(spark, schema, catalog)
    if spark is not None and forgets(spark, catalog):
        say("Spark's own catalog forgets its entries when Spark ends; use a metastore")
    if as_json:
        typer.echo(json.dumps(done.to_json(), indent=1))
    else:
        did = {name: what for what in ("created", "changed", "dropped") for name in getattr(done, what)}
        for name in sorted({*done.names.values(), *did}):
            typer.echo(f"{name}  {did.get(name, 'unchanged')}")
    for namespace, why in done.unread.items():
        say(f"{namespace} was not searched for old entries: {why}")
    for name, error in done.failed.items():
        say(f"{name}: {error}\n  {error.hint}")
    if done.failed:
        raise typer.Exit(3)


def spark_of(settings: Settings, catalog: str) -> SparkSession | None:
    """A session with Delta's SQL; None for a catalog of Unity Catalog, which needs none."""
    from lakemirror.readers.catalog_of_unity import unity_catalog
    from lakemirror.spark_session.session import start

    own = dict(settings.spark)
    if unity_catalog(catalog, lambda key: own.get(key, "")) is not None:
        return None
    return start(settings, delta=True, short=True)


def forgets(spark: SparkSession, catalog: str) -> bool:
    """True if this catalog, the current one where it is empty, is the one that Spark keeps in memory."""
    own = (catalog or spark.sql("SELECT current_catalog()").collect()[0][0]) == "spark_catalog"
    return own and spark.conf.get("spark.sql.catalogImplementation", "in-memory") == "in-memory"
