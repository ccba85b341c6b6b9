"""Rows with the columns that they leave unchanged, as the column `__unchangedColumns__` (contract section 3a)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.row_markers import UNCHANGED
from lakemirror.publisher.change_writer import MARKER_COLUMN, UPDATE, UPSERT

Unchanged: TypeAlias = "Sequence[str] | Sequence[Sequence[str] | None] | pa.Array | pa.ChunkedArray"
"""Names of columns: one list for all rows, or a list (or None) for each row."""

_KIND = pa.list_(pa.string())


def with_unchanged(
    changes: pa.RecordBatchReader, unchanged: Unchanged, columns: Collection[str], keys: Collection[str], table: str
) -> pa.RecordBatchReader:
    """The same changes with the column `__unchangedColumns__` before their marker.

    `columns`: of the table, as far as it is known. Errors: `input-invalid` where there are not as many lists as rows,
    `partial-row-invalid` for a name that is no column or a key column, and for a row that is no update or upsert.
    """
    of_all = _of_all(unchanged)
    lists = _lists(unchanged if of_all is None else [of_all], table)
    known = {name.lower() for name in (*columns, *changes.schema.names)} - {MARKER_COLUMN.lower()}
    _check_names(lists, known, {key.lower() for key in keys}, table)
    schema = changes.schema.insert(len(changes.schema) - 1, pa.field(UNCHANGED, _KIND))

    def batches() -> Iterator[pa.RecordBatch]:
        begin = 0
        for batch in changes:
            its = pa.repeat(lists[0], batch.num_rows) if of_all is not None else lists.slice(begin, batch.num_rows)
            if len(its) != batch.num_rows:
                raise _not_as_many(table, len(lists))
            _check_markers(batch.column(batch.num_columns - 1), its, begin, table)
            begin += batch.num_rows
            yield pa.RecordBatch.from_arrays([*batch.columns[:-1], its, batch.columns[-1]], schema=schema)
        if of_all is None and begin != len(lists):
            raise _not_as_many(table, len(lists))

    return pa.RecordBatchReader.from_batches(schema, batches())


def _of_all(unchanged: Unchanged) -> list[str] | None:
    """The one list for all rows; None where there is a list for each row."""
    if isinstance(unchanged, str | pa.Array | pa.ChunkedArray):
        return None
    names = list(unchanged)
    return [str(name) for name in names] if all(isinstance(name, str) for name in names) else None


def _lists(unchanged: Unchanged | list[list[str]], table: str) -> pa.Array:
    try:
        if isinstance(unchanged, str):
            raise TypeError("it is one text")
        if isinstance(unchanged, pa.ChunkedArray):
            unchanged = unchanged.combine_chunks()
        if isinstance(unchanged, pa.Array):
            return unchanged.cast(_KIND)
        return pa.array([None if each is None else list(each) for each in unchanged], _KIND)
    except (pa.ArrowException, TypeError) as error:
        raise LakemirrorError(
            "input-invalid", f"{table}: unchanged is no list of column names: {error}",
            hint='Give one list for all rows, ["body"], or a list for each row.',
        ) from error  # fmt: skip


def _check_names(lists: pa.Array, known: Collection[str], keys: Collection[str], table: str) -> None:
    for name in lists.flatten().unique().to_pylist():
        lower = "" if name is None else name.lower()
        if lower in keys:
            why = f"{name!r} is a key column"
        elif lower not in known:
            why = f"{name!r} is no column of the rows or the table"
        else:
            continue
        raise LakemirrorError("partial-row-invalid", f"{table}: unchanged: {why}", table=table, column=name)


def _check_markers(markers: pa.Array, lists: pa.Array, begin: int, table: str) -> None:
    is_partial = pc.greater(pc.fill_null(pc.list_value_length(lists), 0), 0)
    is_wrong = pc.invert(pc.is_in(markers, value_set=pa.array([UPDATE, UPSERT, None], pa.int32())))
    first = pc.index(pc.and_(is_partial, is_wrong), True).as_py()
    if first >= 0:
        row = begin + first + 1
        message = f"{table}: row {row} leaves columns unchanged, and is neither an update nor an upsert"
        raise LakemirrorError("partial-row-invalid", message, table=table, row=row)


def _not_as_many(table: str, lists: int) -> LakemirrorError:
    message = f"{table}: unchanged has {lists} lists, and there are not as many rows"
    return LakemirrorError("input-invalid", message, hint="Give one list for all rows, or a list for each row.")
