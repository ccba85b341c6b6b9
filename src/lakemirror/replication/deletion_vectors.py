"""Deleting rows by deletion vectors, with the fewest Spark jobs: one finds the rows, the driver writes the vectors.

Delta's own delete command does the same in ten jobs, because it serves any number of files and any condition. Here
the files that hold a batch's keys are few; where they are not, or where something is unusual, `mark_deleted` says so
and the command is used (`docs/decisions/002-deletion-vectors.md`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

MOST_FILES = 500
"""Touched files up to which the driver writes the vectors itself."""


def mark_deleted(
    spark: SparkSession,
    log: Any,
    snapshot: Any,
    matching: DataFrame,
    known: Mapping[str, Any] | None = None,
) -> list[Any] | None:
    """Delta's actions that delete the rows of `matching`: a filter on a plain read of the table at `snapshot`.

    `known`: the files that are read, as Delta's `add` actions by their names; else they are asked of the snapshot.

    Every touched file is removed and added again with a vector that holds its old one, or only removed where no row
    is left. None where Delta's own command has to do it; then nothing was written.
    """
    jvm: Any = spark._jvm
    delta = jvm.org.apache.spark.sql.delta
    vectors = _object(jvm, "org.apache.spark.sql.delta.commands.DeletionVectorUtils")
    if not vectors.deletionVectorsWritable(snapshot.protocol(), snapshot.metadata()):
        return None
    bitmaps = _object(jvm, "org.apache.spark.sql.delta.deletionvectors.RoaringBitmapArray")
    found = {name: bitmaps.readFrom(rows) for name, rows in _positions(jvm, matching).items()}
    if not found:
        return []
    if len(found) > MOST_FILES:
        return None
    files = _files(snapshot, found) if known is None else known
    if files is None:
        return None
    table = log.dataPath()
    store = delta.storage.dv.HadoopFileSystemDVStore(log.newDeltaHadoopConf())
    portable = _object(jvm, "org.apache.spark.sql.delta.deletionvectors.RoaringBitmapArrayFormat").Portable()
    stored = _object(jvm, "org.apache.spark.sql.delta.deletionvectors.StoredBitmap")
    descriptors = _object(jvm, "org.apache.spark.sql.delta.actions.DeletionVectorDescriptor")
    vector_file = jvm.java.util.UUID.randomUUID()
    writer = store.createWriter(store.generateFileNameInTable(store.pathWithFileSystem(table), vector_file, ""))
    actions: list[Any] = []
    some, no_limit, now = jvm.scala.Some, jvm.scala.Option.empty(), jvm.java.lang.System.currentTimeMillis()
    try:
        for name, bitmap in found.items():
            file = files[name]
            old = file.deletionVector()
            before = 0
            if old is not None:
                before = old.cardinality()
                bitmap.merge(stored.create(old, table).load(store))
            count = bitmap.cardinality()
            if count == before:
                continue  # all of them had been deleted
            if count == file.numPhysicalRecords().get():
                actions.append(file.removeWithTimestamp(now, True))
                continue
            bitmap.runOptimize()
            data = bitmap.serializeAsByteArray(portable)
            place = writer.write(data)
            vector = descriptors.onDiskWithRelativePath(
                vector_file, "", len(data), count, some(place.offset()), no_limit
            )
            pair = file.removeRows(vector, True, True)
            actions += [pair._1(), pair._2()]
    finally:
        writer.close()
    return actions


def _positions(jvm: Any, matching: DataFrame) -> dict[str, bytes]:
    """The rows by file name, as Delta's serialized bitmaps."""
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    portable = _object(jvm, "org.apache.spark.sql.delta.deletionvectors.RoaringBitmapArrayFormat").Portable()
    rows = matching.select(F.col("_metadata.file_path").alias("file"), F.col("_metadata.row_index").alias("row"))
    aggregate = jvm.org.apache.spark.sql.catalyst.expressions.aggregation.BitmapAggregator(
        expressions.expression(F.col("row")._jc), portable
    )
    bitmap = Column(expressions.column(aggregate.toAggregateExpression(False, jvm.scala.Option.empty())))
    grouped = rows.groupBy("file").agg(bitmap.alias("found")).select("file", "found.bitmap")
    return {row["file"].rpartition("/")[2]: bytes(row["bitmap"]) for row in grouped.collect()}


def _files(snapshot: Any, found: Mapping[str, Any]) -> dict[str, Any] | None:
    """The table's files of those names; None where one is not known exactly, or without its number of rows."""
    names = ", ".join("'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'" for name in found)
    files = snapshot.allFiles().filter(f"substring_index(path, '/', -1) in ({names})").collectAsList()
    result = {file.path().rpartition("/")[2]: file for file in files}
    if len(result) != len(found) or len(files) != len(found):
        return None
    return result if all(file.numPhysicalRecords().isDefined() for file in result.values()) else None


def _object(jvm: Any, name: str) -> Any:
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return jvm.java.lang.Class.forName(f"{name}$", True, loader).getField("MODULE$").get(None)
