"""Thrift's compact encoding, read into plain values: what a Parquet file's footer and page headers are written in.

A struct is a dict from field number to value, a list a list, a binary the bytes. Nothing is believed: a size beyond
the data is IndexError, nonsense is ValueError.
"""

from __future__ import annotations

from typing import Any

_DEEPEST = 64  # structs and lists in one another


def struct(data: bytes, at: int = 0, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The struct that begins at `at`, and the place behind it. IndexError where the data ends in it; ValueError."""
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
            raw, at = _varint(data, at)
            number = (raw >> 1) ^ -(raw & 1)
        kind = head & 15
        if 3 < kind < 7:
            raw = data[at]
            at += 1
            if raw > 127:
                raw, at = _varint(data, at - 1)
            fields[number] = (raw >> 1) ^ -(raw & 1)
        elif kind < 3:
            fields[number] = kind == 1
        else:
            fields[number], at = _value(data, at, kind, depth)


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind == 12:
        return struct(data, at, depth + 1)
    if kind == 8:
        size, at = _varint(data, at)
        return _bytes(data, at, size), at + size
    if kind in (4, 5, 6):
        raw, at = _varint(data, at)
        return (raw >> 1) ^ -(raw & 1), at
    if kind in (1, 2, 3):
        return data[at], at + 1
    if kind == 7:
        return _bytes(data, at, 8), at + 8
    if kind in (9, 10):
        return _list(data, at, depth)
    raise ValueError(f"it holds a value of unknown type {kind}")


def _list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    if depth > _DEEPEST:
        raise ValueError("it nests too deep")
    size, kind = data[at] >> 4, data[at] & 15
    at += 1
    if size == 15:
        size, at = _varint(data, at)
    items = []
    for _ in range(size):
        item, at = _value(data, at, kind, depth + 1)
        items.append(item)
    return items, at


def _bytes(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise IndexError(at + size)
    return data[at : at + size]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, at
        shift += 7
        if shift > 63:
            raise ValueError("it holds a number that is too long")
