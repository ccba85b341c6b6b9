"""The table's columns, and what a file does to them (contract section 6); pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from lakemirror.errors import TableError
from lakemirror.landing_zone.column_types import FileColumn, fits, widens

ROW_MARKER = "__rowMarker__"
INSERT, UPDATE, DELETE, UPSERT = 0, 1, 2, 4
"""The markers of the contract (section 3)."""

_DELTA_NAMES = {"smallint": "short", "int": "integer", "bigint": "long"}
_SQL_NAMES = {delta: sql for sql, delta in _DELTA_NAMES.items()} | {"byte": "tinyint"}
TYPE_CHANGES = "delta.typeChanges"
_REFUSED = set(" ,;{}()\n\t=")


@dataclass(frozen=True)
class Column:
    """A column of a mirrored table: the first spelling of its name, and its type as Spark SQL writes it."""

    name: str
    type: str


@dataclass(frozen=True)
class Rules:
    """How a table's columns may grow.

    `widen`: a column takes a file's wider type where nothing is lost. `map_names`: names that plain Delta refuses are
    held by column mapping. `reserved`: names, in lower case, that the table cannot have.
    """

    widen: bool = False
    map_names: bool = True
    reserved: frozenset[str] = frozenset()


def evolve(
    columns: Sequence[Column], file_columns: Sequence[FileColumn], file: str, rules: Rules | None = None
) -> tuple[Column, ...]:
    """The table's columns once this file is applied: the same, wider, or with new ones at the end.

    TableError: `columns-ambiguous`, `column-name-invalid`, `type-unsupported`, `type-changed`.
    """
    rules = rules or Rules()
    places = {column.name.lower(): place for place, column in enumerate(columns)}
    result = list(columns)
    seen: dict[str, str] = {}
    for found in file_columns:
        if found.name == ROW_MARKER:
            continue
        lower = found.name.lower()
        if lower in seen:
            raise TableError(
                "columns-ambiguous", f"{file}: columns {seen[lower]!r} and {found.name!r} differ in case alone",
                file=file, column=found.name,
            )  # fmt: skip
        seen[lower] = found.name
        if found.unsupported is not None:
            raise TableError(
                "type-unsupported", f"{file}: column {found.name!r}: {found.unsupported}", file=file, column=found.name
            )
        if found.table_type is None:
            continue
        if lower not in places:
            _check_name(found.name, file, rules)
            result.append(Column(found.name, found.table_type))
            continue
        column = result[places[lower]]
        if fits(found.table_type, column.type):
            continue
        if not (rules.widen and widens(column.type, found.table_type)):
            raise TableError(
                "type-changed",
                f"{file}: column {found.name!r} is {found.table_type} in this file and {column.type} in the table",
                file=file, column=found.name,
            )  # fmt: skip
        result[places[lower]] = Column(column.name, found.table_type)
    return tuple(result)


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


def is_widened(schema_string: str) -> bool:
    """True where a column of the `schemaString` has had another type."""
    return any(TYPE_CHANGES in field["metadata"] for field in json.loads(schema_string)["fields"])


def _check_name(name: str, file: str, rules: Rules) -> None:
    why = ""
    if not name:
        why = "Delta cannot hold a column without a name"
    elif name.lower() in rules.reserved:
        why = f"the change data feed has a column {name!r} of its own"
    elif needs_mapping(name) and not rules.map_names:
        why = f"a column named {name!r} needs column mapping, which a declared reader cannot read"
    if why:
        raise TableError("column-name-invalid", f"{file}: {why}", file=file, column=name)


def from_delta(schema_string: str) -> tuple[Column, ...]:
    """The columns of a Delta `schemaString`. A nested type, which no mirror makes, keeps its JSON form as type."""
    fields = json.loads(schema_string)["fields"]
    return tuple(
        Column(f["name"], _SQL_NAMES.get(f["type"], f["type"]) if isinstance(f["type"], str) else json.dumps(f["type"]))
        for f in fields
    )
