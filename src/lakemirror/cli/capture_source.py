"""`lakemirror capture check, status, drop`: what a source needs, how far a capture is, what is kept for it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakemirror.cli.capture import Source, app, options_of, prepare_java
from lakemirror.cli.options import Json, StorageOptions, with_groups
from lakemirror.cli.printable import printable
from lakemirror.errors import LakemirrorError

if TYPE_CHECKING:
    from lakemirror.publisher.capture.source_needs import Need

Landed = Annotated[str, typer.Argument(help="The database that is captured into.", metavar="DATABASE")]


@app.command("check")
@with_groups
def check(
    source: Source,
    insert_only: Annotated[
        list[str] | None, typer.Option(help="A table without a key whose inserts are captured; may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a source still needs, each with the statement that gives it. Nothing is changed.

    Exit code 3 if something is missing; advice alone is exit code 0.

    Example: lakemirror capture check --from postgresql://shop@db/shop --tables 'public.*'
    """
    from lakemirror.cli.capture import Values
    from lakemirror.publisher.capture import source_kinds

    options = options_of(source, Values(insert_only=insert_only))
    prepare_java(options, streams=False)
    found = source_kinds.check(options)
    if as_json:
        print(json.dumps([vars(need) for need in found], indent=1))
    else:
        for need in found:
            print(_line(need))
        if not found:
            typer.echo("nothing is missing", err=True)
    if not all(need.is_advice for need in found):
        raise typer.Exit(3)


@app.command("status")
def status(
    database: Landed,
    source: Annotated[
        str, typer.Option("--from", help="The source, to show also what it keeps back; else that is left out.")
    ] = "",
    storage: StorageOptions = None,
    as_json: Json = False,
) -> None:
    """Show each table of a capture: phase, rows loaded, position, files; with --from also what the source keeps back.

    Exit code 3 if a table has stopped, or the source has deleted log that the capture needs.

    Example: lakemirror capture status shop --from postgresql://shop@db/shop
    """
    from lakemirror.cli.capture_report import source_view
    from lakemirror.publisher import Landing
    from lakemirror.publisher.capture.capture_options import CaptureOptions
    from lakemirror.publisher.capture.capture_status import capture_status

    landing = Landing(database)
    found = capture_status(landing)
    if found is None:
        raise LakemirrorError(
            "database-missing",
            f"no capture publishes to {printable(database)}",
            hint="Begin one: `lakemirror capture DB --from URL`.",
        )
    if source:
        prepare_java(options := CaptureOptions(source), streams=False)
        found = capture_status(landing, source_view(landing, options))
    assert found is not None
    print(json.dumps(found, indent=1) if as_json else _text(found))
    if found["walStatus"] in ("lost", "gone") or any(each["phase"] == "stopped" for each in found["tables"]):
        raise typer.Exit(3)


@app.command("drop")
@with_groups
def drop(
    database: Landed,
    source: Source,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Give back what the source keeps for a capture: its slot and its publication. The tables stay.

    The capture cannot go on afterwards: it begins with new loads (--reload all).

    Example: lakemirror capture drop shop --from postgresql://shop@db/shop
    """
    from lakemirror.publisher.capture import source_kinds

    options = options_of(source)
    if not yes:
        question = f"Drop the slot and the publication {options.slot}? The capture into {database} ends."
        if not sys.stdin.isatty() or not typer.confirm(question, err=True):
            raise LakemirrorError("confirmation-needed", "nothing was dropped: --yes was not given")
    dropped = source_kinds.give_back(options)
    for each in dropped:
        print(f"dropped: {each}")
    if not dropped:
        typer.echo(f"the source has no slot and no publication {options.slot}", err=True)


def _line(need: Need) -> str:
    where = f"{need.table}: " if need.table and not need.what.startswith(need.table) else ""
    return printable(f"{'advice' if need.is_advice else 'needed'}: {where}{need.what}") + f"\n    {need.statement}"


def _text(found: dict[str, Any]) -> str:
    kept = found["logKeptBackBytes"]
    source = "" if kept is None else f", {kept / 2**20:,.1f} MiB of log kept back, log {found['walStatus']}"
    lines = [f"{found['source']} {found['name']}: slot {found['slot']}{source}"]
    wide = max((len(str(each["table"])) for each in found["tables"]), default=0)
    for each in found["tables"]:
        behind = "" if each["secondsBehind"] is None else f", {each['secondsBehind']:.0f} s behind"
        why = f": {each['errorCode']}: {each['errorMessage']}" if each["errorCode"] else ""
        lines.append(
            f"{each['table']:{wide}}  {each['phase']}, {each['rowsLoaded']:,} rows loaded, {each['files']} files since "
            f"the start{behind}{why}"
        )
    return "\n".join(map(printable, lines))


__all__ = ["app"]
