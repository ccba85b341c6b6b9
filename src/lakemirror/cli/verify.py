"""`lakemirror verify DB [TABLE]`: proves a mirror from the outside. Starts no JVM, changes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from lakemirror.cli.engine_options import Database, StorageOptions, require
from lakemirror.errors import LakemirrorError

if TYPE_CHECKING:
    from lakemirror.storage import Place
    from lakemirror.verify import Report
    from lakemirror.verify.proof import Options


def verify(
    database: Database,
    table: str = typer.Argument("", help="One table, as TABLE or SCHEMA.TABLE; empty: all tables."),
    against_files: bool = typer.Option(
        False, "--against-files", help="Also fold the applied files again, and compare every row with the table."
    ),
    against: str = typer.Option(
        "", help="Also compare every row with a source: a database's URL, a Parquet file or folder, a Delta table."
    ),
    query: str = typer.Option("", help="With --against URL: the query whose rows the table must hold."),
    zoneless: str = typer.Option(
        "", help="With --against: the zone of the source's times that name none; empty: as the table read them."
    ),
    quick: bool = typer.Option(False, "--quick", help="Read no rows: log, sizes, footers, vectors and positions only."),
    threads: int = typer.Option(0, help="Data files that are read at once; 0: one each core.", min=0),
    storage: StorageOptions = None,
    as_json: bool = typer.Option(False, "--json", help="Print the report as JSON."),
) -> None:
    """Prove that tables are sound: log, data files, statistics, deletion vectors, positions; on request every row.

    Exit code 0: sound. 1: something could not be verified. 3: something is wrong.

    Example: lakemirror verify shop --against-files

    Example: lakemirror verify shop orders --against sqlite:///shop.db --query "select * from orders"
    """
    from lakemirror.landing_zone.zoneless import zone_of
    from lakemirror.settings import converted
    from lakemirror.verify.proof import Options
    from lakemirror.verify.source_rows import Source

    if against and not table:
        raise typer.BadParameter("--against needs one table: name it")
    if quick and (against or against_files):
        raise typer.BadParameter("--quick reads no rows that could be compared")
    if zoneless and not against:
        raise typer.BadParameter("--zoneless belongs to --against")
    try:
        zone = zone_of(converted("zoneless", zoneless)) if zoneless else ""
        source = Source(against, query, zone) if against else None
        require(database)
        report = _verify(database, table, Options(not quick, against_files, source, threads))
    except LakemirrorError as error:
        typer.echo(f"{error}\n  {error.hint}", err=True)
        raise typer.Exit(error.exit_code) from None
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=1))
    else:
        for line in _lines(report):
            typer.echo("".join(c if c.isprintable() else "?" for c in line))
    raise typer.Exit(report.exit_code)


def _verify(database: Place, table: str, options: Options) -> Report:
    from rich.console import Console
    from rich.progress import Progress

    from lakemirror.api import MirroredDatabase
    from lakemirror.verify import verify_database

    opened = MirroredDatabase(database)
    tables = [table] if table else []
    schema = opened.settings.default_schema
    console = Console(stderr=True)
    if not console.is_terminal:
        return verify_database(opened.storage, tables, options, default_schema=schema)
    with Progress(console=console, transient=True) as bar:
        tasks: dict[str, int] = {}

        def show(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done)  # type: ignore[arg-type]

        return verify_database(opened.storage, tables, options, default_schema=schema, progress=show)


def _lines(report: Report) -> list[str]:
    lines = []
    for table in report.tables:
        if table.version < 0 and not table.findings:
            lines.append(f"{table.table}: no table yet")
            continue
        compared = f", compared with {table.compared:,}" if table.compared is not None else ""
        wrong = [finding for finding in table.findings if finding.severity == "error"]
        state = "sound" if not wrong else f"{len(wrong)} finding{'s' if len(wrong) > 1 else ''}"
        counted = f"version {table.version}, {table.files:,} files, {table.rows:,} rows{compared}"
        lines.append(f"{table.table}: {state} ({counted}, {table.seconds:.1f} s)")
        for finding in table.findings:
            lines += [f"  {finding.severity} {finding.code}: {finding.message}", f"    {finding.advice}"]
    return lines


__all__ = ["verify"]
