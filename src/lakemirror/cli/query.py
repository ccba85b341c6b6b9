"""`lakemirror query DB "select …"`: SQL over the mirrored tables, by DuckDB. Starts no JVM."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from lakemirror.cli.options import Database, StorageOptions, require
from lakemirror.cli.printable import printable


class Form(str, Enum):
    """How a result is written."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


def query(
    database: Database,
    statement: Annotated[str, typer.Argument(help="One SELECT. Tables by name: orders, sales.orders.")],
    form: Annotated[Form, typer.Option("--format", help="How the result is written.")] = Form.table,
    to: Annotated[Path | None, typer.Option(help="The file to write; without it, standard output.")] = None,
    cut: Annotated[str, typer.Option(help="All tables as of a cut: last, or its number.")] = "",
    storage: StorageOptions = None,
) -> None:
    """Run one SELECT over the mirrored tables. Each table has one version for the whole statement.

    Example: lakemirror query shop "select count(*) from orders"

    Example: lakemirror query shop "select * from sales.orders" --format parquet --to orders.parquet
    """
    from lakemirror.readers.table_query import Query, tables_to_query
    from lakemirror.storage.connections import given_options

    if form is Form.table and to is not None:
        raise typer.BadParameter("--to needs --format csv, json or parquet")
    if form is Form.parquet and to is None:
        raise typer.BadParameter("--format parquet needs --to FILE")
    require(database)
    options = dict(os.environ)
    for given in given_options().values():
        options |= {name.upper(): value for name, value in given.items()}
    with Query(tables_to_query(database, cut), options) as opened:
        if form is Form.table:
            typer.echo("\n".join(printable(line) for line in opened.text(statement).splitlines()))
        else:
            opened.copy(statement, "/dev/stdout" if to is None else str(to.absolute()), form.value)
