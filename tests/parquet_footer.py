"""Parquet files whose footers say what is not so: fields are changed in Thrift's compact encoding, the rest stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Node = dict[int, tuple[int, Any]]
"""A struct: field number to (wire type, value)."""

FILE_ROWS, GROUPS, ENCRYPTION = 3, 4, 8
GROUP_COLUMNS, GROUP_ROWS = 1, 3
CHUNK_PATH, CHUNK_META, CHUNK_CRYPTO = 1, 3, 8
ENCODINGS, CODEC, VALUES, DECOMPRESSED, COMPRESSED, DATA_PAGE, STATISTICS = 2, 4, 5, 6, 7, 9, 12
NULLS = 3


def with_footer(data: bytes, change: Callable[[Node], None]) -> bytes:
    """The file with its footer changed."""
    length = int.from_bytes(data[-8:-4], "little")
    footer, _ = _read(data[-8 - length : -8], 0)
    change(footer)
    encoded = _write(footer)
    return data[: -8 - length] + encoded + len(encoded).to_bytes(4, "little") + b"PAR1"


def group(footer: Node, index: int = 0) -> Node:
    """A row group of the footer."""
    found: Node = footer[GROUPS][1][1][index]
    return found


def chunk(footer: Node, column: int = 0, index: int = 0) -> Node:
    """A column chunk of the footer."""
    found: Node = group(footer, index)[GROUP_COLUMNS][1][1][column]
    return found


def meta(footer: Node, column: int = 0, index: int = 0) -> Node:
    """What the footer says of a column chunk."""
    found: Node = chunk(footer, column, index)[CHUNK_META][1]
    return found


def put(node: Node, field: int, value: Any) -> None:
    """Changes a field's value."""
    node[field] = (node[field][0], value)


def with_rows(footer: Node, rows: int, groups: bool = True) -> None:
    """Every count of rows in a file of one row group."""
    put(footer, FILE_ROWS, rows)
    if groups:
        put(group(footer), GROUP_ROWS, rows)
        for column in range(len(group(footer)[GROUP_COLUMNS][1][1])):
            put(meta(footer, column), VALUES, rows)


def _read(data: bytes, at: int) -> tuple[Node, int]:
    fields: Node = {}
    number = 0
    while data[at]:
        head = data[at]
        at += 1
        number += head >> 4
        assert head >> 4
        value, at = _value(data, at, head & 15)
        fields[number] = (head & 15, value)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (1, 2):
        return None, at
    if kind in (3, 7):
        size = 1 if kind == 3 else 8
        return data[at : at + size], at + size
    if kind in (4, 5, 6):
        raw, at = _varint(data, at)
        return (raw >> 1) ^ -(raw & 1), at
    if kind == 8:
        size, at = _varint(data, at)
        return data[at : at + size], at + size
    if kind == 9:
        size, item = data[at] >> 4, data[at] & 15
        at += 1
        if size == 15:
            size, at = _varint(data, at)
        items = []
        for _ in range(size):
            value, at = _value(data, at, 3 if item in (1, 2) else item)
            items.append(value)
        return (item, items), at
    assert kind == 12, kind
    return _read(data, at)


def _write(fields: Node) -> bytes:
    parts, before = [], 0
    for number, (kind, value) in sorted(fields.items()):
        assert 0 < number - before < 16
        parts += [bytes([(number - before) << 4 | kind]), _encoded(kind, value)]
        before = number
    return b"".join(parts) + b"\0"


def _encoded(kind: int, value: Any) -> bytes:
    if kind in (1, 2):
        return b""
    if kind in (3, 7):
        return bytes(value)
    if kind in (4, 5, 6):
        return _number((value << 1) ^ (value >> 63))
    if kind == 8:
        return _number(len(value)) + value
    if kind == 9:
        item, items = value
        head = bytes([len(items) << 4 | item]) if len(items) < 15 else bytes([0xF0 | item]) + _number(len(items))
        return head + b"".join(_encoded(3 if item in (1, 2) else item, each) for each in items)
    return _write(value)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        result |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return result, at


def _number(value: int) -> bytes:
    value &= (1 << 64) - 1
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])
