"""`lakemirror demo`: a year of flights through a landing zone into Delta tables, here, in a store or by the service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakemirror.cli.engine_options import EngineName, Master, SparkRemote, SparkSetting, StorageOptions
from lakemirror.cli.narration import log_to_stderr
from lakemirror.errors import LakemirrorError
from lakemirror.storage.place import database_place, local_path


def demo(
    into: Annotated[Path, typer.Option(help="Where the demo's database is made.")] = Path("demo-output"),
    days: Annotated[int | None, typer.Option(help="Only the first days of the year.", min=1, max=365)] = None,
    engine: EngineName = None,
    master: Master = None,
    spark_remote: SparkRemote = None,
    spark: SparkSetting = None,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve", help="Start the service on loopback and publish through it; its page shows the tables."
        ),
    ] = False,
    on: Annotated[
        str,
        typer.Option("--on", help="Mirror in an object store instead, such as s3://bucket/demo.", metavar="ADDRESS"),
    ] = "",
    storage: StorageOptions = None,
    port: Annotated[int, typer.Option(help="With --serve: the port to listen on; 0: any.", min=0, max=65535)] = 8443,
) -> None:
    """Mirror a year of real flights, and check the tables against the source.

    Example: lakemirror demo

    Example: lakemirror demo --serve

    Example: lakemirror demo --on s3://lake/demo --days 14
    """
    log_to_stderr(False)
    if on:
        from lakemirror.demo.in_store import mirror_in_store

        found = database_place(on)
        if local_path(found) is not None:
            raise LakemirrorError("setting-invalid", f"--on {on} is no address of an object store")
        if not mirror_in_store(found, days, **({"engine": engine} if engine else {})):
            raise typer.Exit(1)
        return
    if serve:
        from lakemirror.demo.served import serve_flights

        if not serve_flights(into, days, port):
            raise typer.Exit(1)
        return
    from lakemirror.demo.performance import perform

    if not perform(into, days, master=master, spark=spark or None):
        raise typer.Exit(1)
