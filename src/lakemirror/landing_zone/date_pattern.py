"""Dates and times written by a pattern, as ISO text: `dd.MM.yyyy` makes `2026-03-01` of `01.03.2026`.

Patterns are those of Spark's datetime page, as far as they name numbers: `y M d H h m s S a X x Z`, text in quotes,
optional parts in `[]`. Month names (`MMM`, `MMMM`) are English, in any case. `yy` is a year from 2000 to 2099.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_SHORT = "|".join(name[:3] for name in _MONTHS)
_LONG = "|".join(_MONTHS)
_ZONE = {1: r"[+-]\d{2}(?:\d{2})?", 2: r"[+-]\d{4}", 3: r"[+-]\d{2}:\d{2}"}
_FIELDS = ("year", "month", "day", "hour", "half", "ampm", "minute", "second", "fraction", "zone")


@dataclass(frozen=True)
class DatePattern:
    """A pattern as a regular expression with a group for each part that it names."""

    text: str
    expression: str
    fields: frozenset[str]

    def iso(self, texts: pa.Array, with_time: bool) -> pa.Array:
        """The texts in ISO form; NULL where a text does not follow the pattern, or was NULL.

        `with_time`: as `yyyy-MM-ddTHH:mm:ss[.f][zone]`, else the date alone. Does not check that the parts
        are a real date.
        """
        parts = pc.extract_regex(pc.utf8_trim_whitespace(texts), self.expression)
        found = {name: pc.struct_field(parts, name) for name in self.fields}
        date = pc.binary_join_element_wise(_year(found), _month(found), _two(found["day"]), "-")
        if not with_time:
            return date
        zero = pa.scalar("00")
        minute, second = (_two(found[name]) if name in found else zero for name in ("minute", "second"))
        time = pc.binary_join_element_wise(_hour(found), minute, second, ":")
        moment = pc.binary_join_element_wise(date, time, "T")
        if "fraction" in found:
            digits = pc.fill_null(found["fraction"], "")
            has = pc.greater(pc.binary_length(digits), 0)
            moment = pc.if_else(has, pc.binary_join_element_wise(moment, digits, "."), moment)
        if "zone" in found:
            moment = pc.binary_join_element_wise(moment, pc.fill_null(found["zone"], ""), "")
        return moment


@cache
def date_pattern(text: str) -> DatePattern:
    """The pattern. ValueError with a sentence for what is not supported."""
    parts: list[str] = []
    fields: set[str] = set()
    depth = at = 0
    while at < len(text):
        letter = text[at]
        if letter == "'":
            end = text.find("'", at + 1)
            if end < 0:
                raise ValueError("a quote is not closed")
            parts.append(re.escape(text[at + 1 : end] or "'"))
            at = end + 1
            continue
        if letter in "[]":
            depth += 1 if letter == "[" else -1
            if depth < 0:
                raise ValueError("] stands before [")
            parts.append("(?:" if letter == "[" else ")?")
            at += 1
            continue
        if not (letter.isascii() and letter.isalpha()):
            parts.append(re.escape(letter))
            at += 1
            continue
        length = len(text) - at - len(text[at:].lstrip(letter))
        name, expression = _letters(letter, length)
        if name in fields:
            raise ValueError(f"{name} is named twice")
        fields.add(name)
        parts.append(f"(?P<{name}>{expression})")
        at += length
    if depth:
        raise ValueError("[ is not closed")
    if not {"year", "month", "day"} <= fields:
        raise ValueError("year, month and day are needed")
    if ("half" in fields) != ("ampm" in fields) or {"half", "hour"} <= fields:
        raise ValueError("h and a belong together, and exclude H")
    return DatePattern(text, "(?i)^" + "".join(parts) + "$", frozenset(fields))


def _letters(letter: str, length: int) -> tuple[str, str]:
    """What a run of one letter means: the name of the part, and the expression for its text."""
    two = r"\d{1,2}" if length == 1 else r"\d{2}"
    if letter in "yu" and length in (1, 2, 4):
        return "year", r"\d{2}" if length == 2 else r"\d{4}"
    if letter in "ML" and length <= 4:
        return "month", {3: _SHORT, 4: _LONG}.get(length, two)
    if letter == "S" and length <= 9:
        return "fraction", rf"\d{{1,{length}}}"
    if letter == "a" and length == 1:
        return "ampm", "am|pm"
    if letter in "XxZ" and length <= 3:
        offset = _ZONE[2] if letter == "Z" else _ZONE[length]
        return "zone", f"Z|{offset}" if letter == "X" else offset
    named = {"d": "day", "H": "hour", "h": "half", "m": "minute", "s": "second"}
    if letter in named and length <= 2:
        return named[letter], two
    raise ValueError(f"{letter * length} is not supported")


def _year(found: dict[str, pa.Array]) -> pa.Array:
    year = found["year"]
    return pc.if_else(pc.equal(pc.binary_length(year), 2), pc.binary_join_element_wise("20", year, ""), year)


def _month(found: dict[str, pa.Array]) -> pa.Array:
    month = found["month"]
    names = pa.array([name[:3] for name in _MONTHS])
    index = pc.index_in(pc.utf8_slice_codeunits(pc.ascii_lower(month), 0, 3), value_set=names)
    number = pc.add(index, 1).cast(pa.string())
    return _two(pc.if_else(pc.is_valid(index), number, month))


def _hour(found: dict[str, pa.Array]) -> pa.Array | pa.Scalar:
    if "half" not in found:
        return _two(found["hour"]) if "hour" in found else pa.scalar("00")
    half = pc.if_else(pc.equal(found["half"], ""), None, found["half"]).cast(pa.int32())
    real = pc.and_(pc.greater_equal(half, 1), pc.less_equal(half, 12))
    after_noon = pc.equal(pc.ascii_lower(found["ampm"]), "pm")
    hour = pc.add(pc.subtract(half, pc.multiply(pc.equal(half, 12).cast(pa.int32()), 12)),
                  pc.multiply(after_noon.cast(pa.int32()), 12))  # fmt: skip
    hour = pc.if_else(real, hour, 99)  # no hour: the text is refused as any that is no time
    return _two(hour.cast(pa.string()))


def _two(text: pa.Array) -> pa.Array:
    """Two digits; `00` where an optional part is not there."""
    return pc.utf8_lpad(text, 2, "0")
