"""Compares keys by the contract (section 3): NULL equals NULL, NaN equals NaN, -0.0 equals 0.0, strings by bytes.

comparable(keys)      the keys in a form whose values are equal exactly if the keys are equal
key_codes(keys)       one number per row, equal exactly if the keys are equal
key_bucket(keys, n)   one of n buckets per row; the same in every process and on every machine
"""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LARGE = 1 << 30  # a column with more bytes may be too large for 32-bit offsets
_FACTOR = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2^64
_INVERSE = pow(_FACTOR, -1, 1 << 64)
_BYTES_AT_ONCE = 1 << 20
_DENSE = 8  # numbers are dense if at most so many are missing for each one that occurs: arrays have a place for each
_FEW_RUNS = 4  # up to so many runs of rising numbers a stable `argsort` is faster than a sort of plain numbers
_NULL = np.uint64(0x6A09E667F3BCC909)


def comparable(keys: pa.Table) -> pa.Table:
    """The keys in a form whose values are equal exactly if the keys are equal. Column names stay.

    Floating-point values become their bits, with one NaN and one zero.
    """
    return pa.table({name: comparable_column(keys[name]) for name in keys.column_names})


def comparable_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """`comparable` for one key column."""
    if pa.types.is_floating(column.type):
        chunks = [_bits(chunk) for chunk in column.chunks]
        return pa.chunked_array(chunks, _bits_type(column.type))
    if column.nbytes > _LARGE and (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        return column.cast(pa.large_string() if pa.types.is_string(column.type) else pa.large_binary())
    return column


def key_codes(keys: pa.Table) -> np.ndarray:
    """One number per row (int64), equal exactly if the keys are equal. `keys`: in the form of `comparable`."""
    if keys.num_columns == 1:
        return _column_codes(keys.column(0))[0]
    codes, width = np.zeros(keys.num_rows, np.int64), 1
    for column in keys.columns:
        more, size = _column_codes(column)
        codes, width = codes * size + more, width * size
        if width > _DENSE * len(codes) + 1024:
            codes, width = _ranked(codes)
    return codes


def each_once(keys: pa.Table) -> pa.Table:
    """The keys without repetitions; the same table if it has none."""
    if keys.num_columns == 1 and is_number(keys.column(0).type) and not keys.column(0).null_count:
        numbers = np.sort(numbers_of(keys.column(0)))
        if (numbers[1:] != numbers[:-1]).all():
            return keys
    codes = key_codes(comparable(keys))
    is_there = np.zeros(int(codes.max(initial=-1)) + 1, bool)
    is_there[codes] = True
    if np.count_nonzero(is_there) == len(codes):
        return keys
    return keys.take(whole_numbers(np.unique(codes, return_index=True)[1]))


def key_bucket(keys: pa.Table, buckets: int) -> np.ndarray:
    """The bucket of each row (int64, from 0). Equal keys of the same types have the same bucket in every process."""
    return (key_hashes(keys) % np.uint64(max(1, buckets))).astype(np.int64)


def key_hashes(keys: pa.Table) -> np.ndarray:
    """A hash for each row (uint64). Equal keys have equal hashes; different keys have equal hashes only by chance."""
    found = np.zeros(keys.num_rows, np.uint64)
    for column in comparable(keys).columns:
        hashes = [_hashes(chunk) for chunk in column.chunks]
        with np.errstate(over="ignore"):
            found = mixed(found * np.uint64(31) + (np.concatenate(hashes) if hashes else found))
    return found


def mixed(values: np.ndarray) -> np.ndarray:
    """A permutation of 64-bit numbers whose low bits depend on all bits."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        result: np.ndarray = values ^ (values >> np.uint64(31))
    return result


def _column_codes(column: pa.ChunkedArray) -> tuple[np.ndarray, int]:
    """Codes of one column, and a number above all of them. Whole numbers are not hashed: their code is the distance
    from the lowest one if they are dense, else how many lower ones there are."""
    if is_number(column.type) and not column.null_count and len(column):
        values = numbers_of(column)
        low, high = int(values.min()), int(values.max())
        if high - low > _DENSE * len(values) + 1024:
            return _ranked(values)
        kind = np.uint64 if values.dtype == np.uint64 else np.int64  # others may be too narrow for the distance
        return np.subtract(values, values.dtype.type(low), dtype=kind).astype(np.int64, copy=False), high - low + 1
    return _encoded(combined(column))


def _ranked(values: np.ndarray) -> tuple[np.ndarray, int]:
    """For each number how many lower ones there are, each counted once; and a number above all of these."""
    order, its = _ordered(values)
    ranks = np.zeros(len(values), np.int64)
    np.cumsum(its[1:] != its[:-1], out=ranks[1:])
    codes = np.empty(len(values), np.int64)
    codes[order] = ranks
    return codes, int(ranks[-1]) + 1


def _encoded(values: pa.Array) -> tuple[np.ndarray, int]:
    encoded = values.dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices.cast(pa.int64())), len(encoded.dictionary)


def order_of(numbers: np.ndarray) -> np.ndarray:
    """The order of whole numbers, as `argsort` gives it; of equal ones the first stays first."""
    return _ordered(numbers)[0]


def _ordered(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`order_of`, and the numbers in that order, or their distances from the lowest.

    The place of each number is sorted with it, in its lowest bits, where both fit: a sort of plain numbers is many
    times faster than a stable `argsort`, but for numbers that rise all the way or nearly so.
    """
    bits = len(numbers).bit_length()
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if high - low >= 1 << (63 - bits) or np.count_nonzero(numbers[1:] < numbers[:-1]) < _FEW_RUNS:
        order = np.argsort(numbers, kind="stable")
        return order, numbers[order]
    distance: np.ndarray = np.subtract(numbers, numbers.dtype.type(low), dtype=np.int64)
    distance <<= bits
    distance |= np.arange(len(numbers))
    distance.sort()
    return distance & ((1 << bits) - 1), distance >> bits


def whole_numbers(values: np.ndarray) -> pa.Array:
    """The numbers as an Arrow array of int64. Unlike `pa.array`, it does not import `numpy.ma`, which takes 0.05 s."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values, np.int64))])


def combined(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array; without a copy where it is one already."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def is_number(kind: pa.DataType) -> bool:
    """True for key types that are compared as integers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind) or pa.types.is_timestamp(kind))


def numbers_of(values: pa.ChunkedArray) -> np.ndarray:
    """The values as integers: dates as days since 1970, timestamps as microseconds since 1970."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    return np.asarray(combined(values))


def _bits_type(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if kind == pa.float64() else pa.int32()


def _bits(values: pa.Array) -> pa.Array:
    numbers = np.array(values.fill_null(pa.scalar(0.0, values.type)))
    numbers[numbers == 0] = 0  # also -0.0
    numbers[np.isnan(numbers)] = np.nan
    kind = _bits_type(values.type)
    found = pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])
    if not values.null_count:
        return found
    return pc.if_else(values.is_valid(), found, pa.scalar(None, kind))


def _hashes(values: pa.Array) -> np.ndarray:
    """A hash for each value (uint64) that depends only on the value."""
    kind = values.type
    if (
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or kind == pa.large_binary()
    ):
        found = _text_hashes(values)
    elif pa.types.is_decimal(kind):
        found = _decimal_hashes(values)
    else:
        if pa.types.is_boolean(kind):
            values = values.cast(pa.int8())
        elif pa.types.is_date32(kind):
            values = values.cast(pa.int32())
        elif pa.types.is_timestamp(kind):
            values = values.cast(pa.int64())
        whole = np.asarray((values if pa.types.is_uint64(kind) else values.cast(pa.int64())).fill_null(0))
        found = mixed(whole.astype(np.int64).view(np.uint64) + np.uint64(1))
    if values.null_count:
        found = np.where(np.asarray(values.is_null().cast(pa.uint8())).astype(bool), _NULL, found)
    return found


def _decimal_hashes(values: pa.Array) -> np.ndarray:
    values = values.cast(pa.decimal128(38, values.type.scale))
    data = values.buffers()[1]
    words = np.frombuffer(data, np.uint64)[2 * values.offset : 2 * (values.offset + len(values))].reshape(-1, 2)
    with np.errstate(over="ignore"):
        return mixed(mixed(words[:, 0] + np.uint64(1)) * np.uint64(31) + words[:, 1])


def _text_hashes(values: pa.Array) -> np.ndarray:
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    _, offset_buffer, data_buffer = values.buffers()
    width = np.int64 if large else np.int32
    offsets = np.frombuffer(offset_buffer, width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    found = np.zeros(len(values), np.uint64)
    begin = 0
    while begin < len(values):
        end = int(np.searchsorted(offsets, offsets[begin] + _BYTES_AT_ONCE, "right")) - 1
        end = min(end, len(values))
        if end <= begin:  # one value is longer than `_BYTES_AT_ONCE`
            one = data[offsets[begin] : offsets[begin + 1]].tobytes()
            found[begin] = int.from_bytes(hashlib.blake2b(one, digest_size=8).digest(), "little")
            begin += 1
            continue
        found[begin:end] = _polynomials(data, offsets[begin : end + 1])
        begin = end
    return mixed(found)


def _polynomials(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """For each value the sum of (byte + 1) * factor^position, modulo 2^64."""
    powers, inverses = _powers()
    first = int(offsets[0])
    part = data[first : int(offsets[-1])]
    with np.errstate(over="ignore"):
        sums = np.zeros(len(part) + 1, np.uint64)
        np.cumsum((part.astype(np.uint64) + np.uint64(1)) * powers[: len(part)], out=sums[1:])
        places = offsets - first
        found: np.ndarray = (sums[places[1:]] - sums[places[:-1]]) * inverses[places[:-1]]
    return found


@cache
def _powers() -> tuple[np.ndarray, np.ndarray]:
    """factor^0, factor^1, …, and their inverses."""
    count = _BYTES_AT_ONCE + 1
    with np.errstate(over="ignore"):
        both = []
        for base in (_FACTOR, _INVERSE):
            found = np.full(count, base, np.uint64)
            found[0] = 1
            both.append(np.multiply.accumulate(found))
    return both[0], both[1]
