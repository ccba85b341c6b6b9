"""Numbers and dates as people write them, in the plain form that `values` converts; and how to tell such text.

"1.234,50" with decimalSeparator "," and thousandsSeparator "."   ─▶  1234.50
"01.03.2026" with dateFormat "dd.MM.yyyy"                         ─▶  2026-03-01
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.landing_zone.date_pattern import date_pattern
from lakemirror.landing_zone.delimited.values import BadValue, any_zoneless, converted
from lakemirror.landing_zone.metadata import DelimitedFormat
from lakemirror.landing_zone.zoneless import Zones

_NUMBERS = ("smallint", "int", "bigint", "float", "double")
_SPACES = "[ \u00a0\u202f]"  # spreadsheets write any of the three between thousands
_LOOKED_AT = 1000  # values of a column that decide what it looks like


def converted_as_written(
    texts: pa.Array, table_type: str, form: DelimitedFormat, name: str = "", zones: Zones | None = None
) -> pa.Array:
    """The column's values, read as `form` says numbers and dates are written. `BadValue` with the text as it is.

    `zones`: how times without a zone are read in the column `name`; that there was one is noted in it.
    """
    zones = zones or Zones()
    zone = zones.of(name)
    if not _reads_otherwise(table_type, form):
        return _noted(converted(texts, table_type, zone), texts, table_type, name, zones)
    texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    plain = _plain(texts, table_type, form)
    lost = pc.and_(pc.is_valid(texts), pc.is_null(plain))
    refused = pc.index(lost, True).as_py()
    if refused >= 0:
        # a value before may be bad, too: the first is reported
        _converted(plain.slice(0, refused), texts, table_type, zone)
        raise BadValue(refused, texts[refused].as_py())
    return _noted(_converted(plain, texts, table_type, zone), plain, table_type, name, zones)


def looks_like(texts: pa.Array) -> str:
    """What a column of strings looks like that is a number or a date written in another way; empty for nothing.

    All values that are no NULL must look the same, and at least one must be there.
    """
    values = texts.drop_null()[:_LOOKED_AT]
    if not len(values):
        return ""
    for expression, what in _LOOKS:
        if pc.all(pc.match_substring_regex(values, expression)).as_py():
            return what + (_thousands_beside_a_comma(values) if what == _DECIMAL_COMMA else "")
    return ""


def _thousands_beside_a_comma(values: pa.Array) -> str:
    """The property for the mark between thousands in numbers with a decimal comma; empty where none has one."""
    for text in values.to_pylist():
        found = re.match(r"\s*[+-]?\d{1,3}(\D)\d{3}\D", text)
        if found:
            return f' and thousandsSeparator "{found[1]}"'
    return ""


def _converted(plain: pa.Array, texts: pa.Array, table_type: str, zone: str) -> pa.Array:
    try:
        return converted(plain, table_type, zone)
    except BadValue as bad:
        raise BadValue(bad.place, texts[bad.place].as_py(), bad.why) from bad


def _noted(values: pa.Array, texts: pa.Array, table_type: str, name: str, zones: Zones) -> pa.Array:
    """The values; notes that a time without a zone was among their texts."""
    if table_type == "timestamp" and name not in zones.met and any_zoneless(texts):
        zones.met[name] = zones.of(name)
    return values


def _reads_otherwise(table_type: str, form: DelimitedFormat) -> bool:
    """True where the column's text is not what `converted` reads already."""
    if is_number(table_type):
        return form.decimal_separator != "." or bool(form.thousands_separator)
    return bool(form.date_format if table_type == "date" else _is_time(table_type) and form.timestamp_format)


def _plain(texts: pa.Array, table_type: str, form: DelimitedFormat) -> pa.Array:
    """The texts in the form that `converted` reads; NULL where they are not as declared."""
    if is_number(table_type):
        return _numbers(texts, form)
    if table_type == "date":
        return date_pattern(form.date_format).iso(texts, with_time=False)
    return date_pattern(form.timestamp_format).iso(texts, with_time=True)


def _is_time(table_type: str) -> bool:
    return table_type in ("timestamp", "timestamp_ntz")


def is_number(table_type: str) -> bool:
    """True for the table types of numbers."""
    return table_type in _NUMBERS or table_type.startswith("decimal(")


def _numbers(texts: pa.Array, form: DelimitedFormat) -> pa.Array:
    point = re.escape(form.decimal_separator)
    whole = r"\d*"
    if form.thousands_separator:
        between = _SPACES if re.fullmatch(_SPACES, form.thousands_separator) else re.escape(form.thousands_separator)
        whole = rf"(?:\d{{1,3}}(?:{between}\d{{3}})+|\d*)"
    expression = rf"(?i)^\s*[+-]?(?:{whole}(?:{point}\d*)?(?:e[+-]?\d+)?|nan|inf|infinity)\s*$"
    plain = pc.if_else(pc.match_substring_regex(texts, expression), texts, pa.scalar(None, pa.string()))
    if form.thousands_separator:
        plain = pc.replace_substring_regex(plain, rf"(\d){between}", r"\1")
    if form.decimal_separator != ".":
        plain = pc.replace_substring(plain, form.decimal_separator, ".")
    return plain


_MARK = r"[ \x{a0}\x{202f}'’]"
_DECIMAL_COMMA = 'numbers with a decimal comma: decimalSeparator ","'
_LOOKS = (
    (
        rf"^\s*[+-]?(\d{{1,3}}(\.\d{{3}})+|\d{{1,3}}({_MARK}\d{{3}})+|\d+),\d+\s*$",
        _DECIMAL_COMMA,
    ),
    (
        r"^\s*[+-]?\d{1,3}(,\d{3})+(\.\d+)?\s*$",
        'numbers with a comma between thousands: thousandsSeparator ","',
    ),
    (
        rf"^\s*[+-]?\d{{1,3}}({_MARK}\d{{3}})+(\.\d+)?\s*$",
        "numbers with a mark between thousands: thousandsSeparator",
    ),
    (r"^\s*\d{1,2}\.\d{1,2}\.\d{4}\s*$", 'dates: dateFormat "d.M.yyyy"'),
    (
        r"^\s*\d{1,2}\.\d{1,2}\.\d{4}[ T]\d{1,2}:\d{2}(:\d{2})?\s*$",
        'times: timestampFormat "d.M.yyyy H:mm[:ss]"',
    ),
    (r"^\s*\d{1,2}/\d{1,2}/\d{4}\s*$", 'dates: dateFormat "d/M/yyyy" or "M/d/yyyy"'),
    (
        r"^\s*\d{1,2}/\d{1,2}/\d{4} \d{1,2}:\d{2}(:\d{2})?( ?[AaPp][Mm])?\s*$",
        'times: timestampFormat "d/M/yyyy H:mm[:ss]" or "M/d/yyyy h:mm[:ss] a"',
    ),
)
