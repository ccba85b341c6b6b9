"""Which data files of a table may hold a key that a batch clears, by the log's own list and their statistics."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence

from lakemirror.delta.log import Action, Snapshot
from lakemirror.delta.schema import Column, is_widened
from lakemirror.delta.statistics import parse_statistics, record_count
from lakemirror.replication.batch import Batch, Range

MOST_FILES = 500
"""Files up to which they are read as plain Parquet."""


def touched_files(snapshot: Snapshot, before: Sequence[Column], batch: Batch) -> dict[str, Action] | None:
    """The `add` actions of the files that may hold a key of the batch, by the files' names.

    `before`: the table's columns. None where they cannot be read as plain Parquet: where the table writes no vectors,
    maps or has widened columns, has many files, or files without statistics.
    """
    configuration = snapshot.metadata.configuration
    if configuration.get("delta.enableDeletionVectors", "").lower() != "true":
        return None
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        return None
    if is_widened(snapshot.metadata.value["schemaString"]):
        return None
    bounds = list(known_bounds(before, batch))
    adds = [add for add in snapshot.files.values() if may_hold(add, before, bounds)]
    names = {add["path"].rpartition("/")[2]: add for add in adds}
    plain = all("%" not in add["path"] and ":" not in add["path"] and not add["path"].startswith("/") for add in adds)
    if not plain or len(names) != len(adds) or len(adds) > MOST_FILES:
        return None
    return names if all(record_count(add) is not None for add in adds) else None


def known_bounds(before: Sequence[Column], batch: Batch) -> Iterable[Range]:
    """The batch's bounds of key columns that the table already has in that type."""
    typed = {(column.name.lower(), column.type) for column in before}
    return (bounds for bounds in batch.ranges if (bounds.column.lower(), bounds.type) in typed)


def may_hold(add: Action, before: Sequence[Column], all_bounds: Iterable[Range]) -> bool:
    """False where the file's statistics say that no key of the batch is in it."""
    stats = parse_statistics(add)
    lows, highs, counts = (stats.get(field) or {} for field in ("minValues", "maxValues", "nullCount"))
    names = {column.name.lower(): column.name for column in before}
    for bounds in all_bounds:
        name = names[bounds.column.lower()]
        low, high, nulls = lows.get(name), highs.get(name), counts.get(name, 1)
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
