"""Rows of a load on their way into files: values in the table's types, about 64 MiB of Parquet a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from lakemirror.landing_zone.delimited.values import BadValue
from lakemirror.publisher.capture.source_tables import SourceTable
from lakemirror.publisher.capture.unkept_values import value_error

FILE_BYTES = 160 << 20
"""Of Arrow data: Parquet files of 64 MiB and less."""

Publish = Callable[[pa.RecordBatchReader], int]
Tell = Callable[[int], None]


class Stopped(Exception):
    """The load was asked to end."""


def converted(table: SourceTable, batch: pa.RecordBatch) -> list[pa.Array]:
    """The values of a load's batch as change files have them. `capture-value` with the key of the row."""
    arrays = []
    for column, values in zip(table.columns, batch.columns, strict=True):
        try:
            arrays.append(column.from_load(values))
        except BadValue as bad:
            places = [batch.schema.get_field_index(name) for name in table.key]
            key = ", ".join(str(batch.column(place)[bad.place].as_py()) for place in places)
            raise value_error(f"{table.schema}.{table.name}", column, key or "without key", bad) from bad
    return arrays


def in_files(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatchReader]:
    """The batches in readers of at most about `FILE_BYTES`; each is read to its end before the next."""
    pending = next(batches, None)

    def part() -> Iterator[pa.RecordBatch]:
        nonlocal pending
        size = 0
        while pending is not None and size < FILE_BYTES:
            size += pending.nbytes
            yield pending
            pending = next(batches, None)

    while pending is not None:
        yield pa.RecordBatchReader.from_batches(schema, part())
