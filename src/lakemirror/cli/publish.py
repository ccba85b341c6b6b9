"""`lakemirror publish DB TABLE`: files, standard input or a query become change files. Starts no JVM."""

from __future__ import annotations

import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lakemirror.cli.durations import seconds
from lakemirror.cli.engine_options import StorageOptions, require
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.database_folder import database_place

if TYPE_CHECKING:
    import pyarrow as pa

    from lakemirror.publisher import LandingTable, Published
    from lakemirror.publisher.sources.file_options import FileOptions
    from lakemirror.publisher.sources.preview import Preview
    from lakemirror.publisher.sources.text_types import Choice


def publish(
    db: str = typer.Argument(
        help="The mirrored database: the folder that holds Files/LandingZone, or https://host/workspace/database.",
        metavar="DATABASE",
    ),
    table: str = typer.Argument(help="The table, or SCHEMA.TABLE."),
    source: list[str] = typer.Option([], "--from", help="A file to publish, or - for standard input; may be repeated."),
    from_sql: str = typer.Option(
        "", help="A database to query: postgresql://USER@HOST/DATABASE, sqlite:///FILE or duckdb:///FILE."
    ),
    query: str = typer.Option("", help="The query, with --from-sql."),
    keys: str = typer.Option("", help="Key columns, comma separated; empty: as the table folder declares them."),
    mode: str = typer.Option(
        "",
        help="load, insert, update, upsert, delete, snapshot; empty: upsert (a query: snapshot); without keys insert.",
    ),
    marker_column: str = typer.Option("", help="The column with each row's marker (0, 1, 2, 4), instead of a mode."),
    format: str = typer.Option("", help="parquet, csv, xlsx, jsonl or arrow; empty: by name, then by the first bytes."),
    delimiter: str = typer.Option("", help="Column separator of CSV; empty: a comma, a tab for .tsv."),
    decimal: str = typer.Option("", help="Decimal separator of numbers in CSV, a point or a comma; empty: a point."),
    thousands: str = typer.Option("", help="Separator between thousands in CSV, such as . or a space; empty: none."),
    date_format: str = typer.Option("", help="How dates are written in CSV, such as dd.MM.yyyy; empty: ISO 8601."),
    timestamp_format: str = typer.Option("", help="How times are written, such as dd.MM.yyyy HH:mm; empty: ISO 8601."),
    encoding: str = typer.Option("", help="Encoding of CSV, such as windows-1252; empty: UTF-8."),
    sheet: str = typer.Option("", help="The sheet of an .xlsx file; empty: the first."),
    names: str = typer.Option(
        "as-given", help="as-given, or plain: columns get names that every reader opens, `a b` becomes `a_b`."
    ),
    types: list[str] = typer.Option(
        [],
        "--types",
        "--column",
        help="Types of columns as NAME=TYPE, such as zip=text,price=decimal(10,2); may be repeated. Else the content "
        "decides: a column gets a type only if its values give back each text.",
    ),
    preview: bool = typer.Option(
        False, "--preview", help="Show columns, types and the reason of each; publish nothing."
    ),
    zoneless: str = typer.Option(
        "", help="What times without a zone are: utc, ntz (kept as they are), or their zone; empty: kept, and said."
    ),
    watermark: str = typer.Option("", help="With --from-sql: a column that only grows; rows from its last value on."),
    every: str = typer.Option("", help="With --from-sql: repeat the query, such as every 10s or 5m, until Ctrl-C."),
    storage: StorageOptions = None,
    recreate: bool = typer.Option(
        False,
        "--recreate",
        help="Start the table again: its folder is deleted once the first input is read and checked. Of several files "
        "all are checked first, except with standard input.",
    ),
    create: bool = typer.Option(False, "--create", help="Make the database if there is none; local databases only."),
    credential: Path | None = typer.Option(
        None,
        envvar="LAKEMIRROR_CREDENTIAL",
        help="With an https:// address: the JSON file that `lakemirror access ROOT add` printed.",
    ),
    ca: Path | None = typer.Option(
        None, "--ca", envvar="LAKEMIRROR_CA", help="With an https:// address: PEM file of the authority to trust."
    ),
) -> None:
    """Publish rows to a table of the landing zone: from files, from standard input, or from a database.

    Example: lakemirror publish shop orders --from orders.csv --keys id --create

    Example: lakemirror publish shop orders --from orders.csv --keys id --preview

    Example: lakemirror publish shop orders --from export.csv --delimiter ";" --decimal , --date-format dd.MM.yyyy

    Example: lakemirror publish https://lake.example/sales/shop orders --from orders.csv --credential shop.json

    Example: lakemirror publish shop orders --from-sql sqlite:///shop.db --query "select * from orders" --keys id
    """
    from lakemirror.publisher import Landing
    from lakemirror.publisher.plain_names import KINDS_OF_NAMES, plain_name
    from lakemirror.publisher.sources.file_options import FileOptions

    place = db if db.startswith(("https://", "http://")) else database_place(db)
    text = (delimiter, decimal, thousands, date_format, timestamp_format, encoding, sheet)
    spelled = plain_name if names == "plain" else str
    try:
        if not create and not isinstance(place, str):
            require(place)
        with _warnings_on_stderr():
            _refuse({
                "give --from FILE, or --from-sql URL with --query SQL":
                    bool(source) == bool(from_sql) or bool(from_sql) != bool(query),
                f"--names is one of {', '.join(KINDS_OF_NAMES)}": names not in KINDS_OF_NAMES,
                '--names belongs to --from; a query names its columns: select "a b" as a_b':
                    names == "plain" and from_sql,
                "--watermark and --every belong to --from-sql": (watermark or every) and not from_sql,
                "--mode, --marker-column and --watermark exclude one another":
                    (mode and marker_column) or (watermark and (mode or marker_column)),
                "--marker-column, --format and the options of text need --from":
                    from_sql and (marker_column or format or any(text)),
            })  # fmt: skip
            landing = Landing(place if isinstance(place, Path) else str(place), credential, ca=ca)

            def open_table() -> LandingTable:
                schema, _, name = table.rpartition(".")
                listed = [spelled(key.strip()) for key in keys.split(",") if key.strip()]
                columns = _columns(types, spelled)
                opened = landing.table(name, listed or None, schema or None, columns=columns, zoneless=zoneless)
                if recreate:
                    opened.recreate_first()
                return opened

            if from_sql:
                _publish_query(open_table, from_sql, query, mode or None, watermark or None, every, preview)
            else:
                options = FileOptions(*text, format, names == "plain")
                marker = spelled(marker_column) or None
                _publish_files(open_table, source, mode or None, marker, options, recreate, preview)
    except LakemirrorError as error:
        typer.echo(f"{error}\n  {error.hint}", err=True)
        raise typer.Exit(error.exit_code) from None


def _publish_files(
    open_table: Callable[[], LandingTable], sources: list[str], mode: str | None, marker: str | None,
    options: FileOptions, recreate: bool, preview: bool,
) -> None:  # fmt: skip
    from lakemirror.publisher.sources.files import missing_file, publish_files
    from lakemirror.publisher.sources.preview import preview_files

    for path in sources:
        if path != "-" and not Path(path).is_file():
            raise missing_file(path)
    table = open_table()
    if preview:
        _show(preview_files(table, sources, mode, marker=marker, options=options))
        return
    if recreate and len(sources) > 1 and "-" not in sources and mode != "snapshot":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the publish warns
            preview_files(open_table(), sources, mode, marker=marker, options=options)
    choices: list[Choice] = []
    published = publish_files(table, sources, mode, marker=marker, options=options, tell=choices.append)
    for choice in choices:
        if choice.guessed:
            typer.echo(str(choice), err=True)
    _say(table, published)


def _publish_query(
    open_table: Callable[[], LandingTable], url: str, query: str, mode: str | None, watermark: str | None, every: str,
    preview: bool,
) -> None:  # fmt: skip
    from lakemirror.publisher.sources.preview import preview_sql
    from lakemirror.publisher.sql import publish_sql

    pause, stop = seconds(every) if every else None, threading.Event()
    table = open_table()
    if preview:
        _show([preview_sql(table, url, query, mode)])
        return
    if pause is not None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
    while True:
        try:
            with _row_count(str(table.name)) as progress:
                found = publish_sql(table, url, query, mode, watermark=watermark, progress=progress)
            _say(table, [found] if found else [], silent=pause is not None)
        except LakemirrorError as error:
            if pause is None or not error.retry:
                raise
            typer.echo(f"{error}; tried again in {every}", err=True)
        if pause is None or stop.wait(pause):
            return


def _refuse(combinations: dict[str, object]) -> None:
    """A usage error for the first combination of options that is given and makes no sense."""
    for why, is_given in combinations.items():
        if is_given:
            raise typer.BadParameter(why)


def _columns(types: list[str], spelled: Callable[[str], str]) -> pa.Schema:
    """The types that the user names."""
    import pyarrow as pa

    from lakemirror.publisher.declared_types import named_type

    return pa.schema([(spelled(column), named_type(kind)) for each in types for column, kind in _named_types(each)])


def _named_types(text: str) -> list[tuple[str, str]]:
    """`zip=text,price=decimal(10,2)` as pairs. A name may hold a comma, but no `=`."""
    found = re.findall(r"([^=]+)=([^=(),]*(?:\([^)]*\))?)(?:,|$)", text)
    if ",".join(f"{name}={kind}" for name, kind in found) != text.removesuffix(",") or not found:
        raise typer.BadParameter(f"{text!r} is not NAME=TYPE[,NAME=TYPE…]")
    return found


def _show(previews: list[Preview]) -> None:
    """Previews as lines of name, type and reason."""
    from lakemirror.publisher.sources.text_types import shown

    for each in previews:
        names, kinds = ([column.column for column in each.columns], [shown(column.kind) for column in each.columns])
        wide, wider = (max(map(len, texts), default=0) for texts in (names, kinds))
        for column, kind in zip(each.columns, kinds, strict=True):
            typer.echo(f"{column.column:{wide}}  {kind:{wider}}  {column.reason}".rstrip())
        typer.echo(f"{each.source}: {each.rows:,} row{'' if each.rows == 1 else 's'}; nothing was published", err=True)


def _say(table: LandingTable, published: list[Published], silent: bool = False) -> None:
    for each in published:
        typer.echo(f"{table.name}: {each.path.name}, {each.rows:,} row{'' if each.rows == 1 else 's'}")
    if not published and not silent:
        typer.echo(f"{table.name}: nothing new", err=True)


@contextmanager
def _row_count(table: str) -> Iterator[Callable[[int], None] | None]:
    """Shows on a terminal how many rows were read, and how long it has taken; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task(f"{table}: reading")
        yield lambda rows: bar.update(task, description=f"{table}: {rows:,} rows read")


@contextmanager
def _warnings_on_stderr() -> Iterator[None]:
    """What is warned of, as one line each."""

    def show(message: Warning | str, *_: object) -> None:
        typer.echo(f"warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show  # type: ignore[assignment]
        yield


__all__ = ["publish"]
