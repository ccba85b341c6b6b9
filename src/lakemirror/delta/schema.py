"""The columns of a Delta table, and its `schemaString`; pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

_DELTA_NAMES = {"smallint": "short", "int": "integer", "bigint": "long"}
_SQL_NAMES = {delta: sql for sql, delta in _DELTA_NAMES.items()} | {"byte": "tinyint"}
TYPE_CHANGES = "delta.typeChanges"
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


def is_widened(schema_string: str) -> bool:
    """True where a column of the `schemaString` has had another type."""
    return any(TYPE_CHANGES in field["metadata"] for field in json.loads(schema_string)["fields"])
