"""The columns of a Delta table, and its `schemaString`; pure."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass

_DELTA_NAMES = {"smallint": "short", "int": "integer", "bigint": "long"}
_SQL_NAMES = {delta: sql for sql, delta in _DELTA_NAMES.items()} | {"byte": "tinyint"}
TYPE_CHANGES = "delta.typeChanges"
MAPPING_ID, PHYSICAL_NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"
_REFUSED = set(" ,;{}()\n\t=")


@dataclass(frozen=True)
class Column:
    """A column of a mirrored table: the first spelling of its name, and its type as Spark SQL writes it."""

    name: str
    type: str


def needs_mapping(name: str) -> bool:
    """True for a column name that Delta holds by column mapping alone."""
    return bool(_REFUSED & set(name))


def to_delta(columns: Sequence[Column], before: str = "") -> str:
    """The columns as a Delta `schemaString`; every column is nullable.

    `before` is the table's so far: what it says of its columns stays, and where a type grows it is recorded as
    Delta's type widening wants it.
    """
    known = {field["name"]: field for field in json.loads(before)["fields"]} if before else {}
    fields = []
    for column in columns:
        type_ = _DELTA_NAMES.get(column.type, column.type)
        field = known.get(column.name)
        if field is None:
            field = {"name": column.name, "type": type_, "nullable": True, "metadata": {}}
        elif isinstance(field["type"], str) and field["type"] != type_:
            change = {"toType": type_, "fromType": field["type"]}
            changes = [*field["metadata"].get(TYPE_CHANGES, []), change]
            field = {**field, "type": type_, "metadata": {**field["metadata"], TYPE_CHANGES: changes}}
        fields.append(field)
    return json.dumps({"type": "struct", "fields": fields})


def from_delta(schema_string: str) -> tuple[Column, ...]:
    """The columns of a Delta `schemaString`. A nested type, which no mirror makes, keeps its JSON form as type."""
    fields = json.loads(schema_string)["fields"]
    return tuple(
        Column(f["name"], _SQL_NAMES.get(f["type"], f["type"]) if isinstance(f["type"], str) else json.dumps(f["type"]))
        for f in fields
    )


def with_mapping(
    schema_string: str, highest: int, by_their_names: Collection[str] = (), seed: str = ""
) -> tuple[str, int]:
    """The schema with an id and a physical name for each top-level column, and the highest id.

    Delta protocol, "Column Mapping". Columns that have both keep them. `highest`: the highest id so far, 0 for none.
    `by_their_names`: columns that data files already hold by their logical names. The same schema and `seed`, the
    table's id, give the same physical names: what writes the files and what commits them need not share them.
    """
    schema = json.loads(schema_string)
    fields = []
    for each in schema["fields"]:
        if MAPPING_ID not in each["metadata"]:
            highest += 1
            name = (
                each["name"]
                if each["name"] in by_their_names
                else f"col-{uuid.uuid5(uuid.NAMESPACE_OID, f'{seed}:{highest}')}"
            )
            each = {**each, "metadata": {**each["metadata"], MAPPING_ID: highest, PHYSICAL_NAME: name}}
        fields.append(each)
    return json.dumps({**schema, "fields": fields}), highest


def is_widened(schema_string: str) -> bool:
    """True where a column of the `schemaString` has had another type."""
    return any(TYPE_CHANGES in field["metadata"] for field in json.loads(schema_string)["fields"])
