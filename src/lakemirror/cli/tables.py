"""`lakemirror tables DB [TABLE]`: where the Delta tables are, and lines that read them."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from lakemirror.cli.options import Database, Json, StorageOptions
from lakemirror.errors import LakemirrorError


def tables(
    database: Database,
    table: Annotated[str, typer.Argument(help="One table; with it, lines to paste for each tool are printed.")] = "",
    storage: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Show where the Delta tables are; for one table also how each tool reads it. Starts no JVM.

    Example: lakemirror tables shop orders
    """
    from lakemirror.readers.table_readers import readable_tables

    found = readable_tables(database)
    if table:
        found = [each for each in found if each.name == table]
        if not found:
            raise LakemirrorError(
                "table-unreadable", f"{database} has no table {table}", hint=f"Run: lakemirror tables {database}"
            )
    if as_json:
        typer.echo(json.dumps([each.to_json() for each in found], indent=1))
        return
    width = max((len(each.name) for each in found), default=0)
    for each in found:
        typer.echo(f"{each.name:{width}}  {each.path}" + (f"  ({each.error})" if each.error else ""))
        if each.unreadable_by:
            typer.echo(f"{'':{width}}  cannot be read by {', '.join(each.unreadable_by)}")
    if table or len(found) == 1:
        for tool, code in found[0].snippets().items():
            typer.echo(f"\n# {tool}\n{code}")
    elif found:
        typer.echo(f"\nlakemirror tables {database} {found[0].name} prints how each tool reads it", err=True)
    else:
        print("no table yet: lakemirror sync makes them from the landing zone", file=sys.stderr)
