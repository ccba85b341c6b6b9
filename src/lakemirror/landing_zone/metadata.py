"""`_metadata.json`: what a publisher declares about a table (contract section 2).

bytes ─▶ text ─▶ JSON, strictly or forgivingly ─▶ TableMetadata with its warnings
"""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from lakemirror.landing_zone.findings import Warned, capped
from lakemirror.landing_zone.forgiving_json import (
    JsonError,
    JsonObject,
    Members,
    file_name,
    invalid,
    is_text,
    parse_json,
    shown,
)
from lakemirror.landing_zone.reserved_columns import NEVER_COLUMNS
from lakemirror.landing_zone.table_options import NO_OPTIONS, OPTION_NAMES, TableOptions, parse_options

SEQUENTIAL = "SequentialFileName"
LAST_UPDATE = "LastUpdateTimeFileDetection"
UPSERT_BY_DEFAULT = "isUpsertDefaultRowMarker"
THOUSANDS = ("", ".", ",", "'", "’", " ", "\u00a0", "\u202f", "_")
MAX_SIZE = 16 * 1024 * 1024  # bytes; a schema of ten thousand columns takes one


@dataclass(frozen=True)
class DelimitedFormat:
    """How delimited text is written. Empty `quote` or `escape`: there is none. `null_value` None: not declared.

    `date_format` and `timestamp_format` are patterns as in Spark; empty: ISO 8601.
    """

    row_separator: str = "\r\n"
    column_separator: str = ","
    quote: str = '"'
    escape: str = "\\"
    null_value: str | None = None
    encoding: str = "UTF-8"
    decimal_separator: str = "."
    thousands_separator: str = ""
    date_format: str = ""
    timestamp_format: str = ""


class DeclaredColumn(NamedTuple):
    """A column of `SchemaDefinition`: `data_type` in the contract's spelling, `table_type` as Spark SQL names it."""

    name: str
    data_type: str
    table_type: str
    nullable: bool = True


@dataclass(frozen=True)
class TableMetadata:
    """What `_metadata.json` says, with the contract's defaults. `key_columns` in the publisher's spelling and order.

    `delimited` is None for Parquet. `columns` is empty where nothing is declared: every column is a string then.
    `renames`: the publisher renames complete files into place, so that delimited text need not be watched.
    `options`: what is asked under `lakemirror` of deletes, order and history.
    `file` is where it was read, empty where there was none.
    """

    key_columns: tuple[str, ...] = ()
    file_detection_strategy: str = SEQUENTIAL
    upsert_by_default: bool = False
    file_format: str = "Parquet"
    file_extension: str = "parquet"
    partitioned: bool = False
    warnings: tuple[Warned, ...] = field(default=(), compare=False)
    delimited: DelimitedFormat | None = None
    columns: tuple[DeclaredColumn, ...] = ()
    file: str = field(default="", compare=False)
    renames: bool = False
    options: TableOptions = NO_OPTIONS

    @property
    def is_text(self) -> bool:
        """True where the files are no Parquet files."""
        return self.file_format != "Parquet"


def parse_metadata(data: bytes, file: str, options: Members | None = None) -> TableMetadata:
    """What the file says, supported by this engine or not. TableError `metadata-invalid`, with line and column.

    `options`: count where the file does not name them under `lakemirror`.
    """
    if len(data) > MAX_SIZE:
        raise invalid(file, f"is larger than {MAX_SIZE // 1024**2} MiB")
    text = _decode(data, file)
    try:
        document, forgiven = parse_json(text)
    except JsonError as error:
        raise invalid(file, str(error)) from error
    if not isinstance(document, JsonObject):
        raise invalid(file, "does not hold a JSON object")
    members = Members(file, "", document)
    if forgiven:
        members.warnings.append(
            Warned("metadata-lenient", f"{file_name(file)} is not valid JSON but was understood", file)
        )
    return _metadata(members, options)


def undeclared_metadata(options: Members | None = None) -> TableMetadata:
    """That of a table folder without `_metadata.json`. `options`: as in `parse_metadata`."""
    if options is None:
        return TableMetadata()
    return TableMetadata(renames=_renames(options), options=parse_options(options, ()))


def _decode(data: bytes, file: str) -> str:
    """The text, in UTF-8, or in UTF-16 or UTF-32 as some editors save it; without its byte-order mark."""
    if not data.strip():
        raise invalid(file, "is empty")
    encoding = json.detect_encoding(data)
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(encoding, "replace")
        line = before.count("\n") + 1
        column = len(before) - before.rfind("\n")
        what = encoding.removesuffix("-sig").upper()
        raise invalid(file, f"line {line}, column {column}: not text in {what}") from error


_FORMATS = ("Parquet", "CSV", "DelimitedText")
_SPELT = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\r\\n": "\r\n"}  # the two characters instead of the one they mean
_DATA_TYPES = {
    "Int16": "smallint",
    "Int32": "int",
    "Int64": "bigint",
    "Single": "float",
    "Double": "double",
    "Boolean": "boolean",
    "String": "string",
    "DateTime": "timestamp",
    "IDate": "date",
    "ITime": "string",
    "ByteArray": "binary",
}
_DECIMAL = re.compile(r"decimal\s*\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)", re.IGNORECASE | re.ASCII)
_ENCODING = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.:\-]{0,39}")


def _metadata(members: Members, options_beside: Members | None) -> TableMetadata:
    file = members.file
    keys = _key_columns(members)
    strategy = members.choice("fileDetectionStrategy", (SEQUENTIAL, LAST_UPDATE), SEQUENTIAL)
    upsert = members.flag(UPSERT_BY_DEFAULT, False)
    partitioned = members.flag("isPartitionEnabled", False)
    extension = _extension(members)
    format_members, schema = members.inner("fileFormatTypeProperties"), members.inner("SchemaDefinition")
    looks_delimited = (format_members or schema) is not None and (extension or "").lower() != "parquet"
    looks_delimited = looks_delimited or (extension or "parquet").lower() != "parquet"
    format_ = members.choice("fileFormat", _FORMATS, "CSV" if looks_delimited else "Parquet")
    delimited: DelimitedFormat | None = None
    columns: tuple[DeclaredColumn, ...] = ()
    if format_ == "Parquet":
        for name, unused in (("fileFormatTypeProperties", format_members), ("SchemaDefinition", schema)):
            if unused is not None:
                message = f"{file_name(file)}: {name} has no meaning for Parquet files and was not applied"
                members.warnings.append(Warned("property-unknown", message, file))
    else:
        delimited = _delimited(format_members)
        columns = _columns(schema)
        if not columns:
            message = f"{file_name(file)} has no SchemaDefinition: every column is a string"
            members.warnings.append(Warned("schema-undeclared", message, file))
    if extension is None:
        if format_ == "DelimitedText":
            raise invalid(file, "lacks fileExtension, which DelimitedText needs")
        extension = "csv" if format_ == "CSV" else "parquet"
    ours = members.inner("lakemirror", or_list=False) or options_beside
    if ours is not None and options_beside is not None and ours is not options_beside:
        ours.fill_up(options_beside)
    renames = _renames(ours)
    options = parse_options(ours, keys)
    members.warn_of_rest(dict.fromkeys(OPTION_NAMES, "put it under lakemirror"))
    warnings = tuple(capped(members.warnings))
    return TableMetadata(
        keys, strategy, upsert, format_, extension, partitioned, warnings, delimited, columns, file, renames, options
    )


def _renames(members: Members | None) -> bool:
    """True where the publisher says that it renames complete files into place: `"complete": "rename"`."""
    return members is not None and members.choice("complete", ("rename", "unchanged"), "unchanged") == "rename"


def _key_columns(members: Members) -> tuple[str, ...]:
    value = members.take("keyColumns")
    if value is None:
        return ()
    if not isinstance(value, list) or isinstance(value, JsonObject):
        raise members.wrong("keyColumns", value, "must be a list of column names")
    seen: dict[str, str] = {}
    for name in value:
        if not is_text(name) or (name and not name.strip()):
            raise members.wrong("keyColumns", name, "must name columns")
        if not name:
            message = f"{file_name(members.file)}: keyColumns holds an empty name, which was left out"
            members.warnings.append(Warned("key-name-empty", message, members.file))
            continue
        if name in NEVER_COLUMNS:
            raise members.wrong("keyColumns", name, "must name columns of the table")
        if name.lower() in seen:
            raise invalid(members.file, f"keyColumns names {shown(name)} twice")
        seen[name.lower()] = name
    return tuple(seen.values())


def _extension(members: Members) -> str | None:
    value = members.text("fileExtension")
    if value is None:
        return None
    extension = value.removeprefix(".")
    if not extension or len(extension) > 100 or not extension.isprintable() or "/" in extension:
        raise members.wrong("fileExtension", value, "must be the end of a file name")
    return extension


def _delimited(members: Members | None) -> DelimitedFormat:
    if members is None:
        return DelimitedFormat()
    default = DelimitedFormat()
    if not members.flag("firstRowAsHeader", True):
        raise members.wrong(
            "firstRowAsHeader", False, "must be true: columns are matched by the names in the first row"
        )
    found = DelimitedFormat(
        row_separator=_character(members, "rowSeparator", ("\r\n", "\n", "\r"), default.row_separator),
        column_separator=_character(members, "columnSeparator", (",", ";", "|", "\t"), default.column_separator),
        quote=_character(members, "quoteCharacter", ('"', "'", ""), default.quote),
        escape=_character(members, "escapeCharacter", ("\\", "/", '"', ""), default.escape),
        null_value=members.text("nullValue"),
        encoding=_encoding(members, default.encoding),
        decimal_separator=_character(members, "decimalSeparator", (".", ","), default.decimal_separator),
        thousands_separator=_character(members, "thousandsSeparator", THOUSANDS, default.thousands_separator),
        date_format=_pattern(members, "dateFormat"),
        timestamp_format=_pattern(members, "timestampFormat"),
    )
    if found.decimal_separator == found.thousands_separator:
        raise members.wrong("thousandsSeparator", found.thousands_separator, "must differ from decimalSeparator")
    if not found.quote and found.decimal_separator == found.column_separator:
        why = "must differ from columnSeparator where no quoteCharacter is declared"
        raise members.wrong("decimalSeparator", found.decimal_separator, why)
    members.warn_of_rest()
    return found


def _pattern(members: Members, name: str) -> str:
    from lakemirror.landing_zone.date_pattern import date_pattern  # most tables have none, and it takes time

    value = members.text(name) or ""
    try:
        if value:
            date_pattern(value)
    except ValueError as error:
        raise members.wrong(name, value, f"must be a pattern such as dd.MM.yyyy ({error})") from error
    return value


def _character(members: Members, name: str, allowed: tuple[str, ...], default: str) -> str:
    value = members.text(name)
    if value is None:
        return default
    value = _SPELT.get(value, value)
    if value not in allowed:
        raise members.wrong(name, value, f"must be one of {', '.join(json.dumps(each) for each in allowed)}")
    return value


def _encoding(members: Members, default: str) -> str:
    """The declared encoding, if Python has a codec of that name which gives text."""
    value = members.text("encoding")
    if value is None:
        return default
    try:
        if not _ENCODING.fullmatch(value):
            raise LookupError(value)
        codecs.lookup(value)
        "a,1\r\n".encode(value)
    except (LookupError, ValueError) as error:
        raise members.wrong("encoding", value, "must be a text encoding that Python knows") from error
    return value


def _columns(members: Members | None) -> tuple[DeclaredColumn, ...]:
    if members is None:
        return ()
    value = members.take("Columns")
    members.warn_of_rest()
    if value is None:
        return ()
    if not isinstance(value, list) or isinstance(value, JsonObject):
        raise members.wrong("Columns", value, "must be a list")
    columns: dict[str, DeclaredColumn] = {}
    for number, item in enumerate(value):
        column = _column(members.wrap(f"Columns[{number}]", item))
        if column.name in NEVER_COLUMNS:
            continue  # never a column of the table; publishers need not list it
        if column.name.lower() in columns:
            raise invalid(members.file, f"SchemaDefinition.Columns names {shown(column.name)} twice")
        columns[column.name.lower()] = column
    return tuple(columns.values())


def _column(members: Members) -> DeclaredColumn:
    name, type_ = members.text("Name"), members.text("DataType")
    nullable = members.flag("IsNullable", True)
    members.warn_of_rest()
    if name is None or not name.strip():
        raise members.wrong("Name", name, "must name a column")
    if type_ is None:
        raise members.wrong("DataType", type_, "must name a type")
    for each, table_type in _DATA_TYPES.items():
        if each.lower() == type_.strip().lower():
            return DeclaredColumn(name, each, table_type, nullable)
    decimal = _DECIMAL.fullmatch(type_.strip())
    if decimal and 1 <= int(decimal[1]) <= 38 and int(decimal[2]) <= int(decimal[1]):
        digits = f"({int(decimal[1])},{int(decimal[2])})"
        return DeclaredColumn(name, f"Decimal{digits}", f"decimal{digits}", nullable)
    raise members.wrong("DataType", type_, f"must be one of {', '.join(_DATA_TYPES)}, Decimal(p,s) with p up to 38")


__all__ = [
    "LAST_UPDATE",
    "MAX_SIZE",
    "SEQUENTIAL",
    "THOUSANDS",
    "DeclaredColumn",
    "DelimitedFormat",
    "TableMetadata",
    "Warned",
    "capped",
    "parse_metadata",
    "undeclared_metadata",
]
