"""Texts that are too long to be copied: which columns have them, and bounds that keep only their beginning.

A Parquet writer and Delta's statistics would copy the lowest and the highest text of a column many times, and write no
more than their beginning.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LONG = 1 << 20  # bytes
KEPT = 4096  # characters of a long text, or bytes: more than Arrow writes into a footer


def long_columns(batches: Iterable[pa.RecordBatch]) -> frozenset[str]:
    """The columns in which a text or binary value is long."""
    return frozenset(
        name
        for batch in batches
        for name, values in zip(batch.schema.names, batch.columns, strict=True)
        if has_long(values)
    )


def least_and_most(values: pa.Array) -> tuple[Any, Any]:
    """The bounds of values of which at least one is not NULL. Of a long text only the beginning."""
    if not has_long(values):
        found = pc.min_max(values)
        return found["min"].as_py(), found["max"].as_py()
    is_long = pc.greater(pc.fill_null(pc.binary_length(values), 0), LONG)
    ends = [_beginning(values, index) for index in np.flatnonzero(np.asarray(is_long)).tolist()]
    others = pc.min_max(values.filter(pc.invert(is_long)))
    ends += [other.as_py() for other in (others["min"], others["max"]) if other.is_valid]
    return min(ends), max(ends)


def may_be_cut(bound: Any, told: Any) -> bool:
    """True if a bound may be the beginning of a long text, and the bytes that a footer tells begin with it too."""
    if not isinstance(bound, (str, bytes)) or len(bound) < KEPT:
        return False
    return bool(told.startswith(bound.encode() if isinstance(bound, str) else bound))


def has_long(values: pa.Array) -> bool:
    """True if a text or binary value is long."""
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary
    if not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)) or values.nbytes <= LONG:
        return False
    return bool((pc.max(pc.binary_length(values)).as_py() or 0) > LONG)


def _beginning(values: pa.Array, index: int) -> str | bytes:
    """The beginning of the long value at an index, without a copy of all of it."""
    _, offsets, content = values.buffers()
    begin = int(np.frombuffer(offsets, np.int32)[values.offset + index])
    data: bytes = content[begin : begin + 4 * KEPT].to_pybytes()
    if pa.types.is_binary(values.type):
        return data[:KEPT]
    return data.decode(errors="ignore")[:KEPT]  # the cut may go through a character
