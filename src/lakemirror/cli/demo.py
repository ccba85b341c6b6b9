"""`lakemirror demo`: a year of flights through a landing zone into Delta tables, here, in a store or by the service.

The program itself is `examples/flights`, which the wheel installs as `share/lakemirror/examples/flights`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from lakemirror.cli.narration import log_to_stderr
from lakemirror.cli.options import SparkOptions, StorageOptions, with_groups
from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.storage.place import database_place, local_path

BANK_SECONDS = 30


@dataclass(frozen=True)
class Another:
    """What the demo shows instead: the service, an object store, a database that is captured."""

    serve: Annotated[
        bool,
        typer.Option(
            "--serve", help="Start the service on loopback and publish through it; its page shows the tables."
        ),
    ] = False
    on: Annotated[
        str,
        typer.Option("--on", help="Mirror in an object store instead, such as s3://bucket/demo.", metavar="ADDRESS"),
    ] = ""
    postgres: Annotated[
        bool,
        typer.Option(
            "--postgres", help="Mirror a PostgreSQL database instead, in which pgbench moves money for half a minute."
        ),
    ] = False
    port: Annotated[int, typer.Option(help="With --serve: the port to listen on; 0: any.", min=0, max=65535)] = 8443


@with_groups
def demo(
    spark: SparkOptions,
    another: Another,
    into: Annotated[Path, typer.Option(help="Where the demo's database is made.")] = Path("demo-output"),
    days: Annotated[int | None, typer.Option(help="Only the first days of the year.", min=1, max=365)] = None,
    storage: StorageOptions = None,
) -> None:
    """Mirror a year of real flights, and check the tables against the source.

    Example: lakemirror demo

    Example: lakemirror demo --serve

    Example: lakemirror demo --on s3://lake/demo --days 14

    Example: lakemirror demo --postgres
    """
    log_to_stderr(False)
    sys.path.append(str(_examples()))
    if another.on:
        from flights.in_store import mirror_in_store

        address = database_place(another.on)
        if local_path(address) is not None:
            raise LakemirrorError("setting-invalid", f"--on {another.on} is no address of an object store")
        is_right = mirror_in_store(address, days, **({"engine": spark.engine} if spark.engine else {}))
    elif another.postgres:
        from flights.bank_captured import mirror_bank

        is_right = mirror_bank(into, BANK_SECONDS)
    elif another.serve:
        from flights.served import serve_flights

        is_right = serve_flights(into, days, another.port)
    else:
        from flights.performance import perform

        is_right = perform(into, days, master=spark.master, spark=spark.spark or None)
    if not is_right:
        raise typer.Exit(1)


def _examples() -> Path:
    """The folder that holds `flights`: of this clone, or of the installed wheel. SetupError `demo-data-missing`."""
    of_clone = Path(__file__).parents[3] / "examples"
    if (of_clone / "flights").is_dir():
        return of_clone
    for file in metadata.files("lakemirror") or ():
        if file.match("examples/flights/__init__.py"):
            return Path(str(file.locate())).resolve().parents[1]
    raise SetupError("demo-data-missing", "examples/flights is not installed")
