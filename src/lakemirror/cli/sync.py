"""`lakemirror sync DB`: one pass over everything that is there now."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from lakemirror.cli.narration import log_to_stderr
from lakemirror.cli.options import Database, EngineOptions, Json, StorageOptions, Verbose, require, with_groups
from lakemirror.cli.printable import printable, say
from lakemirror.cli.progress import progress_bars
from lakemirror.cli.start import importing
from lakemirror.cli.status import waiting_lines, warning_lines
from lakemirror.cli.supervised import leave, supervised
from lakemirror.errors import LakemirrorError, counted

if TYPE_CHECKING:
    from lakemirror.api import SyncResult
    from lakemirror.landing_zone.zone import TableName
    from lakemirror.mirror.apply import Applied
    from lakemirror.status.status import DatabaseStatus

_SHORT = 1.0  # seconds that the command may build key indexes after a shorter pass


@with_groups
def sync(
    database: Database,
    engine: EngineOptions,
    storage: StorageOptions = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Apply all files that are there, once. Prints a line for each table that changed, waits, warns or has an error.

    If large tables lack a key index, the command builds it afterwards, for at most as long as the pass took or one
    second: later passes are faster.

    Exit code 3 if a table has an error, or needs a person although it has none: every file of its folder is ignored.

    Example: lakemirror sync shop
    """
    with importing():
        from lakemirror.api import MirroredDatabase
        from lakemirror.status.status_reader import last_status

    log_to_stderr(verbose)
    require(database)
    opened = MirroredDatabase(database, **engine.settings)

    def one_pass(stop: threading.Event) -> SyncResult:
        with progress_bars() as show:
            result = opened.sync(_Progress(show), stop)
        opened.index_keys(max(_SHORT, result.seconds), stop)
        return result

    result, number = supervised(one_pass)
    if result is None:
        raise typer.Exit(1)
    if as_json:
        _print_json(result)
    else:
        _print_text(result, last_status(opened.storage))
    if number:
        leave(128 + number)
    if result.failed:
        raise typer.Exit(max(1, *(e.exit_code for e in result.failed.values())))
    if result.attention:
        raise typer.Exit(3)


def _print_json(result: SyncResult) -> None:
    from lakemirror.status.status import hint_for

    for warned in result.warnings:
        say(f"warning {warned.code}: {printable(warned.message)}")
    tables = {
        name: {
            "commits": t.commits, "files": t.files, "rows": t.rows, "bytes": t.bytes,
            "error": _error_json(t.error) if t.error else None,
        }
        for name, t in sorted(result.tables.items())
    }  # fmt: skip
    attention = {
        name: {"code": warned.code, "message": warned.message, "file": warned.file, "hint": hint_for(warned.code)}
        for name, warned in sorted(result.attention.items())
    }
    shown = {"tables": tables, "dropped": result.dropped, "attention": attention, "seconds": round(result.seconds, 3)}
    print(json.dumps(shown, indent=1))


def _print_text(result: SyncResult, stored: DatabaseStatus) -> None:
    """What was applied and what failed on stdout; on stderr what tables wait for, warnings, and what needs a person."""
    from lakemirror.status.status import hint_for

    for name, t in sorted(result.tables.items()):
        if t.commits:
            done = f"{counted(t.files, 'file')}, {counted(t.rows, 'change')}, {counted(t.commits, 'commit')}"
            print(f"{printable(name)}: {done}")
        if t.error is not None:
            print(f"{printable(name)}: {printable(str(t.error))}\n  {t.error.hint}")
    for target in result.dropped:
        print(f"{printable(target)}: dropped, its folder is gone (kept under Files/_DroppedTables)")
    lines = [*waiting_lines(stored), *warning_lines(stored)]
    for line in lines or ([] if result.tables or result.dropped else ["nothing to apply"]):
        say(line)
    for name, warned in sorted(result.attention.items()):
        say(f"{printable(name)} needs attention: {warned.code}\n  {hint_for(warned.code)}")


class _Progress:
    """Observes a pass, and shows how many of its change files are applied."""

    def __init__(self, show: Callable[[str, int, int | None], None]) -> None:
        self._show = show
        self._done = 0
        self._total: int | None = None
        self._lock = threading.Lock()

    def found(self, files: int) -> None:
        self._total = files

    def applied(self, name: TableName, applied: Applied) -> None:
        with self._lock:
            self._done += len(applied.batch.files)
            self._show("applying", self._done, self._total)

    def failed(self, name: TableName, error: LakemirrorError) -> None:
        pass

    def dropped(self, target: str) -> None:
        pass


def _error_json(error: LakemirrorError) -> dict[str, Any]:
    return {
        "code": error.code, "message": error.message, "hint": error.hint, "file": error.file, "row": error.row,
        "column": error.column,
    }  # fmt: skip
