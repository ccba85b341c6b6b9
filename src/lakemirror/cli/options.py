"""Arguments and options that several commands have, and groups of options.

A group is a frozen dataclass whose fields are options. A command takes it as one parameter:

    def sync(database: Database, engine: EngineOptions, as_json: Json = False) -> None: ...
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any

import typer

from lakemirror.landing_zone.database_folder import is_database, missing_database
from lakemirror.storage import Place
from lakemirror.storage.connections import give_options
from lakemirror.storage.place import database_place


def with_groups(function: Callable[..., None]) -> Callable[..., None]:
    """The function as a command: the fields of its groups of options are options of the command."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type[Any], list[str]]] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        if isinstance(parameter.annotation, type) and dataclasses.is_dataclass(parameter.annotation):
            options = inspect.signature(parameter.annotation, eval_str=True).parameters
            groups[parameter.name] = parameter.annotation, list(options)
            parameters += options.values()
        else:
            parameters.append(parameter)

    @functools.wraps(function)
    def run(**given: Any) -> None:
        for name, (group, options) in groups.items():
            given[name] = group(**{option: given.pop(option) for option in options})
        function(**given)

    by_name = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    run.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


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
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@dataclasses.dataclass(frozen=True)
class SessionOptions:
    """Which Spark is used."""

    master: Annotated[
        str | None,
        typer.Option(help="Spark master, such as local[2] or spark://host:7077; a Connect address is one too."),
    ] = None
    spark_remote: Annotated[str | None, typer.Option(help="Spark Connect address, such as sc://host:15002.")] = None
    spark: Annotated[list[str] | None, typer.Option("--spark", help="Any spark.* setting, as KEY=VALUE.")] = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that are given, by name."""
        return {name: value for name, value in vars(self).items() if value not in (None, [])}


@dataclasses.dataclass(frozen=True)
class SparkOptions(SessionOptions):
    """Which engine does the row work, and which Spark it may use."""

    engine: Annotated[
        str | None, typer.Option("--engine", help="Who does the row work: auto, local (no JVM), spark.", metavar="NAME")
    ] = None


@dataclasses.dataclass(frozen=True)
class EngineOptions(SparkOptions):
    """The settings of `sync`, `run` and `config` as options: each field has the name of its setting."""

    jars: Annotated[str | None, typer.Option(help="Local Delta jars, comma separated.")] = None
    driver_memory: Annotated[str | None, typer.Option(help="Heap of the local Spark, such as 4g.")] = None
    parallel_tables: Annotated[
        int | None, typer.Option("--parallel", help="How many tables are worked on at once.", min=1)
    ] = None


def require(database: Place) -> None:
    """LakemirrorError `database-missing` for a folder that is no database: a misspelt path is never created."""
    if not is_database(database):
        raise missing_database(str(database))
