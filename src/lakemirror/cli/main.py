"""The command line: a thin skin over `lakemirror.database`.

Results on stdout, progress and messages on stderr. Exit codes: 0 done, 1 failed, 2 usage, 3 a table needs attention.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemirror.cli import features as cli_features
from lakemirror.cli.check import check
from lakemirror.cli.printable import make_streams_safe, printable, say
from lakemirror.cli.publish import publish
from lakemirror.cli.supervised import leave, supervised
from lakemirror.cli.tables import tables
from lakemirror.cli.verify import verify
from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded

if TYPE_CHECKING:
    from lakemirror.landing_zone.metadata import Warned
    from lakemirror.landing_zone.zone import TableName
    from lakemirror.replication.apply_plan import Applied
    from lakemirror.status import DatabaseStatus, TableStatus

_MOST_ALIKE = 3  # warnings of one code that are printed one by one

app = typer.Typer(
    help="Open Mirroring: change files in a folder become live Delta tables, exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from lakemirror import __version__

        print(f"lakemirror {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass


Database = Annotated[Path, typer.Argument(help="The mirrored database: the folder that holds Files/LandingZone.")]
EngineName = Annotated[
    str | None, typer.Option("--engine", help="Who does the row work: auto, local (no JVM), spark.", metavar="NAME")
]
SparkRemote = Annotated[str | None, typer.Option(help="Spark Connect address, such as sc://host:15002.")]
Master = Annotated[str | None, typer.Option(help="Spark master, such as local[2] or spark://host:7077.")]
SparkSetting = Annotated[list[str] | None, typer.Option("--spark", help="Any spark.* setting, as KEY=VALUE.")]
Jars = Annotated[str | None, typer.Option(help="Local Delta jars, comma separated.")]
Memory = Annotated[str | None, typer.Option(help="Heap of the local Spark, such as 4g.")]
Parallel = Annotated[int | None, typer.Option(help="How many tables are applied at once.", min=1)]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command()
def sync(
    database: Database,
    engine: EngineName = None,
    master: Master = None,
    spark_remote: SparkRemote = None,
    spark: SparkSetting = None,
    jars: Jars = None,
    driver_memory: Memory = None,
    parallel: Parallel = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Apply everything that is there now, once. Prints a line for every table that did something.

    Example: lakemirror sync shop
    """
    from lakemirror.database import MirroredDatabase

    _log(verbose)
    _require(database)
    opened = MirroredDatabase(database, **_flags(engine, master, spark_remote, spark, jars, driver_memory, parallel))
    with _Progress(opened.storage) as progress:
        result, number = supervised(lambda stop: opened.sync(progress, stop))
    if result is None:
        raise typer.Exit(1)
    for warned in result.warnings:
        say(f"warning {warned.code}: {printable(warned.message)}")
    if as_json:
        tables = {
            name: {
                "commits": t.commits, "files": t.files, "rows": t.rows, "bytes": t.bytes,
                "error": _error_json(t.error) if t.error else None,
            }
            for name, t in sorted(result.tables.items())
        }  # fmt: skip
        print(json.dumps({"tables": tables, "dropped": result.dropped, "seconds": round(result.seconds, 3)}, indent=1))
    else:
        for name, t in sorted(result.tables.items()):
            if t.commits:
                done = f"{_count(t.files, 'file')}, {_count(t.rows, 'change')}, {_count(t.commits, 'commit')}"
                print(f"{printable(name)}: {done}")
            if t.error is not None:
                print(f"{printable(name)}: {printable(str(t.error))}\n  {t.error.hint}")
        for target in result.dropped:
            print(f"{printable(target)}: dropped, its folder is gone (kept under Files/_DroppedTables)")
    if number:
        leave(128 + number)
    if result.failed:
        raise typer.Exit(max(1, *(e.exit_code for e in result.failed.values())))


@app.command()
def run(
    database: Database,
    engine: EngineName = None,
    master: Master = None,
    spark_remote: SparkRemote = None,
    spark: SparkSetting = None,
    jars: Jars = None,
    driver_memory: Memory = None,
    parallel: Parallel = None,
    verbose: Verbose = False,
) -> None:
    """Apply what arrives, until Ctrl-C, SIGTERM or SIGHUP; then let the commits at work end, for a few seconds.

    A second signal ends it at once. Either is safe: nothing is half done.

    Example: lakemirror run shop
    """
    from lakemirror.database import MirroredDatabase

    _log(verbose, quiet=logging.WARNING)
    _require(database)
    opened = MirroredDatabase(database, **_flags(engine, master, spark_remote, spark, jars, driver_memory, parallel))
    _, number = supervised(lambda stop: opened.run(stop, _Narrator()), opened.abandon)
    if number:
        leave(0)  # not a word to threads that are still at work


@app.command()
def status(database: Database, as_json: Json = False) -> None:
    """Show every table: state, position, what is pending, what it waits for, the last error. Starts no JVM.

    Example: lakemirror status shop --json
    """
    from lakemirror import status as monitoring
    from lakemirror.database import MirroredDatabase, read_stored
    from lakemirror.storage import LocalStorage

    _require(database)
    try:
        found = MirroredDatabase(database).status()
    except LakemirrorError as error:
        if error.code not in ("definition-invalid", "setting-invalid", "client-unknown"):
            raise
        found = replace(read_stored(LocalStorage(database)), error_code=error.code, error_message=error.message)
    now = time.time()
    failed = any(t.error_code for t in found.tables) or bool(found.error_code)
    since = found.not_running_since(now)
    if since is not None:
        found = replace(found, status="Stopped")
    if as_json:
        rendered = monitoring.render(found)
        shown = {**json.loads(rendered[monitoring.REPLICATOR]), **json.loads(rendered[monitoring.TABLES])}
        lags = {t.name: t.lag(now) for t in found.tables}
        for row in shown["tables"]:
            row["lagSeconds"] = round(lags[row["normalizedTableName"]], 1)
        if since is not None:
            shown["notRunningSince"] = monitoring.format_time(since)
        print(json.dumps(shown, indent=1))
    else:
        _print_engine(found, since)
        _print_status(found.tables, now)
        if found.partner is not None:
            source = f"{found.partner.source_type} {found.partner.source_version}".strip()
            by = found.partner.name or "an unnamed partner"
            print(printable(f"published by {by}" + (f" from {source}" if source else "")))
        _print_warnings("", found.warnings)
    if failed:
        raise typer.Exit(3)


@app.command()
def demo(
    into: Annotated[Path, typer.Option(help="Where the demo's database is made.")] = Path("demo-output"),
    days: Annotated[int | None, typer.Option(help="Only the first days of the year.", min=1, max=365)] = None,
    engine: EngineName = None,
    master: Master = None,
    spark_remote: SparkRemote = None,
    spark: SparkSetting = None,
) -> None:
    """Mirror a year of real flights, and check the tables against the source.

    Example: lakemirror demo
    """
    from lakemirror.demo.performance import perform

    _log(False)
    if not perform(into, days, master=master, spark=spark or None):
        raise typer.Exit(1)


@app.command()
def doctor(
    database: Annotated[Path | None, typer.Argument(help="A mirrored database to look at as well.")] = None,
    start_spark: Annotated[bool, typer.Option("--spark", help="Also start Spark and write a table.")] = False,
    as_json: Json = False,
) -> None:
    """Say what this machine lacks to run lakemirror, and how to fix it.

    Example: lakemirror doctor shop
    """
    from lakemirror import doctor as checks
    from lakemirror.settings import Settings
    from lakemirror.settings_spelling import unknown_settings

    if database is not None:
        _require(database)
    for warned in unknown_settings({}):
        say(f"warning {warned.code}: {printable(warned.message)}")
    found = checks.examine(Settings().with_environment(), database, spark=start_spark)
    if as_json:
        print(json.dumps([c.__dict__ for c in found], indent=1))
    else:
        for check in found:
            print(f"{'ok  ' if check.ok else 'FAIL'} {check.name}: {check.detail}")
            if check.hint:
                print(f"     {check.hint}")
    if not all(c.ok for c in found):
        raise typer.Exit(1)


app.command()(check)
app.command()(publish)
app.command()(verify)
app.command()(tables)
app.add_typer(cli_features.app, name="features")
app.command()(cli_features.compat)
app.command()(cli_features.sql)


class _NoPandas:
    """Hides pandas: no command needs it, and pyarrow imports it at its first array, which takes as long as all else."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def main() -> None:
    """The `lakemirror` command."""
    if sys.argv[1:2] != ["demo"]:  # its flights come as pandas frames
        sys.meta_path.insert(0, _NoPandas)
    _be_utf8()
    make_streams_safe()
    try:
        app()
    except LakemirrorError as error:
        _end(error)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read our output has enough
        leave(1)
    except Exception as failure:  # the boundary around a command
        _end(coded(failure))


def _be_utf8() -> None:
    """Starts the command again in Python's UTF-8 mode where file names would be read in another encoding.

    Names of tables are UTF-8 whatever the locale says. What is printed stays in the terminal's encoding.
    """
    if sys.getfilesystemencoding().lower() in ("utf-8", "utf8") or sys.flags.utf8_mode:
        return
    output = getattr(sys.stdout, "encoding", None) or "ascii"
    environment = {**os.environ, "PYTHONUTF8": "1", "PYTHONIOENCODING": f"{output}:backslashreplace"}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _end(error: LakemirrorError) -> None:
    """Says the error and ends with its exit code, without waiting for threads that the failure left behind."""
    say(f"{printable(str(error))}\n  {error.hint}")
    leave(error.exit_code)


def _require(database: Path) -> None:
    """LakemirrorError `database-missing` for a folder that is not there: a misspelt path is never made."""
    try:
        there = database.is_dir()
    except OSError as failure:
        raise coded(failure) from failure
    if not there:
        raise LakemirrorError("database-missing", f"there is no folder {database}")


def _flags(
    engine: str | None,
    master: str | None,
    spark_remote: str | None,
    spark: list[str] | None,
    jars: str | None,
    driver_memory: str | None,
    parallel: int | None,
) -> dict[str, Any]:
    return {
        "engine": engine,
        "master": master,
        "spark_remote": spark_remote,
        "spark": spark or None,
        "jars": jars,
        "driver_memory": driver_memory,
        "parallel_tables": parallel,
    }


class _Narrator:
    """Says on stderr what happens, one line an event."""

    def applied(self, name: TableName, applied: Applied) -> None:
        batch = applied.batch
        files, rows = _count(len(batch.files), "file"), _count(batch.rows, "change")
        say(f"{printable(str(name))}: {files}, {rows}, now at {applied.position.number}")

    def failed(self, name: TableName, error: LakemirrorError) -> None:
        say(f"{printable(str(name))}: {printable(str(error))}\n  {error.hint}")

    def dropped(self, target: str) -> None:
        say(f"{printable(target)}: dropped, its folder is gone (kept under Files/_DroppedTables)")


class _Progress:
    """A progress bar over the change files of one pass, on a terminal; else nothing."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self._bar: Any = None
        self._task: Any = None
        self._lock = threading.Lock()

    def __enter__(self) -> _Progress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._bar.start()
            self._task = self._bar.add_task("applying", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def found(self, files: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, total=files)

    def applied(self, name: TableName, applied: Applied) -> None:
        if self._bar is not None:
            with self._lock:
                self._bar.update(self._task, advance=len(applied.batch.files), description=printable(str(name)))

    def failed(self, name: TableName, error: LakemirrorError) -> None:
        pass

    def dropped(self, target: str) -> None:
        pass


def _print_engine(found: DatabaseStatus, since: float | None) -> None:
    """One line: whether the engine runs, since when, and what stands in its way."""
    from lakemirror.status import format_time

    if since is not None:
        print(f"engine: not running since {format_time(since)[:19]}Z")
    elif found.process is not None and found.status != "Stopped":
        started = format_time(found.process.started)[:19]
        print(
            f"engine: {found.status} since {started}Z (process {found.process.pid} on {printable(found.process.host)})"
        )
    else:
        print("engine: not running")
    if found.error_code:
        print(f"{found.error_code}: {printable(found.error_message)}")


def _print_warnings(table: str, warnings: tuple[Warned, ...]) -> None:
    """One line for each warning; one line with a count for many of one code."""
    for code in dict.fromkeys(warned.code for warned in warnings):
        same = [warned for warned in warnings if warned.code == code]
        for warned in same if len(same) <= _MOST_ALIKE else same[:1]:
            more = f" (and {len(same) - 1} more like it)" if len(same) > _MOST_ALIKE else ""
            print(f"{printable(table) + ': ' if table else ''}warning {code}: {printable(warned.message)}{more}")


def _ago(seconds: float) -> str:
    """A duration for people: 12 s, 5 min, 3 h, 2 d."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _print_status(tables: tuple[TableStatus, ...], now: float) -> None:
    from rich.console import Console
    from rich.table import Table

    from lakemirror.status import format_time

    table = Table(box=None, pad_edge=False)
    for heading in ("table", "state", "position", "pending", "changes", "last apply", "behind", "engine", "waits for"):
        is_text = heading in ("table", "state", "engine", "waits for")
        table.add_column(heading, justify="left" if is_text else "right")
    for t in tables:
        waiting = f"{t.waiting_for.what} since {format_time(t.waiting_for.since)[:19]}Z" if t.waiting_for else ""
        applied = _ago(max(0.0, now - t.last_sync)) + " ago" if t.last_sync else ""
        behind = _ago(t.lag(now)) if t.lag(now) else ""
        counts = (str(t.position), str(t.pending_files), str(t.processed_rows))
        engine = f"{t.engine}: {t.engine_reason}" if t.engine_reason else t.engine
        table.add_row(printable(t.name), t.status, *counts, applied, behind, printable(engine), printable(waiting))
    console = Console(width=None if sys.stdout.isatty() else 240, highlight=False, markup=False)
    console.print(table)
    for t in tables:
        if t.error_code:
            print(f"\n{printable(t.name)}: {t.error_code}: {printable(t.error_message)}\n  {t.error_hint}")
        _print_warnings(t.name, t.warnings)


def _error_json(error: LakemirrorError) -> dict[str, Any]:
    return {
        "code": error.code, "message": error.message, "hint": error.hint, "file": error.file, "row": error.row,
        "column": error.column,
    }  # fmt: skip


def _log(verbose: bool, quiet: int = logging.ERROR) -> None:
    """What the log holds goes to stderr, one line each; `quiet`: from which level on unless `verbose`."""
    logging.basicConfig(level=logging.INFO if verbose else quiet, stream=sys.stderr, force=True)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_OneLine("%(message)s"))
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


class _OneLine(logging.Formatter):
    """A message as one line, whatever a publisher has put into a name."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(record.getMessage())


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" + ("" if number == 1 else "s")
