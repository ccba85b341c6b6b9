"""`lakemirror sync DB`: one pass over everything that is there now."""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING, Any

import typer

from lakemirror.cli.engine_options import (
    Database,
    Json,
    StorageOptions,
    Verbose,
    require,
    with_engine_options,
)
from lakemirror.cli.narration import counted, log_to_stderr
from lakemirror.cli.printable import printable, say
from lakemirror.cli.start import importing
from lakemirror.cli.status import waiting_lines, warning_lines
from lakemirror.cli.supervised import leave, supervised
from lakemirror.errors import LakemirrorError

if TYPE_CHECKING:
    from lakemirror.api import SyncResult
    from lakemirror.landing_zone.zone import TableName
    from lakemirror.mirror.apply import Applied
    from lakemirror.status import DatabaseStatus

_SHORT = 1.0  # seconds that the command may build key indexes after a shorter pass


@with_engine_options
def sync(
    database: Database,
    flags: dict[str, Any],
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
        from lakemirror.api import MirroredDatabase, read_stored
        from lakemirror.attention import hint_for

    log_to_stderr(verbose)
    require(database)
    opened = MirroredDatabase(database, **flags)

    def one_pass(stop: threading.Event) -> SyncResult:
        result = opened.sync(progress, stop)
        opened.index_keys(max(_SHORT, result.seconds), stop)
        return result

    with _Progress(opened.storage) as progress:
        result, number = supervised(one_pass)
    if result is None:
        raise typer.Exit(1)
    if as_json:
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
            name: {"code": each.code, "message": each.message, "file": each.file, "hint": hint_for(each.code)}
            for name, each in sorted(result.attention.items())
        }
        found = {"tables": tables, "dropped": result.dropped, "attention": attention}
        print(json.dumps({**found, "seconds": round(result.seconds, 3)}, indent=1))
    else:
        for name, t in sorted(result.tables.items()):
            if t.commits:
                done = f"{counted(t.files, 'file')}, {counted(t.rows, 'change')}, {counted(t.commits, 'commit')}"
                print(f"{printable(name)}: {done}")
            if t.error is not None:
                print(f"{printable(name)}: {printable(str(t.error))}\n  {t.error.hint}")
        for target in result.dropped:
            print(f"{printable(target)}: dropped, its folder is gone (kept under Files/_DroppedTables)")
        _say_what_is_left(read_stored(opened.storage), something=bool(result.tables or result.dropped))
        for name, each in sorted(result.attention.items()):
            say(f"{printable(name)} needs attention: {each.code}\n  {hint_for(each.code)}")
    if number:
        leave(128 + number)
    if result.failed:
        raise typer.Exit(max(1, *(e.exit_code for e in result.failed.values())))
    if result.attention:
        raise typer.Exit(3)


def _say_what_is_left(stored: DatabaseStatus, something: bool) -> None:
    """Says on stderr what tables wait for and the warnings, or that there was nothing to do."""
    lines = [*waiting_lines(stored), *warning_lines(stored)]
    for line in lines or ([] if something else ["nothing to apply"]):
        say(line)


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


def _error_json(error: LakemirrorError) -> dict[str, Any]:
    return {
        "code": error.code, "message": error.message, "hint": error.hint, "file": error.file, "row": error.row,
        "column": error.column,
    }  # fmt: skip
