"""Arguments and options that several commands have, and their values."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

from lakemirror.landing_zone.database_folder import database_place, is_database, missing_database
from lakemirror.storage import Place
from lakemirror.storage.connections import give_options


def _give_storage_options(given: list[str] | None) -> list[str] | None:
    """Options of object stores, for every bucket of this process."""
    options = {}
    for each in given or []:
        name, equals, value = each.partition("=")
        if not name or (not equals and name not in os.environ):
            raise typer.BadParameter("give KEY=VALUE, or the KEY of an environment variable")
        options[name] = value if equals else os.environ[name]
    if options:
        give_options("", options)
    return given


def path(text: str) -> Place:
    """The folder, or the place in an object store, that an argument names. `--help` shows this function's name."""
    return database_place(text)


Database = Annotated[
    Any,
    typer.Argument(
        help="The mirrored database: the folder that holds Files/LandingZone, or its address in an object store.",
        parser=path,
        metavar="DATABASE",
    ),
]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        help="An option of the object store, such as AWS_ENDPOINT_URL=http://…; wins over the environment, and "
        "reaches Spark's executors. KEY alone takes the value of that environment variable.",
        callback=_give_storage_options,
        is_eager=True,
        metavar="KEY[=VALUE]",
    ),
]
EngineName = Annotated[
    str | None, typer.Option("--engine", help="Who does the row work: auto, local (no JVM), spark.", metavar="NAME")
]
SparkRemote = Annotated[str | None, typer.Option(help="Spark Connect address, such as sc://host:15002.")]
Master = Annotated[
    str | None, typer.Option(help="Spark master, such as local[2] or spark://host:7077; a Connect address is one too.")
]
SparkSetting = Annotated[list[str] | None, typer.Option("--spark", help="Any spark.* setting, as KEY=VALUE.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def require(database: Place) -> None:
    """LakemirrorError `database-missing` for a folder that is no database: a misspelt path is never created."""
    if not is_database(database):
        raise missing_database(str(database))


def engine_flags(
    engine: EngineName = None,
    master: Master = None,
    spark_remote: SparkRemote = None,
    spark: SparkSetting = None,
    jars: Annotated[str | None, typer.Option(help="Local Delta jars, comma separated.")] = None,
    driver_memory: Annotated[str | None, typer.Option(help="Heap of the local Spark, such as 4g.")] = None,
    parallel: Annotated[int | None, typer.Option(help="How many tables are worked on at once.", min=1)] = None,
) -> dict[str, Any]:
    """The settings that these options give. Its parameters are the options of every command that has them."""
    return {
        "engine": engine,
        "master": master,
        "spark_remote": spark_remote,
        "spark": spark or None,
        "jars": jars,
        "driver_memory": driver_memory,
        "parallel_tables": parallel,
    }


def with_engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of `engine_flags`. It has a parameter `flags`, which gets their settings."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())
    options = list(inspect.signature(engine_flags, eval_str=True).parameters.values())
    first, rest = own[0], [each for each in own[1:] if each.name != "flags"]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        chosen = {each.name: given.pop(each.name) for each in options}
        command(**given, flags=engine_flags(**chosen))

    parameters = [first, *options, *rest]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
