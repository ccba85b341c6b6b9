"""The leaves of a table's columns: what Delta's statistics of a data file name.

    {"x": struct<a: int, l: array<double>>} ─▶ indexed_leaves   (x, a), (x, l): those that the table's properties choose
                                            ─▶ leaves_of        a batch with one column a leaf
                                            ─▶ by_path          statistics, nested as the columns are

Source: Delta protocol, "Per-file Statistics".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.delta.schema import PHYSICAL_NAME, sql_name
from lakemirror.engines.row_work import Target, TargetColumn


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


__all__ = ["Leaf", "by_path", "indexed_leaves", "leaves_of", "stored_name"]
