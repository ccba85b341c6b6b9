"""Rows of data files that this process has just written, in memory: the next applies read some of them.

rows of a new data file ─▶ `keep_written` ─▶ `LATELY_WRITTEN` ─▶ `written_rows`, instead of a copy or the data file
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakemirror.delta.statistics import record_count
from lakemirror.engines.kernels.data_rows import place_of, stored_arrow_type
from lakemirror.engines.row_work import Action, Target, TargetColumn
from lakemirror.keys.key_values import whole_numbers
from lakemirror.keys.look_up import Cache, version_of
from lakemirror.keys.row_file import can_hold

LATELY_WRITTEN = Cache(64 << 20)  # a million narrow rows


def keep_written(add: Action, target: Target, rows: pa.Table) -> None:
    """Keeps the rows of a data file, in its order, with the table's columns. Does nothing for rows that take a quarter
    of the cache or more, files in partitions, and nested columns."""
    names = set(rows.column_names)
    stored = [column for column in target.columns if column.stored and column.name in names]
    is_small = 4 * rows.nbytes <= LATELY_WRITTEN.most_bytes
    if is_small and record_count(add) == rows.num_rows and not target.partition_columns and can_hold(stored):
        kept = rows.select([column.name for column in stored]).combine_chunks()
        if kept.get_total_buffer_size() > 2 * kept.nbytes:  # some rows of many, which would stay in memory with them
            kept = kept.take(whole_numbers(np.arange(kept.num_rows)))
        LATELY_WRITTEN.put(_name_of(add, target), kept.rename_columns([column.physical_name for column in stored]))


def keep_files(adds: Sequence[Action], target: Target, rows: Sequence[pa.Table]) -> None:
    """`keep_written` for several data files, if each of these tables has become one."""
    if len(adds) == len(rows):
        for add, its in zip(adds, rows, strict=True):
            keep_written(add, target, its)


def is_in_memory(add: Action, target: Target) -> bool:
    """True if rows of this data file are in memory."""
    return LATELY_WRITTEN.get(_name_of(add, target)) is not None


def written_rows(
    add: Action, target: Target, numbers: np.ndarray | None, columns: Sequence[TargetColumn]
) -> pa.Table | None:
    """The rows of a data file with these numbers (None: all), in these columns; None if they are not kept."""
    kept = LATELY_WRITTEN.get(_name_of(add, target))
    if not isinstance(kept, pa.Table):
        return None
    for column in columns:  # the table may have other columns by now
        if kept.schema.get_field_index(column.physical_name) < 0:
            return None
        if kept.schema.field(column.physical_name).type != stored_arrow_type(column):
            return None
    chosen = kept.select([column.physical_name for column in columns])
    chosen = chosen if numbers is None else chosen.take(whole_numbers(numbers))
    return chosen.rename_columns([column.name for column in columns])


def _name_of(add: Action, target: Target) -> tuple[object, ...]:
    return "written", place_of(target.path, add["path"]), version_of(add)
