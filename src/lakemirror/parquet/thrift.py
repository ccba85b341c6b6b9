"""Thrift's compact encoding, read into plain values: what a Parquet file's footer and page headers are written in.

A struct is a dict from field number to value, a list a list, a binary the bytes. Every size is checked: one beyond
the data is IndexError, an invalid encoding is ValueError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

I32, I64, BINARY, LIST, STRUCT = 5, 6, 8, 9, 12  # types on the wire


class Wire(NamedTuple):
    """How a field must be written; of a list also its items, of a struct its `fields`."""

    kind: int
    items: int = 0
    fields: Mapping[int, Wire] | None = None


_DEEPEST = 64  # structs and lists in one another
_LONGEST = 10  # bytes of a number
_TOO_LONG = "it holds a number that is too long"


def struct(
    data: bytes, at: int = 0, depth: int = 0, shape: Mapping[int, Wire] | None = None
) -> tuple[dict[int, Any], int]:
    """The struct that begins at `at`, and where it ends. IndexError where the data ends in it; ValueError.

    With `shape`, only its fields are kept. As in code that Thrift generates, a field of `shape` that is written in
    another type is left out, and the items of a list are read in the type of `shape`.
    """
    if depth > _DEEPEST:
        raise ValueError("it nests too deep")
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
            raw, at = varint(data, at)
            number = (raw >> 1) ^ -(raw & 1)
        kind = head & 15
        wire = shape.get(number) if shape is not None else None
        if shape is not None and (wire is None or wire[0] != kind):
            if 3 < kind < 7 and data[at] < 128:  # most fields are small numbers and short texts: no call for them
                at += 1
            elif kind == 8 and data[at] < 128:
                at += data[at] + 1
            elif kind > 2:
                at = behind(data, at, kind, depth)
            continue
        if 3 < kind < 7:
            raw = data[at]
            at += 1
            if raw > 127:
                raw, at = varint(data, at - 1)
            fields[number] = (raw >> 1) ^ -(raw & 1)
        elif kind == 8:
            size = data[at]
            at += 1
            if size > 127:
                size, at = varint(data, at - 1)
            end = at + size
            if end > len(data):
                raise IndexError(end)
            fields[number], at = data[at:end], end
        elif kind < 3:
            fields[number] = kind == 1
        elif kind == 12:
            fields[number], at = struct(data, at, depth + 1, wire[2] if wire is not None else None)
        elif kind == 9:
            fields[number], at = _list(data, at, depth, wire)
        else:
            fields[number], at = _value(data, at, kind, depth, wire)


def behind(data: bytes, at: int, kind: int, depth: int = 0) -> int:
    """Where a value ends that is skipped; IndexError and ValueError as for one that is read."""
    around: list[list[int] | None] = []  # structs, and lists with the number of their items left and the items' type
    while True:
        if kind == STRUCT:
            if depth + len(around) >= _DEEPEST:
                raise ValueError("it nests too deep")
            around.append(None)
        elif kind in (9, 10):
            if depth + len(around) > _DEEPEST:
                raise ValueError("it nests too deep")
            size, item = data[at] >> 4, data[at] & 15
            at += 1
            if size == 15:
                size, at = varint(data, at)
            around.append([size, item])
        elif 3 < kind < 7:  # most values are numbers and short texts: no call for them
            first = at
            while data[at] > 127:
                at += 1
            at += 1
            if at - first > _LONGEST:
                raise ValueError(_TOO_LONG)
        elif kind == BINARY and data[at] < 128:
            at += data[at] + 1
            if at > len(data):
                raise IndexError(at)
        else:
            at = _value(data, at, kind, depth)[1]
        kind = -1
        while around and kind < 0:
            inner = around[-1]
            if inner is None:
                head = data[at]
                at += 1
                if not head:
                    around.pop()
                elif not head >> 4:
                    at = varint(data, at)[1]
                if head & 15 > 2:  # a boolean is in the head
                    kind = head & 15
            elif inner[0]:
                inner[0] -= 1
                kind = inner[1]
            else:
                around.pop()
        if kind < 0:
            return at


def _value(data: bytes, at: int, kind: int, depth: int, wire: Wire | None = None) -> tuple[Any, int]:
    if kind == 12:
        return struct(data, at, depth + 1, wire.fields if wire is not None else None)
    if kind == 8:
        size, at = varint(data, at)
        return _bytes(data, at, size), at + size
    if kind in (4, 5, 6):
        raw, at = varint(data, at)
        return (raw >> 1) ^ -(raw & 1), at
    if kind in (1, 2, 3):
        return data[at], at + 1
    if kind == 7:
        return _bytes(data, at, 8), at + 8
    if kind in (9, 10):
        return _list(data, at, depth, wire)
    raise ValueError(f"it holds a value of unknown type {kind}")


def _list(data: bytes, at: int, depth: int, wire: Wire | None) -> tuple[list[Any], int]:
    if depth > _DEEPEST:
        raise ValueError("it nests too deep")
    size, kind = data[at] >> 4, data[at] & 15
    at += 1
    if size == 15:
        size, at = varint(data, at)
    items: list[Any] = []
    item: Any
    kind = wire.items if wire is not None else kind
    shape = wire.fields if wire is not None else None
    for _ in range(size):
        if kind == STRUCT:
            item, at = struct(data, at, depth + 2, shape)
        elif 3 < kind < 7 and data[at] < 128:
            item = (data[at] >> 1) ^ -(data[at] & 1)
            at += 1
        elif kind == BINARY and data[at] < 128:
            end = at + 1 + data[at]
            if end > len(data):
                raise IndexError(end)
            item, at = data[at + 1 : end], end
        else:
            item, at = _value(data, at, kind, depth + 1, wire)
        items.append(item)
    return items, at


def _bytes(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise IndexError(at + size)
    return data[at : at + size]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The unsigned number that begins at `at`, and where it ends. IndexError, ValueError as for `struct`."""
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, at
        shift += 7
        if shift > 63:
            raise ValueError(_TOO_LONG)
