"""`lakemirror status DB`: every table, the engine, and their errors. Starts no JVM."""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from lakemirror.cli.durations import seconds
from lakemirror.cli.options import Database, Json, StorageOptions, require
from lakemirror.cli.printable import printable
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.findings import summed_up

if TYPE_CHECKING:
    from lakemirror.landing_zone.metadata import Warned
    from lakemirror.status.status import DatabaseStatus, TableStatus
    from lakemirror.storage import Place

Behind = Annotated[
    str, typer.Option(help="Exit code 3 also if a table has waited longer than this for an apply, such as 5m.")
]
Check = Annotated[bool, typer.Option("--check", help="Exit code 3 also if a table misses its goal of freshness.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it again every two seconds, until Ctrl-C.")]
_EVERY = 2.0  # seconds between two looks of --watch


def status(
    database: Database,
    behind: Behind = "",
    check: Check = False,
    watch: Watch = False,
    storage: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Show every table: state, position, what is pending, what it waits for, the last error. Starts no JVM.

    Exit code 3 if a table or the engine has an error, is too far behind, or needs a person although it has no error:
    every file of a table folder is ignored.

    Example: lakemirror status shop --json

    Example: lakemirror status shop --behind 5m

    Example: lakemirror status shop --check
    """
    require(database)
    longest = seconds(behind) if behind else math.inf
    while True:
        found, now = _look(database), time.time()
        shown = _json(found, now, indent=None if watch else 1) if as_json else _text(found, now)
        if watch and not as_json and sys.stdout.isatty():
            print("\x1b[H\x1b[2J", end="")
        print(shown, flush=True)
        if not watch:
            break
        try:
            time.sleep(_EVERY)
        except KeyboardInterrupt:
            break
    from lakemirror.status.status import needing_attention

    failed = any(t.error_code for t in found.tables) or bool(found.error_code)
    failed = failed or bool(needing_attention(found.tables, found.warnings))
    if check and any(t.misses_goal(now) for t in found.tables):
        raise typer.Exit(3)
    if failed or any(t.lag(now) > longest for t in found.tables):
        raise typer.Exit(3)


def warning_lines(found: DatabaseStatus) -> list[str]:
    """One line for each warning; one line with a count for warnings that repeat."""
    lines = []
    by_code: dict[str, dict[str, list[Warned]]] = {}
    for t in found.tables:
        for warned in summed_up(t.warnings):
            by_code.setdefault(warned.code, {}).setdefault(t.name, []).append(warned)
    for code, by_table in by_code.items():
        alike = len(by_table) > _MOST_TABLES
        for table, same in list(by_table.items())[: 1 if alike else None]:
            more = f" (and {len(by_table) - 1} more tables with such warnings)" if alike else ""
            same = same[:1] if alike else same
            lost = _lost_by(code)
            lines += [f"{printable(table)}: {_warning(each)}{lost}{more}" for each in same]
    return [*lines, *(_warning(each) for each in summed_up(found.warnings))]


def _lost_by(code: str) -> str:
    """The readers that a table with such a warning loses."""
    if code != "column-mapping":
        return ""
    from lakemirror.features.compatibility import lost_by_column_mapping

    return f"; {', '.join(lost_by_column_mapping())} cannot read it. `publish --names plain` renames columns"


def waiting_lines(found: DatabaseStatus) -> list[str]:
    """One line for each table that waits for a file; one line with a count where many do.

    A table without any applied file whose warnings say why is left out.
    """
    waiting = [
        (t.name, t.waiting_for.what)
        for t in found.tables
        if t.waiting_for is not None and not t.error_code and (t.position or not t.warnings)
    ]
    more = f" (and {len(waiting) - 1} more tables wait)" if len(waiting) > _MOST_TABLES else ""
    return [f"{printable(name)}: waits for {printable(what)}{more}" for name, what in waiting[: 1 if more else None]]


def _warning(warned: Warned) -> str:
    """A warning for people; one about an event with its time."""
    from lakemirror.landing_zone.findings import EVENTS
    from lakemirror.status.status import format_time

    when = f" ({format_time(warned.since)[:19]}Z)" if warned.code in EVENTS and warned.since else ""
    return f"warning {warned.code}: {printable(warned.message)}{when}"


def _look(database: Place) -> DatabaseStatus:
    """The status now. Invalid settings are an error of the database."""
    from lakemirror.api import MirroredDatabase
    from lakemirror.status.status_reader import last_status
    from lakemirror.storage.place import storage_of

    try:
        return MirroredDatabase(database).status()
    except LakemirrorError as error:
        if error.code not in ("definition-invalid", "setting-invalid", "client-unknown"):
            raise
        return replace(last_status(storage_of(database)), error_code=error.code, error_message=error.message)


def _json(found: DatabaseStatus, now: float, indent: int | None) -> str:
    from lakemirror.status import status as monitoring

    since = found.not_running_since(now)
    rendered = monitoring.render(found if since is None else replace(found, status="Stopped"))
    shown = {**json.loads(rendered[monitoring.REPLICATOR]), **json.loads(rendered[monitoring.TABLES])}
    by_name = {t.name: t for t in found.tables}
    for row in shown["tables"]:
        table = by_name[row["normalizedTableName"]]
        row["lagSeconds"] = round(table.lag(now), 1)
        if table.freshness:
            row["freshnessMissed"] = table.misses_goal(now)
    if since is not None:
        shown["notRunningSince"] = monitoring.format_time(since)
    return json.dumps(shown, indent=indent)


def _text(found: DatabaseStatus, now: float) -> str:
    lines = [*_engine(found, now), *_tables(found.tables, now)]
    if found.partner is not None:
        source = f"{found.partner.source_type} {found.partner.source_version}".strip()
        by = found.partner.name or "an unnamed partner"
        lines.append(printable(f"published by {by}" + (f" from {source}" if source else "")))
    return "\n".join([*lines, *warning_lines(found)])


def _engine(found: DatabaseStatus, now: float) -> list[str]:
    """Whether the engine runs, since when, and its error."""
    from lakemirror.status.status import format_time

    since = found.not_running_since(now)
    if since is not None:
        lines = [f"engine: not running since {format_time(since)[:19]}Z"]
    elif found.process is not None and found.status != "Stopped":
        started = format_time(found.process.started)[:19]
        process = f"process {found.process.pid} on {printable(found.process.host)}"
        lines = [f"engine: {found.status} since {started}Z ({process})"]
    else:
        lines = ["engine: not running"]
    if found.error_code:
        lines.append(f"{found.error_code}: {printable(found.error_message)}")
    return lines


def _tables(tables: tuple[TableStatus, ...], now: float) -> list[str]:
    from rich.console import Console
    from rich.table import Table

    from lakemirror.status.status import duration_text, format_time, left_out, target_rows

    table = Table(box=None, pad_edge=False)
    for heading in ("table", "state", "position", "pending", "changes", "last apply", "behind", "engine", "waits for"):
        is_text = heading in ("table", "state", "engine", "waits for")
        table.add_column(heading, justify="left" if is_text else "right")
    for t in tables:
        waiting = f"{t.waiting_for.what} since {format_time(t.waiting_for.since)[:19]}Z" if t.waiting_for else ""
        applied = duration_text(max(0.0, now - t.last_sync)) + " ago" if t.last_sync else ""
        behind = duration_text(t.lag(now)) if t.lag(now) else ""
        counts = (str(t.position), str(t.pending_files), str(t.processed_rows))
        engine = f"{t.engine}: {t.engine_reason}" if t.engine_reason else t.engine
        table.add_row(printable(t.name), t.status, *counts, applied, behind, printable(engine), printable(waiting))
    console = Console(width=None if sys.stdout.isatty() else 240, highlight=False, markup=False)
    with console.capture() as capture:
        console.print(table)
    lines = [line.rstrip() for line in capture.get().splitlines()]
    for t in tables:
        for row in target_rows(t)[1:]:
            what = f"{row['status']}, position {row['position']}{', ' * bool(row['errorCode'])}{row['errorCode']}"
            since = f", since {row['since'][:19]}Z" if "since" in row else ""
            lines.append(f"  {printable(t.name)} has {printable(row['name'])} ({row['mode']}): {what}{since}")
        if left := left_out(t):
            lines.append(f"  {printable(t.name)}: {', '.join(f'{what} {count}' for what, count in left.items())}")
    for t in tables:
        if t.misses_goal(now):
            goal = f"its goal is {duration_text(t.freshness)}"
            lines.append(f"{printable(t.name)}: misses its freshness: {duration_text(t.lag(now))} behind, {goal}")
        if t.error_code:
            lines += ["", f"{printable(t.name)}: {t.error_code}: {printable(t.error_message)}", f"  {t.error_hint}"]
    return lines


_MOST_TABLES = 3  # whose warnings of one code are shown one by one
