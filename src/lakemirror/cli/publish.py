"""`lakemirror publish DB TABLE`: files, standard input or a query become change files. Starts no JVM."""

from __future__ import annotations

import functools
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakemirror.cli.durations import seconds
from lakemirror.cli.options import StorageOptions, require, with_groups
from lakemirror.cli.progress import progress_bars
from lakemirror.errors import LakemirrorError
from lakemirror.storage.place import database_place

if TYPE_CHECKING:
    from lakemirror.publisher import LandingTable, Published
    from lakemirror.publisher.sources.preview import Preview
    from lakemirror.publisher.sources.text_types import Choice
    from lakemirror.storage import Place


@dataclass(frozen=True)
class SourceOptions:
    """Where rows come from: files, or a query."""

    files: Annotated[
        list[str] | None, typer.Option("--from", help="A file to publish, or - for standard input; may be repeated.")
    ] = None
    from_sql: Annotated[
        str,
        typer.Option(help="A database to query: postgresql://USER@HOST/DATABASE, sqlite:///FILE or duckdb:///FILE."),
    ] = ""
    query: Annotated[str, typer.Option(help="The query, with --from-sql.")] = ""
    watermark: Annotated[
        str, typer.Option(help="With --from-sql: a column that only grows; rows from its last value on.")
    ] = ""
    every: Annotated[
        str, typer.Option(help="With --from-sql: repeat the query, such as every 10s or 5m, until Ctrl-C.")
    ] = ""
    mode: Annotated[
        str,
        typer.Option(
            help="load, insert, update, upsert, delete, snapshot; empty: upsert (a query: snapshot); without keys "
            "insert."
        ),
    ] = ""
    marker_column: Annotated[
        str, typer.Option(help="The column with each row's marker (0, 1, 2, 4), instead of a mode.")
    ] = ""
    format: Annotated[
        str, typer.Option(help="parquet, csv, xlsx, jsonl or arrow; empty: by name, then by the first bytes.")
    ] = ""


@dataclass(frozen=True)
class TextOptions:
    """How a CSV file or a spreadsheet is written, as fields of `FileOptions`."""

    delimiter: Annotated[str, typer.Option(help="Column separator of CSV; empty: a comma, a tab for .tsv.")] = ""
    decimal: Annotated[
        str, typer.Option(help="Decimal separator of numbers in CSV, a point or a comma; empty: a point.")
    ] = ""
    thousands: Annotated[
        str, typer.Option(help="Separator between thousands in CSV, such as . or a space; empty: none.")
    ] = ""
    date_format: Annotated[
        str, typer.Option(help="How dates are written in CSV, such as dd.MM.yyyy; empty: ISO 8601.")
    ] = ""
    timestamp_format: Annotated[
        str, typer.Option(help="How times are written, such as dd.MM.yyyy HH:mm; empty: ISO 8601.")
    ] = ""
    encoding: Annotated[str, typer.Option(help="Encoding of CSV, such as windows-1252; empty: UTF-8.")] = ""
    sheet: Annotated[str, typer.Option(help="The sheet of an .xlsx file; empty: the first.")] = ""


@dataclass(frozen=True)
class TableOptions:
    """How the table is declared, and how its database is reached."""

    keys: Annotated[
        str, typer.Option(help="Key columns, comma separated; empty: as the table folder declares them.")
    ] = ""
    names: Annotated[
        str,
        typer.Option(help="as-given, or plain: columns get names that every reader opens, `a b` becomes `a_b`."),
    ] = "as-given"
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--types",
            "--column",
            help="Types of columns as NAME=TYPE, such as zip=text,price=decimal(10,2); may be repeated. Else the "
            "content decides.",
        ),
    ] = None
    zoneless: Annotated[
        str,
        typer.Option(
            help="What times without a zone are: utc, ntz (kept so), or their zone; empty: ntz, with a warning."
        ),
    ] = ""
    create: Annotated[
        bool, typer.Option("--create", help="Make the database if there is none; local databases only.")
    ] = False
    storage: StorageOptions = None
    credential: Annotated[
        Path | None,
        typer.Option(
            envvar="LAKEMIRROR_CREDENTIAL",
            help="With an https:// address: the JSON file that `lakemirror access ROOT add` printed.",
        ),
    ] = None
    ca: Annotated[
        Path | None,
        typer.Option(
            "--ca", envvar="LAKEMIRROR_CA", help="With an https:// address: PEM file of the authority to trust."
        ),
    ] = None


@with_groups
def publish(
    db: Annotated[
        str,
        typer.Argument(
            help="The mirrored database: the folder that holds Files/LandingZone, or https://host/workspace/database.",
            metavar="DATABASE",
        ),
    ],
    table: Annotated[str, typer.Argument(help="The table, or SCHEMA.TABLE.")],
    source: SourceOptions,
    declared: TableOptions,
    text: TextOptions,
    preview: Annotated[
        bool, typer.Option("--preview", help="Show columns, types and the reason of each; publish nothing.")
    ] = False,
    recreate: Annotated[
        bool,
        typer.Option(
            "--recreate",
            help="Start the table again: its folder is deleted once the first input is read and checked. Of several "
            "files all are checked first, except with standard input.",
        ),
    ] = False,
) -> None:
    """Publish rows to a table of the landing zone: from files, from standard input, or from a database.

    Example: lakemirror publish shop orders --from orders.csv --keys id --create

    Example: lakemirror publish shop orders --from orders.csv --keys id --preview

    Example: lakemirror publish shop orders --from export.csv --delimiter ";" --decimal , --date-format dd.MM.yyyy

    Example: lakemirror publish https://lake.example/sales/shop orders --from orders.csv --credential shop.json

    Example: lakemirror publish shop orders --from-sql sqlite:///shop.db --query "select * from orders" --keys id
    """
    place = db if db.startswith(("https://", "http://")) else database_place(db)
    _check(source, text, declared)
    if not declared.create and not isinstance(place, str):
        require(place)
    with _warnings_on_stderr():
        opened = functools.partial(_table, place, table, declared)
        if source.from_sql:
            _publish_query(opened, source, recreate=recreate, preview=preview)
        else:
            plain = declared.names == "plain"
            _publish_files(opened, source, text, plain_names=plain, recreate=recreate, preview=preview)


def _check(source: SourceOptions, text: TextOptions, declared: TableOptions) -> None:
    """BadParameter for options that do not belong together; `input-invalid` for a file that is not there."""
    from lakemirror.publisher.plain_names import KINDS_OF_NAMES
    from lakemirror.publisher.sources.files import missing_file

    url = source.from_sql
    if bool(source.files) == bool(url) or bool(url) != bool(source.query):
        raise typer.BadParameter("give --from FILE, or --from-sql URL with --query SQL")
    if declared.names not in KINDS_OF_NAMES:
        raise typer.BadParameter(f"--names is one of {', '.join(KINDS_OF_NAMES)}")
    if declared.names == "plain" and url:
        raise typer.BadParameter('--names belongs to --from; a query names its columns: select "a b" as a_b')
    if (source.watermark or source.every) and not url:
        raise typer.BadParameter("--watermark and --every belong to --from-sql")
    if (source.mode and source.marker_column) or (source.watermark and (source.mode or source.marker_column)):
        raise typer.BadParameter("--mode, --marker-column and --watermark exclude one another")
    if url and (source.marker_column or source.format or any(vars(text).values())):
        raise typer.BadParameter("--marker-column, --format and the options of text need --from")
    for path in source.files or ():
        if path != "-" and not Path(path).is_file():
            raise missing_file(path)


def _publish_files(
    open_table: Callable[[], LandingTable],
    source: SourceOptions,
    text: TextOptions,
    *,
    plain_names: bool,
    recreate: bool,
    preview: bool,
) -> None:
    from lakemirror.publisher.plain_names import plain_name
    from lakemirror.publisher.sources.file_options import FileOptions
    from lakemirror.publisher.sources.files import publish_files
    from lakemirror.publisher.sources.preview import preview_files

    table, files, mode = open_table(), source.files or [], source.mode or None
    if recreate:
        table.recreate_first()
    options = FileOptions(**vars(text), format=source.format, plain_names=plain_names)
    marker = (plain_name(source.marker_column) if plain_names else source.marker_column) or None
    if preview:
        _show(preview_files(table, files, mode, marker=marker, options=options))
        return
    if recreate and len(files) > 1 and "-" not in files and mode != "snapshot":
        checked = open_table()
        checked.recreate_first()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the publish warns
            preview_files(checked, files, mode, marker=marker, options=options)
    choices: list[Choice] = []
    published = publish_files(table, files, mode, marker=marker, options=options, tell=choices.append)
    for choice in choices:
        if choice.guessed:
            typer.echo(str(choice), err=True)
    _say(table, published)


def _publish_query(
    open_table: Callable[[], LandingTable], source: SourceOptions, *, recreate: bool, preview: bool
) -> None:
    """Publishes the rows of a query, with `--every` again and again until a signal comes."""
    from lakemirror.publisher.sources.preview import preview_sql
    from lakemirror.publisher.sql import publish_sql

    pause = seconds(source.every) if source.every else None
    url, query, mode = source.from_sql, source.query, source.mode or None
    table = open_table()
    if recreate:
        table.recreate_first()
    if preview:
        _show([preview_sql(table, url, query, mode)])
        return
    stop = threading.Event()
    if pause is not None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
    while True:
        try:
            with progress_bars() as show:
                published = publish_sql(
                    table,
                    url,
                    query,
                    mode,
                    watermark=source.watermark or None,
                    progress=lambda rows: show(f"{table.name}: rows read", rows, None),
                )
            _say(table, [published] if published else [], silent=pause is not None)
        except LakemirrorError as error:
            if pause is None or not error.retry:
                raise
            typer.echo(f"{error}; tried again in {source.every}", err=True)
        if pause is None or stop.wait(pause):
            return


def _table(db: Place | str, name: str, declared: TableOptions) -> LandingTable:
    import pyarrow as pa

    from lakemirror.publisher import Landing
    from lakemirror.publisher.declared_types import named_type
    from lakemirror.publisher.plain_names import plain_name

    spelled = plain_name if declared.names == "plain" else str
    types = [pair for text in declared.types or () for pair in _named_types(text)]
    fields = [(spelled(column), named_type(kind)) for column, kind in types]
    schema, _, table = name.rpartition(".")
    keys = [spelled(key.strip()) for key in declared.keys.split(",") if key.strip()]
    landing = Landing(db if isinstance(db, Path) else str(db), declared.credential, ca=declared.ca)
    return landing.table(table, keys or None, schema or None, columns=pa.schema(fields), zoneless=declared.zoneless)


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
def _warnings_on_stderr() -> Iterator[None]:
    """What is warned of, as one line each."""

    def show(message: Warning | str, *_: object) -> None:
        typer.echo(f"warning: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show  # type: ignore[assignment]
        yield
