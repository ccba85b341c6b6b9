"""Arrow types of nested columns, and the paths that Parquet files have for them.

    {"x": struct<a: int, l: array<double>>} ─▶ stored_type     the Arrow type, with the names that data files have
                                            ─▶ parquet_paths   x.a, x.l.list.element

Sources: Delta protocol, "Schema Serialization Format"; Parquet format, "Nested Types".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lakemirror.delta.schema import MAPPING_ID, sql_name
from lakemirror.engines.kernels.leaves import stored_name
from lakemirror.landing_zone.column_types import arrow_type as column_arrow_type

_OTHER_TYPES = {"tinyint": pa.int8()}  # of columns that other writers added


def arrow_type(type_: str) -> pa.DataType | None:
    """The Arrow type of a column, whose type is given as in Spark SQL; None for a type that change files never have,
    and that lakemirror cannot write."""
    return _OTHER_TYPES.get(type_) or column_arrow_type(type_)


def stored_type(type_: str, *, with_ids: bool = False) -> pa.DataType | None:
    """The Arrow type of a column in data files; None for a type that the kernels do not know.

    `type_`: as in Spark SQL, or the JSON text of a nested type. `with_ids`: fields of structs have the names and ids
    of column mapping.
    """
    return _kind(json.loads(type_), with_ids) if type_.startswith("{") else arrow_type(type_)


def parquet_paths(field: pa.Field, above: str = "") -> list[str | None]:
    """The paths of a column's leaves in a Parquet schema; None in the place of a floating-point leaf."""
    path, kind = above + field.name, field.type
    if pa.types.is_struct(kind):
        return [leaf for child in kind for leaf in parquet_paths(child, f"{path}.")]
    if pa.types.is_list(kind):
        return parquet_paths(pa.field("element", kind.value_type), f"{path}.list.")
    if pa.types.is_map(kind):
        keys = parquet_paths(pa.field("key", kind.key_type), f"{path}.key_value.")
        return keys + parquet_paths(pa.field("value", kind.item_type), f"{path}.key_value.")
    return [None if pa.types.is_floating(kind) else path]


def _kind(kind: Any, with_ids: bool) -> pa.DataType | None:
    if isinstance(kind, str):
        return arrow_type(sql_name(kind))
    if kind["type"] == "struct":
        fields = [_field(each, with_ids) for each in kind["fields"]]
        known = [field for field in fields if field is not None]
        return pa.struct(known) if known and len(known) == len(fields) else None
    if kind["type"] == "array":
        element = _kind(kind["elementType"], with_ids)
        return None if element is None else pa.list_(pa.field("element", element))
    if kind["type"] == "map":
        key, value = _kind(kind["keyType"], with_ids), _kind(kind["valueType"], with_ids)
        return None if key is None or value is None else pa.map_(key, value)
    return None


def _field(field: Mapping[str, Any], with_ids: bool) -> pa.Field | None:
    kind = _kind(field["type"], with_ids)
    if kind is None:
        return None
    number = (field.get("metadata") or {}).get(MAPPING_ID) if with_ids else None
    metadata = None if number is None else {"PARQUET:field_id": str(number)}
    return pa.field(stored_name(field, with_ids=with_ids), kind, metadata=metadata)


__all__ = ["arrow_type", "parquet_paths", "stored_type"]
