"""Packs sets of row numbers into few bytes, to send them between driver and tasks. Needs numpy only."""

from __future__ import annotations

import struct
import zlib

import numpy as np

_BITS, _STEPS = 0, 1


def packed(numbers: np.ndarray) -> bytes:
    """The numbers (int64, from 0, ascending, distinct) as bytes: as bits, or as differences if they are few."""
    if not len(numbers):
        return struct.pack("<BQQ", _STEPS, 0, 0)
    first, last = int(numbers[0]), int(numbers[-1])
    span = last - first + 1
    if len(numbers) * 64 < span:
        steps = np.diff(numbers, prepend=first)
        return struct.pack("<BQQ", _STEPS, first, len(numbers)) + zlib.compress(steps.tobytes(), 1)
    bits = np.zeros(span, bool)
    bits[numbers - first] = True
    return struct.pack("<BQQ", _BITS, first, span) + zlib.compress(np.packbits(bits).tobytes(), 1)


def unpacked(data: bytes) -> np.ndarray:
    """The row numbers from the bytes of `packed`."""
    numbers: np.ndarray
    kind, first, size = struct.unpack_from("<BQQ", data)
    content = zlib.decompress(data[17:]) if len(data) > 17 else b""
    if kind == _STEPS:
        numbers = np.cumsum(np.frombuffer(content, np.int64))
    else:
        numbers = np.flatnonzero(np.unpackbits(np.frombuffer(content, np.uint8), count=size)).astype(np.int64)
    numbers += first
    return numbers
