"""Rows of a load on their way into files: values in the table's types, about 64 MiB of Parquet a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from lakemirror.publisher.capture.source_tables import SourceTable
from lakemirror.publisher.capture.unkept_values import kept

FILE_BYTES = 160 << 20
"""Of Arrow data: Parquet files of 64 MiB and less."""

Publish = Callable[[pa.RecordBatchReader], int]
Tell = Callable[[int], None]


class Stopped(Exception):
    """The load was asked to end."""


def converted(table: SourceTable, batch: pa.RecordBatch, *, is_of_events: bool = False) -> list[pa.Array]:
    """The values of a load's batch as change files have them. `is_of_events`: they come as events have them.

    `capture-value` with the key of the row.
    """

    def key_of(place: int) -> list[Any]:
        return [batch.column(name)[place].as_py() for name in table.key]

    columns = zip(table.columns, batch.columns, strict=True)
    return [
        kept(table.title, column, column.from_event if is_of_events else column.from_load, values, key_of)
        for column, values in columns
    ]


def publish_rows(table: SourceTable, batches: Iterable[pa.RecordBatch], publish: Publish) -> int:
    """Publishes the batches of a load, about `FILE_BYTES` a file; returns the number of rows."""
    schema = table.arrow_schema
    rows = (pa.RecordBatch.from_arrays(converted(table, batch), schema=schema) for batch in batches)
    return sum(publish(file) for file in _in_files(rows, schema))


def publish_empty(table: SourceTable, publish: Publish) -> int:
    """Publishes a file without rows, which every load that found none ends with; returns 0."""
    return publish(table.arrow_schema.empty_table().to_reader())


def only_row(table: SourceTable, batch: pa.RecordBatch) -> dict[str, pa.Scalar]:
    """The values of a batch of one row as change files have them."""
    return {column.name: values[0] for column, values in zip(table.columns, converted(table, batch), strict=True)}


def _in_files(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatchReader]:
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
