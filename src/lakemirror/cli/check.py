"""`lakemirror check PATH`: what is wrong with a landing zone, for authors of publishers."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import typer

from lakemirror.cli.engine_options import StorageOptions, path
from lakemirror.cli.printable import printable
from lakemirror.errors import LakemirrorError

if TYPE_CHECKING:
    from lakemirror.landing_zone.findings import Finding
    from lakemirror.storage import Place

ATTENTION = 3


def check(
    path: Any = typer.Argument(
        help="A mirrored database, a landing zone, or one table folder.", parser=path, metavar="PATH"
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the findings as JSON."),
    storage: StorageOptions = None,
    settle: float | None = typer.Option(None, help="As the setting: seconds until an unfinished file is unreadable."),
) -> None:
    """Look for what would stop or slow the tables, without applying anything.

    Example: lakemirror check shop/Files/LandingZone/orders
    """
    try:
        findings = _find(path, settle)
    except LakemirrorError as error:
        typer.echo(f"{error}\n  {error.hint}", err=True)
        raise typer.Exit(error.exit_code) from None
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(each) for each in findings], indent=1))
    else:
        for each in findings:
            typer.echo(_text(each))
        typer.echo(_summary(findings), err=True)
    raise typer.Exit(ATTENTION if findings else 0)


def _find(path: Place, settle: float | None) -> list[Finding]:
    from rich.console import Console
    from rich.progress import Progress

    from lakemirror.lint import check as find

    console = Console(stderr=True)
    if not console.is_terminal:
        return find(path, settle=settle)
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("checking", total=None)
        return find(path, settle=settle, progress=lambda done, total: bar.update(task, completed=done, total=total))


def _text(finding: Finding) -> str:
    """Two lines: what and where; what helps."""
    place = finding.file or finding.table
    row = f", row {finding.row}" if finding.row is not None else ""
    what = printable(f"{finding.severity}: {place}{row}: {finding.message} [{finding.code}]")
    return f"{what}\n    {finding.advice}"


def _summary(findings: list[Finding]) -> str:
    if not findings:
        return "nothing found: all is well"
    counts = [(sum(each.severity == kind for each in findings), kind) for kind in ("error", "warning", "advice")]
    return ", ".join(
        f"{count} {kind}{'s' if count > 1 and kind != 'advice' else ''}" for count, kind in counts if count
    )


__all__ = ["check"]
