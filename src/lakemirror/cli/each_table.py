"""One act on every table that a path names, as a command shows it: progress, results or one summary, a report."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from lakemirror.cli.printable import printable
from lakemirror.errors import LakemirrorError
from lakemirror.storage.place import Place, database_place, place

if TYPE_CHECKING:
    from lakemirror.features.fleet import Outcome, State


def each_table(
    table: str,
    act: Callable[[Place], Any],
    text: Callable[[Any], None],
    as_json: bool,
    parallel: int,
    *,
    of: Selection | None = None,
    judge: Callable[[Any], State] = lambda _: "nothing to do",
    summed: bool = False,
) -> list[Any]:
    """Runs an act on every table that a path names, prints the results, and ends with the worst exit code.

    `summed`: of several tables, one summary is printed instead of each result.
    """
    from lakemirror.features.fleet import act_on_each, report, summary
    from lakemirror.features.plan import Plan

    of = of or Selection()
    try:
        tables = of.tables(table)
    except LakemirrorError as error:
        fail(error)
    found: list[Outcome] = []
    try:
        with _bar(len(tables)) as advance:

            def done(outcome: Outcome) -> None:
                found.append(outcome)
                advance()

            found = act_on_each(tables, act, judge, parallel, done)
    finally:
        if of.report:
            report(found, Path(of.report))
    summed = summed and len(tables) > 1
    for outcome in [] if summed else found:
        if outcome.result is None:
            said = printable(f"{outcome.table}: {outcome.code}: {outcome.message}")
            print(f"{said}\n  {outcome.hint}", file=sys.stderr)
        elif not as_json:
            if len(found) > 1 and not isinstance(outcome.result, Plan):
                print(f"{outcome.table}:")
            text(outcome.result)
    if as_json:
        print(json.dumps([{"table": each.table, "state": each.state, **_json(each)} for each in found], indent=1))
    if summed:
        for line in summary(found):
            print(printable(line), file=sys.stderr if as_json else sys.stdout)
    good = [each.result for each in found if each.result is not None]
    codes = [each.exit_code for each in found if each.exit_code]
    codes += [3 for result in good if isinstance(result, Plan) and result.obstacles]
    if codes:
        raise typer.Exit(max(codes))
    return good


@contextmanager
def _bar(total: int) -> Iterator[Callable[[], None]]:
    """A progress bar over many tables, on a terminal; else nothing."""
    if total < 2 or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    with Progress(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("tables", total=total)
        yield lambda: bar.advance(task)


@dataclass(frozen=True)
class Selection:
    """Which tables below a path are chosen, and where the report goes."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    report: str = ""

    def tables(self, path: str) -> list[Place]:
        """Those tables; `table-unreadable` where there is none."""
        from lakemirror.features.fleet import check_report, chosen
        from lakemirror.features.many import tables_of

        if self.report:
            check_report(Path(self.report))
        path = str(database_place(path))
        top = place(path).absolute()
        top = top / "Tables" if (top / "Tables").is_dir() else top
        found = chosen(tables_of(path), top, self.include, self.exclude)
        if not found:
            raise LakemirrorError("table-unreadable", f"--include and --exclude leave no table of {path}")
        return found


def _json(outcome: Outcome) -> dict[str, Any]:
    result = outcome.result
    if result is None:
        return {"error": {"code": outcome.code, "message": outcome.message, "hint": outcome.hint}}
    if isinstance(result, list):
        return {"clients": [verdict.to_json() for verdict in result]}
    return dict(result) if isinstance(result, dict) else dict(result.to_json())


def fail(error: LakemirrorError) -> NoReturn:
    """Ends the command with an error's message, hint and exit code."""
    print(f"{error}\n  {error.hint}", file=sys.stderr)
    raise typer.Exit(error.exit_code)


__all__ = ["Selection", "each_table", "fail"]
