"""The events of a transaction that MySQL has compressed (`binlog_transaction_compression`), one after another.

fields: algorithm, sizes ─▶ the rest, decompressed as it is read ─▶ events without checksums
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.mariadb.table_maps import lenenc

_HEADER = 19  # bytes
_END, _ALGORITHM = 0, 2
_ZSTD, _NONE = 0, 255


def unpacked(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Each event's kind, and its content behind its header. `capture-source-failed` where it cannot be read."""
    at, algorithm = 0, _NONE
    while True:
        kind, at = lenenc(body, at)
        if kind == _END:
            break
        size, at = lenenc(body, at)
        if kind == _ALGORITHM:
            algorithm, _ = lenenc(body, at)
        at += size
    if algorithm not in (_ZSTD, _NONE):
        raise LakemirrorError("capture-source-failed", f"a transaction is compressed by the algorithm {algorithm}")
    source = pa.BufferReader(pa.py_buffer(body).slice(at))
    events = pa.CompressedInputStream(source, "zstd") if algorithm == _ZSTD else source
    try:
        while header := events.read(_HEADER):
            _, kind, _, length = struct.unpack_from("<IBII", header)
            yield kind, _exactly(events, length - _HEADER)
    except (OSError, struct.error) as error:
        raise LakemirrorError(
            "capture-source-failed", f"a compressed transaction of the binary log cannot be read: {error}"
        ) from None


def _exactly(events: pa.NativeFile, size: int) -> bytes:
    found: bytes = events.read(size)
    if len(found) != size:
        raise OSError("it is cut off")
    return found
