"""What driver and tasks send each other: pickled values, in which tables and row numbers take few bytes.

    dumps ─▶ pickle, but: Arrow tables as compressed streams, row numbers (int64) and flags (uint8) packed ─▶ loads

This module is imported on executors and imports no PySpark.
"""

from __future__ import annotations

import io
import pickle
import struct
import zlib
from typing import Any

import numpy as np
import pyarrow as pa

from lakemirror.engines.kernels.decode import MemoryBudget
from lakemirror.errors import LakemirrorError
from lakemirror.keys.wanted_keys import WantedKeys

_BITS, _STEPS = 0, 1


def dumps(value: Any) -> bytes:
    """The value as bytes. Arrays of int64 in it must be row numbers: from 0, ascending, distinct."""
    sink = io.BytesIO()
    _Pickler(sink, pickle.HIGHEST_PROTOCOL).dump(value)
    return sink.getvalue()


def loads(data: bytes) -> Any:
    """The value from the bytes of `dumps`."""
    return pickle.loads(data)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, pa.Table):
            return unstream, (stream(value),)
        if isinstance(value, np.ndarray) and value.dtype == np.int64:
            return unpacked, (packed(value),)
        if isinstance(value, np.ndarray) and value.dtype == np.uint8:
            return _flags, (zlib.compress(value.tobytes(), 1),)
        if isinstance(value, WantedKeys):
            return WantedKeys, (value.keys,)
        if isinstance(value, MemoryBudget):  # each task has its own
            return MemoryBudget, (value.size,)
        if isinstance(value, LakemirrorError):
            return _error, (value.code, value.message, value.file)
        return NotImplemented


def stream(table: pa.Table) -> bytes:
    """A table as a compressed Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def unstream(data: bytes) -> pa.Table:
    """The table from the bytes of `stream`."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


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


def _flags(data: bytes) -> np.ndarray:
    return np.frombuffer(zlib.decompress(data), np.uint8)


def _error(code: str, message: str, file: str | None) -> LakemirrorError:
    return LakemirrorError(code, message, file=file)
