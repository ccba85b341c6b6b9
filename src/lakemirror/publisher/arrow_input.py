"""Rows as users hold them, taken as a stream of Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.column_types import table_type, widens
from lakemirror.landing_zone.zoneless import NTZ, zone_of
from lakemirror.publisher.exact_values import Refused, cast_exactly, column, declared_column
from lakemirror.publisher.row_readers import converted_rows

Types = Mapping[str, pa.DataType]


def read_rows(
    rows: Any,
    columns: Types | None = None,
    before: Types | None = None,
    only: Sequence[str] | None = None,
    zoneless: str = "",
) -> pa.RecordBatchReader:
    """A reader over the rows, whatever they are.

    An Arrow table, batch or reader; anything that offers the Arrow PyCapsule interface (polars, DuckDB, pandas, …);
    a pandas frame, whose index is left out; a Spark frame, which is collected; a mapping as one row; mappings as rows.
    `columns` gives the types of the
    columns it names, wherever the rows have them; `before` those of columns that were published before, which only
    mappings take on, because their types are a guess. `input-invalid` for anything else, `value-invalid` where a value
    does not fit, `type-changed` where values are of another kind than before. `only`: the columns that are looked at.
    `zoneless`: what times without a zone are, where a type asks for instants. Empty or `ntz`: text and times of a
    named type are of UTC, and times of Python have no place among instants.
    """
    types = _Asked(columns or {}, before or {}, "" if zoneless in ("", NTZ) else zone_of(zoneless))
    reader = _reader(rows, types, only)
    if only is not None:
        reader = _narrowed(reader, only)
    return _cast(reader, types) if columns else reader


@dataclass(frozen=True)
class _Asked:
    """The types that values get: named ones, those of before, and the zone of times without one, empty if unsaid."""

    columns: Types
    before: Types
    zone: str


def _reader(rows: Any, types: _Asked, only: Sequence[str] | None) -> pa.RecordBatchReader:
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    if isinstance(rows, pa.Table):
        return rows.to_reader()
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows]).to_reader()
    if _is_pandas(rows):
        return _from_pandas(rows if only is None else rows[_among(rows.columns, only)], types)
    if _module(rows) == "pyspark" and hasattr(rows, "schema"):
        return from_spark(rows)
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(rows)
    if hasattr(rows, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(rows)]).to_reader()
    if isinstance(rows, Mapping):
        return _from_mappings([rows], types, only).to_reader()
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        listed = list(rows)
        if all(isinstance(row, Mapping) for row in listed):
            return _from_mappings(listed, types, only).to_reader()
    hint = "Give a polars LazyFrame as frame.collect()." if type(rows).__name__ == "LazyFrame" else None
    raise LakemirrorError(
        "input-invalid", f"rows of type {type(rows).__module__}.{type(rows).__name__} cannot be published", hint=hint
    )


def from_spark(frame: Any) -> pa.RecordBatchReader:
    """The rows of a Spark frame, collected to this process."""
    if getattr(frame, "isStreaming", False):
        raise LakemirrorError(
            "input-invalid",
            "a streaming frame cannot be published as rows",
            hint='Write it with writeStream.format("lakemirror"): docs/how-to/publish-from-spark.md.',
        )
    from lakemirror.publisher.sources.spark_values import arrow_ready, as_text  # needs PySpark, which made the frame

    frame = arrow_ready(frame)
    if hasattr(frame, "toArrow"):
        table: pa.Table = frame.toArrow()
    else:  # PySpark 3.5
        table = pa.Table.from_batches(frame._collect_as_arrow())
    empty = pa.RecordBatch.from_pylist([], table.schema)
    batches = list(as_text(iter([*table.to_batches(), empty])))
    return pa.Table.from_batches(batches).replace_schema_metadata(None).to_reader()


def _from_pandas(frame: Any, types: _Asked) -> pa.RecordBatchReader:
    """The columns of a frame. Those of Python objects are read as the values of mappings are, with NaN as NULL."""
    arrays = []
    for position, name in enumerate(frame.columns):
        series = frame.iloc[:, position]
        if str(series.dtype) == "object":
            arrays.append(_column(list(series), str(name), types, nan_is_null=True))
            continue
        try:
            arrays.append(pa.array(series, from_pandas=True))
        except pa.ArrowException as error:
            raise LakemirrorError("value-invalid", f"column {name}: {error}", column=str(name), hint=_HINT) from error
    return pa.Table.from_arrays(arrays, names=[str(name) for name in frame.columns]).to_reader()


def _from_mappings(rows: Sequence[Mapping[str, Any]], types: _Asked, only: Sequence[str] | None) -> pa.Table:
    """The table of all columns that any of the rows has, or of `only` these, in the order of first appearance."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not rows:
        return pa.schema(list({**types.before, **types.columns}.items())).empty_table()
    if not all(isinstance(name, str) for name in names):
        raise LakemirrorError("input-invalid", "column names must be strings")
    if only is not None:
        names = _among(names, only)
    arrays = [_column([row.get(name) for row in rows], name, types) for name in names]
    return pa.Table.from_arrays(arrays, names=names)


def _narrowed(reader: pa.RecordBatchReader, only: Sequence[str]) -> pa.RecordBatchReader:
    names = _among(reader.schema.names, only)
    schema = pa.schema([reader.schema.field(name) for name in names])
    return converted_rows(reader, schema, lambda batch, _: batch.select(names).columns)


def _among(names: Iterable[str], only: Sequence[str]) -> list[str]:
    """These columns of all; all where none of these is there, so that an error can name them."""
    wanted = {name.lower() for name in only}
    return [name for name in names if str(name).lower() in wanted] or list(names)


def _cast_column(values: pa.Array, kind: pa.DataType, column: str, rows_before: int, zone: str) -> pa.Array:
    """The values in another type, none of them changed."""
    try:
        return cast_exactly(values, kind, zone)
    except Refused as refused:
        raise value_refused(refused, column, rows_before) from refused


def value_refused(
    refused: Refused, column: str, rows_before: int = 0, *, before: pa.DataType | None = None, hint: str | None = None
) -> LakemirrorError:
    """`value-invalid` with the row, counted from 1; `type-changed` for another kind of values than `before`."""
    row = rows_before + refused.place + 1
    published = "" if before is None else f"; the column was published as {before}"
    return LakemirrorError(
        "type-changed" if before is not None and refused.kind else "value-invalid",
        f"row {row}, column {column}: {refused.reason}{published}",
        row=row,
        column=column,
        hint=hint or (_HINT if before is None else _HINT_BEFORE),
    )


_HINT_BEFORE = (
    "Publish values that the column's type holds; or recreate the table with a type that holds all: "
    "table.recreate(), or --recreate."
)
_HINT = "Correct the value, or give the column a type that holds all values exactly: columns=pa.schema(…)."


def _column(values: list[Any], name: str, types: _Asked, *, nan_is_null: bool = False) -> pa.Array:
    """A column of Python values in its declared type, else in the one it was published in, else in its own."""
    declared = _named(name, types.columns)
    published = None if declared is not None else _named(name, types.before)
    try:
        if declared is not None:
            return declared_column(values, declared, nan_is_null=nan_is_null, zone=types.zone)
        return column(values, published, nan_is_null=nan_is_null, zone=types.zone)
    except Refused as refused:
        natural = None if published is None else _widening(values, published, nan_is_null)
        if natural is None:
            raise value_refused(refused, name, before=published) from refused
        return natural


def _widening(values: list[Any], before: pa.DataType, nan_is_null: bool) -> pa.Array | None:
    """The values in their own type where the column could be widened to it; whether it may, is decided later."""
    with suppress(Refused):
        natural = column(values, nan_is_null=nan_is_null)
        one, other = table_type(before), table_type(natural.type)
        if one is not None and other is not None and widens(one, other):
            return natural
    return None


def _cast(reader: pa.RecordBatchReader, types: _Asked) -> pa.RecordBatchReader:
    fields = [field.with_type(_named(field.name, types.columns) or field.type) for field in reader.schema]
    schema = pa.schema(fields)
    if schema.equals(reader.schema):
        return reader

    def convert(batch: pa.RecordBatch, rows: int) -> list[pa.Array]:
        return [
            _cast_column(array, field.type, field.name, rows, types.zone)
            for field, array in zip(schema, batch.columns, strict=True)
        ]

    return converted_rows(reader, schema, convert)


def _named(name: str, types: Types) -> pa.DataType | None:
    """The type of a column, whose name counts without regard to case."""
    found = types.get(name)
    if found is None and types:
        found = next((kind for each, kind in types.items() if each.lower() == name.lower()), None)
    return found


def _is_pandas(rows: Any) -> bool:
    """True for a pandas frame, without importing pandas: whoever has a frame has imported it."""
    return _module(rows) == "pandas" and hasattr(rows, "columns")


def _module(rows: Any) -> str:
    """The package that made an object."""
    return type(rows).__module__.partition(".")[0]
