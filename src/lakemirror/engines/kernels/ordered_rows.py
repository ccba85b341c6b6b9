"""What rows of a change file get in a table with options of deletes or order (history.md, sections 1 and 2)."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.engines.kernels.convert_types import InvalidValue
from lakemirror.engines.kernels.wanted_columns import WantedColumns
from lakemirror.engines.row_work import ChangeUnit, Ordering
from lakemirror.errors import Bad, Rejected
from lakemirror.landing_zone.reserved_columns import DELETED, DELETED_AT, SOURCE_TIME, START_AT
from lakemirror.landing_zone.row_markers import DELETE

_TIME = pa.timestamp("us", "UTC")


class Decoded(NamedTuple):
    """Rows of a unit. `batch`: as the file has them; `rows`: in the table's types; `first_row`: in the file, from 0."""

    batch: pa.RecordBatch
    rows: pa.RecordBatch
    marker: npt.NDArray[np.int8]
    first_row: int


def needs_time(ordering: Ordering, names: Collection[str]) -> bool:
    """True if the source's time of each change is read for these columns of the table."""
    return (ordering.is_soft and DELETED_AT in names) or START_AT in names


def with_options(ordering: Ordering, unit: ChangeUnit, wanted: WantedColumns, decoded: Decoded) -> pa.RecordBatch:
    """The rows, with soft deletes with their `__deleted` and `__deleted_at`. Bad: the first without a sequence.

    `__START_AT` becomes the source's time, NULL where the file says none.
    """
    rows, marker, first_row = decoded.rows, decoded.marker, decoded.first_row
    _check_sequence(ordering, unit, rows, first_row)
    if START_AT in rows.schema.names:
        times = _source_times(unit, wanted, decoded)
        rows = rows.set_column(rows.schema.names.index(START_AT), START_AT, times)
    if not ordering.is_soft:
        return rows
    names, is_delete = rows.schema.names, marker == DELETE
    if DELETED in names:
        rows = rows.set_column(names.index(DELETED), DELETED, pa.array(is_delete))
    if DELETED_AT in names:
        times = _source_times(unit, wanted, decoded)
        times = pc.coalesce(times, pa.scalar(ordering.moment, pa.int64()).cast(_TIME))
        since = pc.if_else(pa.array(is_delete), times, pa.scalar(None, _TIME))
        rows = rows.set_column(names.index(DELETED_AT), DELETED_AT, since)
    return rows


def _source_times(unit: ChangeUnit, wanted: WantedColumns, decoded: Decoded) -> pa.Array:
    """The source's times, NULL where the file says none. Bad: the first that is no time."""
    if wanted.time is None:
        return pa.nulls(decoded.rows.num_rows, _TIME)
    held, convert = wanted.time
    try:
        return convert(decoded.batch.column(wanted.at[held.place]))
    except InvalidValue as error:
        row = None if error.row is None else decoded.first_row + error.row + 1
        where = unit.name if row is None else f"{unit.name}, row {row}"
        message = f"{where}: column {SOURCE_TIME}: {error}"
        raise Bad(Rejected("value-invalid", message, unit.name, row, SOURCE_TIME)) from error


def _check_sequence(ordering: Ordering, unit: ChangeUnit, rows: pa.RecordBatch, first_row: int) -> None:
    """Raises Bad for the first row that has NULL in a column of the sequence."""
    nulls = [
        (int(np.flatnonzero(np.asarray(values.is_null().cast(pa.uint8())))[0]), name)
        for name in ordering.sequence
        if name in rows.schema.names and (values := rows.column(name)).null_count
    ]
    if not nulls:
        return
    row, name = min(nulls)
    place = first_row + row + 1
    message = f"{unit.name}, row {place}: column {name!r} is NULL, and it is the sequence of this table"
    raise Bad(Rejected("sequence-null", message, unit.name, place, name))
