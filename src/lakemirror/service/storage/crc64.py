"""CRC-64/NVME, the checksum of the header `x-ms-content-crc64`, fast enough for uploads in plain numpy.

    data ─▶ 1,024 lanes side by side, one byte of each a step ─▶ lanes joined pairwise ─▶ state

A CRC is linear: the state after `a + b` is the state after `a`, moved over the length of `b`, xor that of `b` alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_POLYNOMIAL = 0x9A6C9329AC4BC9B5
_LANES = 1024


class Crc64:
    """The checksum of bytes that arrive in pieces."""

    def __init__(self) -> None:
        self._state = np.uint64(0xFFFFFFFFFFFFFFFF)

    def update(self, data: bytes) -> None:
        """Takes the next bytes."""
        width = len(data) // _LANES
        head = width * _LANES
        if width:
            lanes = np.frombuffer(data, np.uint8, head).reshape(_LANES, width).astype(np.uint64)
            states = _steps(np.zeros(_LANES, np.uint64), lanes)
            shift = _shift_over(width)
            while len(states) > 1:
                states = _apply(shift, states[0::2]) ^ states[1::2]
                shift = _apply(shift, shift)
            self._state = _apply(_shift_over(head), np.array([self._state]))[0] ^ states[0]
        rest = np.frombuffer(data, np.uint8, len(data) - head, head).astype(np.uint64)
        self._state = _steps(np.array([self._state]), rest.reshape(1, -1))[0]

    def digest(self) -> bytes:
        """The 8 bytes that the header carries in Base64: little endian."""
        return int(~self._state).to_bytes(8, "little")


def _steps(states: Words, columns: Words) -> Words:
    for column in range(columns.shape[1]):
        states = _TABLE[(states ^ columns[:, column]) & np.uint64(0xFF)] ^ (states >> np.uint64(8))
    return states


def _shift_over(length: int) -> Words:
    """The matrix that moves a state over `length` zero bytes: the image of each of its 64 bits."""
    bits = np.uint64(1) << np.arange(64, dtype=np.uint64)
    shift, step = bits, _TABLE[bits & np.uint64(0xFF)] ^ (bits >> np.uint64(8))
    while length:
        if length & 1:
            shift = _apply(step, shift)
        step = _apply(step, step)
        length >>= 1
    return shift


def _apply(matrix: Words, states: Words) -> Words:
    moved = np.zeros_like(states)
    for bit in range(64):
        moved ^= matrix[bit] * ((states >> np.uint64(bit)) & np.uint64(1))
    return moved


def _table() -> Words:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return np.array(table, np.uint64)


_TABLE = _table()
