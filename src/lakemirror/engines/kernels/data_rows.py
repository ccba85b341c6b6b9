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

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.data_files import data_file
from lakemirror.delta.long_texts import LONG
from lakemirror.engines.kernels import nested_types
from lakemirror.engines.kernels.nested_types import stored_type
from lakemirror.engines.kernels.nested_values import field_of, shaped
from lakemirror.engines.row_work import Action, Target, TargetColumn
from lakemirror.storage.place import capabilities_of
from lakemirror.storage.place import opened as opened_place

_ROWS_AT_ONCE = 64 * 1024
_BYTES_AT_ONCE = 32 << 20  # of long rows, decoded, by the footer
_REMEMBERED = 16 * 1024  # paths in the cache: every apply looks at the same files
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
    """The Arrow type of a column's type, given as in Spark SQL. ValueError for a type that lakemirror cannot write."""
    return _known(nested_types.arrow_type(type_), type_)


def stored_arrow_type(column: TargetColumn) -> pa.DataType:
    """The Arrow type of a column, nested ones too, with the names that data files have. ValueError as above."""
    return _known(stored_type(column.type, with_ids=column.field_id is not None), column.type)


def work_schema(target: Target, columns: Sequence[TargetColumn] | None = None) -> pa.Schema:
    """The Arrow schema of these columns of the table (None: all columns)."""
    chosen = target.columns if columns is None else columns
    return pa.schema([(column.name, arrow_type(column.type)) for column in chosen])


def _known(found: pa.DataType | None, type_: str) -> pa.DataType:
    if found is None:
        raise ValueError(f"columns of type {type_} are not supported")
    return found


def opened(file: DataFile, metadata: pq.FileMetaData | None = None, *, encoded: Sequence[str] = ()) -> pq.ParquetFile:
    """Opens a data file. FileNotFoundError if it does not exist any more. `encoded`: columns whose texts are read as
    dictionaries: for a few rows of many, their texts are not written out."""
    return pq.ParquetFile(
        opened_place(file.place, written_once=True), metadata=metadata, coerce_int96_timestamp_unit="us",
        page_checksum_verification=False, pre_buffer=capabilities_of(file.place).waits, read_dictionary=list(encoded),
    )  # fmt: skip


def rows_of(
    parquet: pq.ParquetFile, group: RowGroup, columns: Sequence[TargetColumn], *, at_once: int = _ROWS_AT_ONCE,
    places: np.ndarray | None = None,
) -> Iterator[pa.Table]:  # fmt: skip
    """The rows of a row group, deleted rows included, with these columns in their types. `places`: only the rows at
    these places (ascending) of the group.

    ArrowException or ValueError if they cannot be read.
    """
    schema = pa.schema([(column.name, stored_arrow_type(column)) for column in columns])
    held = stored_names(parquet, group.file, columns)
    if not held:
        yield constant_rows(group.rows if places is None else len(places), group.file, columns)
        return
    absent = [column for column in columns if column.name not in held]
    size = parquet.metadata.row_group(group.index).total_byte_size
    if size > LONG * group.rows:  # the rows are long
        at_once = max(1, group.rows * _BYTES_AT_ONCE // size)
    end = 0
    for batch in parquet.iter_batches(
        at_once, row_groups=[group.index], columns=list(held.values()), use_threads=False
    ):
        begin, end = end, end + batch.num_rows
        if places is not None:
            low, high = np.searchsorted(places, [begin, end])
            if low == high:
                continue
            batch = batch.take(pa.array(places[low:high] - begin))
        read = dict(zip(batch.schema.names, batch.columns, strict=True))
        rest = constant_rows(batch.num_rows, group.file, absent)
        values = [
            shaped(read[held[column.name]], field_of(column), kind) if column.name in held else rest[column.name]
            for column, kind in zip(columns, schema.types, strict=True)
        ]
        yield pa.table(values, schema=schema)


def stored_names(parquet: pq.ParquetFile, file: DataFile, columns: Sequence[TargetColumn]) -> dict[str, str]:
    """The names in a file of those columns that are in it, by their names in the table."""
    constants, names = dict(file.constants), parquet.schema_arrow.names
    found = ((column.name, _name_in(parquet, names, column)) for column in columns if column.name not in constants)
    return {name: stored for name, stored in found if stored is not None}


def constant_rows(rows: int, file: DataFile, columns: Sequence[TargetColumn]) -> pa.Table:
    """So many rows of columns that are not in a file: values of partition folders, defaults, NULL."""
    constants = {each.name: each.default for each in columns if each.default is not None} | dict(file.constants)
    schema = pa.schema([(column.name, stored_arrow_type(column)) for column in columns])
    values = [
        pa.repeat(constant(constants[field.name], field.type), rows)
        if constants.get(field.name) is not None
        else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.table(values, schema=schema)


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
