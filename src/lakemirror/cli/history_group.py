"""`lakemirror history drop DB TABLE`: the history tables of one table. No JVM."""

from __future__ import annotations

from typing import Annotated

import typer

from lakemirror.cli.options import Database, StorageOptions
from lakemirror.cli.printable import printable

app = typer.Typer(no_args_is_help=True, help="The history tables beside a mirrored table.")


@app.callback()
def _history() -> None:
    """A group, also with one command."""


@app.command()
def drop(
    database: Database,
    table: Annotated[str, typer.Argument(help="The mirrored table, as TABLE or SCHEMA.TABLE.")],
    storage: StorageOptions = None,
) -> None:
    """Move the history tables of a table to Files/_DroppedTables.

    Take the option out of _metadata.json or mirroring.json before: else they begin again.

    Example: lakemirror history drop shop orders
    """
    from lakemirror.api import MirroredDatabase

    print(printable(MirroredDatabase(database).drop_history(table).text))


__all__ = ["app", "drop"]
