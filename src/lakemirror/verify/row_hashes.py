"""Rows as 64-bit numbers: equal rows give equal numbers, whatever file, batch or order they come from.

Vectorised: whole columns at once, in numpy. Two independent numbers of a key identify it among billions.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Hashes = np.ndarray[Any, np.dtype[np.uint64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]

NULL = np.uint64(0x9E3779B97F4A7C15)
"""The hash of NULL in any column."""
_BASE = np.uint64(0x5851F42D4C957F2D)  # odd, so that its powers never vanish
_PIECE = 1 << 20  # bytes of text that are multiplied at once

_generator = np.random.Generator(np.random.PCG64(20260701))
_OF_BYTE = _generator.integers(1, 1 << 64, 256, np.uint64)


def row_hashes(columns: Sequence[pa.Array], rows: int, seed: int) -> Hashes:
    """One number for each row over these columns, in their order; of another `seed` independent ones."""
    return combined([column_hashes(column) for column in columns], rows, seed)


def combined(columns: Sequence[Hashes], rows: int, seed: int) -> Hashes:
    """`row_hashes` from the hashes of the columns."""
    found = np.full(rows, np.uint64(seed), np.uint64)
    for index, hashes in enumerate(columns):
        salt = np.uint64(((index + 1) * int(NULL) + seed) % (1 << 64))
        found = mixed(found ^ mixed(hashes + salt))
    return found


def column_hashes(column: pa.Array) -> Hashes:
    """One number for each value: NULL equals NULL, NaN equals NaN, -0.0 equals 0.0 (contract section 3).

    TypeError for a nested type.
    """
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), NULL, np.uint64)
    is_fixed = pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or is_fixed:
        column = column.cast(pa.binary())
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        found = _of_text(column)
    elif pa.types.is_decimal128(kind):
        words = np.frombuffer(column.buffers()[1], np.uint64)[column.offset * 2 : (column.offset + len(column)) * 2]
        found = mixed(words[0::2]) ^ mixed(words[1::2] + _BASE)
    else:
        found = mixed(_as_words(column))
    if column.null_count:
        found = found.copy()
        found[np.asarray(column.is_null())] = NULL
    return found


def mixed(values: Hashes) -> Hashes:
    """The finaliser of SplitMix64: every bit of the input changes half the bits of the result."""
    values = values ^ (values >> np.uint64(30))
    values = values * np.uint64(0xBF58476D1CE4E5B9)
    values = values ^ (values >> np.uint64(27))
    values = values * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _as_words(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_floating(kind):
        column = column.cast(pa.float64())
        values = np.asarray(pc.fill_null(column, 0.0), np.float64) + 0.0  # makes 0.0 of -0.0
        words = values.view(np.uint64).copy()
        words[np.isnan(values)] = np.uint64(0x7FF8000000000000)
        return words
    if pa.types.is_date32(kind):
        column = column.view(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_date64(kind) or pa.types.is_duration(kind):
        column = column.view(pa.int64())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not pa.types.is_integer(kind):
        raise TypeError(f"values of type {kind} are not compared")
    return np.asarray(pc.fill_null(column, 0).cast(pa.int64())).view(np.uint64)


def _of_text(column: pa.Array) -> Hashes:
    """A polynomial over the bytes of each value, by prefix sums; with the length mixed in."""
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    offsets = ends.astype(np.int64)
    lengths = np.diff(offsets)
    data = column.buffers()[2]
    found = np.zeros(len(column), np.uint64)
    if data is not None and len(column):
        content = np.frombuffer(data, np.uint8)
        begin = 0
        while begin < len(column):
            end = max(begin + 1, int(np.searchsorted(offsets, offsets[begin] + _PIECE, "right")) - 1)
            if lengths[begin] > _PIECE:
                found[begin] = _of_long(content[offsets[begin] : offsets[end]])
            else:
                found[begin:end] = _of_piece(content, offsets[begin : end + 1])
            begin = end
    return mixed(found ^ mixed(lengths.astype(np.uint64) + _BASE))


def _of_piece(content: Bytes, offsets: np.ndarray[Any, np.dtype[np.int64]]) -> Hashes:
    """The polynomials of values that have at most `_PIECE` bytes together."""
    first, last = int(offsets[0]), int(offsets[-1])
    places = offsets - first
    power, inverse = _powers()
    sums = np.zeros(last - first + 1, np.uint64)
    np.cumsum(_OF_BYTE[content[first:last]] * power[: last - first], out=sums[1:])
    return (sums[places[1:]] - sums[places[:-1]]) * inverse[places[:-1]]


def _of_long(value: Bytes) -> np.uint64:
    """The polynomial of one value of any length, piece by piece."""
    power, _ = _powers()
    total, factor = 0, 1
    for begin in range(0, len(value), _PIECE):
        piece = value[begin : begin + _PIECE]
        total += factor * int((_OF_BYTE[piece] * power[: len(piece)]).sum(dtype=np.uint64))
        factor = factor * pow(int(_BASE), _PIECE, 1 << 64) % (1 << 64)
    return np.uint64(total % (1 << 64))


@functools.cache
def _powers() -> tuple[Hashes, Hashes]:
    """The powers of the base from 0 to `_PIECE`, and those of its inverse modulo 2^64."""
    base = np.full(_PIECE + 1, _BASE, np.uint64)
    inverse = np.full(_PIECE + 1, np.uint64(pow(int(_BASE), -1, 1 << 64)), np.uint64)
    base[0] = inverse[0] = 1
    return np.cumprod(base), np.cumprod(inverse)
