"""Compares rows by the contract: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0; in structs, lists and maps too.

rows, pairs of row numbers ─▶ column by column, only pairs that are equal so far ─▶ one bool per pair
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.keys.key_values import comparable_column, whole_numbers


def equal_rows(
    rows: pa.Table, names: Sequence[str], one: np.ndarray, other: np.ndarray, others: pa.Table | None = None
) -> np.ndarray:
    """For each pair of row numbers, whether both rows are equal in these columns (bool).

    `other`: numbers of rows of `others`; None: of the same table.
    """
    equal = np.ones(len(one), bool)
    for name in names:
        left = np.flatnonzero(equal)
        if not len(left):
            break
        columns = rows[name], (rows if others is None else others)[name]
        values = (_taken(column, numbers[left]) for column, numbers in zip(columns, (one, other), strict=True))
        equal[left] = equal_values(*values)
    return equal


def equal_values(one: pa.Array, other: pa.Array) -> np.ndarray:
    """For each place, whether the values of two arrays of one type are equal (bool)."""
    kind = one.type
    if pa.types.is_struct(kind):
        equal = _as_bool(pc.equal(one.is_null(), other.is_null()))
        valid = _as_bool(one.is_valid())
        for number in range(kind.num_fields):
            equal &= ~valid | equal_values(pc.struct_field(one, number), pc.struct_field(other, number))
        return equal
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _equal_lists(one, other)
    if pa.types.is_floating(kind):
        one, other = (comparable_column(pa.chunked_array([values])).combine_chunks() for values in (one, other))
    if not one.null_count and not other.null_count:
        return _as_bool(pc.equal(one, other))
    nulls = _as_bool(one.is_null()), _as_bool(other.is_null())
    same = _as_bool(pc.fill_null(pc.equal(one, other), False))
    result: np.ndarray = same | (nulls[0] & nulls[1])
    return result


def _equal_lists(one: pa.Array, other: pa.Array) -> np.ndarray:
    """A list equals a list with equal values at all places; a map one with equal entries in the same order."""
    valid = _as_bool(one.is_valid()), _as_bool(other.is_valid())
    begins, lengths = zip(*(_spans(values) for values in (one, other)), strict=True)
    equal: np.ndarray = (valid[0] == valid[1]) & (~valid[0] | (lengths[0] == lengths[1]))
    pairs = np.flatnonzero(equal & valid[0] & (lengths[0] > 0))
    if not len(pairs):
        return equal
    count = lengths[0][pairs]
    firsts = np.cumsum(count) - count
    within = np.arange(int(count.sum())) - np.repeat(firsts, count)
    entries = [
        values.take(whole_numbers(np.repeat(begin[pairs], count) + within))
        for part, begin in zip((one, other), begins, strict=True)
        for values in _children(part)
    ]
    half = len(entries) // 2
    same = np.ones(len(within), bool)
    for left, right in zip(entries[:half], entries[half:], strict=True):
        same &= equal_values(left, right)
    equal[pairs] = np.logical_and.reduceat(same, firsts)
    return equal


def _children(values: pa.Array) -> list[pa.Array]:
    return [values.keys, values.items] if pa.types.is_map(values.type) else [values.values]


def _spans(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Where each list begins in the values, and how long it is."""
    offsets = np.asarray(values.offsets).astype(np.int64)
    return offsets[:-1], np.diff(offsets)


def _taken(column: pa.ChunkedArray, numbers: np.ndarray) -> pa.Array:
    taken = column.take(whole_numbers(numbers))
    if isinstance(taken, pa.ChunkedArray):
        taken = taken.chunk(0) if taken.num_chunks == 1 else taken.combine_chunks()
    return taken.dictionary_decode() if pa.types.is_dictionary(taken.type) else taken


def _as_bool(values: pa.Array) -> np.ndarray:
    return np.asarray(values.cast(pa.uint8())).astype(bool)
