"""The two jars of Delta, fetched once into the cache: for table features by SQL. Mirroring needs none.

Spark fetches them by their coordinates, from the repositories it is configured for, into a separate folder. Other
dependencies of Delta are in pyspark already. On a machine without a network, the setting `jars` names local jars.

    python -m lakemirror.spark_session.jars        fetches them, or says that they are there
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.settings.settings import ProcessSettings, Settings
from lakemirror.spark_session import java, jvm
from lakemirror.storage.private_files import locked

log = logging.getLogger(__name__)

DELTA_VERSION = "4.4.0"
SPARK_VERSION = "4.2"  # that these jars are for


@dataclass(frozen=True)
class Jar:
    """One jar: its coordinates, size in bytes and SHA-256 sum."""

    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def fetched_name(self) -> str:
        """The file name under which Spark retrieves it."""
        return f"{self.group}_{self.name}"


DELTA_JARS = (
    Jar(
        "io.delta",
        "delta-spark_4.2_2.13",
        DELTA_VERSION,
        9515916,
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar(
        "io.delta",
        "delta-storage",
        DELTA_VERSION,
        113863,
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
)

# Dependencies of Delta that pyspark already has, or that nothing here calls.
IN_SPARK_ALREADY = (
    "com.fasterxml.jackson.*:*",
    "com.github.luben:*",
    "com.google.code.findbugs:*",
    "commons-pool:*",
    "io.airlift:*",
    "io.delta:delta-kernel-*",
    "io.unitycatalog:*",
    "javax.annotation:*",
    "org.antlr:*",
    "org.apache.hadoop:*",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    "org.apache.spark:*",
    "org.locationtech.jts:*",
    "org.openapitools:*",
    "org.roaringbitmap:*",
    "org.scala-lang:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)


def ensure(settings: ProcessSettings) -> tuple[Path, ...]:
    """The jars for the class path: those that the setting names, or those in the cache; fetched now if needed.

    SetupError `jars-missing` if a named jar does not exist or nothing can be fetched.
    """
    return named(settings.jars) or cached(settings) or _fetch(settings)


def find(settings: ProcessSettings) -> tuple[Path, ...]:
    """The jars as `ensure` returns them, but without fetching: empty if they are not in the cache."""
    return named(settings.jars) or cached(settings)


def named(jars: str) -> tuple[Path, ...]:
    """The jars of a comma-separated list, empty for an empty one; SetupError `jars-missing` names an absent one."""
    paths = tuple(Path(name.strip()).expanduser().absolute() for name in jars.split(",") if name.strip())
    for path in paths:
        if not path.is_file():
            raise SetupError("jars-missing", f"the jar {path} named by the setting jars is not there")
    return paths


def cached(settings: ProcessSettings) -> tuple[Path, ...]:
    """The two jars in the cache; empty if one is missing or incomplete."""
    folder = _folder(settings)
    paths = tuple(folder / jar.name for jar in DELTA_JARS)
    try:
        whole = all(path.stat().st_size == jar.size for path, jar in zip(paths, DELTA_JARS, strict=True))
    except OSError:
        return ()
    return paths if whole else ()


def cache_folder(settings: ProcessSettings) -> Path:
    """The folder for everything that is fetched or made once."""
    return settings.cache_folder


def _folder(settings: ProcessSettings) -> Path:
    return (cache_folder(settings) / "jars").resolve()  # the name of a class-data archive depends on the real place


def _fetch(settings: ProcessSettings) -> tuple[Path, ...]:
    folder = _folder(settings)
    try:
        with _lock(folder):
            if not cached(settings):  # another process may have fetched them while this one waited
                log.info("fetching the Delta jars into %s, once", folder)
                _fetch_into(folder, settings)
    except OSError as error:
        raise SetupError(
            "jars-missing", f"the Delta jars cannot be put into {folder}: {error}", hint="Set a cache_dir to write to."
        ) from error
    return cached(settings)


def _fetch_into(folder: Path, settings: ProcessSettings) -> None:
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as place:
        options = {key: value for key, value in settings.spark if key.startswith("spark.jars.")}  # a mirror, perhaps
        options |= {
            "spark.jars.packages": ",".join(jar.coordinates for jar in DELTA_JARS),
            "spark.jars.excludes": ",".join(IN_SPARK_ALREADY),
            "spark.jars.ivy": place,
        }
        try:
            jvm.end(jvm.launch(options, java.find()))
        except jvm.StartFailed as error:
            raise SetupError(
                "jars-missing", f"the Delta jars are not in the cache and could not be fetched: {error.reason}"
            ) from error
        for jar in DELTA_JARS:
            path = Path(place, "jars", jar.fetched_name)
            if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != jar.sha256:
                raise SetupError("jars-missing", f"what was fetched as {jar.coordinates} is not the jar expected")
        for jar in DELTA_JARS:
            Path(place, "jars", jar.fetched_name).replace(folder / jar.name)


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"):
        yield


def _main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        for path in ensure(Settings().with_environment()):
            print(path)
    except LakemirrorError as error:
        print(f"{error}\n{error.hint}", file=sys.stderr)
        return error.exit_code
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(_main())
