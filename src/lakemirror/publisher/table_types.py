"""The types of a table's columns, as its change files tell, and rows brought into these types (contract, section 6).

    newest file, with a note of the columns it lacks ─▶ types of before ─▶ rows: as they are, cast exactly, or refused

What fits into a column, and what may widen it, the engine decides by the same functions: `landing_zone.column_types`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.column_types import fits, table_type, widens
from lakemirror.landing_zone.row_markers import NEVER_COLUMNS
from lakemirror.landing_zone.zoneless import NTZ
from lakemirror.publisher.arrow_input import Types
from lakemirror.publisher.exact_values import Refused, cast_exactly, is_number
from lakemirror.publisher.row_readers import converted_rows

NOTE = "lakemirror.columns"  # in a file's footer: columns of the table that the file lacks, or holds in narrower types


def after(before: Types, schema: pa.Schema) -> dict[str, pa.DataType]:
    """The types of the table's columns once a file with this schema is published."""
    known, spelled = dict(before), {name.lower(): name for name in before}
    for field in schema:
        if field.name in NEVER_COLUMNS or not _has_place(field.type):
            continue
        name = spelled.setdefault(field.name.lower(), field.name)
        known[name] = field.type if name not in known else wider(known[name], field.type)
    return known


def wider(before: pa.DataType, given: pa.DataType) -> pa.DataType:
    """The type of a column of before once rows of another type are published: a wider one, else the same."""
    return given if _widens(before, given) else before


def note(types: Types, schema: pa.Schema) -> str:
    """What a file's footer says of the table beyond the file's own columns."""
    own = {field.name: field.type for field in schema}
    return base64.b64encode(
        pa.schema([(name, kind) for name, kind in types.items() if own.get(name) != kind]).serialize()
    ).decode()


def read_note(metadata: Mapping[bytes, bytes] | None) -> pa.Schema | None:
    """The columns that a footer notes; None where the file is another program's."""
    found = (metadata or {}).get(NOTE.encode())
    return None if found is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found)))


def fitted(
    reader: pa.RecordBatchReader, before: Types, declared: Iterable[str], may_widen: Callable[[], bool], table: str,
    zoneless: str = "",
) -> pa.RecordBatchReader:  # fmt: skip
    """The rows as the table's columns take them: what does not fit by its type is cast, value by value exactly.

    `declared`: columns whose type the user names; theirs is not cast. `may_widen`: whether the engine widens columns.
    `zoneless`: what times without a zone are. Unless they are `ntz`, instants go beside them: the engine reads both
    as instants by default.
    `type-changed` with the row where a value does not fit.
    """
    known = {name.lower(): kind for name, kind in before.items()}
    named = {name.lower() for name in declared}
    fields: list[pa.Field] = []
    for field in reader.schema:
        published = None if field.name in NEVER_COLUMNS else known.get(field.name.lower())
        if (
            published is None
            or _fits(field.type, published)
            or (zoneless != NTZ and (table_type(field.type), table_type(published)) == ("timestamp", "timestamp_ntz"))
            or (_widens(published, field.type) and may_widen())
        ):
            fields.append(field)
        elif field.name.lower() in named:
            raise changed(table, field.name, published, field.type)
        else:
            fields.append(field.with_type(published))
    schema = pa.schema(fields)
    if schema.equals(reader.schema):
        return reader

    def convert(batch: pa.RecordBatch, rows: int) -> list[pa.Array]:
        return [in_type(array, field, table, rows) for array, field in zip(batch.columns, schema, strict=True)]

    return converted_rows(reader, schema, convert)


def in_type(array: Any, field: pa.Field, table: str, rows_before: int = 0) -> Any:
    """The values in the column's type of before; `type-changed` with the first that has no place in it."""
    given = array.type
    if given == field.type:
        return array
    if array.null_count == len(array):
        return pa.nulls(len(array), field.type)
    whole = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if not (_fits(given, field.type) or (is_number(given) and is_number(field.type))):
        place = whole.is_valid().index(True).as_py()
        raise changed(table, field.name, field.type, given, rows_before + place + 1)
    try:
        return cast_exactly(whole, field.type)
    except Refused as refused:
        row = rows_before + refused.place + 1
        raise changed(table, field.name, field.type, given, row, refused.reason) from refused


def changed(
    table: str, column: str, before: pa.DataType, given: pa.DataType, row: int | None = None, reason: str = ""
) -> LakemirrorError:
    """`type-changed`, with the ways out that are there for these two types."""
    where = f"row {row}, column {column}" if row is not None else f"column {column}"
    widen = "set on_type_change to widen in mirroring.json; or " if _widens(before, given) else ""
    return LakemirrorError(
        "type-changed",
        f"{table}: {where}: it was published as {before}, now it is {given}{reason and ': '}{reason}",
        table=table,
        column=column,
        row=row,
        hint=f"Give the column its former type; or {widen}recreate the table: table.recreate(), or --recreate.",
    )


def _has_place(kind: pa.DataType) -> bool:
    """False for columns that a table does not have: of the null type, or of one that no table can hold."""
    try:
        return table_type(kind) is not None
    except LakemirrorError:
        return False


def _fits(given: pa.DataType, before: pa.DataType) -> bool:
    one, other = table_type(given), table_type(before)
    return one is None or (other is not None and fits(one, other))


def _widens(before: pa.DataType, given: pa.DataType) -> bool:
    one, other = table_type(before), table_type(given)
    return one is not None and other is not None and widens(one, other)
