"""What a change file does to the columns of its table (contract section 6); pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakemirror.delta.schema import Column, needs_mapping
from lakemirror.engines.row_work import FILE, MARKER, ROW
from lakemirror.errors import TableError
from lakemirror.landing_zone.column_types import FileColumn, fits, widens
from lakemirror.landing_zone.row_markers import ROW_MARKER


@dataclass(frozen=True)
class Rules:
    """How a table's columns may grow.

    `widen`: a column takes a file's wider type where nothing is lost. `map_names`: names that plain Delta refuses are
    kept by column mapping. `reserved`: names, in lower case, that the table cannot have. `misspelt_marker`: True
    accepts a column whose name resembles `__rowMarker__` as an ordinary column.
    """

    widen: bool = False
    map_names: bool = True
    reserved: frozenset[str] = frozenset()
    misspelt_marker: bool = False


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
        place = places.get(lower)
        grown = evolved(None if place is None else result[place], found, file, rules)
        if grown is not None and place is None:
            result.append(grown)
        elif grown is not None and place is not None:
            result[place] = grown
    return tuple(result)


def evolved(column: Column | None, found: FileColumn, file: str, rules: Rules) -> Column | None:
    """One column of the table once this file is applied; `column` None where the table has none of this name.

    None for a new column that has no type yet. TableError `column-name-invalid`, `type-unsupported`, `type-changed`.
    """
    if found.unsupported is not None:
        raise TableError(
            "type-unsupported", f"{file}: column {found.name!r}: {found.unsupported}", file=file, column=found.name
        )
    if found.table_type is None:
        return column
    if column is None:
        _check_name(found.name, file, rules)
        return Column(found.name, found.table_type)
    if fits(found.table_type, column.type):
        return column
    if not (rules.widen and widens(column.type, found.table_type)):
        raise TableError(
            "type-changed",
            f"{file}: column {found.name!r} is {found.table_type} in this file and {column.type} in the table",
            file=file, column=found.name,
        )  # fmt: skip
    return Column(column.name, found.table_type)


def _check_name(name: str, file: str, rules: Rules) -> None:
    why, hint = "", None
    if not name:
        why = "Delta cannot hold a column without a name"
    elif name.lower() in (FILE, ROW, MARKER):
        why, hint = f"lakemirror uses the name {name!r} itself", _OTHER_NAME
    elif name.lower() in rules.reserved:
        why, hint = f"the change data feed has a column {name!r} of its own", _OTHER_NAME
    elif needs_mapping(name) and not rules.map_names:
        why = f"a column named {name!r} needs column mapping, which a declared reader cannot read"
    if why:
        raise TableError("column-name-invalid", f"{file}: {why}", file=file, column=name, hint=hint)


_OTHER_NAME = "Replace the file by one whose column has another name."
