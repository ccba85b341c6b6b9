"""One act on every table that a path names, as a command shows it: progress, results or one summary, a report."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemirror.cli.options import Json
from lakemirror.cli.printable import printable
from lakemirror.cli.progress import progress_bars
from lakemirror.errors import LakemirrorError
from lakemirror.storage.place import Place, database_place, place

if TYPE_CHECKING:
    from lakemirror.features.fleet import Outcome, State

Named = Annotated[
    str, typer.Option("--table", help="In place of the path: a name in the catalog of your Spark session.")
]


@dataclass(frozen=True)
class Selection:
    """Options: which tables below a path are chosen, and how the results are shown."""

    include: Annotated[
        list[str] | None, typer.Option(help="Only tables whose path below Tables/ fits, such as 'sales/*'; repeatable.")
    ] = None
    exclude: Annotated[list[str] | None, typer.Option(help="Not the tables whose path fits; repeatable.")] = None
    report: Annotated[str, typer.Option(help="Write every table's outcome to this .csv or .json file.")] = ""
    as_json: Json = False
    named: Named = ""

    def tables(self, path: str) -> list[Place]:
        """Those tables; `table-unreadable` where there is none."""
        from lakemirror.features.fleet import check_report, chosen
        from lakemirror.features.many import tables_of

        if self.report:
            check_report(Path(self.report))
        path = str(database_place(path))
        top = place(path).absolute()
        top = top / "Tables" if (top / "Tables").is_dir() else top
        found = chosen(tables_of(path), top, self.include or (), self.exclude or ())
        if not found:
            raise LakemirrorError("table-unreadable", f"--include and --exclude leave no table of {path}")
        return found


def each_table(
    tables: Sequence[Place],
    act: Callable[[Place], Any],
    text: Callable[[Any], None],
    selection: Selection,
    parallel: int,
    *,
    judge: Callable[[Any], State] = lambda _: "nothing to do",
    summed: bool = False,
) -> list[Any]:
    """Runs an act on every table, prints the results, and ends with the worst exit code.

    `summed`: of several tables, one summary is printed instead of each result.
    """
    from lakemirror.features.fleet import act_on_each, report

    outcomes: list[Outcome] = []
    try:
        with progress_bars() as show:

            def done(outcome: Outcome) -> None:
                outcomes.append(outcome)
                show("tables", len(outcomes), len(tables))

            outcomes = act_on_each(tables, act, judge, parallel, done)
    finally:
        if selection.report:
            report(outcomes, Path(selection.report))
    _print(outcomes, text, selection.as_json, summed and len(tables) > 1)
    if codes := [outcome.exit_code for outcome in outcomes if outcome.exit_code]:
        raise typer.Exit(max(codes))
    return [outcome.result for outcome in outcomes if outcome.result is not None]


def _print(outcomes: list[Outcome], text: Callable[[Any], None], as_json: bool, summed: bool) -> None:
    """Prints results on stdout and errors on stderr; `summed`: a summary instead."""
    from lakemirror.features.fleet import summary
    from lakemirror.features.plan import Plan

    for outcome in [] if summed else outcomes:
        if outcome.result is None:
            said = printable(f"{outcome.table}: {outcome.code}: {outcome.message}")
            print(f"{said}\n  {outcome.hint}", file=sys.stderr)
        elif not as_json:
            if len(outcomes) > 1 and not isinstance(outcome.result, Plan):
                print(f"{outcome.table}:")
            text(outcome.result)
    if as_json:
        shown = [{"table": outcome.table, "state": outcome.state, **_json(outcome)} for outcome in outcomes]
        print(json.dumps(shown, indent=1))
    if summed:
        for line in summary(outcomes):
            print(printable(line), file=sys.stderr if as_json else sys.stdout)


def _json(outcome: Outcome) -> dict[str, Any]:
    result = outcome.result
    if result is None:
        return {"error": {"code": outcome.code, "message": outcome.message, "hint": outcome.hint}}
    if isinstance(result, list):
        return {"clients": [verdict.to_json() for verdict in result]}
    return dict(result) if isinstance(result, dict) else dict(result.to_json())
