"""`lakemirror check PATH`: what is wrong with a landing zone, for authors of publishers."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemirror.cli.options import Json, StorageOptions, path
from lakemirror.cli.printable import printable
from lakemirror.cli.progress import progress_bars
from lakemirror.errors import counted

if TYPE_CHECKING:
    from lakemirror.landing_zone.findings import Finding

ATTENTION = 3


Path = Annotated[
    Any,
    typer.Argument(help="A mirrored database, a landing zone, or one table folder.", parser=path, metavar="PATH"),
]
Settle = Annotated[float | None, typer.Option(help="As the setting: seconds until an unfinished file is unreadable.")]


def check(path: Path, as_json: Json = False, storage: StorageOptions = None, settle: Settle = None) -> None:
    """Look for what would stop or slow the tables, without applying anything.

    Example: lakemirror check shop/Files/LandingZone/orders
    """
    from lakemirror.lint import check as findings_of

    with progress_bars() as show:
        findings = findings_of(path, settle=settle, progress=lambda done, total: show("checking", done, total))
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(each) for each in findings], indent=1))
    else:
        for each in findings:
            typer.echo(_text(each))
        typer.echo(_summary(findings), err=True)
    raise typer.Exit(ATTENTION if findings else 0)


def _text(finding: Finding) -> str:
    """Two lines: what and where; what helps."""
    place = finding.file or finding.table
    where = place if finding.row is None else f"{place}, row {finding.row}"
    said = finding.message if finding.message.startswith(where) else f"{where}: {finding.message}"
    what = printable(f"{finding.severity}: {said} [{finding.code}]")
    return f"{what}\n    {finding.advice}"


def _summary(findings: list[Finding]) -> str:
    if not findings:
        return "nothing found: all is well"
    counts = [(sum(each.severity == kind for each in findings), kind) for kind in ("error", "warning", "advice")]
    return ", ".join(f"{count} {kind}" if kind == "advice" else counted(count, kind) for count, kind in counts if count)
