"""The class-data archive: classes that one training run loaded, so that the next JVMs start faster.

It is made once in the cache. Its name depends on Java, Spark, the jars, their paths and times, so a changed
installation makes a new one. Without an archive Spark only starts more slowly.

    python -m lakemirror.spark_session.class_archive    makes it, or says that it is there; up to 200 MB, half a minute
    python -m lakemirror.spark_session.class_archive --background     comes back at once
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lakemirror.errors import LakemirrorError
from lakemirror.settings.settings import ProcessSettings, Settings
from lakemirror.spark_session import jars, java
from lakemirror.spark_session.archive_path import archive_path, find_archive
from lakemirror.storage.own_files import (
    begins_with,
    entries,
    is_own_file,
    remove_own_file,
    remove_work_folder,
    work_folder,
)
from lakemirror.storage.private_files import locked

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

KEPT = 4
"""Archives of other installations that stay in the cache (another virtual environment may use them)."""

_MAKING = ".making-"
_ARCHIVE = re.compile(r"java[^/]*-(spark|delta[^/]*)-[0-9a-f]{16}\.jsa")
_BEGINS = begins_with(*((0xF00BABA0 + kind).to_bytes(4, order) for kind in (2, 8) for order in ("little", "big")))

WRITING = 900.0
"""Seconds that the JVM may take to write the archive: three on an idle machine, minutes on one with other work."""


def make(settings: ProcessSettings, *, delta: bool = False) -> Path | None:
    """The archive; made now if there is none. None if another process makes it or the JVM did not write it.

    `delta`: the archive for sessions with Delta's jars, which have another class path.

    Needs a process without a Spark session. SetupError as from `lakemirror.spark_session.session.start`.
    """
    from lakemirror.spark_session import session as spark

    chosen, delta_jars = java.find(), jars.ensure(settings) if delta else ()
    target = archive_path(settings, chosen, delta_jars)
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent / ".lock", wait=False) as is_ours:
        if not is_ours:
            return None
        with work_folder(target.parent, _MAKING) as place:
            written = place / target.name
            flags = ("spark.driver.extraJavaOptions", f'"-XX:ArchiveClassesAtExit={written}"')
            chosen_settings = dataclasses.replace(settings, master="local[2]", spark=(*settings.spark, flags))
            session = spark.start(chosen_settings, delta=delta)
            try:
                train(session)
                if delta:
                    train_delta(session, place)
            finally:
                ended = spark.stop(session, patience=WRITING)  # the JVM writes the archive when it ends
            if not ended or not written.is_file():
                return None
            written.replace(target)
        _prune(target.parent, keep=target)
    return target


def make_in_background(settings: ProcessSettings) -> None:
    """Starts `make` in a separate process of low priority that outlives this one; does nothing if all archives exist.

    The archive for sessions with Delta is made too where Delta's jars are in the cache.
    """
    chosen, delta_jars = java.find(), jars.find(settings)
    if find_archive(settings, chosen, ()) and (not delta_jars or find_archive(settings, chosen, delta_jars)):
        return
    environment = {**os.environ, "LAKEMIRROR_CACHE_DIR": str(settings.cache_folder), "LAKEMIRROR_JARS": settings.jars}
    quiet = subprocess.DEVNULL
    subprocess.Popen(
        [sys.executable, "-m", "lakemirror.spark_session.class_archive"],
        env=environment,
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,
    )


def train(session: SparkSession) -> None:
    """Runs what the Spark engine runs: the archive holds the classes that this loads."""

    def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows as they are. PySpark looks at the arguments of a function, which it cannot of a built-in one."""
        return batches

    session.range(0, 4, 1, 4).mapInArrow(unchanged, "id bigint").collect()
    blobs = session.range(0, 4, 1, 4).mapInArrow(unchanged, "id bigint")
    blobs.union(blobs).repartition(2, "id").mapInArrow(unchanged, "id bigint").collect()


def train_delta(session: SparkSession, folder: Path) -> None:
    """Runs what table features and users do with a Delta table."""
    files, table = str(folder / "files"), str(folder / "table")
    rows = session.range(100).selectExpr(
        "id", "cast(id as string) name", "id * 1.5D amount", "timestamp_seconds(id) at", "cast(id % 3 as int) marker"
    )
    rows.coalesce(2).write.parquet(files)
    changes = session.read.schema(rows.schema).parquet(files)
    changes = changes.selectExpr("*", "_metadata.file_path as file", "_metadata.row_index as row")
    last = changes.groupBy("id").agg({"row": "max", "file": "max"}).select("id")
    changes = changes.join(last, "id", "left_semi").dropDuplicates(["id"]).drop("file", "row")

    session.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT, name STRING, amount DOUBLE, at TIMESTAMP) USING delta "
        "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    transaction = {"txnAppId": "training", "txnVersion": "1"}
    changes.drop("marker").write.format("delta").mode("append").options(**transaction).save(table)
    changes.where("id < 20").select("id").createOrReplaceTempView("clears")
    condition = "named_struct('k', t.id) in (select named_struct('k', id) from clears)"
    changes.where("id < 10").drop("marker").alias("s").write.format("delta").mode("overwrite").options(
        replaceOn=condition, targetAlias="t", txnAppId="training", txnVersion="2"
    ).save(table)
    session.sql(
        f"MERGE INTO delta.`{table}` t USING (SELECT id FROM clears WHERE id < 5) s ON t.id <=> s.id "
        "WHEN MATCHED THEN DELETE"
    )
    session.sql(f"DELETE FROM delta.`{table}` WHERE id = 7")
    session.sql(f"ALTER TABLE delta.`{table}` ADD COLUMNS (extra INT)")
    session.sql(f"OPTIMIZE delta.`{table}`")
    session.sql(f"DESCRIBE HISTORY delta.`{table}`").collect()
    session.read.format("delta").load(table).orderBy("id").limit(5).toArrow()
    session.catalog.dropTempView("clears")


def _prune(folder: Path, *, keep: Path) -> None:
    """Removes the oldest archives and leftovers of killed processes, and nothing else. The caller holds the lock."""
    others = [path for path in entries(folder) if path != keep and is_own_file(path, _ARCHIVE, _BEGINS)]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[KEPT:]:
        remove_own_file(path, _ARCHIVE, _BEGINS)
    for place in entries(folder):
        remove_work_folder(place, _MAKING, math.inf)


def _main(arguments: list[str]) -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    settings = Settings().with_environment()
    try:
        if "--background" in arguments:
            make_in_background(settings)
            return os.EX_OK
        os.nice(10)  # the process that starts this has more urgent work
        path = make(settings)
        if jars.find(settings):
            make(settings, delta=True)
    except LakemirrorError as error:
        print(f"{error}\n{error.hint}", file=sys.stderr)
        return error.exit_code
    print(path or "none made: another process makes it, or this Java cannot")
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
