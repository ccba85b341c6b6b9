"""Thrift's compact encoding, written: the reverse of `thrift`, for footers.

(field, type, value) … ─▶ struct_bytes        encoded items ─▶ list_bytes
an encoded struct ─▶ encoded_fields ─▶ its fields, each still encoded
"""

from __future__ import annotations

from collections.abc import Sequence

from lakemirror.parquet.thrift import BINARY, I32, I64, behind, varint


def struct_bytes(*fields: tuple[int, int, int | bytes | None]) -> bytes:
    """A struct of these fields, in ascending order: number, type, value. A field whose value is None is left out.

    A number is encoded here, a BINARY gets its length. The value of any other type is its encoded bytes.
    """
    parts, before = [], 0
    for number, kind, value in fields:
        if value is None:
            continue
        step, before = number - before, number
        parts.append(bytes((step << 4 | kind,)) if 0 < step < 16 else bytes((kind,)) + _signed(number))
        if isinstance(value, int):
            parts.append(_signed(value))
        elif kind == BINARY:
            parts += [_unsigned(len(value)), value]
        else:
            parts.append(value)
    return b"".join([*parts, b"\0"])


def list_bytes(kind: int, items: Sequence[int | bytes]) -> bytes:
    """A list of items of one type: numbers, or bytes for BINARY, or structs that are encoded."""
    size = len(items)
    parts = [bytes((size << 4 | kind,)) if size < 15 else bytes((0xF0 | kind,)) + _unsigned(size)]
    for item in items:
        if isinstance(item, int):
            parts.append(_signed(item))
        elif kind == BINARY:
            parts += [_unsigned(len(item)), item]
        else:
            parts.append(item)
    return b"".join(parts)


def encoded_fields(data: bytes) -> dict[int, tuple[int, bytes]]:
    """The fields of an encoded struct by their numbers: type and encoded value. IndexError, ValueError as for `struct`.

    The fields are of types that have a value of their own (no booleans).
    """
    found, number, at = {}, 0, 0
    while data[at]:
        head, at = data[at], at + 1
        if head >> 4:
            number += head >> 4
        else:
            raw, at = varint(data, at)
            number = (raw >> 1) ^ -(raw & 1)
        end = behind(data, at, head & 15)
        found[number] = head & 15, data[at:end]
        at = end
    return found


def _signed(value: int) -> bytes:
    return _unsigned(value << 1 if value >= 0 else (-value << 1) - 1)


def _unsigned(value: int) -> bytes:
    if value < 128:
        return bytes((value,))
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


__all__ = ["BINARY", "I32", "I64", "encoded_fields", "list_bytes", "struct_bytes"]
