"""How each type of SQL Server becomes a column of change files: exactly, or it is refused (sources.md, 5).

    type, options ─▶ one `SourceColumn`: Arrow type, what events hold, its conversion, or why it is refused

Loads come as events, too, so one conversion serves both. What events hold follows from `EVENT_PROPERTIES`; it is what
the converters of Debezium 3.6 give.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.landing_zone.column_types import table_type
from lakemirror.landing_zone.delimited.values import BadValue, converted
from lakemirror.publisher.capture.source_tables import ColumnRule, SourceColumn
from lakemirror.publisher.capture.sqlserver.sqlserver_sessions import quoted
from lakemirror.publisher.capture.value_casts import Conversion, cast, each, refuse

EVENT_PROPERTIES: Mapping[str, str] = {
    "decimal.handling.mode": "string",
    "time.precision.mode": "isostring",
    "binary.handling.mode": "bytes",  # which JSON has as base64
    "event.converting.failure.handling.mode": "fail",  # else such values are NULL, in silence
}
"""Properties of Debezium under which events hold the values that `SourceColumn.from_event` takes."""

_TEXT = pa.string()
_CUTOVER = r"^1582-10-(1[5-9]|2[0-4])"
"""Java's old calendar has no 5 to 14 October 1582: Debezium gives them as ten days later."""
_WHOLE = r":\d\d(Z|[+-])"
_INTS = {"tinyint": pa.int16(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
_REFUSED = {
    **dict.fromkeys(("text", "ntext", "image", "xml"), "a change table may leave a value out that did not change"),
    **dict.fromkeys(("geography", "geometry", "hierarchyid", "sql_variant"), "Debezium has no converter for it"),
}


@dataclass(frozen=True)
class TypeName:
    """A type as the catalog has it. `length`: in bytes; -1 for (max)."""

    name: str
    length: int = 0
    precision: int = 0
    scale: int = 0

    @property
    def full(self) -> str:
        """The type as SQL writes it."""
        if self.name in ("decimal", "numeric"):
            return f"{self.name}({self.precision},{self.scale})"
        if self.name in ("datetime2", "datetimeoffset", "time"):
            return f"{self.name}({self.scale})"
        if self.name in ("char", "varchar", "binary", "varbinary", "nchar", "nvarchar"):
            count = self.length // 2 if self.name.startswith("n") else self.length
            return f"{self.name}({'max' if self.length < 0 else count})"
        return self.name


def source_column(name: str, kind: TypeName, key: bool = False) -> SourceColumn:
    """The column of a change file that a column of the source becomes."""
    rule = _rule(kind) or ColumnRule(refused=f"is not captured: {_REFUSED.get(kind.name, 'it is not known')}")
    return rule.column(name, kind.full, quoted(name), key)


def _rule(kind: TypeName) -> ColumnRule | None:
    """None for a type that is refused."""
    if kind.name in _INTS:
        return _streamed(_INTS[kind.name], pa.int64(), cast(_INTS[kind.name]))
    if kind.name in ("decimal", "numeric"):
        return _decimal(kind.precision, kind.scale)
    if kind.name in ("money", "smallmoney"):
        return _decimal(19 if kind.name == "money" else 10, 4)
    if kind.name in ("real", "float"):
        floating = pa.float32() if kind.name == "real" else pa.float64()
        return _streamed(floating, pa.float64(), cast(floating))
    if kind.name == "bit":
        return _streamed(pa.bool_(), pa.bool_(), cast(pa.bool_()))
    if kind.name in ("char", "nchar"):
        return _texts(lambda values: pc.utf8_rtrim(values, " "))
    if kind.name in ("varchar", "nvarchar"):
        return _texts(cast(_TEXT))
    if kind.name == "uniqueidentifier":
        return _texts(pc.utf8_lower)
    if kind.name in ("binary", "varbinary", "timestamp"):
        made = _streamed(pa.binary(), _TEXT, each(base64.b64decode, pa.binary()))
        loaded = each(bytes.fromhex, pa.binary())
        return replace(made, load="CONVERT(varchar(max), {}, 2)", loaded=loaded)
    return _temporal(kind)


def _streamed(arrow: pa.DataType, raw: pa.DataType, convert: Conversion, warning: str = "") -> ColumnRule:
    """A column of this type. `raw`: the Arrow type of the values in events. A load that reads a row by its key has
    texts."""

    def checked(values: pa.Array) -> pa.Array:
        if values.type != raw and not pa.types.is_null(values.type):
            raise BadValue(0, "", f"the stream has {values.type} for it: its type was changed in the source")
        return convert(values.cast(raw))

    return ColumnRule(arrow, loaded=cast(_TEXT), streamed=checked, warning=warning)


def _texts(convert: Conversion, warning: str = "") -> ColumnRule:
    return _streamed(_TEXT, _TEXT, convert, warning)


def _decimal(precision: int, scale: int) -> ColumnRule:
    arrow = pa.decimal128(precision, scale)
    named = table_type(arrow)
    assert named is not None
    return _streamed(arrow, _TEXT, lambda values: converted(values, named))


def _temporal(kind: TypeName) -> ColumnRule | None:
    if kind.name == "date":
        return _streamed(pa.date32(), _TEXT, lambda values: converted(_local(values), "date").cast(pa.date32()))
    if kind.name == "time":
        return _texts(_local)
    fine = f"is published as text: a timestamp has microseconds, and {kind.name}(6) would be one"
    if kind.name == "datetimeoffset":
        if kind.scale > 6:
            return _texts(_offsets, fine)
        arrow = pa.timestamp("us", "UTC")
        return _streamed(arrow, _TEXT, lambda values: converted(_offsets(values), "timestamp").cast(arrow),
                         "is published as its time in UTC")  # fmt: skip
    if kind.name == "datetime2" and kind.scale > 6:
        return _texts(_local, fine)
    if kind.name in ("datetime", "smalldatetime", "datetime2"):
        zoneless = pa.timestamp("us")
        return _streamed(zoneless, _TEXT, lambda values: converted(_local(values), "timestamp").cast(zoneless))
    return None


def _local(values: pa.Array) -> pa.Array:
    """Dates and times without the zone that Debezium adds."""
    refuse(values, pc.match_substring_regex(values, _CUTOVER), "days of October 1582 are not given exactly")
    return pc.replace_substring_regex(values, "Z$", "")


def _offsets(values: pa.Array) -> pa.Array:
    """Times with their offset. Debezium gives those before 1970 that have a fraction a second too late."""
    early = pc.and_(pc.less(values, "1970-01-02"), pc.invert(pc.match_substring_regex(values, _WHOLE)))
    refuse(values, early, "fractions of a second before 1970 are not given exactly")
    refuse(values, pc.match_substring_regex(values, _CUTOVER), "days of October 1582 are not given exactly")
    return values
