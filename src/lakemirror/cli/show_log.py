"""`lakemirror log DB [TABLE]`: what happened. Starts no JVM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from lakemirror.cli.durations import seconds
from lakemirror.cli.options import Database, Json, StorageOptions, require
from lakemirror.cli.printable import printable

if TYPE_CHECKING:
    from lakemirror.executions.execution import Execution


def show_log(
    database: Database,
    table: Annotated[str, typer.Argument(help="One table, as TABLE or SCHEMA.TABLE; empty: all tables.")] = "",
    since: Annotated[str, typer.Option(help="How far back, such as 30m, 6h or 7d.")] = "1d",
    storage: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Show what happened, oldest first: applies, errors, drops, maintenance. Starts no JVM.

    It reads the table Tables/_lakemirror/executions, and what is not in it yet.

    Example: lakemirror log shop

    Example: lakemirror log shop orders --since 7d --json
    """
    from lakemirror.api import MirroredDatabase

    require(database)
    found = MirroredDatabase(database).log(table, seconds(since))
    if as_json:
        typer.echo(json.dumps([each.to_json() for each in found], indent=1))
        return
    for each in found:
        typer.echo(printable(_line(each)))
    if not found:
        typer.echo(f"nothing happened in the last {since}", err=True)


def _line(each: Execution) -> str:
    from lakemirror.status.status import format_time

    parts = [f"{format_time(each.ended)[:23]}Z", f"{each.operation:12}", each.name]
    if each.version >= 0:
        numbers = f"file {each.last}" if each.first == each.last else f"files {each.first} to {each.last}"
        parts.append(f"{numbers}, {each.rows} changes, version {each.version}, by {each.engine}")
    elif each.rows:
        parts.append(f"{each.rows} {'commits' if each.operation == 'DropFeature' else 'files'}")
    if each.seconds:
        parts.append(f"{each.seconds:.3f} s")
    if each.lag is not None:
        parts.append(f"{each.lag:.3f} s behind")
    if each.error_code or each.error_message:
        parts.append(": ".join(part for part in (each.error_code, each.error_message) if part))
    return "  ".join(parts)
