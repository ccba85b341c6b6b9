"""Values of a data file as the table's types, nested ones too: fields by stored name, narrower types widened.

struct<a: int> of a file, struct<a: long, b: string> of the table ─▶ shaped ─▶ a as long, b NULL
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.delta.schema import MAPPING_ID
from lakemirror.engines.kernels.nested_types import stored_name
from lakemirror.engines.row_work import TargetColumn


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


def shaped(values: pa.Array, field: Field, kind: pa.DataType) -> pa.Array:
    """The values of a column or of a part of it, with the names and types of `kind`."""
    if isinstance(field.kind, str):
        return as_type(values, kind)
    nested = field.kind
    if nested["type"] == "struct":
        names = [child.name for child in values.type]
        children = []
        for each, wanted in zip(field.fields(), kind, strict=True):
            name = find_name(names, each.name)
            found = None if name is None else values.field(names.index(name))
            rows = pa.nulls(len(values), wanted.type) if found is None else shaped(found, each, wanted.type)
            children.append(rows)
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())
    if nested["type"] == "array":
        if not pa.types.is_list(values.type):
            values = values.cast(pa.list_(values.type.value_type))
        inner = shaped(values.values, field.part("elementType"), kind.value_type)
    else:
        entries = [
            shaped(values.keys, field.part("keyType"), kind.key_type),
            shaped(values.items, field.part("valueType"), kind.item_type),
        ]
        inner = pa.StructArray.from_arrays(entries, fields=[kind.key_field, kind.item_field])
    buffers = values.buffers()[:2]
    return pa.Array.from_buffers(kind, len(values), buffers, values.null_count, values.offset, [inner])


@dataclass(frozen=True)
class Field:
    """A column, or a part of one, as the source's files have it: its stored name, field id and Delta type."""

    name: str
    kind: Any
    number: int | None
    mapped: bool

    def fields(self) -> list[Field]:
        """The fields of a struct."""
        return [
            Field(
                stored_name(each, with_ids=self.mapped), each["type"],
                (each.get("metadata") or {}).get(MAPPING_ID) if self.mapped else None, self.mapped,
            )
            for each in self.kind["fields"]
        ]  # fmt: skip

    def part(self, key: str) -> Field:
        """The elements of an array, the keys or the values of a map."""
        return Field(key, self.kind[key], None, self.mapped)


def field_of(column: TargetColumn) -> Field:
    """A column as a field of the data files."""
    kind = json.loads(column.type) if column.type.startswith("{") else column.type
    return Field(column.physical_name, kind, column.field_id, column.field_id is not None)


def find_name(names: Sequence[str], wanted: str) -> str | None:
    """The name in a file of a column: the same, or the only one that differs in case alone."""
    if wanted in names:
        return wanted
    same = [name for name in names if name.lower() == wanted.lower()]
    return same[0] if len(same) == 1 else None
