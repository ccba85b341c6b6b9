"""`lakemirror verify DB [TABLE]`: proves a mirror from the outside. Starts no JVM, changes nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lakemirror.cli.options import Database, Json, StorageOptions, require, with_groups
from lakemirror.cli.progress import progress_bars
from lakemirror.errors import counted

if TYPE_CHECKING:
    from lakemirror.verify import Report


@dataclass(frozen=True)
class SourceOptions:
    """What the rows of a table are compared with, beside its own log."""

    against_files: Annotated[
        bool,
        typer.Option(
            "--against-files", help="Also fold the applied files again, and compare every row with the table."
        ),
    ] = False
    against: Annotated[
        str,
        typer.Option(
            help="Also compare every row with a source: a database's URL, a Parquet file or folder, a Delta table."
        ),
    ] = ""
    query: Annotated[str, typer.Option(help="With --against URL: the query whose rows the table must hold.")] = ""
    zoneless: Annotated[
        str,
        typer.Option(
            help="With --against: the zone of the source's times that name none; empty: as the table read them."
        ),
    ] = ""


@with_groups
def verify(
    database: Database,
    rows: SourceOptions,
    table: Annotated[str, typer.Argument(help="One table, as TABLE or SCHEMA.TABLE; empty: all tables.")] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Read no rows: log, sizes, footers, vectors and positions only.")
    ] = False,
    threads: Annotated[int, typer.Option(help="Data files that are read at once; 0: one each core.", min=0)] = 0,
    storage: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Prove that tables are sound: log, data files, statistics, deletion vectors, positions; on request every row.

    Exit code 0: sound. 1: something could not be verified. 3: something is wrong.

    Example: lakemirror verify shop --against-files

    Example: lakemirror verify shop orders --against sqlite:///shop.db --query "select * from orders"
    """
    from lakemirror.api import MirroredDatabase
    from lakemirror.landing_zone.zoneless import zone_of
    from lakemirror.settings.settings import converted
    from lakemirror.verify import verify_database
    from lakemirror.verify.proof import Options
    from lakemirror.verify.source_rows import Source

    if rows.against and not table:
        raise typer.BadParameter("--against needs one table: name it")
    if quick and (rows.against or rows.against_files):
        raise typer.BadParameter("--quick reads no rows that could be compared")
    if rows.zoneless and not rows.against:
        raise typer.BadParameter("--zoneless belongs to --against")
    zone = zone_of(converted("zoneless", rows.zoneless)) if rows.zoneless else ""
    source = Source(rows.against, rows.query, zone) if rows.against else None
    require(database)
    opened = MirroredDatabase(database)
    options = Options(not quick, rows.against_files, source, threads, patterns=opened.settings.tables)
    schema = opened.settings.default_schema
    with progress_bars() as show:
        named = [table] if table else []
        report = verify_database(opened.storage, named, options, default_schema=schema, progress=show)
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=1))
    else:
        for line in _lines(report):
            typer.echo("".join(c if c.isprintable() else "?" for c in line))
    raise typer.Exit(report.exit_code)


def _lines(report: Report) -> list[str]:
    lines = []
    for table in report.tables:
        if table.version < 0 and not table.findings:
            lines.append(f"{table.table}: no table yet")
            continue
        compared = f", compared with {table.compared:,}" if table.compared is not None else ""
        wrong = [finding for finding in table.findings if finding.severity == "error"]
        is_known = table.version >= 0
        state = counted(len(wrong), "finding") if wrong else "sound" if is_known else "not verified"
        what = f"version {table.version}, {counted(table.files, 'file')}, {counted(table.rows, 'row')}{compared}"
        lines.append(f"{table.table}: {state} ({what}, {table.seconds:.1f} s)")
        for finding in table.findings:
            lines += [f"  {finding.severity} {finding.code}: {finding.message}", f"    {finding.advice}"]
    return lines
