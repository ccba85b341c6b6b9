"""The rows of the mirrored table as the first versions of a history that is switched on later (history.md section 4).

live rows of the mirrored table ─▶ without deleted ones, with `__START_AT` ─▶ data files of the table of versions

A version begins at the sequence of its row. Without a sequence it begins when the history does, or right before the
first change that follows, if that is earlier.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakemirror.delta.log import Action
from lakemirror.delta.schema import from_delta
from lakemirror.engines.kernels.data_rows import stored_arrow_type
from lakemirror.engines.kernels.live_rows import undeleted_rows
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.row_work import Target
from lakemirror.engines.target import apply_target, target_of
from lakemirror.landing_zone.reserved_columns import START_AT
from lakemirror.mirror.history.version_plans import spelled
from lakemirror.mirror.observe import View
from lakemirror.mirror.planner import Base

_TIME = pa.timestamp("us", "UTC")


def begins_at(view: View) -> int:
    """When a history that is switched on later begins, in microseconds since the epoch: now, or right before the first
    file that follows if that is earlier."""
    now = time.time_ns()
    if view.pending.files:
        now = min(now, view.pending.files[0].entry.modified - 1000)
    return now // 1000


def first_versions(view: View, current: Base, path: str, metadata: Mapping[str, Any], began: int) -> list[Action]:
    """Writes the first versions as data files. `path`, `metadata`: of the table of versions. Returns `add` actions."""
    assert current.snapshot is not None
    options, keys = view.files.metadata.options, view.files.metadata.key_columns
    source = apply_target(target_of(current.path, current.snapshot.metadata.value, keys))
    target = replace(apply_target(target_of(path, metadata, keys)), version=0)
    columns = from_delta(current.snapshot.metadata.value["schemaString"])
    names = spelled(options.sequence, columns)
    adds = write_rows(_versions(source, target, list(current.snapshot.files.values()), names, began), target)
    return [{"add": add} for add in adds]


def _versions(
    source: Target, target: Target, files: list[Action], sequence: tuple[str, ...], began: int
) -> Iterator[pa.RecordBatch]:
    kind = next(stored_arrow_type(each) for each in target.columns if each.name == START_AT)
    names = [each.name for each in target.sources.columns if each.stored]
    for add in files:
        for rows in undeleted_rows(add, source):
            chosen = rows.select([name for name in names if name in rows.column_names])
            yield from chosen.append_column(START_AT, _starts(rows, sequence, began, kind)).to_batches()


def _starts(rows: pa.Table, sequence: tuple[str, ...], began: int, kind: pa.DataType) -> pa.Array:
    if not sequence:
        return pa.repeat(pa.scalar(began, pa.int64()), rows.num_rows).cast(_TIME)
    values = [rows[name].combine_chunks() for name in sequence]
    if not pa.types.is_struct(kind):
        return values[0].cast(kind)
    parts = [part.cast(field.type) for part, field in zip(values, kind, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=list(kind))
