"""`lakemirror run DB`: applies what arrives, until it is stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lakemirror.cli.options import Database, EngineOptions, StorageOptions, Verbose, require, with_groups
from lakemirror.cli.register import Catalog, Schema, forgets, spark_of
from lakemirror.cli.run_log import LogFormat, RunLog
from lakemirror.cli.start import importing
from lakemirror.cli.supervised import leave, supervised
from lakemirror.errors import LakemirrorError

if TYPE_CHECKING:
    from lakemirror.api import MirroredDatabase
    from lakemirror.readers.catalog_follower import CatalogFollower

_PATIENCE = 5.0  # seconds that a registration gets to end after a stop


@dataclass(frozen=True)
class Beside:
    """What a running engine does beside applying."""

    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Answer /metrics, /livez, /readyz there: 127.0.0.1:9464."),
    ] = ""
    register: Annotated[
        bool, typer.Option("--register", help="Keep a catalog's entries those of the tables, as `register` does.")
    ] = False
    catalog: Catalog = ""
    schema: Schema = ""


@with_groups
def run(
    database: Database,
    engine: EngineOptions,
    beside: Beside,
    storage: StorageOptions = None,
    verbose: Verbose = False,
    share: Annotated[
        bool,
        typer.Option("--share", help="Run it together with other engines that are started with --share."),
    ] = False,
    log_format: Annotated[LogFormat, typer.Option(help="How each line is written: text, or json.")] = "text",
) -> None:
    """Apply what arrives, until Ctrl-C, SIGTERM or SIGHUP; then wait a few seconds for running commits.

    A second signal ends it at once. Both are safe: a commit is atomic.

    Each start, apply, warning, error and stop is one line with its time on stderr, and in a log file in the cache.

    Example: lakemirror run shop

    Example: lakemirror run shop --log-format json

    Example: lakemirror run shop --listen 127.0.0.1:9464

    Example: lakemirror run s3://lake/shop --share

    Example: lakemirror run shop --register --schema shop
    """
    with importing():
        from lakemirror.api import MirroredDatabase

    require(database)
    said = RunLog(database, log_format, verbose=verbose)

    def abandon() -> None:
        opened.abandon()
        said.stopped("stopped; running commits did not end in time and were cancelled")

    try:
        opened = MirroredDatabase(database, **(engine.settings | ({"share": True} if share else {})))
        said.started(opened.settings)
        if beside.listen:
            from lakemirror.cli.run_listener import listen as answer

            said.listening(answer(beside.listen, opened, database.absolute().name))
        followers = [_follower(opened, beside, said)] if beside.register else []
        _, number = supervised(lambda stop: opened.run(stop, said, *followers), abandon, said.stopping)
        for follower in followers:
            follower.stop(_PATIENCE)
    except LakemirrorError as error:
        said.ended_by(error)
        leave(error.exit_code)
    said.stopped()
    if number:
        leave(0)  # not a word to threads that are still at work


def _follower(opened: MirroredDatabase, beside: Beside, said: RunLog) -> CatalogFollower:
    """Starts what keeps the catalog's entries. It has the session that the engine then uses, too."""
    from lakemirror.readers.catalog_follower import CatalogFollower

    spark = spark_of(opened.settings, beside.catalog)
    if spark is not None and forgets(spark, beside.catalog):
        said.warned("Spark's own catalog forgets its entries when Spark ends; use a metastore")
    follower = CatalogFollower(lambda: opened.register(spark, beside.schema, beside.catalog), said.registered)
    follower.start()
    return follower
