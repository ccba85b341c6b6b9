"""Which rows of the table hold a key that a batch clears (contract section 3): null-safe, within the batch's bounds.

    the log's own list of files ─▶ those whose bounds meet the batch's keys ─▶ their key columns, read as plain Parquet
    else: a read of the Delta table

A plain read gives rows that a deletion vector has deleted before, too. Deleting them again changes nothing: vectors
are united. It spares Delta's reconstruction of the table's state and its filtering of files, which cost more than
the read where files are few (`docs/decisions/021-plain-find.md`).
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakemirror.delta.log import Action, read_snapshot
from lakemirror.delta.schema import Column
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.formats import quoted
from lakemirror.replication.batch import Batch, Range
from lakemirror.replication.data_skipping import known_bounds, touched_files


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


def touched_plainly(spark: SparkSession, path: str, version: int, keys: Keys) -> PlainFiles | None:
    """The same rows, and perhaps deleted ones, by a plain read of files; None where `touched_files` is."""
    held = {column.name.lower(): column for column in keys.before}
    read = [held[key.lower()] for key in keys.columns if key.lower() in held]
    try:
        snapshot = read_snapshot(path, version)
    except LakemirrorError:
        return None
    files = touched_files(snapshot, keys.before, keys.batch) if snapshot is not None else None
    if files is None or not read:
        return None
    if not files:
        return PlainFiles(spark.range(0), {})
    schema = ", ".join(f"{quoted(column.name)} {column.type}" for column in read)
    frame = spark.read.option("__globPaths__", "false").schema(schema)
    rows = frame.parquet(*(f"{path}/{add['path']}" for add in files.values()))
    return PlainFiles(_matching(rows, keys), files)


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
    within = [_within(bounds) for bounds in known_bounds(keys.before, keys.batch)]
    return table.alias("t").where(reduce(lambda a, b: a & b, within, condition) if within else condition)


def _comparable(value: str, type_: str) -> str:
    """The value as it compares (contract section 3): NaN equals NaN, -0.0 equals 0.0.

    Spark sees to that in most joins by itself, but not in the null-aware one that Delta's delete command comes to.
    """
    if type_ not in ("float", "double"):
        return value
    return f"if(isnan({value}), cast('NaN' as {type_}), cast({value} + cast(0 as {type_}) as {type_}))"


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
