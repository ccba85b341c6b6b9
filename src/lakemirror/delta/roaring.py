"""Decodes portable Roaring bitmaps into row numbers, with numpy only: Spark's executors need no other package.

64 bits: count │ (high 32 bits │ 32-bit bitmap) …
32 bits: cookie, count │ which containers are runs │ (high 16 bits, cardinality - 1) … │ offsets │ containers
container: sorted 16-bit values, up to 4096 │ 65536 bits │ runs of (first, length - 1)

Source: the Roaring format specification, "Standard 32-bit Roaring Bitmap" and "Extension for 64-bit Implementations".
"""

from __future__ import annotations

import struct

import numpy as np

_PLAIN, _WITH_RUNS = 12346, 12347
_MOST_VALUES = 4096  # in a container that is a list of values
_NO_OFFSETS_BELOW = 4  # a bitmap with runs and fewer containers has no offsets


def row_numbers(data: bytes) -> np.ndarray:
    """The values of a 64-bit bitmap (int64, ascending). ValueError if `data` is no such bitmap."""
    try:
        (count,) = struct.unpack_from("<Q", data)
        at, parts = 8, [np.zeros(0, np.int64)]
        for _ in range(count):
            (high,) = struct.unpack_from("<I", data, at)
            low, at = _values(data, at + 4)
            parts += [part + (high << 32) for part in low]
    except struct.error as error:
        raise ValueError("the bitmap ends too early") from error
    return np.concatenate(parts)


def _values(data: bytes, at: int) -> tuple[list[np.ndarray], int]:
    """The values of the 32-bit bitmap that begins at `at`, one array per container, and the position of its end."""
    (cookie,) = struct.unpack_from("<I", data, at)
    at += 4
    runs = np.zeros(0, np.uint8)
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        runs = np.unpackbits(_array(data, at, (count + 7) // 8, "u1"), bitorder="little")
        at += (count + 7) // 8
    elif cookie == _PLAIN:
        (count,) = struct.unpack_from("<I", data, at)
        at += 4
    else:
        raise ValueError(f"{cookie} is not the first number of a Roaring bitmap")
    heads = _array(data, at, 2 * count, "<u2")
    at += 4 * count
    if not len(runs) or count >= _NO_OFFSETS_BELOW:
        at += 4 * count
    found = []
    for index in range(count):
        high, size = int(heads[2 * index]) << 16, int(heads[2 * index + 1]) + 1
        if len(runs) and runs[index]:
            (number,) = struct.unpack_from("<H", data, at)
            pairs = _array(data, at + 2, 2 * number, "<u2").astype(np.int64)
            firsts, lengths = pairs[::2], pairs[1::2] + 1
            before = np.cumsum(lengths) - lengths
            low = np.repeat(firsts - before, lengths) + np.arange(lengths.sum())
            at += 2 + 4 * number
        elif size <= _MOST_VALUES:
            low = _array(data, at, size, "<u2").astype(np.int64)
            at += 2 * size
        else:
            low = np.flatnonzero(np.unpackbits(_array(data, at, 8192, "u1"), bitorder="little"))
            at += 8192
        found.append(low + high)
    return found, at


def _array(data: bytes, at: int, count: int, kind: str) -> np.ndarray:
    width = np.dtype(kind).itemsize
    if at + count * width > len(data):
        raise ValueError("the bitmap ends too early")
    return np.frombuffer(data, kind, count, at)
