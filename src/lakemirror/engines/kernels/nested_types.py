"""Nested columns: their Arrow types, the paths that Parquet files have for them, and the leaves that have statistics.

    {"x": struct<a: int, l: array<double>>} ─▶ stored_type     the Arrow type, with the names that data files have
                                            ─▶ parquet_paths   x.a, x.l.list.element
                                            ─▶ indexed_leaves  (x, a), (x, l): those that the table's properties choose
                                            ─▶ leaves_of       a batch with one column a leaf
                                            ─▶ by_path         statistics, nested as the columns are

Sources: Delta protocol, "Schema Serialization Format", "Per-file Statistics"; Parquet format, "Nested Types".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.delta.schema import MAPPING_ID, PHYSICAL_NAME, sql_name
from lakemirror.engines.row_work import Target, TargetColumn
from lakemirror.landing_zone.column_types import arrow_type as column_arrow_type

_OTHER_TYPES = {"tinyint": pa.int8()}  # of columns that other writers added


def arrow_type(type_: str) -> pa.DataType | None:
    """The Arrow type of a column, whose type is given as in Spark SQL; None for a type that change files never have,
    and that lakemirror cannot write."""
    return _OTHER_TYPES.get(type_) or column_arrow_type(type_)


@lru_cache(1000)
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


class Leaf(NamedTuple):
    """A column, or a field of a struct, that is no struct itself. `path`: the names in data files. `type`: as in Spark
    SQL, JSON text for an array or a map. `logical`: the names in the table's schema.
    """

    path: tuple[str, ...]
    type: str
    logical: tuple[str, ...]

    @property
    def name(self) -> str:
        """A name that no other leaf has. It is the column's own name if the column is no struct."""
        return "\n".join(self.path)


def indexed_leaves(target: Target) -> list[Leaf]:
    """The leaves that have statistics in the log, in the order of the columns: those that the table's properties
    choose (`delta/statistics_columns.py`).
    """
    columns = [each for each in target.columns if each.stored and each.name not in target.partition_columns]
    leaves = [leaf for column in columns for leaf in _leaves(column)]
    chosen = target.statistics.chosen([leaf.logical for leaf in leaves])
    return [leaf for leaf, is_chosen in zip(leaves, chosen, strict=True) if is_chosen]


def leaves_of(batch: pa.RecordBatch, leaves: Sequence[Leaf]) -> pa.RecordBatch:
    """The leaves as columns, named by `Leaf.name`. A field of a NULL struct is NULL."""
    if all(len(leaf.path) == 1 for leaf in leaves):
        return batch
    values = []
    for leaf in leaves:
        held = batch.column(leaf.path[0])
        values.append(pc.struct_field(held, list(leaf.path[1:])) if len(leaf.path) > 1 else held)
    return pa.RecordBatch.from_arrays(values, names=[leaf.name for leaf in leaves])


def by_path(stats: Mapping[str, Any], leaves: Sequence[Leaf]) -> dict[str, Any]:
    """Delta's `stats`, from those by `Leaf.name`: values of a struct's fields are nested as the fields are."""
    if all(len(leaf.path) == 1 for leaf in leaves):
        return dict(stats)
    found = dict(stats)
    for kind in ("minValues", "maxValues", "nullCount"):
        nested: dict[str, Any] = {}
        for leaf in leaves:
            if leaf.name in stats[kind]:
                place = nested
                for step in leaf.path[:-1]:
                    place = place.setdefault(step, {})
                place[leaf.path[-1]] = stats[kind][leaf.name]
        found[kind] = nested
    return found


def stored_name(field: Mapping[str, Any], *, with_ids: bool) -> str:
    """The name that a field of a Delta schema has in data files."""
    name: str = (field.get("metadata") or {}).get(PHYSICAL_NAME, field["name"]) if with_ids else field["name"]
    return name


def _leaves(column: TargetColumn) -> Iterable[Leaf]:
    first = Leaf((column.physical_name,), column.type, (column.name,))
    if not column.type.startswith("{"):
        return (first,)
    return _leaves_of(first, json.loads(column.type), with_ids=column.field_id is not None)


def _leaves_of(above: Leaf, kind: Any, *, with_ids: bool) -> Iterator[Leaf]:
    if isinstance(kind, str):
        yield above._replace(type=sql_name(kind))
    elif kind["type"] == "struct":
        for field in kind["fields"]:
            path = (*above.path, stored_name(field, with_ids=with_ids))
            yield from _leaves_of(Leaf(path, "", (*above.logical, field["name"])), field["type"], with_ids=with_ids)
    else:
        yield above._replace(type=json.dumps(kind))
