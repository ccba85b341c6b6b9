"""`lakemirror capture DB --from URL`: a database's changes become change files, until it is stopped."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from lakemirror.cli.options import StorageOptions, with_groups
from lakemirror.cli.progress import progress_bars
from lakemirror.cli.start import importing
from lakemirror.cli.supervised import leave, supervised
from lakemirror.errors import LakemirrorError

if TYPE_CHECKING:
    from lakemirror.publisher.capture.capture_options import CaptureOptions

FOLLOW = "follow"


class _Group(TyperGroup):
    """`capture DB` is the command that follows; the first argument is a database unless it names another command."""

    default_command = FOLLOW

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = [FOLLOW, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_Group, no_args_is_help=True)


@app.callback()
def capture() -> None:
    """Mirror a database: load its tables, then publish its changes as they happen.

    `lakemirror capture DB --from URL` loads and follows; `lakemirror capture follow --help` has its options.
    """


@dataclass(frozen=True)
class Source:
    """Which database, which of its tables, under which names."""

    source: Annotated[
        str,
        typer.Option(
            "--from",
            help="postgresql, mariadb, mysql or sqlserver://USER@HOST/DATABASE; or kafka://HOST:9092/PATTERN.",
            metavar="URL",
        ),
    ]
    tables: Annotated[
        list[str] | None,
        typer.Option(help="Tables, as shell patterns over schema.table; may be repeated. Default: all."),
    ] = None
    exclude: Annotated[
        list[str] | None, typer.Option(help="Tables that are left out, as patterns; may be repeated.")
    ] = None
    name: Annotated[str, typer.Option(help="The capture's own name: two captures of one database need two names.")] = (
        "lakemirror"
    )
    rename: Annotated[
        list[str] | None, typer.Option(help="SCHEMA.TABLE=NAME: the table's folder has another name.")
    ] = None
    flat: Annotated[bool, typer.Option("--flat", help="Folders without their schema.")] = False
    password_file: Annotated[
        Path | None,
        typer.Option(help="A file that holds the password. Else: PGPASSWORD, .pgpass; MYSQL_PWD; SQLCMDPASSWORD."),
    ] = None


@dataclass(frozen=True)
class Topics:
    """What topics hold, and how they are reached."""

    format: Annotated[str, typer.Option(help="What topics hold: debezium, whole envelopes.")] = "debezium"
    kafka_config: Annotated[
        Path | None, typer.Option(help="A file of librdkafka's properties, NAME=VALUE a line, such as those of SASL.")
    ] = None
    registry: Annotated[
        str,
        typer.Option(
            help="The schema registry of messages in Avro; user and password are in --kafka-config.", metavar="URL"
        ),
    ] = ""


@dataclass(frozen=True)
class Values:
    """How values and changes are kept."""

    numeric: Annotated[
        str, typer.Option(help="The type of numbers without a scale, such as decimal(38,9); empty: text.")
    ] = ""
    infinite: Annotated[str, typer.Option(help="null: infinite dates and NaN become NULL; empty: an error.")] = ""
    insert_only: Annotated[
        list[str] | None, typer.Option(help="A table without a key whose inserts are captured; may be repeated.")
    ] = None
    after_ddl: Annotated[
        str, typer.Option(help="reload: read a table again whose old rows changed without being logged; or ignore.")
    ] = "reload"
    reload: Annotated[list[str] | None, typer.Option(help="Load a table again, or all; may be repeated.")] = None


@dataclass(frozen=True)
class Work:
    """How long a capture runs, and what it does now and then."""

    once: Annotated[bool, typer.Option("--once", help="End once everything is published that has happened so far.")] = (
        False
    )
    cut: Annotated[
        float,
        typer.Option(help="Seconds between two cuts, at which all tables end at one transaction; 0: none.", min=0),
    ] = 60.0
    report: Annotated[
        float,
        typer.Option(
            help="Seconds between two lines on stdout, each as of `capture status --json`; 0: none. The capture ends "
            "when nobody reads them any more.",
            min=0,
        ),
    ] = 0.0


@app.command(FOLLOW, hidden=True)
@with_groups
def follow(
    database: Annotated[str, typer.Argument(help="A folder, an object store's address, or https://… of a service.")],
    source: Source,
    values: Values,
    topics: Topics,
    work: Work,
    storage: StorageOptions = None,
) -> None:
    """Load the tables, then publish their changes, until Ctrl-C, SIGTERM or SIGHUP.

    A signal ends it within seconds, a second one at once.

    Example: lakemirror capture shop --from postgresql://shop@db/shop --tables 'public.*'

    Example: lakemirror capture shop --from postgresql://shop@db/shop --once

    Example: lakemirror capture shop --from mariadb://shop@db/shop

    Example: lakemirror capture shop --from 'kafka://broker:9092/shop.public.*' --format debezium
    """
    with importing():
        from lakemirror.cli.capture_report import reported
        from lakemirror.publisher import Landing
        from lakemirror.publisher.capture.database_capture import Capture

    if source.source.startswith("kafka://"):
        _follow_topics(database, source, topics, once=work.once)
        return
    options = options_of(source, values)
    prepare_java(options)
    landing = Landing(database)

    end = partial(signal.raise_signal, signal.SIGTERM)

    def run(stop: threading.Event) -> None:
        with progress_bars() as show, reported(landing, options, work.report, end):
            tell = partial(typer.echo, err=True)
            Capture(landing, options, tell, show, cut=work.cut).run(stop, once=work.once)

    _until_signal(database, options.name, run)


def _until_signal(database: str, name: str, run: Callable[[threading.Event], None]) -> None:
    """Runs a capture until it ends. After a signal the process ends, whatever the source or Java still does."""
    with _recorded(database, name) as ended:
        _, number = supervised(run, ended)
    if number:
        leave(0)


@contextmanager
def _recorded(database: str, name: str) -> Iterator[Callable[[], None]]:
    """Logs the begin of a capture, and its end with the error that ended it; of a service, through its landing zone.

    Gives what logs the end where the block is left by the end of the process.
    """
    from lakemirror.executions.execution import CAPTURE, Execution, without_credentials
    from lakemirror.executions.execution_log import record_once
    from lakemirror.executions.published_executions import PUBLISHED, publish_execution
    from lakemirror.publisher import Landing

    begun, code, message = time.monotonic(), "", ""

    def record(seconds: float) -> None:
        ended = Execution(round(time.time(), 3), CAPTURE, "", name, round(seconds, 3), error_code=code)
        ended = ended._replace(error_message=without_credentials(message))
        if not database.startswith(("https://", "http://")):
            record_once(database, ended)
            return
        try:
            publish_execution(Landing(database).folder(PUBLISHED), ended)
        except (LakemirrorError, OSError) as error:
            typer.echo(f"not logged: {error}", err=True)

    def ended() -> None:
        record(time.monotonic() - begun)

    record(0.0)
    try:
        yield ended
    except LakemirrorError as error:
        code, message = error.code, error.message
        raise
    finally:
        ended()


def prepare_java(options: CaptureOptions, *, streams: bool = True) -> None:
    """Finds Java, where the source needs it. `streams`: not for questions alone."""
    from lakemirror.publisher.capture.source_kinds import source_class

    source = source_class(options)
    if source.streams_by_java if streams else source.asks_by_java:
        from lakemirror.publisher.capture.debezium import use_java
        from lakemirror.spark_session.java import find

        use_java(find().home)


def _follow_topics(database: str, source: Source, topics: Topics, *, once: bool) -> None:
    """The same for Debezium's topics. The first error of a table, at the end."""
    from lakemirror.publisher import Landing
    from lakemirror.publisher.capture.topics.topic_capture import TopicCapture, TopicOptions

    if topics.format != "debezium":
        raise typer.BadParameter(f"{topics.format!r} is no format: topics hold debezium")
    if source.tables or source.exclude or source.rename or source.flat or source.password_file:
        raise typer.BadParameter("topics are named in the address alone: kafka://HOST:9092/PATTERN")
    config = dict(each.partition("=")[::2] for each in _lines(topics.kafka_config))
    options = TopicOptions(source.source, source.name, config, topics.registry)
    running = TopicCapture(Landing(database), options, lambda text: typer.echo(text, err=True))

    def run(stop: threading.Event) -> None:
        running.run(stop, once=once)
        for error in running.stopped.values():
            raise error

    _until_signal(database, source.name, run)


def _lines(file: Path | None) -> list[str]:
    """The lines of a file of properties, without comments."""
    lines = [line.strip() for line in _read(file).splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def options_of(source: Source, values: Values = Values()) -> CaptureOptions:
    """The options of a capture. `input-invalid`."""
    from lakemirror.publisher.capture.capture_options import CaptureOptions

    renames = dict(each.partition("=")[::2] for each in source.rename or ())
    if wrong := next((name for name, new in renames.items() if not new), None):
        raise typer.BadParameter(f"{wrong!r} is not SCHEMA.TABLE=NAME")
    return CaptureOptions(
        source.source,
        source.name,
        tuple(source.tables or ("*.*",)),
        tuple(source.exclude or ()),
        renames,
        source.flat,
        values.numeric,
        values.infinite,
        tuple(values.insert_only or ()),
        values.after_ddl,
        tuple(values.reload or ()),
        _read(source.password_file).rstrip("\r\n"),
    )


def _read(file: Path | None) -> str:
    """The content of a file with secrets; empty where none is given."""
    if file is None:
        return ""
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise LakemirrorError("input-invalid", f"a file of the command line cannot be read: {error}") from error
