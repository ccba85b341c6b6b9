"""Writes lists, structs and maps as JSON text (contract section 6), like Spark's `to_json` with NULL fields.

    nested array ─▶ text of each leaf ─▶ joined level by level ─▶ one string per row

Numbers have no quotes; NaN and infinities have. Timestamps have milliseconds, and Z if they have a zone. Times,
durations and nanosecond timestamps are the integers that Parquet stores. Bytes are base64. Keys of maps are strings;
a date or timestamp as a key is its count since 1970.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.engines.kernels.calendar_days import Calendar, today_days, today_micros


def json_text(values: pa.Array, calendar: Calendar, *, int96: bool = False) -> pa.Array:
    """The JSON text of each value; NULL stays NULL. `int96`: inner timestamps without zone were stored as INT96.

    ArrowInvalid if a string is not UTF-8.
    """
    text = _text(values, calendar, int96)
    if values.null_count:
        text = pc.if_else(values.is_valid(), text, pa.scalar(None, pa.string()))
    return text


def plain(values: pa.Array) -> pa.Array:
    """The values without dictionary encoding, run-end encoding and extension types."""
    while True:
        if isinstance(values, pa.ExtensionArray) or isinstance(values.type, pa.BaseExtensionType):
            values = values.storage
        elif pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        elif pa.types.is_run_end_encoded(values.type):
            values = pc.run_end_decode(values)
        else:
            return values


def float_text(value: float, *, single: bool = False) -> str:
    """A number as Java writes it: the fewest digits that identify it, at least one of them after the point."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if np.signbit(value) else "0.0"
    number: Any = np.float32(value) if single else np.float64(value)
    digits, _, exponent = np.format_float_scientific(abs(number), trim="-").partition("e")
    if "." not in digits:  # Java prints two digits if that is closer to the exact value
        nearer = f"{abs(float(number)):.1e}"
        if type(number)(nearer) == abs(number):
            digits, _, exponent = nearer.partition("e")
    power = int(exponent)
    figures = digits.replace(".", "").rstrip("0") or "0"
    sign = "-" if value < 0 else ""
    if -3 <= power < 7:
        if power < 0:
            return f"{sign}0.{'0' * (-power - 1)}{figures}"
        figures = figures.ljust(power + 1, "0")
        return f"{sign}{figures[: power + 1]}.{figures[power + 1 :] or '0'}"
    return f"{sign}{figures[0]}.{figures[1:] or '0'}E{power}"


def _text(values: pa.Array, calendar: Calendar, int96: bool) -> pa.Array:
    """Like `json_text`, but with the text `null` for NULL."""
    values = plain(values)
    kind = values.type
    if pa.types.is_map(kind):
        text = _map_text(values, calendar, int96)
    elif pa.types.is_struct(kind):
        text = _struct_text(values, calendar, int96)
    elif pa.types.is_nested(kind):
        lengths = pc.fill_null(pc.list_value_length(values), 0)
        joined = _joined(lengths, _text(values.flatten(), calendar, int96))
        text = pc.binary_join_element_wise("[", joined, "]", "")
    elif pa.types.is_null(kind):
        return pa.repeat(pa.scalar("null"), len(values))
    else:
        text = _leaf_text(values, calendar, int96)
    if values.null_count:
        text = pc.if_else(values.is_valid(), text, pa.scalar("null", pa.string()))
    return text


def _struct_text(values: pa.StructArray, calendar: Calendar, int96: bool) -> pa.Array:
    parts: list[Any] = []
    for place, field in enumerate(values.flatten()):
        before = "," if place else "{"
        parts += [f"{before}{_quoted(values.type.field(place).name)}:", _text(field, calendar, int96)]
    if not parts:
        return pa.repeat(pa.scalar("{}"), len(values))
    return pc.binary_join_element_wise(*parts, "}", "")


def _map_text(values: pa.MapArray, calendar: Calendar, int96: bool) -> pa.Array:
    offsets = np.asarray(values.offsets)
    begin, size = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys = _key_text(values.keys.slice(begin, size), calendar, int96)
    items = _text(values.items.slice(begin, size), calendar, int96)
    entries = pc.binary_join_element_wise(keys, ":", items, "")
    joined = _joined(pa.array(np.diff(offsets)), entries)
    return pc.binary_join_element_wise("{", joined, "}", "")


def _joined(lengths: pa.Array, texts: pa.Array) -> pa.Array:
    """Joins the next `lengths` texts of each row with commas."""
    offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths))]).astype(np.int32)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), ",")


def _key_text(keys: pa.Array, calendar: Calendar, int96: bool) -> pa.Array:
    keys = plain(keys)
    kind = keys.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return _string_text(keys)
    if pa.types.is_date(kind):
        text = pa.array(_days(keys, calendar)).cast(pa.string())
    elif pa.types.is_timestamp(kind) and (kind.unit != "ns" or int96):
        text = pa.array(_moments(keys, calendar, int96)).cast(pa.string())
    else:
        text = _text(keys, calendar, int96)
        if pa.types.is_nested(kind):
            return _string_text(text)
    bare = pc.invert(pc.starts_with(text, '"'))
    return pc.if_else(bare, pc.binary_join_element_wise('"', text, '"', ""), text)


def _leaf_text(values: pa.Array, calendar: Calendar, int96: bool) -> pa.Array:
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        return _string_text(values)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return values.cast(pa.string())
    if pa.types.is_floating(kind):
        single = pa.types.is_float32(kind)
        return _each(values, lambda value: _float_json(value, single))
    if pa.types.is_decimal(kind):
        return _each(values, str)
    if pa.types.is_date(kind):
        return _by_number(_days(values, calendar), _day_text)
    if pa.types.is_timestamp(kind) and (kind.unit != "ns" or int96):
        zoned = "Z" if kind.tz is not None or int96 else ""
        millis = np.floor_divide(_moments(values, calendar, int96), 1000)
        return _by_number(millis, lambda number: f'"{_moment(number)}{zoned}"')
    if pa.types.is_time32(kind):
        return values.cast(pa.int32()).cast(pa.string())
    if pa.types.is_temporal(kind):
        return values.cast(pa.int64()).cast(pa.string())
    return _each(values, lambda value: f'"{base64.b64encode(value).decode()}"')


def _string_text(values: pa.Array) -> pa.Array:
    text = values.cast(pa.string())
    text.validate(full=True)
    escaped = pc.match_substring_regex(text, r'["\\\x00-\x1f]')
    if pc.any(escaped).as_py():
        return _each(text, _quoted)
    return pc.binary_join_element_wise('"', text, '"', "")


def _quoted(value: str) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return _CONTROL.sub(lambda found: found[0].upper().replace("\\U", "\\u"), text) if "\\u" in text else text


def _float_json(value: float, single: bool) -> str:
    text = float_text(value, single=single)
    return f'"{text}"' if text[-1] in "Ny" else text


def _days(values: pa.Array, calendar: Calendar) -> Any:
    days = np.asarray(values.cast(pa.date32()).view(pa.int32()).fill_null(0)).astype(np.int64)
    return today_days(days) if calendar.legacy else days


def _moments(values: pa.Array, calendar: Calendar, int96: bool) -> Any:
    """Microseconds since 1970; 0 for NULL."""
    count = np.asarray(values.view(pa.int64()).fill_null(0))
    unit = values.type.unit
    micros = count if unit == "us" else count // 1000 if unit == "ns" else count * (1000 if unit == "ms" else 1_000_000)
    legacy = (calendar.legacy and values.type.tz is not None) or (calendar.legacy_int96 and int96)
    return today_micros(micros, calendar.zone) if legacy else micros


def _day_text(day: int) -> str:
    return f'"{_date(day)}"'


def _moment(millis: int) -> str:
    day, rest = divmod(millis, 86_400_000)
    seconds, thousandths = divmod(rest, 1000)
    return f"{_date(day)}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{thousandths:03}"


def _date(day: int) -> str:
    year, month, number = _civil(day)
    shown = f"+{year}" if year > 9999 else f"-{-year:04}" if year < 0 else f"{year:04}"
    return f"{shown}-{month:02}-{number:02}"


def _civil(day: int) -> tuple[int, int, int]:
    """Year, month and day of a day since 1970, for any year."""
    era, of_era = divmod(day + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    number = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return year + era * 400 + (month <= 2), month, number


def _each(values: pa.Array, write: Callable[[Any], str]) -> pa.Array:
    return pa.array([None if value is None else write(value) for value in values.to_pylist()], pa.string())


def _by_number(numbers: Any, write: Callable[[int], str]) -> pa.Array:
    """The text of each number. `write` is called once for equal numbers."""
    unique, places = np.unique(numbers, return_inverse=True)
    return pa.array([write(int(number)) for number in unique], pa.string()).take(pa.array(places.reshape(-1)))


_CONTROL = re.compile(r"(?<!\\)(?:\\\\)*\\u00[01][0-9a-f]")
