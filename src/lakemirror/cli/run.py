"""`lakemirror run DB`: applies what arrives, until it is stopped."""

from __future__ import annotations

import logging

from lakemirror.cli.engine_options import (
    Database,
    EngineName,
    Jars,
    Master,
    Memory,
    Parallel,
    SparkRemote,
    SparkSetting,
    Verbose,
    require,
)
from lakemirror.cli.narration import Narrator, log_to_stderr
from lakemirror.cli.supervised import leave, supervised


def run(
    database: Database,
    engine: EngineName = None,
    master: Master = None,
    spark_remote: SparkRemote = None,
    spark: SparkSetting = None,
    jars: Jars = None,
    driver_memory: Memory = None,
    parallel: Parallel = None,
    verbose: Verbose = False,
) -> None:
    """Apply what arrives, until Ctrl-C, SIGTERM or SIGHUP; then let the commits at work end, for a few seconds.

    A second signal ends it at once. Either is safe: nothing is half done.

    Example: lakemirror run shop
    """
    from lakemirror.database import MirroredDatabase

    log_to_stderr(verbose, quiet=logging.WARNING)
    require(database)
    opened = MirroredDatabase(
        database, **engine_flags(engine, master, spark_remote, spark, jars, driver_memory, parallel)
    )
    _, number = supervised(lambda stop: opened.run(stop, Narrator()), opened.abandon)
    if number:
        leave(0)  # not a word to threads that are still at work
