"""Text as values of the declared types (contract section 6): whole columns at once, single values where that fails.

A column is cast by Arrow where Arrow reads text as the contract does; what it refuses is looked at value by value,
which also finds the first one that does not convert.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.landing_zone.column_types import arrow_type
from lakemirror.landing_zone.zoneless import NTZ, NoInstant, instants


class BadValue(Exception):
    """The value at this place of the column does not convert. `why`: the reason, where the type does not tell it."""

    def __init__(self, place: int, text: str, why: str = "", column: str = "") -> None:
        super().__init__(text)
        self.place = place
        self.text = text
        self.why = why
        self.column = column


def converted(texts: pa.Array, table_type: str, zone: str = "UTC") -> pa.Array:
    """The column's values; `BadValue` at the first that does not convert. NULL stays NULL.

    Outside of strings an empty text is NULL too, and blanks around a value are passed over. `zone`: in which a
    timestamp's text without a zone is read.
    """
    kind = arrow_type(table_type)
    if table_type == "string":
        return texts
    if pc.any(pc.equal(texts, "")).as_py():
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    if table_type == "timestamp" and zone not in ("UTC", NTZ):
        return _moments_in(texts, zone)
    fast = _FAST.get(table_type, _decimal if table_type.startswith("decimal(") else None)
    if fast is not None:
        found = fast(texts, kind)
        if found is not None:
            return found
    return _one_by_one(texts, _EXACT.get(table_type) or _decimal_of(kind), kind)


def any_zoneless(texts: pa.Array) -> bool:
    """True if a text that is a time names no zone."""
    if pc.all(pc.ends_with(texts, "Z")).as_py() in (True, None):
        return False  # found many times faster
    return pc.any(pc.invert(pc.match_substring_regex(texts, rf"{_ZONED_LOOSELY}|^\s*$"))).as_py() is True


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    try:
        return texts.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _whole(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    found = _cast(texts, kind)
    # Arrow takes 0x1F for a number
    return found if not any(pc.any(pc.match_substring(texts, each)).as_py() for each in "xX") else None


def _decimal(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    # Arrow's cast of more than 38 digits overflows without a word: 3.4e38 has 39, and more in a column with a scale
    longest = pc.max(pc.binary_length(texts)).as_py()
    if longest is None:
        return _cast(texts, kind)
    is_short = longest + kind.scale <= 38
    if not is_short or pc.any(pc.match_substring(texts, "e", ignore_case=True)).as_py():
        return None
    return _cast(texts, kind)


def _real(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    found = _cast(texts, kind)
    if found is None or pc.any(pc.or_kleene(pc.is_inf(found), pc.is_nan(found))).as_py():
        return None
    return found


def _boolean(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    index = pc.index_in(pc.ascii_lower(texts), value_set=pa.array(["false", "true", "0", "1"]))
    if index.null_count != texts.null_count:
        return None
    return pc.equal(pc.bit_wise_and(index, 1), 1)


def _date(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    lengths = pc.min_max(pc.binary_length(texts)).as_py()
    if lengths["min"] not in (10, None) or lengths["max"] not in (10, None):
        return None
    found = _cast(texts, kind)
    if found is None:
        return None
    first = pc.min(found.view(pa.int32())).as_py()
    return found if first is None or first >= _FIRST_DAY else None  # Arrow takes the year 0


def _moment(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """ISO forms; those without zone are UTC. Arrow casts a column only where all or none have one."""
    lengths = pc.binary_length(texts)
    if pc.any(pc.and_(pc.greater(lengths, 10), pc.less(lengths, 16))).as_py():
        return None  # an hour without minutes, which Arrow takes
    first = pc.first(texts).as_py() or ""
    kinds = [pa.timestamp("us"), kind]
    # a cast that fails takes forty times as long as one that does not
    for each in reversed(kinds) if _ZONED.search(first) else kinds:
        found = _cast(texts, each)
        if found is not None:
            return _known(found.cast(kind), texts)  # what has no zone keeps its instants: as UTC
    cut = pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1")
    zoned = pc.match_substring_regex(cut, _ZONED.pattern)
    cut = pc.if_else(zoned, cut, pc.binary_join_element_wise(cut, "Z", ""))
    found = _cast(cut, kind)
    return None if found is None else _known(found, texts)


def _local(texts: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """ISO forms without a zone."""
    lengths = pc.binary_length(texts)
    if pc.any(pc.and_(pc.greater(lengths, 10), pc.less(lengths, 16))).as_py():
        return None
    found = _cast(pc.replace_substring_regex(texts, r"(\.\d{6})\d+", r"\1"), kind)
    return None if found is None else _known(found, texts)


def _moments_in(texts: pa.Array, zone: str) -> pa.Array:
    """Moments; those without a zone are local times of `zone`."""
    zoned = pc.match_substring_regex(texts, _ZONED_LOOSELY)
    nothing = pa.scalar(None, pa.string())
    try:
        moments = converted(pc.if_else(zoned, texts, nothing), "timestamp")
        return pc.coalesce(moments, _instants(pc.if_else(zoned, nothing, texts), zone))
    except BadValue as error:
        _moments_in(texts.slice(0, error.place), zone)  # a value before may be bad, too: the first is reported
        raise


def _instants(texts: pa.Array, zone: str) -> pa.Array:
    local = converted(texts, "timestamp_ntz")
    try:
        return instants(local, zone)
    except NoInstant as error:
        raise BadValue(error.row, texts[error.row].as_py(), f"is no instant: {error}") from error


def _known(found: pa.Array, texts: pa.Array) -> pa.Array | None:
    """The moments; None where a zone has taken one out of the years 1 to 9999, or is farther away than any is."""
    bounds = pc.min_max(found.view(pa.int64())).as_py()
    if bounds["min"] is not None and not _FIRST_MOMENT <= bounds["min"] <= bounds["max"] <= _LAST_MOMENT:
        return None
    if pc.all(pc.ends_with(texts, "Z")).as_py() is True:
        return found
    return None if pc.any(pc.match_substring_regex(texts, _FAR_ZONE)).as_py() else found


def _one_by_one(texts: pa.Array, exact: Callable[[str], Any], kind: pa.DataType) -> pa.Array:
    values = []
    for index, text in enumerate(texts.to_pylist()):
        try:
            values.append(None if text is None else exact(text))
        except _Unfit as error:
            raise BadValue(index, text, str(error)) from error
        except (ValueError, ArithmeticError) as error:
            raise BadValue(index, text) from error
    return pa.array(values, kind)


def _exact_whole(bits: int) -> Callable[[str], int]:
    def exact(text: str) -> int:
        if not _WHOLE.fullmatch(text):
            raise ValueError(text)
        value = int(text)
        if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise ValueError(text)
        return value

    return exact


def _exact_real(text: str) -> float:
    match = _REAL.fullmatch(text)
    if match is None:
        raise ValueError(text)
    value = float(text)
    if math.isinf(value) and match["number"]:
        raise ValueError(text)
    return value


def _exact_single(text: str) -> float:
    value = _exact_real(text)
    if math.isfinite(value) and abs(value) >= 2.0**128 * (1 - 2.0**-25):
        raise ValueError(text)
    return value


def _exact_boolean(text: str) -> bool:
    if not _BOOL.fullmatch(text):
        raise ValueError(text)
    return text.strip().lower() in ("true", "1")


def _exact_date(text: str) -> dt.date:
    if not _DATE.fullmatch(text):
        raise ValueError(text)
    return dt.date.fromisoformat(text.strip())


def _exact_moment(text: str) -> dt.datetime:
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    part = match.groupdict()
    fraction = (part["fraction"] or "")[:6].ljust(6, "0")
    year, month, day, hour, minute, second = (int(part[name] or 0) for name in _PARTS)
    value = dt.datetime(year, month, day, hour, minute, second, int(fraction), dt.timezone.utc)
    if part["sign"]:
        away = dt.timedelta(hours=int(part["zh"]), minutes=int(part["zm"] or 0))
        if int(part["zh"]) > 18 or int(part["zm"] or 0) > 59:
            raise ValueError(text)
        value = value - away if part["sign"] == "+" else value + away
    return value


def _exact_local(text: str) -> dt.datetime:
    found = _exact_moment(text)
    if re.search(_ZONED_LOOSELY, text):
        raise _Unfit("names a time zone, and the column holds times without one")
    return found.replace(tzinfo=None)


class _Unfit(ValueError):
    """A value of another kind than the column's; the message ends a sentence that begins with the value."""


def _exact_bytes(text: str) -> bytes:
    text = text.strip()
    if _HEX.fullmatch(text):
        return binascii.unhexlify(text[2:])
    return base64.b64decode(text, validate=True)  # which may begin with 0x too


def _decimal_of(kind: pa.DataType) -> Callable[[str], Decimal]:
    limit, step = Decimal(10) ** (kind.precision - kind.scale), Decimal(1).scaleb(-kind.scale)

    def exact(text: str) -> Decimal:
        match = _REAL.fullmatch(text)
        if match is None or not match["number"] or len(text) > 400:
            raise ValueError(text)
        value = Decimal(text.strip())
        if abs(value.adjusted()) > 400 and value:
            raise ValueError(text)
        with localcontext(Context(prec=1000)):
            if abs(value) >= limit or value.quantize(step) != value:
                raise ValueError(text)
            return value.quantize(step)

    return exact


_PARTS = ("year", "month", "day", "hour", "minute", "second")
_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,40}\s*")
_REAL = re.compile(
    r"\s*[+-]?(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]{1,6})?)|nan|inf|infinity)\s*",
    re.IGNORECASE | re.ASCII,
)
_BOOL = re.compile(r"\s*(?:true|false|0|1)\s*", re.IGNORECASE | re.ASCII)
_HEX = re.compile(r"0[xX](?:[0-9A-Fa-f]{2})*")
_DATE = re.compile(r"\s*[0-9]{4}-[0-9]{2}-[0-9]{2}\s*")
_MOMENT = re.compile(
    r"\s*(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
    r"(?:[T ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]+))?)?"
    r"\s?(?:Z|(?P<sign>[+-])(?P<zh>[0-9]{2}):?(?P<zm>[0-9]{2})?)?)?\s*",
    re.IGNORECASE | re.ASCII,
)
_FIRST_MOMENT, _LAST_MOMENT = -62_135_596_800_000_000, 253_402_300_799_999_999  # microseconds
_FIRST_DAY = -719_162  # days
_FAR_ZONE = r":\d\d(\.\d+)? ?[+-](19|[2-9]\d)(:?\d\d)?$"
_ZONED = re.compile(r":\d\d(\.\d+)? ?([zZ]|[+-]\d\d(:?\d\d)?)$")
_ZONED_LOOSELY = r":\d\d(\.\d+)?\s?([zZ]|[+-]\d\d(:?\d\d)?)\s*$"
_FAST: dict[str, Callable[[pa.Array, pa.DataType], pa.Array | None]] = {
    "smallint": _whole,
    "int": _whole,
    "bigint": _whole,
    "float": _real,
    "double": _real,
    "boolean": _boolean,
    "date": _date,
    "timestamp": _moment,
    "timestamp_ntz": _local,
}
_EXACT: dict[str, Callable[[str], Any]] = {
    "smallint": _exact_whole(16),
    "int": _exact_whole(32),
    "bigint": _exact_whole(64),
    "float": _exact_single,
    "double": _exact_real,
    "boolean": _exact_boolean,
    "date": _exact_date,
    "timestamp": _exact_moment,
    "timestamp_ntz": _exact_local,
    "binary": _exact_bytes,
}
