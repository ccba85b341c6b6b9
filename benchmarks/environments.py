"""Virtual environments of the peers that need another Spark, or another release of something, than lakemirror does.

name ─▶ venv + pip (whatever registry pip is set to) ─▶ jars by Spark's own resolver ─▶ kept in lakemirror's cache
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from lakemirror.errors import LakemirrorError
from lakemirror.settings.settings import Settings
from lakemirror.spark_session import jars, java

PATIENCE = 900  # seconds for pip, or for the resolver

_RESOLVE = """
import sys
from pyspark.sql import SparkSession
SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1") \\
    .config("spark.jars.packages", sys.argv[1]).config("spark.jars.ivy", sys.argv[2]).getOrCreate().stop()
"""


class Missing(Exception):
    """A peer cannot be had here; the message says why."""


@dataclass(frozen=True)
class Environment:
    """What pip and Spark's resolver are asked for."""

    requirements: tuple[str, ...]
    packages: str = ""  # coordinates of the bundle


ENVIRONMENTS = {
    "iceberg": Environment(
        ("pyspark==4.1.4", "numpy", "pyarrow"), "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"
    ),
    "hudi": Environment(("pyspark==3.5.5", "numpy", "pyarrow"), "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"),
    "pipelines": Environment(
        ("pyspark[pipelines]==4.2.0", "pandas<3", "numpy", "pyarrow"), "io.delta:delta-spark_4.2_2.13:4.4.0"
    ),
    "dlt": Environment(("dlt[deltalake]==1.31.0",)),
    "ducklake": Environment(("duckdb==1.5.5", "duckdb-extension-ducklake==1.5.5", "numpy", "pyarrow")),
}


def ensure(name: str) -> tuple[Path, dict[str, str]]:
    """The Python that runs a peer and the variables it needs; made on the first call. Missing where it cannot be."""
    if not name:
        return Path(sys.executable), _variables(None)
    wanted = ENVIRONMENTS[name]
    place = jars.cache_folder(Settings().with_environment()) / "bench" / name
    python = place / "bin" / "python"
    stamp = place / ".made-for"
    if not stamp.is_file() or stamp.read_text() != repr(wanted):
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        _call(f"the environment {name} could not be made", [sys.executable, "-m", "venv", str(place)])
        what = f"pip could not install {', '.join(wanted.requirements)}"
        _call(what, [str(python), "-m", "pip", "install", "--quiet", *wanted.requirements])
        if wanted.packages:
            what = f"Spark could not fetch {wanted.packages}"
            _call(what, [str(python), "-c", _RESOLVE, wanted.packages, str(place / "ivy")], **_variables(None))
        stamp.write_text(repr(wanted))
    return python, _variables(place / "ivy" / "jars")


def _variables(jars_folder: Path | None) -> dict[str, str]:
    """Java for a plain pyspark, and where the table format's jars lie."""
    variables = {"BENCHMARK_JARS": str(jars_folder or "")}
    try:
        variables["JAVA_HOME"] = str(java.find().home)
    except LakemirrorError as error:
        raise Missing(error.message) from error
    return variables


def _call(what: str, command: list[str], **variables: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | variables
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{what}: {type(error).__name__}") from error
    if done.returncode:
        print(done.stderr[-3000:], file=sys.stderr)
        raise Missing(what)
