"""Arguments and options that several commands have, and their values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lakemirror.landing_zone.database_folder import is_database, local_folder, missing_database

Database = Annotated[
    Path,
    typer.Argument(
        help="The mirrored database: the folder that holds Files/LandingZone.", parser=local_folder, metavar="DATABASE"
    ),
]
EngineName = Annotated[
    str | None, typer.Option("--engine", help="Who does the row work: auto, local (no JVM), spark.", metavar="NAME")
]
SparkRemote = Annotated[str | None, typer.Option(help="Spark Connect address, such as sc://host:15002.")]
Master = Annotated[str | None, typer.Option(help="Spark master, such as local[2] or spark://host:7077.")]
SparkSetting = Annotated[list[str] | None, typer.Option("--spark", help="Any spark.* setting, as KEY=VALUE.")]
Jars = Annotated[str | None, typer.Option(help="Local Delta jars, comma separated.")]
Memory = Annotated[str | None, typer.Option(help="Heap of the local Spark, such as 4g.")]
Parallel = Annotated[int | None, typer.Option(help="How many tables are applied at once.", min=1)]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def require(database: Path) -> None:
    """LakemirrorError `database-missing` for a folder that is no database: a misspelt path is never made."""
    if not is_database(database):
        raise missing_database(str(database))


def engine_flags(
    engine: str | None,
    master: str | None,
    spark_remote: str | None,
    spark: list[str] | None,
    jars: str | None,
    driver_memory: str | None,
    parallel: int | None,
) -> dict[str, Any]:
    return {
        "engine": engine,
        "master": master,
        "spark_remote": spark_remote,
        "spark": spark or None,
        "jars": jars,
        "driver_memory": driver_memory,
        "parallel_tables": parallel,
    }
