"""Arrow types of nested columns, and their leaves: the paths that Parquet files and Delta statistics name.

    {"x": struct<a: int, l: array<double>>} ─▶ stored_type     the Arrow type, with the names that data files have
                                            ─▶ parquet_paths   x.a, x.l.list.element
                                            ─▶ stored_leaves   (x, a), (x, l): statistics name fields of structs

Sources: Delta protocol, "Schema Serialization Format" and "Per-file Statistics"; Parquet format, "Nested Types".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.delta.schema import MAPPING_ID, PHYSICAL_NAME, sql_name
from lakemirror.engines.kernels.add_files import arrow_type
from lakemirror.engines.row_work import TargetColumn


class Leaf(NamedTuple):
    """A column, or a field of a struct, that has statistics. `path`: the names in data files. `type`: as in Spark SQL,
    JSON text for an array or a map.
    """

    path: tuple[str, ...]
    type: str

    @property
    def name(self) -> str:
        """A name that no other leaf has. It is the column's own name if the column is no struct."""
        return "\n".join(self.path)


def stored_type(type_: str, *, with_ids: bool = False) -> pa.DataType | None:
    """The Arrow type of a column in data files; None for a type that the kernels do not know.

    `type_`: as in Spark SQL, or the JSON text of a nested type. `with_ids`: fields of structs have the names and ids
    of column mapping.
    """
    return _kind(json.loads(type_), with_ids) if type_.startswith("{") else arrow_type(type_)


def stored_name(field: Mapping[str, Any], *, with_ids: bool) -> str:
    """The name that a field of a Delta schema has in data files."""
    name: str = (field.get("metadata") or {}).get(PHYSICAL_NAME, field["name"]) if with_ids else field["name"]
    return name


def parquet_paths(field: pa.Field, above: str = "") -> Iterator[str | None]:
    """The paths of a column's leaves in a Parquet schema; None in the place of a floating-point leaf."""
    path, kind = above + field.name, field.type
    if pa.types.is_struct(kind):
        for child in kind:
            yield from parquet_paths(child, f"{path}.")
    elif pa.types.is_list(kind):
        yield from parquet_paths(pa.field("element", kind.value_type), f"{path}.list.")
    elif pa.types.is_map(kind):
        yield from parquet_paths(pa.field("key", kind.key_type), f"{path}.key_value.")
        yield from parquet_paths(pa.field("value", kind.item_type), f"{path}.key_value.")
    else:
        yield None if pa.types.is_floating(kind) else path


def stored_leaves(columns: Sequence[TargetColumn]) -> list[Leaf]:
    """The leaves with statistics, in the order of the columns."""
    return [leaf for column in columns for leaf in _leaves((column.physical_name,), column)]


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


def _leaves(path: tuple[str, ...], column: TargetColumn) -> Iterator[Leaf]:
    if not column.type.startswith("{"):
        yield Leaf(path, column.type)
        return
    yield from _leaves_of(path, json.loads(column.type), with_ids=column.field_id is not None)


def _leaves_of(path: tuple[str, ...], kind: Any, *, with_ids: bool) -> Iterator[Leaf]:
    if isinstance(kind, str):
        yield Leaf(path, sql_name(kind))
    elif kind["type"] == "struct":
        for field in kind["fields"]:
            yield from _leaves_of((*path, stored_name(field, with_ids=with_ids)), field["type"], with_ids=with_ids)
    else:
        yield Leaf(path, json.dumps(kind))


__all__ = ["Leaf", "by_path", "leaves_of", "parquet_paths", "stored_leaves", "stored_name", "stored_type"]
