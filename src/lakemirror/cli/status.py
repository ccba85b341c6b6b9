"""`lakemirror status DB`: every table, the engine, and what stands in their way. Starts no JVM."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from lakemirror.cli.engine_options import Database, Json, require
from lakemirror.cli.printable import printable
from lakemirror.errors import LakemirrorError

if TYPE_CHECKING:
    from lakemirror.landing_zone.metadata import Warned
    from lakemirror.status import DatabaseStatus, TableStatus

_MOST_ALIKE = 3  # warnings of one code that are printed one by one


def status(database: Database, as_json: Json = False) -> None:
    """Show every table: state, position, what is pending, what it waits for, the last error. Starts no JVM.

    Example: lakemirror status shop --json
    """
    from lakemirror import status as monitoring
    from lakemirror.database import MirroredDatabase, read_stored
    from lakemirror.storage import LocalStorage

    require(database)
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
