"""The pages of a Parquet column as their own headers describe them: what Arrow's reader does not compare.

A reader stops at the number of rows that the footer gives; rows that the pages hold beyond it are lost without an
error. So the headers are read, without the pages, and their counts are held against the footer's. Format:
parquet.thrift, `PageHeader`, in Thrift's compact encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

DATA, INDEX, DICTIONARY, DATA_V2 = 0, 1, 2, 3
PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, DELTA_BINARY, DELTA_LENGTH, DELTA_BYTES, RLE_DICTIONARY, SPLIT = (
    0, 2, 3, 4, 5, 6, 7, 8, 9,
)  # fmt: skip

_READABLE = {PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED, DELTA_BINARY, DELTA_LENGTH, DELTA_BYTES, RLE_DICTIONARY, SPLIT}
_KINDS = (DATA, INDEX, DICTIONARY, DATA_V2)
_FIRST_LOOK = 256  # bytes; statistics make headers longer
_LONGEST_HEADER = 16 << 20
_SMALL_CHUNK = 128 << 10  # read at once


@dataclass(frozen=True)
class Page:
    """A page: `values` with NULLs, `rows` where its header says them; `size` after decompression, in bytes."""

    kind: int
    values: int
    size: int
    encoding: int
    rows: int | None = None


def pages(read_at: Callable[[int, int], bytes], chunk: Any) -> list[Page]:
    """The pages of a column chunk. `read_at(offset, size)` gives bytes of the file; `chunk`: its footer's metadata.

    ValueError where headers make no sense, leave the chunk, or name an encoding that nobody reads.
    """
    begin = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
        begin = min(begin, chunk.dictionary_page_offset) if chunk.dictionary_page_offset > 0 else begin
    return list(_pages(read_at, begin, begin + chunk.total_compressed_size))


def _pages(read_at: Callable[[int, int], bytes], begin: int, end: int) -> Iterator[Page]:
    whole = read_at(begin, end - begin) if end - begin <= _SMALL_CHUNK else None
    at = begin
    while at < end:
        fields, length = _header(read_at, whole, begin, at, end)
        kind, size, compressed = fields.get(1), fields.get(2), fields.get(3)
        if kind not in _KINDS or not isinstance(size, int) or not isinstance(compressed, int):
            raise ValueError(f"the page header at byte {at} makes no sense")
        if size < 0 or compressed < 0 or at + length + compressed > end:
            raise ValueError(f"the page at byte {at} does not end in its column")
        if kind != INDEX:
            yield _page(kind, size, fields.get({DATA: 5, DICTIONARY: 7, DATA_V2: 8}[kind]), at)
        at += length + compressed


def _page(kind: int, size: int, header: Any, at: int) -> Page:
    if not isinstance(header, dict):
        raise ValueError(f"the page header at byte {at} lacks its counts")
    values, encoding = header.get(1), header.get(4 if kind == DATA_V2 else 2)
    rows = header.get(3) if kind == DATA_V2 else None
    if not isinstance(values, int) or values < 0 or (rows is not None and not 0 <= rows <= values):
        raise ValueError(f"the page header at byte {at} has impossible counts")
    if encoding not in _READABLE:
        raise ValueError(f"the page at byte {at} has the unknown encoding {encoding}")
    return Page(kind, values, size, encoding, rows)


def _header(
    read_at: Callable[[int, int], bytes], whole: bytes | None, begin: int, at: int, end: int
) -> tuple[dict[int, Any], int]:
    """A page header's fields by their numbers, and its length."""
    look = _FIRST_LOOK
    while True:
        if whole is not None:
            data, place, last = whole, at - begin, True
        else:
            look = min(look, end - at)
            data, place, last = read_at(at, look), 0, look >= min(end - at, _LONGEST_HEADER)
        try:
            fields, after = _struct(data, place, 0)
            return fields, after - place
        except IndexError:
            if last:
                raise ValueError(f"the page header at byte {at} does not end") from None
            look *= 16


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """A Thrift struct. IndexError where the data ends in it."""
    if depth > 8:
        raise ValueError("a page header nests too deep")
    fields: dict[int, Any] = {}
    number = 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            return fields, at
        if head >> 4:
            number += head >> 4
        else:
            raw, at = _varint(data, at)
            number = (raw >> 1) ^ -(raw & 1)
        kind = head & 15
        if kind == 5 or kind == 6 or kind == 4:
            raw, at = _varint(data, at)
            fields[number] = (raw >> 1) ^ -(raw & 1)
        elif kind == 1 or kind == 2:
            fields[number] = kind == 1
        elif kind == 12:
            fields[number], at = _struct(data, at, depth + 1)
        else:
            at = _skip(data, at, kind, depth)


def _skip(data: bytes, at: int, kind: int, depth: int) -> int:
    """The place behind a value that nobody needs."""
    if kind in (1, 2, 3):
        at += 1 if kind == 3 else 0
    elif kind in (4, 5, 6):
        _, at = _varint(data, at)
    elif kind == 7:
        at += 8
    elif kind == 8:
        size, at = _varint(data, at)
        at += size
    elif kind in (9, 10):
        size, item = data[at] >> 4, data[at] & 15
        at += 1
        if size == 15:
            size, at = _varint(data, at)
        for _ in range(size):
            at = _skip(data, at, 3 if item in (1, 2) else item, depth + 1)
    elif kind == 12:
        _, at = _struct(data, at, depth + 1)
    else:
        raise ValueError(f"a page header holds a value of unknown type {kind}")
    if at > len(data):
        raise IndexError(at)
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    result, shift = byte & 127, 7
    while True:
        at += 1
        byte = data[at]
        result |= (byte & 127) << shift
        if byte < 128:
            return result, at + 1
        shift += 7
        if shift > 63:
            raise ValueError("a page header holds a number that is too long")
