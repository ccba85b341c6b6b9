"""Floating-point numbers as PostgreSQL writes them: the shortest text that reads back as the same number.

Unlike Python, PostgreSQL takes no text that is exactly half-way between two numbers, though it reads back as one of
them. Only numbers beyond 2^53, or 2^24 in single precision, have such texts.
"""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal

_JAVA_NUMBER = re.compile(r"-?(?:\d+\.\d+(?:E-?\d+)?|Infinity)|NaN")


def double_text(value: float) -> str:
    """The text of a `float8`, such as `1.5`, `1e+15`, `-Infinity`."""
    return _text(value, _inside(value, repr(value), 53), 15)


def single_text(value: float) -> str:
    """The text of a `float4`, such as `0.1`, `1e+06`."""
    if not math.isfinite(value):
        return _text(value, "", 6)
    wanted = struct.pack("f", value)
    shortest = next(text for digits in range(1, 18) if struct.pack("f", float(text := f"{value:.{digits}g}")) == wanted)
    return _text(value, _inside(value, repr(float(shortest)), 24), 6)


def rewritten(text: str) -> str:
    """A geometric value as Java writes it, with its numbers as PostgreSQL writes them."""
    return _JAVA_NUMBER.sub(lambda found: double_text(float(found[0])), text)


def _inside(value: float, shortest: str, bits: int) -> str:
    """The shortest text; if it is half-way to the next number, the nearest one that is not."""
    if not 2.0**bits <= abs(value) < math.inf:
        return shortest
    number = int(value)
    unit = 1 << (abs(number).bit_length() - bits)
    below = unit // 2 if abs(number).bit_count() == 1 else unit  # the next smaller one is nearer to a power of two
    lowest, highest = (abs(number) * 2 - below, abs(number) * 2 + unit)
    digits = len(shortest.lstrip("-").partition("e")[0].replace(".", "").strip("0"))
    if lowest < 2 * abs(int(Decimal(shortest))) < highest:
        return shortest
    while True:
        step = 10 ** max(len(str(abs(number))) - digits, 0)
        near = abs(number) // step * step
        found = [each for each in (near, near + step) if lowest < 2 * each < highest]
        if found:
            best = min(found, key=lambda each: abs(each - abs(number)))
            return f"{'-' if number < 0 else ''}{best}"
        digits += 1


def _text(value: float, shortest: str, most: int) -> str:
    """`shortest`: Python's text. `most`: powers of ten from which on an exponent is written."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign = "-" if math.copysign(1, value) < 0 else ""
    mantissa, _, exponent = shortest.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return f"{sign}0"
    power = int(exponent or 0) + len(whole) - 1 - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if power < -4 or power >= most:
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if power < 0:
        return f"{sign}0.{'0' * (-power - 1)}{digits}"
    whole, fraction = digits[: power + 1].ljust(power + 1, "0"), digits[power + 1 :]
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"
