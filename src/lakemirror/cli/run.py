"""`lakemirror run DB`: applies what arrives, until it is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from lakemirror.cli.options import Database, EngineOptions, StorageOptions, Verbose, require, with_groups
from lakemirror.cli.run_log import LogFormat, RunLog
from lakemirror.cli.start import importing
from lakemirror.cli.supervised import leave, supervised
from lakemirror.errors import LakemirrorError


@with_groups
def run(
    database: Database,
    engine: EngineOptions,
    storage: StorageOptions = None,
    verbose: Verbose = False,
    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Answer /metrics, /livez, /readyz there: 127.0.0.1:9464."),
    ] = "",
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
        if listen:
            from lakemirror.cli.run_listener import listen as answer

            said.listening(answer(listen, opened, database.absolute().name))
        _, number = supervised(lambda stop: opened.run(stop, said), abandon, said.stopping)
    except LakemirrorError as error:
        said.ended_by(error)
        leave(error.exit_code)
    said.stopped()
    if number:
        leave(0)  # not a word to threads that are still at work


__all__ = ["run"]
