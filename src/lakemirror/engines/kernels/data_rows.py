"""Reads rows of a table's data files, of any writer, in the table's current columns and types.

    add action ─▶ data_file ─▶ row groups ─▶ rows_of: columns by physical name, values of partition folders,
                                                       narrower types widened, missing columns NULL

Bounds in a data file's footer are trusted, as every Delta reader trusts them: the writer that added the file committed
them. Footers of copied change files were checked against their rows before (`add_files`). Contradictory bounds are
ignored.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.delta.data_files import data_file
from lakemirror.engines.row_work import Action, Target, TargetColumn
from lakemirror.landing_zone.column_types import arrow_type as column_arrow_type
from lakemirror.storage.place import is_in_store
from lakemirror.storage.place import opened as opened_place

_ROWS_AT_ONCE = 64 * 1024
_REMEMBERED = 16 * 1024  # paths in the cache: every apply looks at the same files
_OTHER_TYPES = {"tinyint": pa.int8(), "timestamp_ntz": pa.timestamp("us")}  # of columns that other writers added
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


class DataFile(NamedTuple):
    """A data file of the table.

    `path`: as the log spells it. `place`: its file name or address. `constants`: the values of its partition columns,
    by column name.
    """

    path: str
    place: str
    constants: tuple[tuple[str, str | None], ...] = ()

    @staticmethod
    def of(add: Action, target: Target) -> DataFile:
        """The file of an `add` action."""
        if not target.partition_columns:
            return DataFile(add["path"], place_of(target.path, add["path"]))
        values = add.get("partitionValues") or {}
        parts = {column.name: column.physical_name for column in target.columns}
        constants = tuple((name, values.get(parts[name]) or None) for name in target.partition_columns if name in parts)
        return DataFile(add["path"], place_of(target.path, add["path"]), constants)


@dataclass(frozen=True)
class RowGroup:
    """A row group of a data file: its number, the number of its first row in the file, its number of rows."""

    file: DataFile
    index: int
    first_row: int
    rows: int


@lru_cache(_REMEMBERED)
def place_of(table: str, path: str) -> str:
    """The file name or address of a file in the log. `path`: a URI, absolute or relative to the table's folder."""
    return str(data_file(table, path))


def arrow_type(type_: str) -> pa.DataType:
    """The Arrow type of a column's type, given as in Spark SQL. ValueError for a nested type."""
    found = _OTHER_TYPES.get(type_) or column_arrow_type(type_)
    if found is None:
        raise ValueError(f"columns of type {type_} are not supported")
    return found


def opened(file: DataFile, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Opens a data file. FileNotFoundError if it does not exist any more."""
    return pq.ParquetFile(
        opened_place(file.place, written_once=True), metadata=metadata, coerce_int96_timestamp_unit="us",
        page_checksum_verification=False, pre_buffer=is_in_store(file.place),
    )  # fmt: skip


def rows_of(
    parquet: pq.ParquetFile, group: RowGroup, columns: Sequence[TargetColumn], *, at_once: int = _ROWS_AT_ONCE
) -> Iterator[pa.Table]:
    """The rows of a row group, deleted rows included, with these columns in their types.

    ArrowException or ValueError if they cannot be read.
    """
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
    constants = dict(group.file.constants)
    names = parquet.schema_arrow.names
    held: dict[str, str] = {}
    for column in columns:
        found = None if column.name in constants else _name_in(parquet, names, column)
        if found is not None:
            held[column.name] = found
    if not held:
        yield _constant_rows(group.rows, schema, constants)
        return
    for batch in parquet.iter_batches(
        at_once, row_groups=[group.index], columns=list(held.values()), use_threads=False
    ):
        read = dict(zip(batch.schema.names, batch.columns, strict=True))
        rest = _constant_rows(batch.num_rows, schema, constants)
        values = [
            as_type(read[held[field.name]], field.type) if field.name in held else rest[field.name] for field in schema
        ]
        yield pa.table(values, schema=schema)


def as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values in a wider type. Timestamps without a zone are taken as UTC; nanoseconds are rounded down."""
    if values.type == kind:
        return values
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_timestamp(values.type) and values.type.unit == "ns":
        values = pc.floor_temporal(values.cast(pa.timestamp("ns")), unit="microsecond")
    if pa.types.is_decimal(kind) and pa.types.is_integer(values.type):
        return values.cast(pa.decimal128(38, 0)).cast(kind)
    return values.cast(kind)


def constant(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """The value of a partition column, from its text in the log (Delta protocol, "Partition Value Serialization")."""
    if text is None:
        return pa.scalar(None, kind)
    if pa.types.is_string(kind):
        return pa.scalar(text, kind)
    if pa.types.is_binary(kind):
        return pa.scalar(text.encode("utf-8"), kind)
    if pa.types.is_boolean(kind):
        return pa.scalar(text.lower() == "true", kind)
    if pa.types.is_decimal(kind):
        return pa.scalar(decimal.Decimal(text), kind)
    if pa.types.is_date32(kind):
        return pa.scalar(datetime.date.fromisoformat(text), kind)
    if pa.types.is_timestamp(kind):
        moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
        moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.timezone.utc)
        return pa.scalar((moment - _EPOCH) // datetime.timedelta(microseconds=1), pa.int64()).cast(kind)
    if pa.types.is_floating(kind):
        return pa.scalar(float(text), kind)
    return pa.scalar(int(text), kind)


def _constant_rows(rows: int, schema: pa.Schema, constants: dict[str, str | None]) -> pa.Table:
    columns = [
        pa.repeat(constant(constants[field.name], field.type), rows)
        if constants.get(field.name) is not None
        else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _name_in(parquet: pq.ParquetFile, names: Sequence[str], column: TargetColumn) -> str | None:
    """The column's name in a file: by field id in mapping mode `id`, else by physical name, in any case if need be.

    In mode `name` ids are ignored: old Arrow writers number the fields of every file by their places (Delta protocol,
    "Reader Requirements for Column Mapping").
    """
    if column.by_id:
        for field in parquet.schema_arrow:
            if (field.metadata or {}).get(b"PARQUET:field_id") == str(column.field_id).encode():
                return str(field.name)
    if column.physical_name in names:
        return column.physical_name
    lower = column.physical_name.lower()
    return next((name for name in names if name.lower() == lower), None)
