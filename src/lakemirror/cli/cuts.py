"""`lakemirror cuts DB [show last|N]`: which versions of all tables are one consistent picture. Starts no JVM."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Annotated

import typer

from lakemirror.cli.options import Database, Json, StorageOptions, require
from lakemirror.cli.printable import printable

if TYPE_CHECKING:
    from lakemirror.mirror.cut_versions import Cut

Show = Annotated[str, typer.Argument(metavar="[show]", help="`show`: one cut, and the lines that read its versions.")]
Which = Annotated[str, typer.Argument(metavar="[last|N]", help="The newest complete cut, or that of a number.")]
Most = Annotated[int, typer.Option("--limit", help="The newest so many.", min=1)]


def cuts(
    database: Database,
    show: Show = "",
    which: Which = "last",
    limit: Most = 20,
    storage: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Show the cuts that publishers declared, newest first: which version of each table is one picture of all.

    Example: lakemirror cuts shop

    Example: lakemirror cuts shop show last
    """
    from lakemirror.api import MirroredDatabase

    if show not in ("", "show"):
        raise typer.BadParameter(f"{show!r} is not `show`")
    require(database)
    opened = MirroredDatabase(database)
    if show:
        _print_one(opened.cut(which), as_json=as_json)
        return
    found = list(itertools.islice(opened.cuts(), limit))
    if as_json:
        typer.echo(json.dumps([cut.to_json() for cut in found], indent=1))
        return
    for cut in found:
        typer.echo(printable(f"{cut.number:>6}  {cut.time:24}  {_state(cut)}"))
    if not found:
        typer.echo("no cut yet: a publisher makes them, by `Landing.cut()` or a manifest in _cuts", err=True)


def _print_one(cut: Cut, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(cut.to_json(), indent=1))
        return
    typer.echo(printable(f"cut {cut.number}  {cut.time}  {_state(cut)}"))
    width = max((len(table.name) for table in cut.tables), default=0)
    for table in cut.tables:
        what = f"version {table.version}" if table.version is not None else table.reason or "no file yet"
        typer.echo(printable(f"{table.name:{width}}  {what}"))
    for name, lines in cut.snippets().items():
        for tool, code in lines.items():
            typer.echo(printable(f"\n# {tool}: {name}") + f"\n{code}")


def _state(cut: Cut) -> str:
    if cut.error is not None:
        return str(cut.error)
    if cut.is_complete:
        reread = f", {cut.reread} values may be newer" if cut.reread else ""
        return f"complete, {len(cut.versions)} tables{reread}"
    reasons = [f"{name}: {reason}" for name, reason in cut.reasons.items()]
    more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return f"{'void' if cut.is_void else 'waits'}: {'; '.join(reasons[:3])}{more}"
