"""Values as one Arrow column, none of them changed: what its type cannot hold exactly is refused with its place.

    Python values ─▶ plain ones, and their kinds ─▶ one type that holds all, or the type asked for ─▶ Arrow

Integers, floats and Decimals may share a column: a float counts as its shortest text. Nothing else shares one.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.landing_zone.column_types import table_type
from lakemirror.landing_zone.delimited.values import BadValue, converted
from lakemirror.landing_zone.zoneless import NoInstant, instants
from lakemirror.publisher.declared_types import NESTED, json_leaf, json_text

MOST_DIGITS = 38


class Refused(Exception):
    """The value at this place, from 0, cannot be in the column. `kind`: no value of its kind can."""

    def __init__(self, place: int, reason: str, kind: bool = False) -> None:
        super().__init__(reason)
        self.place = place
        self.reason = reason
        self.kind = kind


def column(
    values: Iterable[Any], kind: pa.DataType | None = None, *, nan_is_null: bool = False, zone: str = ""
) -> pa.Array:
    """The values in a type, or in the one that holds all of them where none is given; `Refused`.

    `nan_is_null`: NaN stands for no value, as among the objects of a pandas frame. `zone`: of times that name none;
    empty: text is of UTC, and a datetime without a zone is no instant.
    """
    listed = list(values)
    types = set(map(type, listed))
    if kind is None and types and all(_is_numpy_number(each) for each in types) and len(types) == 1:
        return pa.array(listed)
    if not types <= _KINDS.keys():
        listed = _each(listed, _plain)
    if nan_is_null:
        listed = [None if type(value) is float and math.isnan(value) else value for value in listed]
    kinds = {_KINDS[each] for each in set(map(type, listed))} - {""}
    if kinds & _WITH_ZONES:
        kinds = {_kind_of(value) for value in listed} - {""}
    if not kinds:
        return pa.nulls(len(listed), kind)
    if len(kinds) > 1 and not kinds <= _NUMBERS:
        _refuse_mixed(listed)
    return _natural(listed, kinds) if kind is None else _in_type(listed, kinds, kind, zone)


def declared_column(values: Iterable[Any], kind: pa.DataType, *, nan_is_null: bool = False, zone: str = "") -> pa.Array:
    """The values in a type that a user names: beside what `column` takes, such as numbers as text or booleans."""
    listed = list(values)
    try:
        return column(listed, kind, nan_is_null=nan_is_null, zone=zone)
    except Refused as refused:
        found = column(listed, nan_is_null=nan_is_null) if refused.kind else None
        if found is None or _is_text(found.type) or pa.types.is_binary(found.type) or found.type == NESTED:
            raise
    return cast_exactly(found, kind, zone)


def cast_exactly(array: pa.Array, kind: pa.DataType, zone: str = "") -> pa.Array:
    """The values in another type; `Refused`. Times that name no zone become instants as of `zone`; empty: UTC."""
    given, t = array.type, pa.types
    if given == kind:
        return array
    if _is_text(given) and (is_number(kind) or t.is_boolean(kind) or t.is_date(kind) or t.is_timestamp(kind)):
        return _read(array.cast(pa.string()), kind, zone or "UTC")
    numbers = is_number(given) and is_number(kind)
    if numbers and _arrow_rounds(given, kind):
        return column(array.to_pylist(), kind)
    cast = _to_times(kind, zone or "UTC") if t.is_timestamp(kind) else lambda each: each.cast(kind)
    try:
        made = cast(array)
    except NoInstant as error:
        raise Refused(error.row, str(error)) from None
    except pa.ArrowException:
        if numbers:  # Arrow refuses some that have a place
            return column(array.to_pylist(), kind)
        place = first_failing(array, cast)
        raise Refused(place, _no_value(array[place].as_py(), kind)) from None
    if (t.is_timestamp(given) and t.is_date(kind)) or t.is_boolean(kind):
        place = pc.fill_null(pc.not_equal(array, made.cast(given)), False).index(True).as_py()
        if place >= 0:
            raise Refused(place, _no_value(array[place].as_py(), kind))
    return made


def _natural(values: list[Any], kinds: set[str]) -> pa.Array:
    """The values in the type that holds all of them."""
    if kinds == {"an integer"}:
        try:
            return pa.array(values, pa.int64())
        except OverflowError:
            return _in_type(values, kinds, pa.decimal128(MOST_DIGITS, 0))
    if "a Decimal" in kinds:
        return _in_type(values, kinds, _decimal_for(values))
    found = "a float" if "a float" in kinds else next(iter(kinds))
    if found not in _TYPES:
        raise Refused(_first(values), f"{found} cannot be kept in a table")
    return _in_type(values, kinds, _TYPES[found])


def _in_type(values: list[Any], kinds: set[str], kind: pa.DataType, zone: str = "") -> pa.Array:
    """The values, which are numbers or all of one kind, in this type. `zone`: as in `column`."""
    t = pa.types
    if is_number(kind) and kinds <= _NUMBERS:
        return _as_numbers(values, kinds, kind)
    found = next(iter(kinds))
    if found == "a list or dict" and (kind == NESTED or _is_text(kind)):
        texts = _built(_each(values, lambda value: json_text(_json(value))), pa.string())
        return pa.ExtensionArray.from_storage(NESTED, texts) if kind == NESTED else texts.cast(kind)
    if found == "a duration" and kind == pa.int64():
        return _in_type(values, kinds, _TYPES[found])  # it becomes a number where types get their place
    if found == "a datetime" and zone and t.is_timestamp(kind) and kind.tz:
        return cast_exactly(_in_type(values, kinds, _TYPES[found]), kind, zone)
    taken = next((taken for is_kind, taken in _TAKEN if is_kind(kind)), None)
    if taken is not None and found not in taken:
        raise Refused(_first(values), f"{found} is no value of type {kind}", kind=True)
    if found == "text" and not _is_text(kind):
        return cast_exactly(_built(values, pa.string()), kind, zone)
    if found in ("a UUID", "a time of day") and _is_text(kind):
        return _built([None if value is None else str(value) for value in values], kind)
    made = _built(values, kind)
    if t.is_timestamp(kind) or t.is_time(kind) or t.is_duration(kind):
        back = made.cast(_TYPES[found], safe=False).to_pylist() if found in _TYPES else made.to_pylist()
        place = next((place for place, value in enumerate(values) if value != back[place]), -1)
        if place >= 0:
            raise Refused(place, _no_value(values[place], kind))
    return made


def _as_numbers(values: list[Any], kinds: set[str], kind: pa.DataType) -> pa.Array:
    t = pa.types
    if t.is_decimal(kind):
        return _built(_each(values, lambda value: _to_decimal(value, kind.scale), kind), kind)
    if t.is_integer(kind):
        return _built(values if kinds == {"an integer"} else _each(values, _to_integer, kind), kind)
    floats = values if kinds == {"a float"} else _each(values, _to_float, kind)
    made = pa.array(floats, pa.float64())
    if t.is_float64(kind):
        return made
    narrow = made.cast(kind)
    place = pc.fill_null(pc.not_equal(made.cast(pa.string()), narrow.cast(pa.string())), False).index(True).as_py()
    if place >= 0:
        raise Refused(place, _no_value(values[place], kind))
    return narrow


def _to_integer(value: Any) -> int:
    whole = int(value) if not isinstance(value, Decimal) or value.adjusted() < MOST_DIGITS else 0
    if whole != value:
        raise ValueError
    return whole


def _to_float(value: Any) -> float:
    found = float(value)
    same = Decimal(repr(found)) == value if isinstance(value, Decimal) else found == value
    if not (same or found != found):
        raise ValueError
    return found


def _to_decimal(value: Any, scale: int) -> Decimal:
    """Arrow takes a number with far more digits after the point than the type has for another one."""
    found = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not found.is_finite():
        raise ValueError
    sign, digits, exponent = found.as_tuple()
    beyond = -int(exponent) - scale
    if beyond <= 0:
        return found
    if any(digits[-beyond:]):
        raise ValueError
    return Decimal((sign, digits[:-beyond] or (0,), -scale))


def _decimal_for(values: list[Any]) -> pa.DataType:
    """The decimal type with as many digits on both sides of the point as the numbers have."""
    before = behind = 0
    for place, value in enumerate(values):
        if value is None:
            continue
        number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        _, digits, exponent = number.as_tuple()
        if not isinstance(exponent, int):
            raise Refused(place, f"{value} cannot be kept beside decimals")
        before = max(before, len(digits) + exponent if number else 0)
        behind = max(behind, -exponent)
        if before + behind > MOST_DIGITS:
            raise Refused(place, f"{str(value)[:50]} makes the column a decimal of more than {MOST_DIGITS} digits")
    return pa.decimal128(max(before + behind, 1), behind)


def _json(value: Any) -> Any:
    """A list or dict as plain JSON values; ValueError for a value in it that JSON has no place for."""
    value = _plain(value)
    kind = _KINDS[type(value)]
    if kind != "a list or dict":
        return json_leaf(str(value) if kind == "a UUID" else value)
    if not isinstance(value, dict):
        return [_json(each) for each in value]
    made = {key if isinstance(key, str) else json.dumps(key): _json(each) for key, each in value.items()}
    if len(made) != len(value):
        raise ValueError("two of its keys are the same text")
    return made


def _plain(value: Any) -> Any:
    """The same value as one of Python's own types; ValueError for one that cannot be kept in a table."""
    kind = type(value)
    if kind in _KINDS:
        return value
    library = kind.__module__.partition(".")[0]
    if isinstance(value, pa.Scalar):
        return _plain(value.as_py())
    if library == "pandas" and kind.__name__ in ("NaTType", "NAType"):
        return None
    if library == "pandas" and kind.__name__ in ("Timestamp", "Timedelta"):
        if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
            raise ValueError(f"{value} is finer than microseconds")
        return value.to_pydatetime() if kind.__name__ == "Timestamp" else value.to_pytimedelta()
    if library == "numpy" and hasattr(value, "dtype"):
        return _plain_numpy(value)
    for base, make in _BASES:
        if isinstance(value, base):
            return make(value)
    raise ValueError(f"a value of type {kind.__module__}.{kind.__qualname__} cannot be kept in a table")


def _plain_numpy(value: Any) -> Any:
    if getattr(value, "ndim", 0):
        return list(value)
    if value.dtype.kind in "mM" and isinstance(value.item(), int):  # nanoseconds
        coarse = value.astype(f"{value.dtype.kind}8[us]")
        if coarse != value:
            raise ValueError(f"{value} is finer than microseconds")
        return coarse.item()
    found = value.item()
    if type(found) not in _KINDS:
        raise ValueError(f"a value of type numpy.{type(value).__name__} cannot be kept in a table")
    return found


def _kind_of(value: Any) -> str:
    kind = _KINDS[type(value)]
    return f"{kind} with a zone" if kind in _WITH_ZONES and value.utcoffset() is not None else kind


def _refuse_mixed(values: list[Any]) -> NoReturn:
    """Names the first value of another kind than the first one."""
    first = _first(values)
    kind = _kind_of(values[first])
    alike = _NUMBERS if kind in _NUMBERS else {kind}
    place = next(place for place, value in enumerate(values) if value is not None and _kind_of(value) not in alike)
    raise Refused(place, f"{_kind_of(values[place])} beside {kind} in row {first + 1}", kind=True)


def _each(values: list[Any], convert: Callable[[Any], Any], kind: pa.DataType | None = None) -> list[Any]:
    made = []
    for place, value in enumerate(values):
        try:
            made.append(None if value is None else convert(value))
        except (ValueError, ArithmeticError, TypeError, RecursionError) as error:
            raise Refused(place, str(error) if kind is None else _no_value(value, kind)) from error
    return made


def _built(values: list[Any], kind: pa.DataType) -> pa.Array:
    refused = (pa.ArrowException, OverflowError, TypeError, ValueError)
    try:
        return pa.array(values, kind)
    except refused as whole:
        for place, value in enumerate(values):
            try:
                pa.array([value], kind)
            except refused:
                raise Refused(place, _no_value(value, kind)) from whole
        raise


def first_failing(array: pa.Array, cast: Callable[[pa.Array], pa.Array]) -> int:
    """The place of the first value that Arrow cannot cast; 0 where it has no cast of this kind."""
    for place in range(len(array)):
        try:
            if array[place].is_valid:
                cast(array.slice(place, 1))
        except pa.ArrowException:
            return place
    return 0


def _no_value(value: Any, kind: pa.DataType) -> str:
    shown = f"{value:f}" if isinstance(value, Decimal) and abs(value.adjusted()) < 100 else str(value)
    return f"{shown[:100]} cannot be held exactly by type {kind}"


def _read(texts: pa.Array, kind: pa.DataType, zone: str) -> pa.Array:
    """Text as values, as delimited text is read; an empty one is no value, and no digit of a time is cut off."""
    lost = pc.match_substring_regex(texts, r"^\s*$|:\d\d\.\d{6}\d*[1-9]").index(True).as_py()
    try:
        made = converted(texts.slice(0, lost) if lost >= 0 else texts, table_type(kind) or "string", zone).cast(kind)
    except BadValue as bad:
        raise Refused(bad.place, bad.why or _no_value(bad.text, kind)) from None
    if lost >= 0:
        raise Refused(lost, _no_value(texts[lost].as_py(), kind))
    return made


def _to_times(kind: Any, zone: str) -> Callable[[pa.Array], pa.Array]:
    """The conversion of dates and of times into this type of times."""
    return lambda values: (
        instants(values.cast(pa.timestamp("us")), zone).cast(kind)
        if kind.tz and pa.types.is_timestamp(values.type) and values.type.tz is None
        else values.cast(kind)
    )


def _first(values: list[Any]) -> int:
    return next(place for place, value in enumerate(values) if value is not None)


def _arrow_rounds(given: pa.DataType, kind: pa.DataType) -> bool:
    """True where Arrow's safe cast changes numbers without a word."""
    t = pa.types
    if t.is_floating(given):
        return bool(t.is_decimal(kind) or (t.is_floating(kind) and kind.bit_width < given.bit_width))
    return bool(t.is_decimal(given) and t.is_floating(kind))


def is_number(kind: pa.DataType) -> bool:
    """True for the types of numbers that a table can have."""
    t = pa.types
    return bool(t.is_integer(kind) or t.is_decimal(kind) or t.is_float32(kind) or t.is_float64(kind))


def _is_numpy_number(kind: type) -> bool:
    return kind.__module__ == "numpy" and kind.__name__.rstrip("_0123456789") in ("int", "uint", "float", "bool")


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string())


_KINDS: Mapping[type, str] = {
    type(None): "", bool: "a boolean", int: "an integer", float: "a float", Decimal: "a Decimal", str: "text",
    bytes: "bytes", bytearray: "bytes", memoryview: "bytes", dt.date: "a date", dt.datetime: "a datetime",
    dt.time: "a time of day", dt.timedelta: "a duration", uuid.UUID: "a UUID", list: "a list or dict",
    tuple: "a list or dict", dict: "a list or dict",
}  # fmt: skip
_NUMBERS = {"an integer", "a float", "a Decimal"}
_WITH_ZONES = {"a datetime", "a time of day"}
_TYPES: Mapping[str, pa.DataType] = {
    "a boolean": pa.bool_(), "a float": pa.float64(), "text": pa.string(), "bytes": pa.binary(),
    "a date": pa.date32(), "a datetime": pa.timestamp("us"), "a datetime with a zone": pa.timestamp("us", "UTC"),
    "a time of day": pa.time64("us"), "a duration": pa.duration("us"), "a UUID": pa.string(),
    "a list or dict": NESTED,
}  # fmt: skip
_TAKEN: tuple[tuple[Callable[[Any], bool], set[str]], ...] = (
    (is_number, set()),
    (pa.types.is_boolean, {"a boolean"}),
    (_is_text, {"text", "a UUID", "a time of day"}),
    (lambda kind: kind in (pa.binary(), pa.large_binary()), {"bytes"}),
    (pa.types.is_date, {"a date", "text"}),
    (lambda kind: bool(pa.types.is_timestamp(kind) and kind.tz), {"a datetime with a zone", "text"}),
    (pa.types.is_timestamp, {"a datetime", "text"}),
    (pa.types.is_time, {"a time of day"}),
    (pa.types.is_duration, {"a duration"}),
)
"""For types that many kinds of values could be put into: the kinds that are taken."""
_BASES: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    (int, int),
    (float, float),
    (Decimal, Decimal),
    (str, str.__str__),
    (bytes, bytes),
    (dt.datetime, lambda v: dt.datetime.combine(dt.date(v.year, v.month, v.day), v.timetz())),
    (dt.date, lambda v: dt.date(v.year, v.month, v.day)),
    (dt.timedelta, lambda v: dt.timedelta(v.days, v.seconds, v.microseconds)),
    (Mapping, dict),
    ((list, tuple), list),
)
