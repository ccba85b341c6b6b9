"""Rows as users hold them, taken as a stream of Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.column_types import place

Types = Mapping[str, pa.DataType]


def read_rows(rows: Any, columns: Types | None = None, before: Types | None = None) -> pa.RecordBatchReader:
    """A reader over the rows, whatever they are.

    An Arrow table, batch or reader; anything that offers the Arrow PyCapsule interface (polars, DuckDB, pandas, …);
    a pandas frame, whose index is left out; a Spark frame, which is collected; a mapping as one row; mappings as rows.
    `columns` gives the types of the
    columns it names, wherever the rows have them; `before` those of columns that were published before, which only
    mappings take on, because their types are a guess. `input-invalid` for anything else, `value-invalid` where a value
    does not fit, `type-changed` where values are of another kind than before.
    """
    columns = columns or {}
    reader = _reader(rows, columns, before or {})
    return _cast(reader, columns) if columns else reader


def _reader(rows: Any, columns: Types, before: Types) -> pa.RecordBatchReader:
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
    if _module(rows) == "pyspark" and hasattr(rows, "schema"):
        return _from_spark(rows)
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(rows)
    if hasattr(rows, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(rows)]).to_reader()
    if _module(rows) == "duckdb" and hasattr(rows, "fetch_arrow_reader"):  # before it had the interface
        reader: pa.RecordBatchReader = rows.fetch_arrow_reader()
        return reader
    if isinstance(rows, Mapping):
        return from_mappings([rows], columns, before).to_reader()
    if isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        listed = list(rows)
        if all(isinstance(row, Mapping) for row in listed):
            return from_mappings(listed, columns, before).to_reader()
    hint = "Give a polars LazyFrame as frame.collect()." if type(rows).__name__ == "LazyFrame" else None
    raise LakemirrorError(
        "input-invalid", f"rows of type {type(rows).__module__}.{type(rows).__name__} cannot be published", hint=hint
    )


def _from_spark(frame: Any) -> pa.RecordBatchReader:
    """The rows of a Spark frame, collected to this process."""
    if getattr(frame, "isStreaming", False):
        raise LakemirrorError(
            "input-invalid",
            "a streaming frame cannot be published as rows",
            hint='Write it with writeStream.format("lakemirror"): docs/how-to/publish-from-spark.md.',
        )
    if hasattr(frame, "toArrow"):
        table: pa.Table = frame.toArrow()
    else:  # PySpark 3.5
        table = pa.Table.from_batches(frame._collect_as_arrow())
    return table.replace_schema_metadata(None).to_reader()


def from_mappings(rows: Sequence[Mapping[str, Any]], columns: Types, before: Types) -> pa.Table:
    """The table of all columns that any of the rows has, in the order of first appearance."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not rows:
        return pa.schema(list(columns.items())).empty_table()
    if not all(isinstance(name, str) for name in names):
        raise LakemirrorError("input-invalid", "column names must be strings")
    arrays = []
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            if name in columns:
                arrays.append(pa.array(values, type=columns[name]))
            else:
                arrays.append(_as_before(pa.array(values), before.get(name), name))
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise _does_not_fit(error, name) from error
    return pa.Table.from_arrays(arrays, names=names)


def cast_column(values: pa.Array, kind: pa.DataType, column: str) -> pa.Array:
    """The values in another type, none of them changed; text as times is in UTC unless it names a zone."""
    try:
        if values.type == kind:
            return values
        if pa.types.is_timestamp(kind) and values.type in (pa.string(), pa.large_string()):
            return _with_zone(values).cast(pa.timestamp(kind.unit, "UTC")).cast(kind)
        return values.cast(kind)
    except pa.ArrowException as error:
        raise _does_not_fit(error, column) from error


def _with_zone(text: pa.Array) -> pa.Array:
    """`2026-01-02`, `2026-01-02 03:04:05` and `2026-01-02T03:04:05+01:00` as times with a zone."""
    text = pc.utf8_trim_whitespace(text)
    is_day = pc.equal(pc.utf8_length(text), 10)
    text = pc.if_else(is_day, pc.binary_join_element_wise(text, "00:00:00", "T"), text)
    has_zone = pc.match_substring_regex(text, r":\d\d(\.\d+)? ?(Z|z|[+-]\d\d(:?\d\d)?)$")
    return pc.if_else(has_zone, text, pc.binary_join_element_wise(text, "Z", ""))


def _as_before(values: pa.Array, before: pa.DataType | None, column: str) -> pa.Array:
    """Guessed values in the type that the column was published in; `type-changed` where they are of another kind."""
    if before is None or values.type == before:
        return values
    placed = place(values.type)
    if placed is not None and placed[0] == before:
        return values
    t = pa.types
    numbers = all(t.is_integer(kind) or t.is_floating(kind) or t.is_decimal(kind) for kind in (values.type, before))
    times = t.is_timestamp(values.type) and t.is_timestamp(before) and bool(values.type.tz) == bool(before.tz)
    if numbers or times or t.is_null(values.type):
        return values.cast(before)
    if t.is_string(values.type) and (t.is_timestamp(before) or t.is_date(before)):
        return cast_column(values, before, column)
    texts = (pa.string(), pa.large_string()), (pa.binary(), pa.large_binary())
    if any(values.type in kinds and before in kinds for kinds in texts):
        return values.cast(before)
    raise LakemirrorError(
        "type-changed",
        f"column {column} was published as {before}, now its values are {values.type}",
        column=column,
        hint="Publish values of the former type, or recreate the table.",
    )


def _cast(reader: pa.RecordBatchReader, columns: Types) -> pa.RecordBatchReader:
    fields = [field.with_type(columns.get(field.name, field.type)) for field in reader.schema]
    schema = pa.schema(fields)
    if schema.equals(reader.schema):
        return reader

    def batches() -> Iterable[pa.RecordBatch]:
        for batch in reader:
            arrays = []
            for field, array in zip(schema, batch.columns, strict=True):
                arrays.append(cast_column(array, field.type, field.name))
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _is_pandas(rows: Any) -> bool:
    """True for a pandas frame, without importing pandas: whoever has a frame has imported it."""
    return _module(rows) == "pandas" and hasattr(rows, "columns")


def _module(rows: Any) -> str:
    """The package that made an object, `duckdb` also for its compiled part."""
    name = type(rows).__module__.partition(".")[0]
    return "duckdb" if name == "_duckdb" else name


def _does_not_fit(error: Exception, column: str | None = None) -> LakemirrorError:
    place = f"column {column}: " if column else ""
    return LakemirrorError(
        "value-invalid",
        f"{place}{error}",
        column=column,
        hint="Correct the value, or give the column a type that holds it: columns=pa.schema(…).",
    )
