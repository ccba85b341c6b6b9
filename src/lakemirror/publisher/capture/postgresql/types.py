"""How each type of PostgreSQL becomes a column of change files, from a load and from the stream (sources.md, 5).

    type, modifier, options ─▶ one `SourceColumn`: Arrow type, SQL that loads it, both conversions, or why it is refused

A load and the stream give the very same value for the same row, or an error: nothing is approximate. Types that
Debezium gives incompletely are refused: of `bit varying` it gives no length, of some arrays no values.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.postgresql import array_texts
from lakemirror.publisher.capture.postgresql import value_conversions as to
from lakemirror.publisher.capture.source_tables import ColumnRule, SourceColumn
from lakemirror.publisher.capture.value_casts import each, short_times
from lakemirror.publisher.sources.sql_types import precision_of, quoted

SESSION = {"IntervalStyle": "iso_8601", "DateStyle": "ISO, YMD", "TimeZone": "UTC", "lc_monetary": "C",
           "extra_float_digits": "1", "bytea_output": "hex", "row_security": "off"}  # fmt: skip
"""Settings of the sessions that load and of the one that streams: values have one text in both."""

EVENT_PROPERTIES: Mapping[str, str] = {
    "decimal.handling.mode": "string",
    "time.precision.mode": "microseconds",
    "interval.handling.mode": "string",
    "hstore.handling.mode": "json",
    "binary.handling.mode": "bytes",  # which JSON has as base64; base64 itself gives NULL for what was not sent
    "include.unknown.datatypes": "true",
    "money.fraction.digits": "2",
    "event.converting.failure.handling.mode": "fail",  # else such values are NULL, in silence
    "driver.options": " ".join(
        f"-c {name}={value.replace(' ', '')}" for name, value in SESSION.items() if name != "row_security"
    ),
}
"""Properties of Debezium under which events hold the values that `SourceColumn.from_event` takes."""


@dataclass(frozen=True)
class TypeName:
    """A type as the catalog has it, domains resolved to what they are made of.

    `name`: of `pg_type`; for an array that of its elements. `modifier`: -1 for none. `kind`: `typtype`. `sql`: the
    type as SQL writes it. `sends_all`: updates send also large values that they do not change (REPLICA IDENTITY FULL).
    """

    name: str
    sql: str
    modifier: int = -1
    kind: str = "b"
    is_array: bool = False
    is_domain: bool = False
    dimensions: int = 0
    sends_all: bool = False


def source_column(name: str, kind: TypeName, options: CaptureOptions, key: bool = False) -> SourceColumn:
    """The column of a change file that a column of the source becomes."""
    rule = _array(kind) if kind.is_array else _single(kind, options)
    column = f"({quoted(name)}::{kind.sql})" if kind.is_domain else quoted(name)
    return rule.column(name, kind.sql, column, key)


def _single(kind: TypeName, options: CaptureOptions) -> ColumnRule:
    text = pa.string()
    infinite = options.infinite_null
    if kind.kind == "e":
        return ColumnRule(text, "{}::text")
    if kind.name == "numeric":
        return _numeric(kind.modifier, options)
    if kind.name == "bit":
        long = kind.modifier > _INLINE_BITS and not kind.sends_all
        streamed = each(to.bits(max(kind.modifier, 1)))
        return ColumnRule(text, "{}::text", streamed=streamed, refused=UNSENT if long else "")
    if kind.name in ("timestamp", "timestamptz"):
        type_ = pa.timestamp("us", "UTC" if kind.name == "timestamptz" else None)
        streamed = to.instants(infinite) if kind.name == "timestamptz" else to.times(type_, infinite)
        return ColumnRule(type_, loaded=to.times(type_, infinite), streamed=streamed)
    if kind.name == "date":
        return ColumnRule(pa.date32(), loaded=to.dates(infinite), streamed=to.dates(infinite))
    return _RULES.get(kind.name) or ColumnRule(text, _OUTPUT, streamed=each(to.decoded))


def _numeric(modifier: int, options: CaptureOptions) -> ColumnRule:
    precision, scale = precision_of(modifier)
    if scale < 0:
        precision, scale = precision - scale, 0
    precision = max(precision, scale)
    if 0 < precision <= 38:
        kind = pa.decimal128(precision, scale)
    elif options.number_type is not None:
        kind = options.number_type
    else:
        warning = (
            "is published as text: a decimal holds 38 digits, and its type declares no fewer. "
            "--numeric decimal(38,9) chooses one"
        )
        return ColumnRule(pa.string(), "{}::text", to.number_texts, to.number_texts, warning)
    convert = to.decimals(kind, options.infinite_null)
    return ColumnRule(kind, "{}::text", convert, convert)


def _array(kind: TypeName) -> ColumnRule:
    """An array as JSON. Debezium gives arrays of several dimensions without their values."""
    element = array_texts.ENUM if kind.kind == "e" else array_texts.ELEMENTS.get(kind.name)
    several = f"(array_ndims({{}}) > 1)::text || '{array_texts.SEVERAL}'"
    warning = "is published as a JSON string"
    if element is None:
        return ColumnRule(pa.string(), "to_json({})::text", refused=f"{_INCOMPLETE}: arrays of this type")
    if kind.dimensions > 1:
        return ColumnRule(pa.string(), "to_json({})::text", refused=f"{_INCOMPLETE}: arrays of several dimensions")
    if not (element.marks_unsent or kind.sends_all) or (kind.is_domain and not kind.sends_all):
        return ColumnRule(pa.string(), "to_json({})::text", refused=UNSENT)
    given = "{}::text[]" if element.by_text else "{}"
    load = f"case when array_ndims({{}}) > 1 then {several} else to_json({given})::text end"
    return ColumnRule(pa.string(), load, array_texts.checked, array_texts.of_event(element), warning)


_OUTPUT = "case when {} is distinct from null then format('%s', {}) end"
"""SQL for the text that the type's own output function gives, as the stream has it."""
UNSENT = "is not captured, because an update that does not change a large value of this type does not say so"
"""Why some types need REPLICA IDENTITY FULL: Debezium 3.6 has no mark for their values that were not sent."""
_INLINE_BITS = 8000  # longer ones may be stored apart from their row
_INCOMPLETE = "is not captured, because the stream gives it incompletely"
_TEXT = ColumnRule(pa.string(), "{}::text")
_RULES: dict[str, ColumnRule] = {
    "int2": ColumnRule(pa.int16()),
    "int4": ColumnRule(pa.int32()),
    "int8": ColumnRule(pa.int64()),
    "oid": ColumnRule(pa.int64(), "{}::int8"),
    "float4": ColumnRule(pa.float32()),
    "float8": ColumnRule(pa.float64()),
    "bool": ColumnRule(pa.bool_()),
    "bytea": ColumnRule(pa.binary(), streamed=each(base64.b64decode, pa.binary())),
    "bpchar": ColumnRule(pa.string(), "{}::text", to.unpadded, to.unpadded),
    "money": ColumnRule(pa.string(), "{}::numeric::text"),
    "time": ColumnRule(pa.string(), "{}::text", streamed=to.clock_times),
    "timetz": ColumnRule(
        pa.string(),
        "replace(({} at time zone 'UTC')::time::text, '24:00:00', '00:00:00') || 'Z'",
        streamed=short_times,
        warning="is published as its time in UTC",
    ),
    "interval": ColumnRule(pa.string(), "{}::text", streamed=each(to.interval_text)),
    "hstore": ColumnRule(pa.string(), "{}::text", streamed=each(to.hstore_text)),
    "point": ColumnRule(pa.string(), "{}::text", streamed=each(to.point)),
    "geometry": ColumnRule(pa.string(), "{}::text", streamed=each(to.spatial)),
    "geography": ColumnRule(pa.string(), "{}::text", streamed=each(to.spatial)),
    "varbit": ColumnRule(pa.string(), "{}::text", refused=f"{_INCOMPLETE}: without its length"),
    **{name: ColumnRule(pa.string(), "{}::text", refused=f"{_INCOMPLETE}: as numbers") for name in (
        "vector", "halfvec", "sparsevec")},
    **dict.fromkeys(("text", "varchar", "char", "name", "citext", "uuid", "json", "jsonb", "xml"), _TEXT),
    **{name: ColumnRule(pa.string(), _OUTPUT) for name in (
        "inet", "cidr", "macaddr", "macaddr8", "int4range", "int8range", "numrange", "tsrange", "tstzrange",
        "daterange", "tsvector", "ltree")},
    **{name: ColumnRule(pa.string(), _OUTPUT, streamed=each(to.geometric)) for name in (
        "line", "lseg", "box", "path", "polygon", "circle")},
}  # fmt: skip

__all__ = ["EVENT_PROPERTIES", "SESSION", "UNSENT", "SourceColumn", "TypeName", "source_column"]
