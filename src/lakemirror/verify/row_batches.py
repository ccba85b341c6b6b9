"""The rows of Parquet files in batches of bounded size, however long their texts are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_MOST_ROWS = 64 * 1024
_BYTES = 16 << 20  # of a batch, by the sizes in the footer
_READ_AT_ONCE = 8 << 20  # bytes of a column chunk


def parquet_file(source: Any, **more: Any) -> pq.ParquetFile:
    """An open Parquet file, of which no column chunk is held in memory as a whole. ArrowException or OSError."""
    return pq.ParquetFile(source, coerce_int96_timestamp_unit="us", buffer_size=_READ_AT_ONCE, **more)


def row_batches(file: pq.ParquetFile, group: int) -> Iterator[pa.RecordBatch]:
    """All rows of a row group in their order."""
    footer = file.metadata.row_group(group)
    rows = max(1, min(_MOST_ROWS, footer.num_rows * _BYTES // max(1, footer.total_byte_size)))
    yield from file.iter_batches(rows, row_groups=[group], use_threads=False)


def all_batches(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """All rows of a file in their order."""
    for group in range(file.num_row_groups):
        yield from row_batches(file, group)
