"""`lakemirror doctor [DB]`: what this machine lacks to run lakemirror."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from lakemirror.cli.options import Json, StorageOptions, path, require
from lakemirror.cli.printable import printable, say


def doctor(
    database: Annotated[
        Any,
        typer.Argument(help="A mirrored database to look at as well.", parser=path, metavar="[DATABASE]"),
    ] = None,
    start_spark: Annotated[bool, typer.Option("--spark", help="Also start Spark and write a table.")] = False,
    storage: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Say what this machine lacks to run lakemirror, and how to fix it.

    Example: lakemirror doctor shop
    """
    from lakemirror import doctor as checks
    from lakemirror.settings.settings import Settings
    from lakemirror.settings.spelling import unknown_settings

    if database is not None:
        require(database)
    for warned in unknown_settings({}):
        say(f"warning {warned.code}: {printable(warned.message)}")
    found = checks.examine(Settings().with_environment(), database, spark=start_spark)
    if as_json:
        print(json.dumps([c.__dict__ for c in found], indent=1))
    else:
        for check in found:
            print(f"{'ok  ' if check.ok else 'FAIL'} {check.name}: {check.detail}")
            if check.hint:
                print(f"     {check.hint}")
    if not all(c.ok for c in found):
        raise typer.Exit(1)
