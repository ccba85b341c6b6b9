"""Values of rows in the binary log, read one after another, as the texts that a query would give of them.

Bytes are base64 text, as Debezium has them. Zero dates stay what they are: whether they can be kept is decided where a
load's are. Layouts: the replication protocol; `decimal` is in groups of nine digits.
"""

from __future__ import annotations

import base64
import socket
import struct
import time
import uuid
from collections.abc import Callable
from functools import partial

from lakemirror.publisher.capture.mariadb.json_values import json_text
from lakemirror.publisher.capture.mariadb.logged_types import ColumnType

Reader = Callable[[bytes, int], tuple[str, int]]
"""Reads the value at a place; returns it as text, and the place behind it. struct.error, IndexError: too short."""

_SIZES = {1: 1, 2: 2, 9: 3, 3: 4, 8: 8}
_DIGITS = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # bytes for so many decimal digits


def column_reader(kind: ColumnType, codec: str | None) -> Reader | None:
    """What reads the values of a column; None for a type that cannot be read. `codec`: of its text."""
    code, (first, second) = kind.code, kind.meta
    if code in _SIZES:
        return _integer(_SIZES[code], signed=not kind.is_unsigned)
    if code in (4, 5):
        return _floating("<f" if code == 4 else "<d")
    if code == 246:
        return _decimal(first, second)
    if code in _FIXED:
        return _FIXED[code]
    if code in _FRACTIONS:
        return _FRACTIONS[code](first)
    if code == 16:
        return _bits(second + (first > 0))
    if code in (247, 248):
        return _labels(code == 248, first, [label.decode(codec) for label in kind.labels]) if codec else None
    if code == 245:
        return _sized(first, _json)
    if code in (15, 253, 254, 252, 255, 242):
        size = first if code in (252, 255, 242) else 1 + (first > 255)
        if code in (255, 242) or kind.collation == 63:
            return _sized(size, _base64(first if code == 254 else 0))
        return _sized(size, partial(text_of, codec=codec)) if codec else None
    return None


def text_of(raw: bytes, codec: str) -> str:
    """Bytes of a column as text. What MariaDB calls latin1 is Windows' code page with its five holes filled."""
    if codec != "cp1252":
        return raw.decode(codec)
    try:
        return raw.decode(codec)
    except UnicodeDecodeError:
        return "".join(chr(byte) if byte in _HOLES else bytes((byte,)).decode(codec) for byte in raw)


_HOLES = frozenset((0x81, 0x8D, 0x8F, 0x90, 0x9D))


def _integer(size: int, *, signed: bool) -> Reader:
    def read(data: bytes, at: int) -> tuple[str, int]:
        return str(int.from_bytes(data[at : at + size], "little", signed=signed)), at + size

    return read


def _floating(layout: str) -> Reader:
    unpack, size = struct.Struct(layout).unpack_from, struct.calcsize(layout)

    def read(data: bytes, at: int) -> tuple[str, int]:
        return repr(unpack(data, at)[0]), at + size

    return read


def _decimal(precision: int, scale: int) -> Reader:
    whole = precision - scale
    groups = [(whole % 9, _DIGITS[whole % 9])] + [(9, 4)] * (whole // 9)
    behind = [(9, 4)] * (scale // 9) + [(scale % 9, _DIGITS[scale % 9])]
    size = sum(each for _, each in groups + behind)

    def read(data: bytes, at: int) -> tuple[str, int]:
        raw = bytearray(data[at : at + size])
        negative = not raw[0] & 0x80
        raw[0] ^= 0x80
        if negative:
            raw = bytearray(byte ^ 0xFF for byte in raw)
        place, parts = 0, []
        for digits, length in groups + behind:
            number = int.from_bytes(raw[place : place + length], "big")
            parts.append(str(number).zfill(digits) if digits else "")
            place += length
        front, back = "".join(parts[: len(groups)]).lstrip("0") or "0", "".join(parts[len(groups) :])
        return f"{'-' if negative else ''}{front}{'.' + back if back else ''}", at + size

    return read


def _date(data: bytes, at: int) -> tuple[str, int]:
    packed = int.from_bytes(data[at : at + 3], "little")
    return f"{packed >> 9:04}-{packed >> 5 & 15:02}-{packed & 31:02}", at + 3


def _year(data: bytes, at: int) -> tuple[str, int]:
    return ("0000" if not data[at] else str(1900 + data[at])), at + 1


def _fraction(number: int, size: int, digits: int) -> str:
    return f".{number:0{2 * size}}"[: digits + 1] if digits else ""


def _datetime(digits: int) -> Reader:
    size = (digits + 1) // 2

    def read(data: bytes, at: int) -> tuple[str, int]:
        packed = int.from_bytes(data[at : at + 5], "big") - 0x8000000000
        behind = int.from_bytes(data[at + 5 : at + 5 + size], "big")
        months, day = packed >> 22, packed >> 17 & 31
        clock = f"{packed >> 12 & 31:02}:{packed >> 6 & 63:02}:{packed & 63:02}"
        text = f"{months // 13:04}-{months % 13:02}-{day:02} {clock}{_fraction(behind, size, digits)}"
        return text, at + 5 + size

    return read


def _timestamp(digits: int) -> Reader:
    size = (digits + 1) // 2

    def read(data: bytes, at: int) -> tuple[str, int]:
        seconds = int.from_bytes(data[at : at + 4], "big")
        behind = int.from_bytes(data[at + 4 : at + 4 + size], "big")
        day = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds)) if seconds else "0000-00-00 00:00:00"
        return day + _fraction(behind, size, digits), at + 4 + size

    return read


def _time(digits: int) -> Reader:
    size = (digits + 1) // 2

    def read(data: bytes, at: int) -> tuple[str, int]:
        packed = int.from_bytes(data[at : at + 3 + size], "big") - (0x800000 << 8 * size)
        sign, packed = ("-", -packed) if packed < 0 else ("", packed)
        clock, behind = packed >> 8 * size, packed & (1 << 8 * size) - 1
        text = f"{sign}{clock >> 12:02}:{clock >> 6 & 63:02}:{clock & 63:02}{_fraction(behind, size, digits)}"
        return text, at + 3 + size

    return read


def _bits(size: int) -> Reader:
    def read(data: bytes, at: int) -> tuple[str, int]:
        return str(int.from_bytes(data[at : at + size], "big")), at + size

    return read


def _labels(is_set: bool, size: int, labels: list[str]) -> Reader:
    def read(data: bytes, at: int) -> tuple[str, int]:
        number = int.from_bytes(data[at : at + size], "little")
        if is_set:
            return ",".join(label for place, label in enumerate(labels) if number >> place & 1), at + size
        return labels[number - 1] if number else "", at + size

    return read


def _sized(size: int, convert: Callable[[bytes], str]) -> Reader:
    """Reads bytes whose number stands before them in `size` bytes."""

    def read(data: bytes, at: int) -> tuple[str, int]:
        behind = at + size
        end = behind + int.from_bytes(data[at:behind], "little")
        if end > len(data):
            raise IndexError("the row is cut off")
        return convert(data[behind:end]), end

    return read


def _base64(width: int) -> Callable[[bytes], str]:
    """`width`: of a fixed-length column, whose zeros at the end are not in the log."""
    return lambda raw: base64.b64encode(raw.ljust(width, b"\0")).decode()


def _json(raw: bytes) -> str:
    return json_text(raw, lambda precision, scale, digits: _decimal(precision, scale)(digits, 0)[0])


def uuid_text(raw: bytes) -> str:
    """A UUID as text, from its bytes."""
    return str(uuid.UUID(bytes=raw))


def inet_text(raw: bytes) -> str:
    """An address as text, from its bytes."""
    return socket.inet_ntop(socket.AF_INET6 if len(raw) == 16 else socket.AF_INET, raw)


_FIXED: dict[int, Reader] = {10: _date, 13: _year}
_FRACTIONS: dict[int, Callable[[int], Reader]] = {17: _timestamp, 18: _datetime, 19: _time}
