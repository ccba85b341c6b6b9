"""Checks what this machine lacks to run lakemirror, and how to fix it. Starts no JVM unless requested."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from lakemirror.errors import LakemirrorError
from lakemirror.settings.settings import Settings
from lakemirror.spark_session import jars, java
from lakemirror.spark_session.archive_path import find_archive
from lakemirror.spark_session.jvm import has_pyspark
from lakemirror.spark_session.machine_memory import heap_bytes, memory
from lakemirror.storage.addresses import parse_address
from lakemirror.storage.place import Place, local_path, storage_of

LEAST_MEMORY = 2 * 1024**3
"""Bytes of memory that Spark's default heap of 1 GB and Python need together."""

OPTIONAL = {
    "pyspark": (("3.5.", "4.0.", "4.1.", "4.2.", "4.3."), "engine spark and table features by SQL need it", "spark"),
    "delta-spark": (("4.4.",), "table features by SQL need it", "features"),
}
"""Distributions: what their version must begin with, what they are for, and the extra that installs them."""


@dataclass(frozen=True)
class Check:
    """One check. `hint` says what to do; empty if nothing is needed."""

    name: str
    ok: bool
    detail: str
    hint: str = ""


def examine(
    settings: Settings, database: str | os.PathLike[str] | Place | None = None, *, spark: bool = False
) -> list[Check]:
    """Every check, in the order in which they depend on each other; `spark` starts a session and writes a table."""
    checks = [
        Check("python", True, f"Python {platform.python_version()}"),
        *_packages(),
        _java(),
        _memory(settings),
        _jars(settings),
        _archive(settings),
        writable(jars.cache_folder(settings), name="cache folder"),
    ]
    if database is not None:
        folder = local_path(database)
        checks.append(writable(folder, name="database folder") if folder is not None else store(str(database)))
    if spark:
        checks.append(_spark(settings))
    return checks


def store(database: str) -> Check:
    """Whether a store supports conditional puts, and what Delta Spark needs beside lakemirror there."""
    name = "object store"
    try:
        storage_of(database).probe()
    except LakemirrorError as error:
        return Check(name, False, error.message, error.hint)
    root = parse_address(database)[0]
    told = f"{root}: objects can be put, read and deleted, and a put can be conditional"
    if not root.startswith("s3:"):
        return Check(name, True, told)
    return Check(
        name, True, told,
        "Delta Spark may write these tables only with a log store that commits conditionally: "
        "see docs/how-to/object-stores.md.",
    )  # fmt: skip


def writable(folder: Path, *, name: str) -> Check:
    """Whether files can be made, renamed and removed in a folder, or in the folder it would be made in."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        with tempfile.TemporaryDirectory(prefix=".lakemirror-check-", dir=existing) as place:
            Path(place, "a").write_bytes(b"")
            Path(place, "a").replace(Path(place, "b"))
    except OSError as error:
        return Check(
            name, False, f"{folder}: {error.strerror or error}", f"Give this user the right to write {existing}."
        )
    made = "" if existing == folder else " (not there yet, can be made)"
    return Check(name, True, f"{folder}: can be written{made}")


def _packages() -> Iterator[Check]:
    for name, (beginnings, purpose, extra) in OPTIONAL.items():
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield Check(name, True, f"not installed: {purpose}: pip install 'lakemirror[{extra}]'")
            continue
        if version.startswith(beginnings):
            yield Check(name, True, version)
        else:
            tried = ", ".join(f"{beginning}x" for beginning in beginnings)
            hint = f"In a separate environment, run: pip install 'lakemirror[{extra}]'."
            yield Check(name, False, f"{version}, tried with {tried} only", hint)


def _java() -> Check:
    try:
        found = java.find()
    except LakemirrorError as error:
        if not has_pyspark():
            return Check("java", True, "not found; only Spark needs it")
        return _failed("java", error)
    return Check("java", True, f"Java {found.version} in {found.home}")


def _memory(settings: Settings) -> Check:
    present = memory()
    if present is None:
        return Check("memory", True, "cannot be read on this system")
    wanted = max(LEAST_MEMORY, heap_bytes(settings.driver_memory) * 3 // 2)
    detail = f"{present / 1024**3:.1f} GB"
    if present < wanted:
        hint = "Give the machine or container more memory, or lower driver_memory."
        return Check("memory", False, f"{detail}, less than {wanted / 1024**3:.1f} GB", hint)
    return Check("memory", True, detail)


def _jars(settings: Settings) -> Check:
    try:
        found = jars.find(settings)
    except LakemirrorError as error:
        return _failed("jars", error)
    if not found:
        return Check("jars", True, "none yet: only table features by SQL need Delta's jars, and fetch them")
    return Check("jars", True, ", ".join(path.name for path in found))


def _archive(settings: Settings) -> Check:
    """Never a failure: without the archive Spark only starts more slowly."""
    try:
        path = find_archive(settings, java.find(), ())
    except LakemirrorError:
        path = None
    if path is None:
        return Check(
            "archive",
            True,
            "optional: no class-data archive yet; Spark starts about 3 s slower",
            "Run `python -m lakemirror.spark_session.class_archive` once.",
        )
    return Check("archive", True, path.name)


def _spark(settings: Settings) -> Check:
    from lakemirror.spark_session import session as spark
    from lakemirror.spark_session.python_workers import interpreter_for, running

    try:
        session = spark.start(settings, short=True)
        with running(session, interpreter_for(session)):
            session.range(2).mapInArrow(lambda batches: batches, "id bigint").collect()
        version = session.version
        spark.stop(session)
    except LakemirrorError as error:
        return _failed("spark", error)
    except Exception as error:
        return Check("spark", False, str(error).splitlines()[0], "Look at the newest file in the cache's logs folder.")
    return Check("spark", True, f"Spark {version} ran Python tasks")


def _failed(name: str, error: LakemirrorError) -> Check:
    return Check(name, False, error.message, error.hint)
