"""The columns of a Delta table as a reader sees them: logical name, name in the files, Arrow type; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.delta.schema import ZONE
from lakemirror.landing_zone.zoneless import NTZ, instants

_TYPES: dict[str, pa.DataType] = {
    "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "boolean": pa.bool_(), "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


@dataclass(frozen=True)
class TableColumn:
    """`physical`: its name in data files and statistics. `type`: None for a nested type. `field_id`: of column mapping.

    `partition`: its values are in the `add` actions, not in the files. `zone`: of change files' times that name none.
    """

    name: str
    physical: str
    type: pa.DataType | None
    field_id: int | None = None
    partition: bool = False
    zone: str = "UTC"


def table_columns(metadata: Mapping[str, Any]) -> tuple[TableColumn, ...]:
    """The columns of a `metaData` action. ValueError, KeyError or TypeError if it is invalid."""
    partitions = set(metadata.get("partitionColumns") or ())
    found = []
    for field in json.loads(metadata["schemaString"])["fields"]:
        more = field.get("metadata") or {}
        found.append(
            TableColumn(
                field["name"],
                more.get("delta.columnMapping.physicalName", field["name"]),
                _arrow_type(field["type"]),
                more.get("delta.columnMapping.id"),
                field["name"] in partitions,
                more.get(ZONE) or "UTC",
            )
        )
    return tuple(found)


def places(columns: tuple[TableColumn, ...], schema: pa.Schema) -> dict[str, int]:
    """The index of each column in a data file, by physical name. Columns that the file lacks are left out."""
    exact = {name: index for index, name in enumerate(schema.names)}
    lower = {name.lower(): index for index, name in enumerate(schema.names)}
    ids: dict[int, int] = {}
    for place, field in enumerate(schema):
        number = (field.metadata or {}).get(b"PARQUET:field_id")
        if number is not None:
            ids[int(number)] = place
    found = {}
    for column in columns:
        index: int | None = exact.get(column.physical)
        if index is None and column.field_id is not None:
            index = ids.get(column.field_id)
        if index is None:
            index = lower.get(column.physical.lower())
        if index is not None and not column.partition:
            found[column.physical] = index
    return found


def zone_in(columns: Sequence[TableColumn]) -> Callable[[str], str]:
    """How delimited text of this table reads times without a zone: a `Zones.of`."""
    known = {column.name.lower(): column for column in columns}

    def zone(name: str) -> str:
        column = known.get(name.lower())
        return "UTC" if column is None else NTZ if column.type == pa.timestamp("us") else column.zone

    return zone


def plain(column: pa.Array) -> pa.Array:
    """The values without dictionary, view and extension types: delta-rs writes texts as views."""
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        return column.cast(pa.string() if pa.types.is_string_view(column.type) else pa.binary())
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    if isinstance(column.type, pa.BaseExtensionType):
        return column.storage
    return column


def in_type(column: pa.Array, type_: pa.DataType, zone: str = "UTC") -> pa.Array:
    """The values in the table's type: nanoseconds are cut, times of day become text (contract section 6).

    `zone`: of times that name none. ArrowException or ValueError where a value does not fit.
    """
    column = plain(column)
    if column.type == type_:
        return column
    if pa.types.is_time(column.type) and pa.types.is_string(type_):
        return pa.array([_time_text(each) for each in _microseconds(column)], pa.string())
    if pa.types.is_fixed_size_binary(column.type) and column.type.byte_width == 16 and pa.types.is_string(type_):
        return _uuid_texts(column)
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        local = column.cast(pa.timestamp("ns"))
        column = pc.floor_temporal(local, unit="microsecond").cast(pa.timestamp("us", column.type.tz))
    if pa.types.is_timestamp(column.type) and column.type.tz is None and pa.types.is_timestamp(type_) and type_.tz:
        return instants(column.cast(pa.timestamp("us")), zone)
    return column.cast(type_)


def _microseconds(values: pa.Array) -> list[int | None]:
    per_unit = {"s": 1_000_000, "ms": 1000, "us": 1, "ns": 0}[values.type.unit]
    numbers = values.view(pa.int32() if pa.types.is_time32(values.type) else pa.int64()).to_pylist()
    return [None if n is None else n * per_unit if per_unit else n // 1000 for n in numbers]


def _time_text(micros: int | None) -> str | None:
    if micros is None:
        return None
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}" if fraction else text


def _uuid_texts(column: pa.Array) -> pa.Array:
    texts = [None if value is None else value.hex() for value in column.to_pylist()]
    return pa.array([t and f"{t[:8]}-{t[8:12]}-{t[12:16]}-{t[16:20]}-{t[20:]}" for t in texts], pa.string())


def _arrow_type(type_: Any) -> pa.DataType | None:
    if not isinstance(type_, str):
        return None
    if type_.startswith(("varchar(", "char(")):
        return pa.string()
    if match := _DECIMAL.fullmatch(type_):
        return pa.decimal128(int(match[1]), int(match[2]))
    return _TYPES.get(type_)
