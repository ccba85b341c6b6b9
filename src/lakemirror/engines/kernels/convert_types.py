"""Converts values of a change file to the types of its table (contract section 6).

    column of the file + type of the table's column ─▶ Conversion ─▶ array, exactly of `arrow_type`

Arrow's casts do the exact conversions. This module does the rest: nested values as JSON text, times as text, UUIDs,
nanoseconds cut to microseconds, dates of the legacy calendar. Row markers become numbers (contract section 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.engines.kernels.calendar_days import Calendar, today_days, today_micros
from lakemirror.engines.kernels.json_text import json_text, plain
from lakemirror.landing_zone.column_types import FileColumn, arrow_type, is_uuid, table_type
from lakemirror.landing_zone.row_markers import DELETE, INSERT, UPDATE, UPSERT, marker_number
from lakemirror.landing_zone.zoneless import NoInstant, instants

_HOURS_SHOWN = 100  # two digits
_KNOWN = (INSERT, UPDATE, DELETE, UPSERT)
_NO_MARKER = 3  # the only number from 0 to 4 that is not a marker
_SHOWN = 100  # characters of a wrong marker in a message


SAME_TYPE = {
    pa.bool_(): "boolean", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint", pa.float32(): "float",
    pa.float64(): "double", pa.string(): "string", pa.binary(): "binary",
}  # fmt: skip
"""Types of a file whose values the table holds as they are."""


class InvalidValue(ValueError):
    """A value that the table's column cannot hold. `row`: its position in the array; None: unknown."""

    def __init__(self, why: str, row: int | None = None) -> None:
        super().__init__(why)
        self.row = row


@dataclass(frozen=True)
class Conversion:
    """Converts the values of one column of a file to a table's column.

    `int96`: its timestamps are stored as INT96. `zone`: of times that name none.
    """

    column: FileColumn
    type: str
    calendar: Calendar
    int96: bool = False
    zone: str = "UTC"

    def __call__(self, values: pa.Array) -> pa.Array:
        """The values as `arrow_type(self.type)`. InvalidValue for the first value that cannot be converted."""
        try:
            if values.type in SAME_TYPE and SAME_TYPE[values.type] == self.type and not self.column.encoding:
                values.validate(full=True)  # text must be UTF-8
                return values
            return _converted(values, self)
        except InvalidValue:
            raise
        except NoInstant as error:
            raise InvalidValue(str(error), error.row) from error
        except (pa.ArrowException, ValueError, OverflowError) as error:
            raise _first_invalid(values, self, error) from error


def _converted(values: pa.Array, how: Conversion) -> pa.Array:
    wanted = arrow_type(how.type)
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), wanted)
    if not pa.types.is_time(values.type):  # Arrow refuses 24:00:00, which is converted as it is
        values.validate(full=True)
    result = _in_table_type(plain(values), how)
    if result.type != wanted:
        result = result.cast(wanted)
        if pa.types.is_decimal(wanted):
            result.validate(full=True)
    elif not pa.types.is_nested(values.type) and pa.types.is_string(wanted) and how.column.encoding == "enum":
        result.validate(full=True)
    return result


def _in_table_type(values: pa.Array, how: Conversion) -> pa.Array:
    """Values of the column's table type, in any of its Arrow types."""
    kind, encoding = values.type, how.column.encoding
    if pa.types.is_nested(kind):
        return json_text(values, how.calendar, int96=how.int96)
    if encoding == "uuid" or (pa.types.is_fixed_size_binary(kind) and is_uuid(how.column.arrow_type)):
        return _uuid_text(values)
    if encoding == "enum":
        text = values.cast(pa.binary()).view(pa.string())
        text.validate(full=True)
        return text
    if pa.types.is_timestamp(kind):
        return _moments(values, how)
    if pa.types.is_date(kind):
        return _dates(values, how.calendar)
    if pa.types.is_time(kind):
        return _time_text(values)
    if pa.types.is_duration(kind):
        return values.view(pa.int64())
    if pa.types.is_decimal(kind) and not pa.types.is_decimal128(kind):
        return values.cast(pa.decimal128(min(38, kind.precision), kind.scale))
    return values


def _moments(values: pa.Array, how: Conversion) -> pa.Array:
    """Timestamps in microseconds; those without a zone as instants, unless the column keeps them as they are.

    Nanoseconds are rounded down.
    """
    unit, int96 = values.type.unit, how.int96
    zoneless = values.type.tz is None and not int96
    legacy = how.calendar.legacy_int96 if int96 else how.calendar.legacy and not zoneless
    if unit in ("s", "ms"):
        values = values.cast(pa.timestamp("us", values.type.tz))  # fails where it does not fit
    if unit != "ns" and not legacy:
        return _in_column(values.view(pa.int64()), zoneless, how)
    numbers = np.asarray(values.view(pa.int64()).fill_null(0))
    if unit == "ns":
        numbers = np.floor_divide(numbers, 1000)
    if legacy:
        numbers = today_micros(numbers, how.calendar.zone)
    return _in_column(pa.array(numbers, mask=_nulls(values)), zoneless, how)


def _in_column(micros: pa.Array, zoneless: bool, how: Conversion) -> pa.Array:
    if not zoneless:
        return micros.view(pa.timestamp("us", "UTC"))
    local = micros.view(pa.timestamp("us"))
    return local if how.type == "timestamp_ntz" else instants(local, how.zone)


def _dates(values: pa.Array, calendar: Calendar) -> pa.Array:
    days = values.cast(pa.date32())
    if not calendar.legacy:
        return days
    numbers = np.asarray(days.view(pa.int32()).fill_null(0)).astype(np.int64)
    return pa.array(today_days(numbers).astype(np.int32), mask=_nulls(values)).view(pa.date32())


def _time_text(values: pa.Array) -> pa.Array:
    """HH:MM:SS, and six more digits if the microseconds are not 0."""
    stored = pa.int32() if pa.types.is_time32(values.type) else pa.int64()
    numbers = np.asarray(values.view(stored).fill_null(0)).astype(np.int64)
    per_second = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}[values.type.unit]
    seconds, fraction = np.divmod(numbers, per_second)
    wrong = np.flatnonzero((numbers < 0) | (seconds >= _HOURS_SHOWN * 3600))
    if len(wrong):
        raise InvalidValue(f"{int(numbers[wrong[0]])} {values.type.unit} is not a time of day", int(wrong[0]))
    micros = fraction * 1_000_000 // per_second
    parts = [seconds // 3600, seconds // 60 % 60, seconds % 60]
    shown = [pc.utf8_lpad(pa.array(part).cast(pa.string()), 2, "0") for part in parts]
    text = pc.binary_join_element_wise(*shown, ":")
    if micros.any():
        longer = pc.binary_join_element_wise(text, pc.utf8_lpad(pa.array(micros).cast(pa.string()), 6, "0"), ".")
        text = pc.if_else(pa.array(micros != 0), longer, text)
    return _with_nulls(text, values)


def _uuid_text(values: pa.Array) -> pa.Array:
    """8-4-4-4-12 hexadecimal digits in lower case."""
    size = len(values)
    filled = values.cast(pa.binary(16)).fill_null(b"\0" * 16)
    data = np.frombuffer(filled.buffers()[1], np.uint8)[filled.offset * 16 : (filled.offset + size) * 16]
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    pairs = np.stack([digits[data >> 4], digits[data & 15]], axis=1).reshape(size, 32)
    text = np.full((size, 36), ord("-"), np.uint8)
    for begin, end, at in ((0, 8, 0), (8, 12, 9), (12, 16, 14), (16, 20, 19), (20, 32, 24)):
        text[:, at : at + end - begin] = pairs[:, begin:end]
    offsets = pa.py_buffer(np.arange(size + 1, dtype=np.int32) * np.int32(36))
    return _with_nulls(pa.Array.from_buffers(pa.string(), size, [None, offsets, pa.py_buffer(text.tobytes())]), values)


def _with_nulls(text: pa.Array, values: pa.Array) -> pa.Array:
    if not values.null_count:
        return text
    return pc.if_else(values.is_valid(), text, pa.scalar(None, text.type))


def _nulls(values: pa.Array) -> np.ndarray | None:
    return np.asarray(values.is_null()) if values.null_count else None


def _first_invalid(values: pa.Array, how: Conversion, error: Exception) -> InvalidValue:
    """The first value that cannot be converted, found by binary search."""
    begin, size = 0, len(values)
    try:
        while size > 1:
            half = size // 2
            if _converts(values.slice(begin, half), how):
                begin, size = begin + half, size - half
            else:
                size = half
    except MemoryError:
        return InvalidValue(str(error))
    return InvalidValue(_reason(values, begin, error), begin)


def _converts(values: pa.Array, how: Conversion) -> bool:
    try:
        _converted(values, how)
    except (pa.ArrowException, ValueError, OverflowError):
        return False
    return True


def _reason(values: pa.Array, row: int, error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:200]


def read_markers(
    values: pa.Array | None, rows: int, default: int
) -> tuple[npt.NDArray[np.int8], tuple[int, str] | None]:
    """The marker of each row as int8, and the position and value of the first invalid one (None: all are valid).

    `values`: integers, strings or NULLs, also dictionary-encoded; None for a file without markers. NULL means
    `default`. Ignore the markers after an invalid one.
    """
    if values is None or pa.types.is_null(values.type):
        return np.full(rows, default, np.int8), None
    marker = _known_numbers(values)
    if marker is not None:
        return marker, None
    encoded = plain(values).dictionary_encode()
    known = encoded.dictionary.to_pylist()
    numbers = [_number(value) for value in known]
    if not known:
        return np.full(rows, default, np.int8), None
    places = np.asarray(pc.fill_null(encoded.indices, len(known)))
    marker = np.array([-1 if each is None else each for each in numbers] + [default], np.int8)[places]
    wrong = np.flatnonzero(marker < 0)
    if not len(wrong):
        return marker, None
    first = int(wrong[0])
    return marker, (first, _shown(known[int(places[first])]))


def _known_numbers(values: pa.Array) -> npt.NDArray[np.int8] | None:
    """The markers, if all values are valid integers, which is the common and fast case; else None."""
    if not pa.types.is_integer(values.type) or values.null_count or not len(values):
        return None
    numbers = np.asarray(values)
    if numbers.min() < min(_KNOWN):
        return None
    highest = numbers.max()
    if highest > max(_KNOWN) or (highest >= _NO_MARKER and (numbers == _NO_MARKER).any()):
        return None
    return numbers.astype(np.int8)


def _number(value: object) -> int | None:
    """The marker of a value; None if it is not a marker."""
    if isinstance(value, str):
        value = marker_number(value)
    return value if isinstance(value, int) and value in _KNOWN else None


def _shown(value: object) -> str:
    """An invalid marker for a message: printable and short."""
    text = str(value).strip(" ")
    return "".join(char if " " <= char <= "~" and char not in "<>" else "?" for char in text)[:_SHOWN]


__all__ = ["Conversion", "InvalidValue", "arrow_type", "read_markers", "table_type"]
