"""Which type a column of text gets: one whose values give each of its texts back unchanged; else it stays text.

    texts of a column, batch by batch ─▶ Guess ─▶ Choice: the type, and the reason in a few words

No leading zero, no exponent, no plus sign and no digit is lost, so two different texts never become one value. Whole
numbers are int64, then decimal(38,0). Numbers with the same number of digits behind the point are decimals. Others
are double, where each text is the shortest form of its value: 0.00001 is that value, though programs may write it as
1e-05. Dates and times are ISO 8601, truth values `true` and
`false`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.landing_zone.date_pattern import date_pattern
from lakemirror.landing_zone.delimited.plain_values import converted_as_written
from lakemirror.landing_zone.delimited.values import BadValue
from lakemirror.landing_zone.metadata import DelimitedFormat
from lakemirror.landing_zone.zoneless import UTC, Zones, zone_of
from lakemirror.publisher.exact_values import MOST_DIGITS
from lakemirror.publisher.sources.number_texts import (
    SURE_DIGITS,
    are_decimals,
    cast_or_none,
    earlier,
    first_inexact,
    first_not,
    first_strange,
    plain_numbers,
    without_exponents,
)

PLAIN = DelimitedFormat()


@dataclass(frozen=True)
class Choice:
    """The type of one column of the input. `guessed`: from its content, not named and not published before."""

    column: str
    kind: pa.DataType
    reason: str = ""
    guessed: bool = True

    def __str__(self) -> str:
        return f"{self.column}: {shown(self.kind)}" + (f", {self.reason}" if self.reason else "")


@dataclass(frozen=True)
class KnownTypes:
    """Types of columns that are not guessed, by name in any case.

    `named`: by the user; values are read as delimited text declares them, and a name that the input lacks is warned of.
    `before`: as published before; a value whose text would not come back is refused. `keys`: columns of which two texts
    must not become one value. `zoneless`: what times without a zone are where a type asks for instants; empty and
    `ntz`: of UTC. `published`: the name under which a column of the input is published.
    """

    named: Mapping[str, pa.DataType] = field(default_factory=dict)
    before: Mapping[str, pa.DataType] = field(default_factory=dict)
    keys: Collection[str] = ()
    zoneless: str = ""
    published: Callable[[str], str] = str
    zones: Zones = field(init=False)
    """How columns of instants read times without a zone; a reader notes the columns that have such times."""
    _lower: Mapping[str, pa.DataType] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        types = {name.lower(): kind for known in (self.before, self.named) for name, kind in known.items()}
        zone = zone_of(self.zoneless or UTC)
        object.__setattr__(self, "_lower", types)
        object.__setattr__(self, "zones", Zones(lambda _: zone))

    def after(self, schema: pa.Schema) -> KnownTypes:
        """The same once columns of this schema were published; those without a type yet do not count."""
        types = {each.name.lower(): each.type for each in schema if not pa.types.is_null(each.type)}
        return replace(self, before={**self.before, **types})

    def of(self, column: str) -> pa.DataType | None:
        """The column's type; None where it is to be guessed."""
        return self._lower.get(self.published(column).lower())

    def is_named(self, column: str) -> bool:
        return self._is_among(column, self.named)

    def is_key(self, column: str) -> bool:
        return self._is_among(column, self.keys)

    def _is_among(self, column: str, names: Iterable[str]) -> bool:
        return self.published(column).lower() in {name.lower() for name in names}

    def choice(self, column: str) -> Choice | None:
        """The known type as a choice."""
        kind = self.of(column)
        if kind is None:
            return None
        return Choice(column, kind, "named" if self.is_named(column) else "as published before", guessed=False)


class Guess:
    """The type of one column, from texts that are given batch after batch; its state is small."""

    def __init__(self, form: DelimitedFormat = PLAIN) -> None:
        self._form = form
        self._left: list[_Kind] | None = None
        self._refused = ""

    def look_at(self, texts: pa.Array) -> None:
        """Takes a batch of the column's texts. NULL counts as nothing."""
        texts = texts.drop_null()
        if not len(texts) or self._left == []:
            return
        if self._left is None:
            self._left = [_Numbers(self._form), _Truths(), _Dates(self._form), _Moments(self._form)]
            self._keep_fitting(texts.slice(0, 1))
        self._keep_fitting(texts)

    def _keep_fitting(self, texts: pa.Array) -> None:
        places = [(kind, kind.refused(texts)) for kind in self._left or ()]
        self._left = [kind for kind, place in places if place < 0]
        if places and not self._left:
            self._refused = texts[max(place for _, place in places)].as_py()

    def choice(self, column: str) -> Choice:
        """The type, now that all texts were looked at."""
        if self._left is None:
            return Choice(column, pa.null(), "no value yet")
        if not self._left:
            return Choice(column, pa.string(), _why(self._refused))
        kind, reason = self._left[0].found()
        return Choice(column, kind, reason)


def first_lost(texts: pa.Array, kind: pa.DataType, form: DelimitedFormat = PLAIN, *, is_key: bool = False) -> int:
    """The place of the first text that a value of this type does not give back; -1 for none.

    Zeros at the end of a fraction may differ: a decimal(10,2) writes 2.5 as 2.50. Not in a key, where 1.1 and 1.10 may
    be two versions. Whether a text converts at all is not looked at.
    """
    t = pa.types
    if t.is_boolean(kind):
        return first_not(pc.match_substring_regex(texts, "(?i)^(true|false)$"))
    if t.is_date(kind) or t.is_timestamp(kind):
        zone = r"|:\d\d(\.\d+)? ?([zZ]|[+-]\d\d(:?\d\d)?)$" if t.is_timestamp(kind) and kind.tz is None else ""
        return first_not(pc.invert(pc.match_substring_regex(texts, r"^$|^\s|\s$|\.\d{6}\d*[1-9]" + zone)))
    if not (t.is_integer(kind) or t.is_decimal(kind) or t.is_floating(kind)):
        return -1
    plain, strange, _ = plain_numbers(texts, form)
    if t.is_floating(kind):
        plain = without_exponents(plain)
    strange = earlier(strange, first_strange(plain))
    if is_key and not t.is_integer(kind):
        strange = earlier(strange, _first_padded(plain, kind))
    if not t.is_floating(kind) or strange == 0:
        return strange
    known = plain if strange < 0 else plain.slice(0, strange)
    without_zeros = pc.replace_substring_regex(pc.replace_substring_regex(known, r"(\.\d*?)0+$", r"\1"), r"\.$", "")
    return earlier(strange, first_inexact(without_zeros, pa.float32() if t.is_float32(kind) else pa.float64()))


def _first_padded(numbers: pa.Array, kind: pa.DataType) -> int:
    """The first number with more or fewer zeros at the end of its fraction than a value of this type has."""
    if pa.types.is_floating(kind):
        return first_not(pc.invert(pc.match_substring_regex(numbers, r"\.\d+0$")))
    expression = rf"^[^.]*\.\d{{{kind.scale}}}$" if kind.scale else r"^[^.]*$"
    return first_not(pc.match_substring_regex(numbers, expression))


def hint_for_another_type(column: str) -> str:
    """What to do about a value that the type of its column does not hold."""
    return f"Correct the value, or publish everything again in a type that holds it: --types {column}=text --recreate."


def shown(kind: pa.DataType) -> str:
    """The type's name as a user gives it to `--types`; `text` for a string."""
    t = pa.types
    if t.is_string(kind) or t.is_large_string(kind):
        return "text"
    if t.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if t.is_timestamp(kind):
        return "timestamp"
    names = {pa.int64(): "bigint", pa.int32(): "int", pa.int16(): "smallint", pa.date32(): "date"}
    names |= {pa.bool_(): "boolean", pa.null(): "no type"}
    return names.get(kind, str(kind))


class _Kind(Protocol):
    """One kind of value that the texts of a column may all be."""

    def refused(self, texts: pa.Array) -> int:
        """The place of the first text that is none of this kind, -1 for none. No text is NULL."""

    def found(self) -> tuple[pa.DataType, str]:
        """The type and the reason."""


class _Numbers:
    def __init__(self, form: DelimitedFormat) -> None:
        self._form = form
        self._whole = 0  # digits before the point, at most
        self._scales: set[int] = set()
        self._fits_int64 = True
        self._inexact = ""  # a text that no double gives back
        self._pointed: set[bool] = set()  # how whole numbers are written where others have a fraction: 5.0, or 5
        self._grouped: bool | None = None  # whether thousands are marked; None: no number has so many digits

    def refused(self, texts: pa.Array) -> int:
        plain, strange, self._grouped = plain_numbers(texts, self._form, self._grouped)
        if strange >= 0 or self._are_int64(plain):
            return strange
        strange = -1 if are_decimals(plain) else first_strange(plain)
        if strange < 0:
            self._measure(plain)
        return strange

    def _are_int64(self, texts: pa.Array) -> bool:
        """True where all texts are int64, which is found faster than other numbers."""
        if "." in texts[0].as_py():
            return False  # a cast that fails takes forty times as long as one that does not
        numbers = cast_or_none(texts, pa.int64())
        if numbers is None or not pc.all(pc.equal(numbers.cast(pa.string()), texts)).as_py():
            return False
        ends = pc.min_max(numbers).as_py()
        longest = max(str(ends["min"]), str(ends["max"]), key=lambda text: len(text.lstrip("-")))
        self._whole = max(self._whole, len(longest.lstrip("-")))
        self._scales.add(0)
        self._pointed.add(False)
        if self._whole > SURE_DIGITS:
            self._inexact = self._inexact or longest
        return True

    def _measure(self, texts: pa.Array) -> None:
        point = pc.find_substring(texts, ".")
        length = pc.binary_length(texts)
        is_whole = pc.less(point, 0)
        scale = pc.if_else(is_whole, 0, pc.subtract(pc.subtract(length, point), 1))
        whole = pc.subtract(pc.if_else(is_whole, length, point), pc.starts_with(texts, "-").cast(pa.int32()))
        self._scales |= set(pc.min_max(scale).as_py().values())
        self._whole = max(self._whole, pc.max(whole).as_py())
        self._fits_int64 = False
        if self._inexact:
            return
        pointed = pc.and_(pc.ends_with(texts, ".0"), pc.equal(scale, 1))
        self._pointed |= {each for each, found in ((True, pointed), (False, is_whole)) if pc.any(found).as_py()}
        short = texts
        if pc.any(pointed).as_py():
            short = pc.if_else(pointed, pc.replace_substring_regex(texts, r"\.0$", ""), texts)
        if (place := first_inexact(short, pa.float64())) >= 0:
            self._inexact = texts[place].as_py()

    def found(self) -> tuple[pa.DataType, str]:
        scale = max(self._scales)
        if scale == 0 and self._fits_int64:
            return pa.int64(), "whole numbers"
        if len(self._scales) == 1 and self._whole + scale <= MOST_DIGITS:
            reason = f"{scale} digit{'s' * (scale > 1)} behind the point" if scale else f"{self._whole} digits"
            return pa.decimal128(MOST_DIGITS, scale), reason
        if len(self._scales) == 1 and self._inexact:
            return pa.string(), f"{self._whole + scale} digits"
        if not self._inexact and len(self._pointed) < 2:
            return pa.float64(), f"up to {scale} digits behind the point"
        if not self._inexact:
            return pa.string(), "whole numbers with and without .0 beside fractions"
        return pa.string(), f"{_cut(self._inexact)} is no double's own text, and scales differ"


class _Truths:
    def refused(self, texts: pa.Array) -> int:
        return first_not(pc.is_in(texts, value_set=pa.array(["true", "false"])))

    def found(self) -> tuple[pa.DataType, str]:
        return pa.bool_(), "true and false"


class _Dates:
    def __init__(self, form: DelimitedFormat) -> None:
        self._form = form

    def refused(self, texts: pa.Array) -> int:
        if not self._form.date_format:
            place = first_not(pc.equal(pc.binary_length(texts), 10))  # of yyyy-MM-dd, without blanks around it
            if place >= 0:
                return place
        return _first_bad(texts, "date", self._form)

    def found(self) -> tuple[pa.DataType, str]:
        return pa.date32(), self._form.date_format or "yyyy-MM-dd"


class _Moments:
    """Times that are all written in one form, the first one's. An offset such as +01:00 would not come back."""

    def __init__(self, form: DelimitedFormat) -> None:
        self._form = form
        self._expression = ""
        self._shown = form.timestamp_format
        self._zoned = bool(self._shown) and "zone" in date_pattern(self._shown).fields

    def refused(self, texts: pa.Array) -> int:
        if not self._form.timestamp_format:
            if not self._expression and not self._learn(texts[0].as_py()):
                return 0
            place = first_not(pc.match_substring_regex(texts, self._expression))
            if place >= 0:
                return place
        return _first_bad(texts, "timestamp", self._form)

    def _learn(self, text: str) -> bool:
        match = _MOMENT.fullmatch(text)
        if match is None:
            return False
        between, seconds, fraction, zone = match.groups()
        self._expression = rf"^\d{{4}}-\d\d-\d\d{between}([01]\d|2[0-3]):[0-5]\d"
        self._expression += (":[0-5]" + r"\d" if seconds else "") + (rf"\.\d{{{len(fraction)}}}" if fraction else "")
        self._expression += f"{zone or ''}$"
        self._shown = f"yyyy-MM-dd{between}HH:mm{':ss' * bool(seconds)}{'.' * bool(fraction)}"
        self._shown += "S" * len(fraction or "") + (zone or "")
        self._zoned = bool(zone)
        return True

    def found(self) -> tuple[pa.DataType, str]:
        return pa.timestamp("us", "UTC" if self._zoned else None), self._shown


def _first_bad(texts: pa.Array, table_type: str, form: DelimitedFormat) -> int:
    try:
        converted_as_written(texts, table_type, form)
    except BadValue as bad:
        return bad.place
    return -1


def _why(text: str) -> str:
    """Why a column with this text is no number, date or truth value."""
    if not text:
        return "an empty text"
    if text != text.strip():
        return f"blanks around {_cut(text)}"
    for expression, what in _REASONS:
        if re.fullmatch(expression, text, re.ASCII):
            return f"{what}, such as {_cut(text)}"
    return f"such as {_cut(text)}"


def _cut(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")


_MOMENT = re.compile(r"\d{4}-\d\d-\d\d([T ])\d\d:\d\d(:\d\d(?:\.(\d{1,6}))?)?(Z)?", re.ASCII)
_REASONS = (
    (r"[+-]?0\d[\d.]*", "a leading zero"),
    (r"\+[\d.]+", "a plus sign"),
    (r"[+-]?[\d.]+[eE][+-]?\d+", "an exponent"),
    (r"-0(\.0+)?", "a negative zero"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*", "times of several forms or with an offset"),
)
