"""Rows that are converted batch by batch, as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa


def converted_rows(
    reader: pa.RecordBatchReader, schema: pa.Schema, convert: Callable[[pa.RecordBatch, int], list[Any]]
) -> pa.RecordBatchReader:
    """The rows in another schema; `convert` gives the columns of a batch before which so many rows were."""

    def batches() -> Iterator[pa.RecordBatch]:
        rows = 0
        for batch in reader:
            yield pa.RecordBatch.from_arrays(convert(batch, rows), schema=schema)
            rows += batch.num_rows

    return pa.RecordBatchReader.from_batches(schema, batches())
