"""Which rows of the table hold a key that a batch clears (contract section 3): null-safe, within the batch's bounds.

    the log's own list of files ─▶ those whose bounds meet the batch's keys ─▶ their key columns, read as plain Parquet
    else: a read of the Delta table

A plain read gives rows that a deletion vector has deleted before, too. Deleting them again changes nothing: vectors
are united. It spares Delta's reconstruction of the table's state and its filtering of files, which cost more than
the read where files are few (`docs/decisions/021-plain-find.md`).
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakemirror.delta_log import Action, read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.formats import quoted
from lakemirror.replication.batch import Batch, Range
from lakemirror.replication.schema import Column, is_widened

MOST_FILES = 500
"""Files up to which they are read as plain Parquet."""


@dataclass(frozen=True)
class Keys:
    """The keys that a batch clears: a view that holds them, one row each, and the table they are looked for in."""

    view: str
    columns: Sequence[str]
    before: Sequence[Column]
    batch: Batch


@dataclass(frozen=True)
class PlainFiles:
    """Rows found by a plain read: a filter on it, and the `add` actions of the files that are read, by their names."""

    rows: DataFrame
    files: Mapping[str, Action]


def touched(spark: SparkSession, path: str, keys: Keys) -> DataFrame:
    """The table's rows whose key is in the view: one filter on a read of the Delta table."""
    return _matching(spark.read.format("delta").load(path), keys)


def touched_plainly(
    spark: SparkSession, path: str, version: int, metadata: Mapping[str, Any], keys: Keys
) -> PlainFiles | None:
    """The same rows, and perhaps deleted ones, by a plain read of files; None where `plain_files` is."""
    held = {column.name.lower(): column for column in keys.before}
    read = [held[key.lower()] for key in keys.columns if key.lower() in held]
    files = plain_files(path, version, metadata, keys.before, keys.batch)
    if files is None or not read:
        return None
    if not files:
        return PlainFiles(spark.range(0), {})
    schema = ", ".join(f"{quoted(column.name)} {column.type}" for column in read)
    frame = spark.read.option("__globPaths__", "false").schema(schema)
    rows = frame.parquet(*(f"{path}/{add['path']}" for add in files.values()))
    return PlainFiles(_matching(rows, keys), files)


def plain_files(
    path: str, version: int, metadata: Mapping[str, Any], before: Sequence[Column], batch: Batch
) -> dict[str, Action] | None:
    """The `add` actions of the files that may hold a key of the batch, by the files' names.

    None where they cannot be read as plain Parquet: where the table writes no vectors, maps or has widened columns, has
    many files, or files without statistics.
    """
    configuration = metadata["configuration"]
    if configuration.get("delta.enableDeletionVectors", "").lower() != "true":
        return None
    if configuration.get("delta.columnMapping.mode", "none") != "none" or is_widened(metadata["schemaString"]):
        return None
    try:
        snapshot = read_snapshot(path, version)
    except LakemirrorError:
        return None
    if snapshot is None:
        return None
    bounds = list(_bounds(before, batch))
    adds = [add for add in snapshot.files.values() if _may_hold(add, before, bounds)]
    names = {add["path"].rpartition("/")[2]: add for add in adds}
    plain = all("%" not in add["path"] and ":" not in add["path"] and not add["path"].startswith("/") for add in adds)
    if not plain or len(names) != len(adds) or len(adds) > MOST_FILES:
        return None
    return names if all("numRecords" in (add.get("stats") or "") for add in adds) else None


def _matching(table: DataFrame, keys: Keys) -> DataFrame:
    held = {column.name.lower() for column in keys.before}
    pairs = []
    for key in keys.columns:
        # a key column that this batch adds is NULL in every row there is; one that it widens compares as wide
        old = f"t.{quoted(key)}" if key.lower() in held else "null"
        type_ = _type_of(key, keys.batch.columns)
        pairs.append((_comparable(f"cast({old} as {type_})", type_), _comparable(quoted(key), type_)))
    old_key = ", ".join(f"'k{i}', {old}" for i, (old, _) in enumerate(pairs))
    new_key = ", ".join(f"'k{i}', {new}" for i, (_, new) in enumerate(pairs))
    condition = F.expr(f"named_struct({old_key}) in (select named_struct({new_key}) from {keys.view})")
    within = [_within(bounds) for bounds in _bounds(keys.before, keys.batch)]
    return table.alias("t").where(reduce(lambda a, b: a & b, within, condition) if within else condition)


def _comparable(value: str, type_: str) -> str:
    """The value as it compares (contract section 3): NaN equals NaN, -0.0 equals 0.0.

    Spark sees to that in most joins by itself, but not in the null-aware one that Delta's delete command comes to.
    """
    if type_ not in ("float", "double"):
        return value
    return f"if(isnan({value}), cast('NaN' as {type_}), cast({value} + cast(0 as {type_}) as {type_}))"


def _bounds(before: Sequence[Column], batch: Batch) -> Iterable[Range]:
    """The batch's bounds of key columns that the table already has in that type."""
    typed = {(column.name.lower(), column.type) for column in before}
    return (bounds for bounds in batch.ranges if (bounds.column.lower(), bounds.type) in typed)


def _may_hold(add: Action, before: Sequence[Column], all_bounds: Iterable[Range]) -> bool:
    """False where the file's statistics say that no key of the batch is in it."""
    try:
        stats = json.loads(add.get("stats") or "{}")
    except ValueError:
        return True
    names = {column.name.lower(): column.name for column in before}
    for bounds in all_bounds:
        name = names[bounds.column.lower()]
        low, high = stats.get("minValues", {}).get(name), stats.get("maxValues", {}).get(name)
        nulls = stats.get("nullCount", {}).get(name, 1)
        if bounds.nulls and nulls:
            continue
        if low is None or high is None:
            continue
        if bounds.type == "date":
            try:
                low, high = datetime.date.fromisoformat(low), datetime.date.fromisoformat(high)
            except ValueError:  # a year that Python has no name for
                continue
        elif bounds.type not in ("smallint", "int", "bigint"):
            continue
        if bounds.high < low or high < bounds.low:
            return False
    return True


def _within(bounds: Range) -> SparkColumn:
    column = F.col(f"t.{quoted(bounds.column)}")
    inside = column.between(_literal(bounds.low), _literal(bounds.high))
    return inside | column.isNull() if bounds.nulls else inside


def _literal(value: Any) -> SparkColumn:
    if isinstance(value, datetime.datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=datetime.timezone.utc)
    return F.lit(value)


def _type_of(key: str, columns: Sequence[Column]) -> str:
    return next((column.type for column in columns if column.name.lower() == key.lower()), "string")
