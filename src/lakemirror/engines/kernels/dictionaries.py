"""Which columns of a data file get a Parquet dictionary, and batches with dictionaries as one table.

first row group of a column ─▶ is_repeated: sampled ─▶ a Parquet dictionary, or none
dictionary-encoded batches ─▶ with_dictionaries: schema ─▶ one_table: one dictionary a column
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.delta.long_texts import has_long

_SHARED = 6  # rows that share a value on average: with fewer, a Parquet dictionary takes up to twice as long to make
_SAMPLES, _SAMPLED = 4, 512  # of the first row group: so many runs of so many rows show how often values repeat


def is_repeated(parts: Sequence[pa.Array]) -> bool:
    """True if a Parquet dictionary pays for a column: if on average at least `_SHARED` rows have the same value.

    `parts`: the column's values in the first row group. The number of different values is estimated from a sample: of
    n values taken from D different ones about n * n / (2 * D) are found again. A dictionary of values that are all
    different makes the file larger, and takes as long to make as all else.
    """
    if not parts or any(pa.types.is_dictionary(part.type) for part in parts):
        return True
    if any(map(has_long, parts)):
        return False  # long texts are not compared: each would be copied
    values = pa.chunked_array(parts)
    rows = len(values)
    if rows > _SAMPLED * _SAMPLES:
        begins = [rows * part // _SAMPLES for part in range(_SAMPLES)]
        values = pa.chunked_array([part for begin in begins for part in values.slice(begin, _SAMPLED).chunks])
    sampled = len(values) - values.null_count
    repeated = sampled - pc.count_distinct(values).as_py()
    return bool(2 * repeated >= sampled or 2 * repeated * rows >= _SHARED * sampled * sampled)


def with_dictionaries(schema: pa.Schema, batches: list[pa.RecordBatch]) -> pa.Schema:
    """The schema, with those columns as dictionaries that are dictionaries in all batches."""
    for place, column in enumerate(schema):
        if all(pa.types.is_dictionary(batch.column(place).type) for batch in batches):
            schema = schema.set(place, column.with_type(pa.dictionary(pa.int32(), column.type)))
    return schema


def one_table(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The batches as one table of this schema. Each dictionary column has one dictionary for all rows."""
    columns = []
    for place, column in enumerate(schema):
        parts = [batch.column(place) for batch in batches]
        parts = [values if values.type == column.type else _as_field(values, column) for values in parts]
        columns.append(pa.chunked_array(parts, column.type))
    return pa.Table.from_arrays(columns, schema=schema).unify_dictionaries()


def _as_field(values: pa.Array, field: pa.Field) -> pa.Array:
    if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(values.type):
        return values.dictionary_encode()
    return values.cast(field.type)
