"""`lakemirror history build|drop DB TABLE`: the history tables of one table. No JVM."""

from __future__ import annotations

from typing import Annotated

import typer

from lakemirror.cli.options import Database, StorageOptions
from lakemirror.cli.printable import printable

app = typer.Typer(no_args_is_help=True, help="The history tables beside a mirrored table.")


Table = Annotated[str, typer.Argument(help="The table, as TABLE or SCHEMA.TABLE.")]


@app.command()
def build(
    database: Database,
    table: Table,
    from_processed: Annotated[
        bool, typer.Option("--from-processed", help="From the applied files: there is no other source, so say it.")
    ] = False,
    storage: StorageOptions = None,
) -> None:
    """Make the history tables of a table again, from the first applied file on.

    Readers have the old history until the new one is whole. If applied files are gone, nothing is changed.

    Example: lakemirror history build shop orders --from-processed
    """
    from lakemirror.api import MirroredDatabase

    if not from_processed:
        raise typer.BadParameter("say --from-processed: the history is made from the applied files")
    print(printable(MirroredDatabase(database).build_history(table).text))


@app.command()
def drop(
    database: Database,
    table: Table,
    storage: StorageOptions = None,
) -> None:
    """Move the history tables of a table to Files/_DroppedTables.

    Take the option out of _metadata.json or mirroring.json before: else they begin again.

    Example: lakemirror history drop shop orders
    """
    from lakemirror.api import MirroredDatabase

    print(printable(MirroredDatabase(database).drop_history(table).text))
