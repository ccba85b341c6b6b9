"""Which type a column of a change file gets in the table (contract section 6); pure.

    footer ─▶ file_columns ─▶ (name, table type, note)      fits(file's type, column's type)?

Table types are Spark SQL's simple strings: `smallint int bigint float double boolean string binary date timestamp
timestamp_ntz` and `decimal(p,s)`. Times without a zone are `timestamp_ntz` here; the setting `zoneless` decides what
a new column becomes (`schema_evolution`).
"""

from __future__ import annotations

import re
import weakref
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.errors import TableError


@dataclass(frozen=True)
class FileColumn:
    """One top-level column of a change file, in the file's order.

    `table_type` is None for a column without a type yet (all NULL) and for one that no table can hold; the latter
    has its reason in `unsupported`. `note` is a warning: what the table loses, or keeps in another form.
    `encoding`: how the Parquet file stores the values where the Arrow type alone does not tell: `int96`, `enum`,
    `uuid`, else empty. `zone`: delimited text had times without a zone, which were read in this one.
    `leaves`: columns of the Parquet file that hold it.
    """

    name: str
    arrow_type: pa.DataType
    table_type: str | None
    note: str | None = None
    unsupported: str | None = None
    encoding: str = ""
    zone: str = ""
    leaves: int = 1


def file_columns(footer: pq.FileMetaData) -> list[FileColumn]:
    """The columns of a Parquet file from its footer alone; ArrowException where its schema is invalid.

    Arrow shows an enum as binary, a UUID as 16 bytes and INT96 as nanoseconds; the Parquet schema beside it tells
    them apart. They are remembered as long as the footer is there.
    """
    held = _KNOWN.get(id(footer))
    if held is not None and held[0]() is footer:
        return list(held[1])
    try:
        found = _file_columns(footer)
    except (ValueError, OSError, LookupError, RecursionError) as error:
        # pyarrow raises any of these for a broken schema; callers know one
        raise error if isinstance(error, pa.ArrowException) else pa.ArrowInvalid(str(error)) from error
    key = id(footer)
    _KNOWN[key] = weakref.ref(footer, lambda _: _KNOWN.pop(key, None)), found
    return list(found)


def table_type(arrow_type: pa.DataType) -> str | None:
    """The table's type for a file's type; None for the null type, which no column is made for yet.

    TableError `type-unsupported` for a type that the contract does not map. A duration is the whole number that
    Parquet stores for it.
    """
    if pa.types.is_null(arrow_type):
        return None
    simple = _SIMPLE.get(arrow_type)
    if simple is not None:
        return simple
    if _is_nested(arrow_type):
        return "string"
    if pa.types.is_dictionary(arrow_type) or pa.types.is_run_end_encoded(arrow_type):
        return table_type(arrow_type.value_type)
    if isinstance(arrow_type, pa.BaseExtensionType):
        return "string" if is_uuid(arrow_type) else table_type(arrow_type.storage_type)
    if pa.types.is_decimal(arrow_type) and arrow_type.precision <= 38 and 0 <= arrow_type.scale <= arrow_type.precision:
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if pa.types.is_timestamp(arrow_type):
        return "timestamp" if arrow_type.tz is not None else "timestamp_ntz"
    if pa.types.is_time(arrow_type):
        return "string"
    if pa.types.is_fixed_size_binary(arrow_type):
        return "binary"
    if pa.types.is_duration(arrow_type):
        return "bigint"
    raise TableError("type-unsupported", f"type {arrow_type} cannot be kept in a table")


@lru_cache(1000)
def arrow_type(type_: str) -> pa.DataType | None:
    """The Arrow type that holds the values of a table's column; None for a type that no change file makes."""
    known = _ARROW.get(type_)
    if known is not None:
        return known
    digits = _DECIMAL.fullmatch(type_)
    return pa.decimal128(int(digits[1]), int(digits[2])) if digits is not None else None


def leaves(arrow_type: pa.DataType) -> int:
    """How many columns of the Parquet file hold this field. A loop: files may nest deeper than Python recurses."""
    if arrow_type in _PLAIN:
        return 1
    count, open_types = 0, [arrow_type]
    while open_types:
        current = open_types.pop()
        if isinstance(current, pa.BaseExtensionType):
            open_types.append(current.storage_type)
        elif pa.types.is_map(current):
            open_types += [current.key_type, current.item_type]
        elif pa.types.is_struct(current):
            open_types += [current.field(i).type for i in range(current.num_fields)]
        elif _is_nested(current) and current.num_fields:
            open_types.append(current.value_type)
        else:
            count += 1
    return count


def becomes_text(arrow_type: pa.DataType) -> bool:
    """True for values that a table keeps as text without being text: lists, structs, maps, times of day."""
    if pa.types.is_dictionary(arrow_type) or pa.types.is_run_end_encoded(arrow_type):
        return becomes_text(arrow_type.value_type)
    if isinstance(arrow_type, pa.BaseExtensionType):
        return not is_uuid(arrow_type) and becomes_text(arrow_type.storage_type)
    return _is_nested(arrow_type) or bool(pa.types.is_time(arrow_type))


def note(arrow_type: pa.DataType) -> str | None:
    """What the table loses of this type, or keeps in another form; None where it keeps all."""
    if _is_nested(arrow_type):
        return f"{_nested_word(arrow_type)} values are kept as JSON text"
    if pa.types.is_duration(arrow_type):
        return f"durations are kept as whole numbers ({arrow_type.unit})"
    if pa.types.is_temporal(arrow_type) and getattr(arrow_type, "unit", "") == "ns":
        return "nanoseconds are cut to microseconds"
    if pa.types.is_dictionary(arrow_type) or pa.types.is_run_end_encoded(arrow_type):
        return note(arrow_type.value_type)
    if isinstance(arrow_type, pa.BaseExtensionType):
        return note(arrow_type.storage_type)
    return None


def fits(file_type: str, column_type: str) -> bool:
    """True where every value of the file's table type is also a value of the column's: the cast loses nothing.

    Beside equal types these are: integers into wider integers; float into double; decimals into decimals with at
    least as many digits before and after the point; integers into decimals with enough digits before the point, and
    the reverse for decimals without fraction; integers into floating point that holds each of them exactly (smallint
    into float, smallint and int into double); times without a zone into timestamp, read in the column's zone. Nothing
    else: no number into string, no date into timestamp, no time with a zone into timestamp_ntz, no decimal into
    floating point. The answer depends on the types alone, never on the values of a file.
    """
    if file_type == column_type:
        return True
    if column_type in _EXACT_INTO.get(file_type, ()):
        return True
    given, wanted = _digits(file_type), _digits(column_type)
    if given is None or wanted is None:
        return False
    (before, after), (room_before, room_after) = given, wanted
    if column_type in _WHOLE_DIGITS:
        # any number of so many digits, one fewer than the largest value of the type has
        return after == 0 and before < room_before
    return before <= room_before and after <= room_after


def widens(column_type: str, file_type: str) -> bool:
    """True where the column can take the file's type and keeps every value it has, by Delta's type widening.

    Delta widens integers into wider integers, decimals and double, float into double, and decimals into decimals
    with at least as many digits on both sides of the point.
    """
    if column_type in (file_type, "timestamp_ntz") or not fits(column_type, file_type):
        return False
    return not (file_type == "float" or (file_type in _WHOLE_DIGITS and column_type not in _WHOLE_DIGITS))


_KNOWN: dict[int, tuple[weakref.ref[pq.FileMetaData], tuple[FileColumn, ...]]] = {}  # by the footer's id

_SIMPLE: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint8(): "smallint",
    pa.uint16(): "int",
    pa.uint32(): "bigint",
    pa.uint64(): "decimal(20,0)",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date32(): "date",
    pa.date64(): "date",
}

_PLAIN = frozenset(kind for kind in _SIMPLE if pa.types.is_primitive(kind))
"""Numbers, dates and booleans: no enum, UUID or INT96 is shown as one of them."""

_ARROW = {
    "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "boolean": pa.bool_(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip

_EXACT_INTO = {
    "smallint": {"int", "bigint", "float", "double"},
    "int": {"bigint", "double"},
    "float": {"double"},
    "timestamp_ntz": {"timestamp"},
}

_WHOLE_DIGITS = {"smallint": 5, "int": 10, "bigint": 19}  # of the largest value
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def _digits(type_: str) -> tuple[int, int] | None:
    """How many decimal digits before and after the point the type's values need or have room for."""
    if type_ in _WHOLE_DIGITS:
        return _WHOLE_DIGITS[type_], 0
    match = _DECIMAL.fullmatch(type_)
    if match is None:
        return None
    precision, scale = int(match[1]), int(match[2])
    return precision - scale, scale


def _file_columns(footer: pq.FileMetaData) -> tuple[FileColumn, ...]:
    leaf, schema, columns = 0, footer.schema, []
    for field in schema.to_arrow_schema():
        kind = field.type
        if kind in _PLAIN:
            columns.append(FileColumn(field.name, kind, _SIMPLE[kind]))
            leaf += 1
            continue
        size = leaves(kind)
        encoding = _encoding(schema.column(leaf)) if size == 1 and not _is_nested(kind) else ""
        column = _file_column(field.name, kind, encoding)
        columns.append(column if size == 1 else replace(column, leaves=size))
        leaf += size
    return tuple(columns)


def _file_column(name: str, arrow_type: pa.DataType, encoding: str) -> FileColumn:
    if encoding in ("enum", "uuid"):
        return FileColumn(name, arrow_type, "string", encoding=encoding)
    try:
        found = table_type(arrow_type)
    except TableError as error:
        return FileColumn(name, arrow_type, None, unsupported=error.message, encoding=encoding)
    if encoding == "int96":
        # an instant, in nanoseconds by construction: not worth a warning in every table of Spark's
        return FileColumn(name, arrow_type, "timestamp", encoding=encoding)
    return FileColumn(name, arrow_type, found, note(arrow_type), encoding=encoding)


def _encoding(column: pq.ColumnSchema) -> str:
    if column.physical_type == "INT96":
        return "int96"
    return {"ENUM": "enum", "UUID": "uuid"}.get(column.logical_type.type, "")


def is_uuid(arrow_type: pa.DataType) -> bool:
    """True for UUIDs as an extension type."""
    return getattr(arrow_type, "extension_name", "") == "arrow.uuid"  # its class is younger than our oldest pyarrow


def _is_nested(arrow_type: pa.DataType) -> bool:
    # Arrow counts lists, structs, maps and unions as nested, and a list of lists as any of them
    return bool(pa.types.is_nested(arrow_type)) and not pa.types.is_run_end_encoded(arrow_type)


def _nested_word(arrow_type: pa.DataType) -> str:
    if pa.types.is_map(arrow_type):
        return "map"
    return "struct" if pa.types.is_struct(arrow_type) else "list"
