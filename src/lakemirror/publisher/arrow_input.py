"""Rows as users hold them, taken as a stream of Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from lakemirror.errors import LakemirrorError


def read_rows(rows: Any, columns: pa.Schema | None = None) -> pa.RecordBatchReader:
    """A reader over the rows, whatever they are.

    An Arrow table, batch or reader; anything that offers the Arrow PyCapsule interface (polars, DuckDB, pandas, …);
    a pandas frame, whose index is left out; a mapping as one row; mappings as rows. `columns` gives the types of the
    columns it names, wherever the rows have them. `input-invalid` for anything else, `value-invalid` where a value
    does not fit.
    """
    reader = _reader(rows, columns)
    return reader if columns is None else _cast(reader, columns)


def _reader(rows: Any, columns: pa.Schema | None) -> pa.RecordBatchReader:
    if isinstance(rows, pa.RecordBatchReader):
        return rows
    if isinstance(rows, pa.Table):
        return rows.to_reader()
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows]).to_reader()
    if _is_pandas(rows):
        try:
            return pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(None).to_reader()
        except pa.ArrowException as error:
            raise _does_not_fit(error) from error
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(rows)
    if hasattr(rows, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(rows)]).to_reader()
    if isinstance(rows, Mapping):
        return from_mappings([rows], columns).to_reader()
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        listed = list(rows)
        if all(isinstance(row, Mapping) for row in listed):
            return from_mappings(listed, columns).to_reader()
    raise LakemirrorError("input-invalid", f"rows of type {type(rows).__name__} cannot be published")


def from_mappings(rows: list[Mapping[str, Any]], columns: pa.Schema | None = None) -> pa.Table:
    """The table of all columns that any of the rows has, in the order of first appearance."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not rows and columns is not None:
        return columns.empty_table()
    if not all(isinstance(name, str) for name in names):
        raise LakemirrorError("input-invalid", "column names must be strings")
    typed = {} if columns is None else {field.name: field.type for field in columns}
    arrays = []
    for name in names:
        try:
            arrays.append(pa.array([row.get(name) for row in rows], type=typed.get(name)))
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise _does_not_fit(error, name) from error
    return pa.Table.from_arrays(arrays, names=names)


def _cast(reader: pa.RecordBatchReader, columns: pa.Schema) -> pa.RecordBatchReader:
    wanted = {field.name: field.type for field in columns}
    fields = [field.with_type(wanted.get(field.name, field.type)) for field in reader.schema]
    schema = pa.schema(fields)
    if schema.equals(reader.schema):
        return reader

    def batches() -> Iterable[pa.RecordBatch]:
        for batch in reader:
            arrays = []
            for field, array in zip(schema, batch.columns, strict=True):
                try:
                    arrays.append(array if array.type == field.type else array.cast(field.type))
                except pa.ArrowException as error:
                    raise _does_not_fit(error, field.name) from error
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _is_pandas(rows: Any) -> bool:
    """True for a pandas frame, without importing pandas: whoever has a frame has imported it."""
    return type(rows).__module__.partition(".")[0] == "pandas" and hasattr(rows, "columns")


def _does_not_fit(error: Exception, column: str | None = None) -> LakemirrorError:
    place = f"column {column}: " if column else ""
    return LakemirrorError(
        "value-invalid",
        f"{place}{error}",
        column=column,
        hint="Correct the value, or give the column a type that holds it: columns=pa.schema(…).",
    )
