"""The columns of a Delta table, and its `schemaString`. No I/O."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

_DELTA_NAMES = {"smallint": "short", "int": "integer", "bigint": "long"}
_SQL_NAMES = {delta: sql for sql, delta in _DELTA_NAMES.items()} | {"byte": "tinyint"}
TYPE_CHANGES = "delta.typeChanges"
ZONE = "lakemirror.zone"
MAPPING_ID, PHYSICAL_NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"
_REFUSED = set(" ,;{}()\n\t=")


class Column(NamedTuple):
    """A column of a table: its name, spelled as when the column was created, and its type as Spark SQL writes it.

    `zone`: in which times without a zone are read; empty until there was one. It is kept in the column's metadata.
    """

    name: str
    type: str
    zone: str = ""


def needs_mapping(name: str) -> bool:
    """True for a column name that Delta allows only with column mapping."""
    return bool(_REFUSED & set(name))


def needing_mapping(names: Iterable[str]) -> list[str]:
    """Those of these column names that Delta allows only with column mapping."""
    return [name for name in names if not _REFUSED.isdisjoint(name)]


def to_delta(columns: Sequence[Column], before: str = "") -> str:
    """The columns as a Delta `schemaString`. Every column is nullable.

    `before`: the table's current `schemaString`. The metadata of its columns is kept. A column with a new type, or a
    field of a struct, gets the record of the change that Delta's type widening requires.
    """
    known: dict[str, Mapping[str, Any]] = {field["name"]: field for field in fields_of(before)} if before else {}
    fields = []
    for column in columns:
        kind = json.loads(column.type) if column.type.startswith("{") else delta_name(column.type)
        field = known.get(column.name)
        if field is None:
            field = {"name": column.name, "type": kind, "nullable": True, "metadata": {}}
        elif field["type"] != kind:
            field = _of_type(field, kind)
        if column.zone:
            field = {**field, "metadata": {**field["metadata"], ZONE: column.zone}}
        fields.append(field)
    return json.dumps({"type": "struct", "fields": fields})


def _of_type(field: Mapping[str, Any], kind: Any) -> Mapping[str, Any]:
    """The field with another type, and the record of the change; of a struct, its fields with theirs."""
    before, more = field["type"], field.get("metadata") or {}
    if isinstance(before, str) and before != kind:
        changes = [*more.get(TYPE_CHANGES, []), {"toType": kind, "fromType": before}]
        return {**field, "type": kind, "metadata": {**more, TYPE_CHANGES: changes}}
    if isinstance(before, str) or "fields" not in before:
        return field
    kinds = {each["name"]: each["type"] for each in kind["fields"]}
    fields = [_of_type(each, kinds.get(each["name"], each["type"])) for each in before["fields"]]
    return {**field, "type": {**before, "fields": fields}}


@lru_cache(maxsize=32)
def fields_of(schema_string: str) -> tuple[Mapping[str, Any], ...]:
    """The top-level fields of a Delta `schemaString`, as its JSON has them. They are shared: do not change them."""
    return tuple(json.loads(schema_string)["fields"])


@lru_cache(maxsize=32)
def from_delta(schema_string: str) -> tuple[Column, ...]:
    """The columns of a Delta `schemaString`. The type of a nested column is its JSON text."""
    return tuple(
        Column(
            f["name"],
            sql_name(f["type"]) if isinstance(f["type"], str) else json.dumps(f["type"]),
            str((f.get("metadata") or {}).get(ZONE, "")),
        )
        for f in fields_of(schema_string)
    )


def delta_name(sql_name: str) -> str:
    """The name of a primitive type in a Delta schema, from its name in Spark SQL."""
    return _DELTA_NAMES.get(sql_name, sql_name)


def sql_name(delta_name: str) -> str:
    """The name of a primitive type in Spark SQL, from its name in a Delta schema."""
    return _SQL_NAMES.get(delta_name, delta_name)


def with_mapping(
    schema_string: str, highest: int, by_their_names: Collection[str] = (), seed: str = ""
) -> tuple[str, int]:
    """The schema with an id and a physical name for each column and each field of a struct, and the highest id.

    Those that have both keep them. `highest`: the highest id so far, 0 for none. `by_their_names`: columns that data
    files already hold under their logical names, as they do all fields of structs. `seed`: the table's id. The same
    schema and seed always give the same physical names, so the writer of data files and the committer agree without
    exchanging them. Source: Delta protocol, "Column Mapping".
    """
    schema = json.loads(schema_string)

    def number(field: dict[str, Any], in_files: str | None) -> None:
        nonlocal highest
        more = field.get("metadata") or {}
        if MAPPING_ID not in more:
            highest += 1
            name = in_files or f"col-{uuid.uuid5(uuid.NAMESPACE_OID, f'{seed}:{highest}')}"
            field["metadata"] = {**more, MAPPING_ID: highest, PHYSICAL_NAME: name}
        number_within(field["type"])

    def number_within(kind: Any) -> None:
        if isinstance(kind, str):
            return
        for part in ("elementType", "keyType", "valueType"):
            number_within(kind.get(part, ""))
        for field in kind.get("fields", ()):
            number(field, field["name"])

    for each in schema["fields"]:
        number(each, each["name"] if each["name"] in by_their_names else None)
    return json.dumps(schema), highest


def is_widened(schema_string: str) -> bool:
    """True if a column of the `schemaString`, or a field of a struct, had another type before."""
    return any(map(_is_widened, fields_of(schema_string)))


def _is_widened(field: Mapping[str, Any]) -> bool:
    within = () if isinstance(field["type"], str) else field["type"].get("fields", ())
    return TYPE_CHANGES in (field.get("metadata") or {}) or any(map(_is_widened, within))
