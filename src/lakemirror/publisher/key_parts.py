"""Rows divided by their keys, so that each part can be compared in memory.

Rows with the same key are in the same part, in any table whose key columns have the same types. Keys are the same as
the contract says (section 3): NULL equals NULL, NaN equals NaN, -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, its bits in no order: neighbours go to different parts
_NULL = np.uint64(1)
_HALF = np.uint64(32)  # bits


def part_numbers(table: pa.Table, keys: Sequence[str], count: int) -> Any:
    """For each row the number of its part, 0 to `count` - 1, as a NumPy array."""
    found = [np.empty(0, np.uint16)]
    for batch in table.select(list(keys)).to_batches():
        codes = np.zeros(batch.num_rows, np.uint64)
        for column in batch.columns:
            codes = codes ^ _codes(column)
            codes = (codes ^ (codes >> _HALF)) * _MIX
        found.append(((codes >> _HALF) % np.uint64(count)).astype(np.uint16))
    return np.concatenate(found)


def _codes(column: pa.Array) -> Any:
    """A number for each value: equal values have the same one."""
    kind = column.type
    if pa.types.is_floating(kind):
        codes = _of_floats(column.fill_null(0))
    elif pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        numbers = column if pa.types.is_integer(kind) else column.view(f"int{kind.bit_width}")
        codes = np.asarray(numbers.fill_null(0)).astype(np.uint64 if kind == pa.uint64() else np.int64)
    else:
        is_bytes = pa.types.is_large_binary(kind) or pa.types.is_binary(kind)
        texts = column if is_bytes or pa.types.is_large_string(kind) else column.cast(pa.string()).cast(pa.binary())
        codes = _of_bytes(texts.cast(pa.large_binary()))
    codes = codes.view(np.uint64)
    return np.where(np.asarray(column.is_null()), _NULL, codes) if column.null_count else codes


def _of_floats(column: pa.Array) -> Any:
    values = np.asarray(pc.add(column.cast(pa.float64()), 0.0))  # makes 0.0 of -0.0
    return np.where(np.isnan(values), np.nan, values).view(np.uint64)


def _of_bytes(column: pa.Array) -> Any:
    """The sum of each value's bytes, weighted by their places."""
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    data = column.buffers()[2]
    first, last = int(offsets[0]), int(offsets[-1])
    if data is None or first == last:
        return np.zeros(len(column), np.uint64)
    starts = (offsets - first).astype(np.uint32)  # wraps where a batch is larger, which does no harm
    places = np.arange(last - first, dtype=np.uint32) - np.repeat(starts[:-1], np.diff(offsets))
    weighted = np.frombuffer(data, np.uint8)[first:last] * (places * np.uint32(2) + np.uint32(1))
    sums = np.concatenate([np.zeros(1, np.uint32), np.cumsum(weighted, dtype=np.uint32)])[offsets - first]
    return (sums[1:] - sums[:-1]).astype(np.uint64)
