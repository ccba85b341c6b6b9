"""The table's columns, and what a file does to them (contract section 6); pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from lakemirror.errors import TableError
from lakemirror.landing_zone.column_types import FileColumn, fits

ROW_MARKER = "__rowMarker__"

_DELTA_NAMES = {"smallint": "short", "int": "integer", "bigint": "long"}
_SQL_NAMES = {delta: sql for sql, delta in _DELTA_NAMES.items()} | {"byte": "tinyint"}
_REFUSED = set(" ,;{}()\n\t=")


@dataclass(frozen=True)
class Column:
    """A column of a mirrored table: the first spelling of its name, and its type as Spark SQL writes it."""

    name: str
    type: str


def evolve(columns: Sequence[Column], file_columns: Sequence[FileColumn], file: str) -> tuple[Column, ...]:
    """The table's columns once this file is applied: the same, or with new ones at the end.

    TableError: `columns-ambiguous`, `column-name-invalid`, `type-unsupported`, `type-changed`.
    """
    known = {column.name.lower(): column for column in columns}
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
        column = known.get(lower)
        if column is None:
            if not found.name or _REFUSED & set(found.name):
                raise TableError(
                    "column-name-invalid", f"{file}: Delta cannot hold a column named {found.name!r}",
                    file=file, column=found.name,
                )  # fmt: skip
            result.append(Column(found.name, found.table_type))
        elif not fits(found.table_type, column.type):
            raise TableError(
                "type-changed",
                f"{file}: column {found.name!r} is {found.table_type} in this file and {column.type} in the table",
                file=file, column=found.name,
            )  # fmt: skip
    return tuple(result)


def to_delta(columns: Sequence[Column]) -> str:
    """The columns as a Delta `schemaString`; every column is nullable."""
    fields = [
        {"name": c.name, "type": _DELTA_NAMES.get(c.type, c.type), "nullable": True, "metadata": {}} for c in columns
    ]
    return json.dumps({"type": "struct", "fields": fields})


def from_delta(schema_string: str) -> tuple[Column, ...]:
    """The columns of a Delta `schemaString`. A nested type, which no mirror makes, keeps its JSON form as type."""
    fields = json.loads(schema_string)["fields"]
    return tuple(
        Column(f["name"], _SQL_NAMES.get(f["type"], f["type"]) if isinstance(f["type"], str) else json.dumps(f["type"]))
        for f in fields
    )
