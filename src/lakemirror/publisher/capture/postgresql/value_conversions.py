"""Values of one column, from a load or from an event, as the Arrow values of its change files.

Every function takes an array and gives one of the same length; NULL stays NULL. `BadValue` with the place of the first
value that cannot be kept exactly. What an event holds follows from `EVENT_PROPERTIES` in `types.py`; it was seen in
events of Debezium 3.6.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.landing_zone.column_types import table_type
from lakemirror.landing_zone.delimited.values import BadValue, converted
from lakemirror.publisher.capture.postgresql.float_texts import double_text, rewritten
from lakemirror.publisher.capture.unkept_values import INFINITE
from lakemirror.publisher.capture.value_casts import cast, null_where, refuse, short_times

DAYS = (-719162, 2932896)
"""The first day of year 1 and the last day of year 9999, counted from 1970."""
MICROSECONDS = (-62135596800000000, 253402300799999999)
"""The same two years in microseconds."""
_DAY = 86_400_000_000
_INFINITE_DAYS = (-2147472692, -2147472691)
_INFINITE_LOADED = (-9222425352054775809, -9222425352054775808)
_INFINITE_STREAMED = (9223372036825200000, -9223372036832400000)
_INTERVAL = re.compile(r"P(-?\d+)Y(-?\d+)M(-?\d+)DT(-?\d+)H(-?\d+)M(-?[\d.]+)S")
_SPECIAL = {"NAN": "NaN", "POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity"}
TOO_FAR = "the years 1 to 9999 can be kept"


def decimals(kind: pa.DataType, infinite_null: bool) -> Callable[[pa.Array], pa.Array]:
    """Texts of numbers as decimals of this type, exactly."""
    named = table_type(kind)
    assert named is not None

    def convert(values: pa.Array) -> pa.Array:
        texts = number_texts(values)
        special = pc.is_in(texts, pa.array(["NaN", "Infinity", "-Infinity"]))
        if not infinite_null:
            refuse(texts, special, "a decimal holds numbers alone")
        elif pc.any(special).as_py():
            texts = null_where(texts, special)
        if kind.scale == 0:  # a negative scale comes with many digits behind the point
            texts = pc.replace_substring_regex(texts, r"\.0*$", "")
        return converted(texts, named)

    return convert


def number_texts(values: pa.Array) -> pa.Array:
    """Texts of numbers, as the database writes them."""
    texts = cast(pa.string())(values)
    if pc.any(pc.ends_with(pc.fill_null(texts, ""), "N")).as_py() or pc.any(pc.ends_with(texts, "INFINITY")).as_py():
        found = [_SPECIAL.get(text, text) for text in texts.to_pylist()]
        return pa.array(found, pa.string())
    return texts


def unpadded(values: pa.Array) -> pa.Array:
    """`char(n)` without the blanks at its end, which do not belong to its value."""
    return pc.utf8_rtrim(cast(pa.string())(values), " ")


def dates(infinite_null: bool) -> Callable[[pa.Array], pa.Array]:
    """Days since 1970."""

    def convert(values: pa.Array) -> pa.Array:
        days = values.cast(pa.int32()) if not pa.types.is_integer(values.type) else values
        return _bounded(days, DAYS, _INFINITE_DAYS, infinite_null).cast(pa.int32()).cast(pa.date32())

    return convert


def times(kind: pa.DataType, infinite_null: bool) -> Callable[[pa.Array], pa.Array]:
    """Microseconds since 1970, of a load or of an event."""

    def convert(values: pa.Array) -> pa.Array:
        infinite = _INFINITE_STREAMED if pa.types.is_integer(values.type) else _INFINITE_LOADED
        return _bounded(values.cast(pa.int64()), MICROSECONDS, infinite, infinite_null).cast(kind)

    return convert


def instants(infinite_null: bool) -> Callable[[pa.Array], pa.Array]:
    """Texts of instants, as `2026-01-02T03:04:05.123456Z`."""

    def convert(values: pa.Array) -> pa.Array:
        texts = cast(pa.string())(values)
        infinite = pc.ends_with(texts, "infinity")
        if not infinite_null:
            refuse(texts, infinite, INFINITE)
        elif pc.any(infinite).as_py():
            texts = null_where(texts, infinite)
        refuse(texts, pc.match_substring_regex(texts, "^[+-]"), TOO_FAR)
        return converted(texts, "timestamp").cast(pa.timestamp("us", "UTC"))

    return convert


def clock_times(values: pa.Array) -> pa.Array:
    """Microseconds of a day as text, `24:00:00` among them."""
    counts = values.cast(pa.int64())
    is_end = pc.equal(counts, _DAY)
    day = pc.if_else(is_end, pa.scalar(0, pa.int64()), counts).cast(pa.time64("us")).cast(pa.string())
    return pc.if_else(is_end, pa.scalar("24:00:00"), short_times(day))


def interval_text(text: str) -> str:
    """A duration in ISO 8601 without the parts that are zero, as PostgreSQL writes it."""
    parts = _INTERVAL.fullmatch(text)
    if parts is None:
        raise ValueError("it is no interval")
    years, months, days, hours, minutes, seconds = parts.groups()
    date = "".join(f"{part}{unit}" for part, unit in zip((years, months, days), "YMD", strict=True) if part != "0")
    time = "".join(f"{part}{unit}" for part, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if part != "0")
    return f"P{date}T{time}" if time else f"P{date}" if date else "PT0S"


def decoded(text: str) -> str:
    """The text of a value whose type Debezium does not know."""
    return base64.b64decode(text).decode("utf-8")


def geometric(text: str) -> str:
    return rewritten(decoded(text))


def point(value: dict[str, Any]) -> str:
    return f"({double_text(float(value['x']))},{double_text(float(value['y']))})"


def spatial(value: dict[str, Any]) -> str:
    """A geometry of PostGIS in its own form: hexadecimal EWKB."""
    return base64.b64decode(value["wkb"]).hex().upper()


def bits(length: int) -> Callable[[Any], str]:
    """`bit(n)`: Debezium gives the bits from the last to the first, and a boolean for one bit."""

    def convert(value: Any) -> str:
        if isinstance(value, bool):
            return "1" if value else "0"
        return f"{int.from_bytes(base64.b64decode(value), 'little'):0{length}b}"

    return convert


def hstore_text(text: str) -> str:
    """An hstore in its own form, in its own order: by the length of the key, then by its bytes."""
    pairs = sorted(json.loads(text).items(), key=lambda pair: (len(pair[0].encode()), pair[0].encode()))
    return ", ".join(f"{_hstore(key)}=>{'NULL' if value is None else _hstore(value)}" for key, value in pairs)


def _hstore(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _bounded(counts: pa.Array, bounds: tuple[int, int], infinite: tuple[int, int], infinite_null: bool) -> pa.Array:
    """The same counts, all within bounds; infinite ones as NULL if that is wanted."""
    lowest_highest = pc.min_max(counts).as_py()
    if lowest_highest["min"] is None or (lowest_highest["min"] >= bounds[0] and lowest_highest["max"] <= bounds[1]):
        return counts
    is_infinite = pc.is_in(counts, pa.array(infinite, counts.type))
    if infinite_null:
        counts = pc.if_else(is_infinite, pa.scalar(None, counts.type), counts)
    elif pc.any(is_infinite).as_py():
        raise BadValue(is_infinite.index(True).as_py(), "infinity", INFINITE)
    outside = pc.or_(pc.less(counts, bounds[0]), pc.greater(counts, bounds[1]))
    if pc.any(outside).as_py():
        raise BadValue(outside.index(True).as_py(), "", TOO_FAR)
    return counts
