"""Numbers as text: which are written as a program writes them, and which a double gives back unchanged.

Every function takes a column of texts and answers with the place of the first one that is not, -1 for none.
"""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.landing_zone.metadata import DelimitedFormat
from lakemirror.publisher.exact_values import MOST_DIGITS

SURE_DIGITS = 15  # a double gives back every number of so many digits
_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$"


def plain_numbers(
    texts: pa.Array, form: DelimitedFormat, grouped: bool | None = None
) -> tuple[pa.Array, int, bool | None]:
    """Numbers with a point and without marks, though `form` may write them otherwise; the first text that is none.

    Thousands are marked in all numbers or in none (`grouped`), else two texts would be one number.
    """
    place = -1
    point, mark = form.decimal_separator, form.thousands_separator
    if mark:
        between = "[ \u00a0\u202f]" if mark in " \u00a0\u202f" else re.escape(mark)
        marked = pc.match_substring_regex(texts, between)
        if grouped is None and pc.any(pc.or_(marked, pc.match_substring_regex(texts, r"^-?\d{4}"))).as_py():
            grouped = bool(pc.any(marked).as_py())
        if grouped:
            expression = rf"^-?\d{{1,3}}({between}\d{{3}})*({re.escape(point)}\d+)?$"
            place = first_not(pc.match_substring_regex(texts, expression))
        else:
            place = first_not(pc.invert(marked))
        texts = pc.replace_substring_regex(texts, between, "")
    if point != ".":
        place = earlier(place, first_not(pc.invert(pc.match_substring(texts, "."))))
        texts = pc.replace_substring(texts, point, ".")
    return texts, place, grouped


def first_strange(texts: pa.Array) -> int:
    """The first text that is no number as a program writes it: `007`, `+1`, `1e5`, `-0`, `.5`."""
    place = first_not(pc.match_substring_regex(texts, _NUMBER))
    if pc.any(pc.starts_with(texts, "-0")).as_py():
        place = earlier(place, first_not(pc.invert(pc.match_substring_regex(texts, r"^-0(\.0+)?$"))))
    return place


def first_inexact(texts: pa.Array, kind: pa.DataType) -> int:
    """The first number whose text is not the shortest form of its value. Texts are numbers as programs write them."""
    has_point = pc.match_substring(texts, ".")
    marks = pc.add(has_point.cast(pa.int32()), pc.starts_with(texts, "-").cast(pa.int32()))
    digits = pc.subtract(pc.binary_length(texts), marks)
    sure = pc.less_equal(digits, SURE_DIGITS if kind == pa.float64() else 6)
    sure = pc.and_(sure, pc.invert(pc.and_(has_point, pc.ends_with(texts, "0"))))
    if pc.all(sure).as_py() is not False:
        return -1
    values = cast_or_none(texts, kind)
    if values is None:
        return first_not(sure)
    return first_not(pc.or_(sure, pc.equal(values.cast(pa.string()), texts)))


def are_decimals(texts: pa.Array) -> bool:
    """True where all texts are numbers with as many digits behind the point as the first one, as programs write them.

    Much faster than a look at each character. False does not mean that they are none.
    """
    scale = len(texts[0].as_py().partition(".")[2])
    numbers = cast_or_none(texts, pa.decimal128(MOST_DIGITS, scale)) if 0 < scale <= MOST_DIGITS else None
    return numbers is not None and pc.all(pc.equal(numbers.cast(pa.string()), texts)).as_py() is True


def without_exponents(texts: pa.Array) -> pa.Array:
    """0 in place of each text that programs write for a very large or small double: 1e-07, 2.5E+20."""
    has_exponent = pc.match_substring_regex(texts, r"^-?[1-9](\.\d+)?[eE][+-]?\d+$")
    if not pc.any(has_exponent).as_py():
        return texts
    known = [
        "0" if has and "e" in repr(float(text)) and Decimal(text) == Decimal(repr(float(text))) else text
        for text, has in zip(texts.to_pylist(), has_exponent.to_pylist(), strict=True)
    ]
    return pa.array(known, pa.string())


def first_not(fulfilled: pa.Array) -> int:
    """The first place that is false."""
    return int(pc.index(fulfilled, False).as_py())


def earlier(one: int, other: int) -> int:
    return min(one, other) if min(one, other) >= 0 else max(one, other)


def cast_or_none(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        return texts.cast(kind)
    except pa.ArrowException:
        return None
