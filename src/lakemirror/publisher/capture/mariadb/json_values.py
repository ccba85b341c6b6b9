"""JSON of MySQL, from its binary form in the log as the text that a query gives of it.

    bytes: type, then a value ─▶ for an object or array: count, size, places of keys, places of values ─▶ text

Members stay in the order of the log. Why no library does it: docs/decisions/069-json-of-mysql.md.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import textwrap
from collections.abc import Callable

_LITERALS = ("null", "true", "false")
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_INLINE = {4, 5, 6}
_INLINE_IN_LARGE = _INLINE | {7, 8}
_LARGEST_PLAIN = 15  # digits before the point, and zeros behind it less one, of a number without exponent
_DATE, _TIME, _MOMENTS, _DECIMAL = 10, 11, (7, 12), 246
_CONTROL = re.compile('[\x00-\x1f"\\\\]')

DecimalText = Callable[[int, int, bytes], str]


def json_text(data: bytes, decimal_text: DecimalText) -> str:
    """The text of a value. `decimal_text` reads one of a precision and scale. struct.error, IndexError: too short."""
    return _text(data[0], data, 1, decimal_text) if data else "null"


def _text(kind: int, data: bytes, at: int, decimal_text: DecimalText) -> str:
    if kind < 4:
        return _container(kind, data, at, decimal_text)
    if kind == 4:
        return _LITERALS[data[at]]
    if kind in _NUMBERS:
        return str(struct.unpack_from(_NUMBERS[kind], data, at)[0])
    if kind == 11:
        return double_text(struct.unpack_from("<d", data, at)[0])
    if kind == 12:
        size, at = _length(data, at)
        return _string(data[at : at + size].decode("utf-8"))
    if kind == 15:
        size, begin = _length(data, at + 1)
        return _other(data[at], data[begin : begin + size], decimal_text)
    raise ValueError(f"JSON of type {kind}")


def _container(kind: int, data: bytes, at: int, decimal_text: DecimalText) -> str:
    """An object or an array. Its places count from its own begin."""
    is_large, is_array = bool(kind & 1), kind > 1
    layout, size = ("<I", 4) if is_large else ("<H", 2)
    count = struct.unpack_from(layout, data, at)[0]
    keys_at = at + 2 * size
    values_at = keys_at if is_array else keys_at + count * (size + 2)
    inline = _INLINE_IN_LARGE if is_large else _INLINE
    found = []
    for number in range(count):
        place = values_at + number * (size + 1)
        value = data[place]
        begin = place + 1 if value in inline else at + struct.unpack_from(layout, data, place + 1)[0]
        text = _text(value, data, begin, decimal_text)
        if not is_array:
            key_at, length = struct.unpack_from(layout + "H", data, keys_at + number * (size + 2))
            text = f"{_string(data[at + key_at : at + key_at + length].decode('utf-8'))}: {text}"
        found.append(text)
    joined = ", ".join(found)
    return f"[{joined}]" if is_array else f"{{{joined}}}"


def _other(kind: int, raw: bytes, decimal_text: DecimalText) -> str:
    """A value of a type of the database."""
    if kind == _DECIMAL:
        return decimal_text(raw[0], raw[1], raw[2:])
    if kind not in (_DATE, _TIME, *_MOMENTS):
        lines = textwrap.wrap(base64.b64encode(raw).decode(), 76)  # the server's base64 has lines
        return _string(f"base64:type{kind}:" + "\n".join(lines))
    packed = struct.unpack("<q", raw)[0]
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    whole, fraction = packed >> 24, packed & 0xFFFFFF
    if kind == _TIME:
        return f'"{sign}{whole >> 12 & 1023:02}:{whole >> 6 & 63:02}:{whole & 63:02}.{fraction:06}"'
    months, day = whole >> 22, whole >> 17 & 31
    date = f"{months // 13:04}-{months % 13:02}-{day:02}"
    clock = f" {whole >> 12 & 31:02}:{whole >> 6 & 63:02}:{whole & 63:02}.{fraction:06}"
    return f'"{date}{"" if kind == _DATE else clock}"'


def double_text(value: float) -> str:
    """A number as the server prints it: the fewest digits that give it back, with an exponent for large and small."""
    sign = "-" if math.copysign(1, value) < 0 else ""
    mantissa, _, shown = repr(abs(value)).partition("e")
    front, _, back = mantissa.partition(".")
    point = len(front) + int(shown or 0)
    digits = (front + back).lstrip("0")
    point -= len(front + back) - len(digits)
    digits = digits.rstrip("0")
    if not digits:
        return f"{sign}0.0"
    is_whole = point >= len(digits)
    if point < 1 - _LARGEST_PLAIN or (is_whole and point > _LARGEST_PLAIN):
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"


def _string(text: str) -> str:
    """A text in quotes; control characters are escaped, all else is as it is."""
    return '"' + _CONTROL.sub(lambda found: json.dumps(found[0])[1:-1], text) + '"'


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A length in groups of seven bits, and the place behind it."""
    found = shift = 0
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return found, at
