"""Decodes portable Roaring bitmaps into row numbers, with numpy only: Spark's executors need no other package.

64 bits: count │ (high 32 bits │ 32-bit bitmap) …
32 bits: cookie, count │ which containers are runs │ (high 16 bits, cardinality - 1) … │ offsets │ containers
container: sorted 16-bit values, up to 4096 │ 65536 bits │ runs of (first, length - 1)

Source: the Roaring format specification, "Standard 32-bit Roaring Bitmap" and "Extension for 64-bit Implementations".
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np

_PLAIN, _WITH_RUNS = 12346, 12347
_MOST_VALUES = 4096  # in a container that is a list of values
_NO_OFFSETS_BELOW = 4  # a bitmap with runs and fewer containers has no offsets
_LIST, _BITS, _RUNS = "list", "bits", "runs"


def row_numbers(data: bytes) -> np.ndarray:
    """The values of a 64-bit bitmap (int64, ascending). ValueError if `data` is no such bitmap."""
    return np.concatenate([np.zeros(0, np.int64), *(each.values() + each.first for each in _containers(data))])


def are_in(data: bytes, numbers: np.ndarray) -> tuple[np.ndarray, int]:
    """For each of these numbers (int64, ascending) whether a 64-bit bitmap has it, and how many values that has by its
    heads.

    Costs what the numbers do, and little for each container. ValueError as for `row_numbers`.
    """
    found, count = np.zeros(len(numbers), bool), 0
    for each in _containers(data):
        count += each.size()
        low, high = np.searchsorted(numbers, [each.first, each.first + (1 << 16)])
        if high > low:
            found[low:high] = each.has(numbers[low:high] - each.first)
    return found, count


class _Container(NamedTuple):
    """Values from `first` to before `first` + 65536. `content`: as it is stored; of runs, pairs. `told`: the number
    of values by its head."""

    first: int
    kind: str
    content: np.ndarray
    told: int

    def values(self) -> np.ndarray:
        """The values, less `first`."""
        if self.kind == _LIST:
            return self.content.astype(np.int64)
        if self.kind == _BITS:
            return np.flatnonzero(np.unpackbits(self.content, bitorder="little"))
        firsts, lengths = self._runs()
        before = np.cumsum(lengths) - lengths
        return np.repeat(firsts - before, lengths) + np.arange(lengths.sum())

    def size(self) -> int:
        """The number of values."""
        return int(self._runs()[1].sum()) if self.kind == _RUNS else self.told

    def has(self, low: np.ndarray) -> np.ndarray:
        """For each of these numbers, less `first`, whether it is a value."""
        found: np.ndarray
        if self.kind == _BITS:
            found = (self.content[low >> 3] >> (low & 7).astype(np.uint8)) & 1 != 0
        else:
            firsts, lengths = self._runs() if self.kind == _RUNS else (self.content.astype(np.int64), 1)
            at = np.searchsorted(firsts, low, "right") - 1
            found = (at >= 0) & (low < (firsts + lengths)[at])
        return found

    def _runs(self) -> tuple[np.ndarray, np.ndarray]:
        """The first value and the length of each run."""
        pairs = self.content.astype(np.int64)
        return pairs[::2], pairs[1::2] + 1


def _containers(data: bytes) -> Iterator[_Container]:
    """The containers of a 64-bit bitmap, ascending. ValueError if `data` is no such bitmap."""
    try:
        (count,) = struct.unpack_from("<Q", data)
        at = 8
        for _ in range(count):
            (high,) = struct.unpack_from("<I", data, at)
            at = yield from _in_one(data, at + 4, high << 32)
    except struct.error as error:
        raise ValueError("the bitmap ends too early") from error


def _in_one(data: bytes, at: int, begin: int) -> Generator[_Container, None, int]:
    """The containers of the 32-bit bitmap at `at`, whose values are from `begin` on. Returns where it ends."""
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
    heads = _array(data, at, 2 * count, "<u2").tolist()
    at += 4 * count
    if not len(runs) or count >= _NO_OFFSETS_BELOW:
        at += 4 * count
    for index in range(count):
        first, size = begin + (heads[2 * index] << 16), heads[2 * index + 1] + 1
        if len(runs) and runs[index]:
            (number,) = struct.unpack_from("<H", data, at)
            each = _Container(first, _RUNS, _array(data, at + 2, 2 * number, "<u2"), size)
            at += 2 + 4 * number
        elif size <= _MOST_VALUES:
            each = _Container(first, _LIST, _array(data, at, size, "<u2"), size)
            at += 2 * size
        else:
            each = _Container(first, _BITS, _array(data, at, 8192, "u1"), size)
            at += 8192
        yield each
    return at


def _array(data: bytes, at: int, count: int, kind: str) -> np.ndarray:
    width = np.dtype(kind).itemsize
    if at + count * width > len(data):
        raise ValueError("the bitmap ends too early")
    return np.frombuffer(data, kind, count, at)
