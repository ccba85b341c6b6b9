"""The table's rows that have the keys of changes, as a fold with options of deletes or order gets them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakemirror.engines.kernels.data_rows import work_schema
from lakemirror.engines.kernels.sequence_order import sequence_of
from lakemirror.engines.row_work import DEAD, DIED, FILE, ROW, SEQUENCE, TargetColumn
from lakemirror.engines.units import Shared
from lakemirror.keys.key_values import whole_numbers
from lakemirror.landing_zone.reserved_columns import DELETED, DELETED_AT


def old_columns(shared: Shared) -> tuple[TargetColumn, ...]:
    """The columns of the table's rows that a fold needs: the keys, and what options of deletes and order ask for."""
    target, ordering = shared.target, shared.ordering
    if ordering is None:
        return target.keys
    needed = {*ordering.sequence, *((DELETED,) if ordering.is_soft else ())} - set(target.key_columns)
    if ordering.is_soft and ordering.sequence:
        needed.add(DELETED_AT)
    return target.keys + tuple(column for column in target.columns if column.name in needed)


def with_places(shared: Shared, old: pa.Table, number: int, rows: np.ndarray) -> pa.Table:
    """Rows of the data file with this number, for a fold: keys, FILE, ROW, and as the options ask SEQUENCE, DIED, DEAD.

    `old`: these rows, with `old_columns`. `rows`: their numbers.
    """
    ordering = shared.ordering
    table = old.select(list(shared.target.key_columns))
    table = table.append_column(FILE, pa.array(np.full(len(rows), number, np.int32)))
    table = table.append_column(ROW, whole_numbers(rows))
    if ordering is not None and ordering.sequence:
        table = table.append_column(SEQUENCE, sequence_of(old, ordering.sequence))
    if ordering is None or not ordering.is_soft:
        return table
    if ordering.sequence:
        table = table.append_column(DIED, old[DELETED_AT].cast(pa.timestamp("us", "UTC")))
    return table.append_column(DEAD, old[DELETED])


def no_old_rows(shared: Shared) -> pa.Table:
    """No rows of the table, with the columns of `with_places`."""
    none = work_schema(shared.target, old_columns(shared)).empty_table()
    return with_places(shared, none, 0, np.zeros(0, np.int64))
