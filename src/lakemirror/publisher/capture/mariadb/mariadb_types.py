"""How each type of MariaDB and MySQL becomes a column of change files, from a load and from the binary log.

    type of the catalog ─▶ one `SourceColumn`: Arrow type, SQL that loads it, both conversions, or why it is refused

Both sides give the text that a query gives, bytes in the log as base64; so one conversion serves both.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.landing_zone.column_types import table_type
from lakemirror.landing_zone.delimited.values import converted
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.mariadb.binlog_values import inet_text, uuid_text
from lakemirror.publisher.capture.mariadb.mariadb_sessions import quoted
from lakemirror.publisher.capture.source_tables import ColumnRule, SourceColumn
from lakemirror.publisher.capture.unkept_values import ZERO
from lakemirror.publisher.capture.value_casts import Conversion, cast, each, null_where, refuse, short_times

CODECS = {"utf8mb4": "utf-8", "utf8mb3": "utf-8", "utf8": "utf-8", "ascii": "ascii", "latin1": "cp1252",
          "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be",
          "binary": "latin-1"}  # fmt: skip
"""The character sets that are read, by the names of Python's codecs."""

_TYPE = re.compile(r"(\w+)(?:\((\d+)(?:,(\d+))?\))?")
_UNSIGNED = {"tinyint": pa.int16(), "smallint": pa.int32(), "mediumint": pa.int32(), "int": pa.int64(),
             "bigint": pa.decimal128(20, 0)}  # fmt: skip
_SIGNED = {"tinyint": pa.int16(), "smallint": pa.int16(), "mediumint": pa.int32(), "int": pa.int32(),
           "bigint": pa.int64()}  # fmt: skip
_TEXTS = {"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json"}
_BYTES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_GEOMETRIES = {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
               "geometrycollection", "geomcollection"}  # fmt: skip
_WIDTHS = {"uuid": 16, "inet6": 16, "inet4": 4}
"""Types that are bytes in the log, and how many, and texts in a query."""


@dataclass(frozen=True)
class CatalogType:
    """A column's type as information_schema has it. `full`: COLUMN_TYPE; `charset`: empty for what is no text."""

    name: str
    full: str
    charset: str = ""
    is_mariadb: bool = True

    @property
    def numbers(self) -> tuple[int, int]:
        """The two numbers in brackets behind the name; 0 for none."""
        found = _TYPE.match(self.full)
        return (int(found[2] or 0), int(found[3] or 0)) if found and self.name not in ("enum", "set") else (0, 0)

    @property
    def is_unsigned(self) -> bool:
        return "unsigned" in self.full or "zerofill" in self.full


def family(kind: CatalogType) -> str:
    """The type as the binary log knows it: what `ColumnType.name` gives for such a column."""
    first, second = kind.numbers
    if kind.name in _SIGNED:
        return kind.name + (" unsigned" if kind.is_unsigned else "")
    if kind.name == "decimal":
        return f"decimal({first},{second})"
    if kind.name in ("timestamp", "datetime", "time", "bit"):
        return f"{kind.name}({first or (kind.name == 'bit' and 1) or 0})"
    if kind.name in _WIDTHS:
        return "binary"
    if kind.name in _GEOMETRIES:
        return "geometry"
    binary = {"tinyblob", "blob", "mediumblob", "longblob"}
    texts = {"tinytext", "text", "mediumtext", "longtext"}
    return "blob" if kind.name in binary else "text" if kind.name in texts else kind.name


def source_column(name: str, kind: CatalogType, options: CaptureOptions, key: bool = False) -> SourceColumn:
    """The column of a change file that a column of the source becomes."""
    rule = _rule(kind, options)
    convert = rule.loaded or cast(rule.arrow_type)
    is_bytes = pa.types.is_binary(rule.arrow_type) or kind.name in _WIDTHS
    from_event = (lambda values: convert(_decoded(values))) if is_bytes else convert
    return replace(rule, streamed=from_event).column(name, kind.full, quoted(name), key)


def _rule(kind: CatalogType, options: CaptureOptions) -> ColumnRule:
    """How the type is loaded. The log has the same texts, and bytes as base64."""
    if "compressed" in kind.full.lower():
        return ColumnRule(refused="is not captured, because compressed columns cannot be read from the log")
    if kind.charset and kind.charset not in CODECS:
        why = f"is not captured, because its character set {kind.charset} cannot be read from the log"
        return ColumnRule(refused=f"{why}; convert it to utf8mb4")
    if kind.name in _SIGNED:
        return ColumnRule((_UNSIGNED if kind.is_unsigned else _SIGNED)[kind.name])
    if kind.name == "decimal":
        return _decimal(kind, options)
    if kind.name in ("float", "double"):
        return ColumnRule(pa.float32() if kind.name == "float" else pa.float64(), "CAST({} AS DOUBLE)")
    if kind.name == "year":
        return ColumnRule(pa.int16())
    if kind.name == "bit":
        length = kind.numbers[0] or 1
        return ColumnRule(pa.bool_() if length == 1 else pa.string(), "CAST({} AS UNSIGNED)", _bits(length))
    if kind.name in ("date", "datetime", "timestamp"):
        zone = "UTC" if kind.name == "timestamp" else None
        arrow = pa.date32() if kind.name == "date" else pa.timestamp("us", zone)
        return ColumnRule(arrow, loaded=_dates(arrow, options.infinite_null))
    if kind.name == "time":
        return ColumnRule(loaded=short_times)
    if kind.name in _TEXTS:
        return ColumnRule()
    if kind.name in _WIDTHS:
        load = f"CAST({{}} AS BINARY({_WIDTHS[kind.name]}))"
        return ColumnRule(load=load, loaded=each(uuid_text if kind.name == "uuid" else inet_text))
    if kind.name == "vector" and not kind.is_mariadb:
        warning = "is published as its floats of four bytes, lowest byte first"
        return ColumnRule(pa.binary(), "CAST({} AS BINARY)", warning=warning)
    if kind.name in _BYTES:
        return ColumnRule(pa.binary())
    if kind.name in _GEOMETRIES:
        return ColumnRule(pa.binary(), warning="is published as the database's bytes: SRID, then WKB")
    return ColumnRule(refused="is not captured, because the log has it in a form of its own")


def _decimal(kind: CatalogType, options: CaptureOptions) -> ColumnRule:
    precision, scale = kind.numbers
    arrow = pa.decimal128(precision, scale) if precision <= 38 else options.number_type
    if arrow is None:
        warning = "is published as text: a decimal holds 38 digits. --numeric decimal(38,9) chooses one"
        return ColumnRule(warning=warning)
    named = table_type(arrow)
    assert named is not None
    return ColumnRule(arrow, loaded=lambda values: converted(values, named))


def _dates(kind: pa.DataType, zero_null: bool) -> Conversion:
    """Dates of the years 1 to 9999. A zero date, or one whose day or month is zero, is no date."""
    named = "date" if pa.types.is_date(kind) else "timestamp"

    def convert(values: pa.Array) -> pa.Array:
        zero = pc.match_substring_regex(values, r"^(0000-|\d{4}-00|\d{4}-\d\d-00)")
        if not zero_null:
            refuse(values, zero, ZERO)
        elif pc.any(zero).as_py():
            values = null_where(values, zero)
        return converted(values, named).cast(kind)

    return convert


def _bits(length: int) -> Conversion:
    def text(number: str) -> str:
        return f"{int(number):0{length}b}"

    return (lambda values: pc.equal(values, "1")) if length == 1 else each(text)


def _decoded(values: pa.Array) -> pa.Array:
    found = [None if value is None else base64.b64decode(value) for value in values.to_pylist()]
    return pa.array(found, pa.binary())
