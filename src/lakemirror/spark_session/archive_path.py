"""Where the class-data archive for given programs is; `class_archive.py` makes it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from lakemirror.settings.settings import ProcessSettings
from lakemirror.spark_session import jars, jvm
from lakemirror.spark_session.java import Java


def find_archive(settings: ProcessSettings, java: Java, delta_jars: tuple[Path, ...]) -> Path | None:
    """The archive for these programs, or None while there is none."""
    path = archive_path(settings, java, delta_jars)
    return path if path.is_file() else None


def archive_path(settings: ProcessSettings, java: Java, delta_jars: tuple[Path, ...]) -> Path:
    """The path of the archive for these programs. Its name depends on the class path's files, their order, sizes and
    times.
    """
    home = jvm.spark_home()
    paths = [*delta_jars, *(home / "jars").glob("*.jar")]
    facts = [str(java.home), java.version, str(home)]
    for path in paths:
        stat = path.stat()
        facts.append(f"{path} {stat.st_size} {stat.st_mtime_ns}")
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    kind = f"delta{jars.DELTA_VERSION}" if delta_jars else "spark"
    name = f"java{java.version}-{kind}-{key}.jsa"
    return (jars.cache_folder(settings) / "archives").resolve() / name
