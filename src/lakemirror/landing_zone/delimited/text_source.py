"""A delimited file as blocks of UTF-8: decompressed by its suffix, decoded as declared, without its byte-order mark."""

from __future__ import annotations

import codecs
import gzip
import io
import struct
import zlib
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from lakemirror.errors import TableError

BLOCK = 2 * 1024 * 1024  # bytes of the file that are looked at together

_FRAMED = b"\xff\x06\x00\x00sNaPpY"
_MOST_IN_CHUNK = 64 * 1024 * 1024
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def utf8_blocks(source: IO[bytes], file: str, encoding: str) -> Iterator[bytes]:
    """The file's text in UTF-8, in blocks that may end anywhere, also within a character.

    Bytes of a file that is UTF-8 already are passed on as they are, valid or not. A byte-order mark wins over a
    declared UTF-8. TableError `file-unreadable` where the file does not decompress or decode.
    """
    blocks = _decompressed(source, file)
    first = next(blocks, b"")
    while len(first) < 4 and (more := next(blocks, b"")):
        first += more
    codec = codecs.lookup(encoding).name
    if codec in ("utf-8", "utf-8-sig"):
        codec = next((name for mark, name in _MARKS if first.startswith(mark)), "utf-8")
    if codec == "utf-8":
        yield first.removeprefix(codecs.BOM_UTF8)
        yield from blocks
        return
    decoder = codecs.getincrementaldecoder(codec)()
    line = 1
    try:
        text = decoder.decode(first).removeprefix("\ufeff")
        for block in blocks:
            yield text.encode("utf-8")
            line += text.count("\n")
            text = decoder.decode(block)
        yield text.encode("utf-8")
        line += text.count("\n")
        yield decoder.decode(b"", final=True).encode("utf-8")
    except UnicodeError as error:
        raise TableError(
            "file-unreadable",
            f"{file}: the text is not {encoding}, at line {line} or shortly after",
            file=file,
            row=line,
            hint="Declare the encoding that the file has, such as windows-1252 or utf-16, in fileFormatTypeProperties.",
        ) from error


def _decompressed(source: IO[bytes], file: str) -> Iterator[bytes]:
    suffix = file.rpartition(".")[2].lower()
    try:
        if suffix == "gz":
            yield from _blocks(gzip.GzipFile(fileobj=source))
        elif suffix == "zst":
            yield from _blocks(pa.CompressedInputStream(pa.PythonFile(_Borrowed(source), mode="r"), "zstd"))
        elif suffix == "snappy":
            yield from _snappy(source)
        else:
            yield from _blocks(source)
    except (OSError, EOFError, zlib.error, struct.error, pa.ArrowException, ValueError, MemoryError) as error:
        if isinstance(error, UnicodeError | FileNotFoundError):
            raise
        raise TableError("file-unreadable", f"{file} does not decompress: {error}", file=file) from error


class _Borrowed(io.RawIOBase):
    """A file that stays open when Arrow closes what it was given: it is read again from its beginning."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._source.read(size)


def _blocks(stream: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    while block := stream.read(BLOCK):
        yield bytes(block)


def _snappy(source: IO[bytes]) -> Iterator[bytes]:
    """Snappy as its own framing format has it, as Hadoop and Spark write it, or as one raw piece."""
    start = source.read(len(_FRAMED))
    if start == _FRAMED:
        yield from _framed(source)
        return
    total, length = struct.unpack(">II", start[:8]) if len(start) >= 8 else (0, 0)
    if 0 < length <= _MOST_IN_CHUNK and 0 < total <= _MOST_IN_CHUNK and length <= 2 * total + 64:
        yield from _hadoop(source, start)
        return
    rest = source.read(_MOST_IN_CHUNK)
    if source.read(1):
        raise ValueError("a raw snappy piece of more than 64 MiB")
    yield _raw(start + rest)


def _framed(source: IO[bytes]) -> Iterator[bytes]:
    while head := source.read(4):
        kind, length = head[0], int.from_bytes(head[1:4], "little")
        body = _exactly(source, length)
        if kind == 0x00:
            yield _raw(body[4:])  # behind its checksum
        elif kind == 0x01:
            yield body[4:]
        elif kind < 0x80:
            raise ValueError(f"unknown snappy chunk {kind:#x}")


def _hadoop(source: IO[bytes], start: bytes) -> Iterator[bytes]:
    """Blocks of pieces: how long the block will be, then each piece with its length."""
    ahead = start
    while True:
        head = ahead[:4] or source.read(4)
        ahead = ahead[4:]
        if not head:
            return
        left = struct.unpack(">I", head)[0]
        while left > 0:
            length = ahead[:4] + _exactly(source, 4 - len(ahead[:4]))
            ahead = ahead[4:]
            wanted = struct.unpack(">I", length)[0]
            piece = _raw(ahead + _exactly(source, wanted - len(ahead)))
            ahead = b""
            left -= len(piece)
            yield piece


def _exactly(source: IO[bytes], length: int) -> bytes:
    if not 0 <= length <= _MOST_IN_CHUNK:
        raise ValueError("a snappy piece of more than 64 MiB")
    body = source.read(length)
    if len(body) != length:
        raise EOFError("the snappy stream ends too early")
    return body


def _raw(body: bytes) -> bytes:
    size = shift = 0
    for byte in body[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > _MOST_IN_CHUNK:
        raise ValueError("a snappy piece of more than 64 MiB")
    return bytes(pa.decompress(body, decompressed_size=size, codec="snappy").to_pybytes()) if size else b""
