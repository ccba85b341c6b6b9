"""What a change file does to the columns of its table (contract section 6); pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakemirror.delta.schema import Column, needs_mapping
from lakemirror.engines.row_work import FILE, MARKER, ROW
from lakemirror.errors import TableError
from lakemirror.landing_zone.column_types import FileColumn, fits, widens
from lakemirror.landing_zone.row_markers import ROW_MARKER
from lakemirror.landing_zone.zoneless import NTZ, UNREADABLE, UTC, zone_of


@dataclass(frozen=True)
class Rules:
    """How a table's columns may grow.

    `widen`: a column takes a file's wider type where nothing is lost. `map_names`: names that plain Delta refuses are
    kept by column mapping. `reserved`: names, in lower case, that the table cannot have. `misspelt_marker`: True
    accepts a column whose name resembles `__rowMarker__` as an ordinary column. `zoneless`: the setting, or
    `UNREADABLE`.
    """

    widen: bool = False
    map_names: bool = True
    reserved: frozenset[str] = frozenset()
    misspelt_marker: bool = False
    zoneless: str = UTC


def evolve(
    columns: Sequence[Column], file_columns: Sequence[FileColumn], file: str, rules: Rules | None = None
) -> tuple[Column, ...]:
    """The table's columns once this file is applied: the same, wider, or with new ones at the end.

    TableError: `columns-ambiguous`, `column-name-invalid`, `type-unsupported`, `type-changed`.
    """
    rules = rules or Rules()
    indexes = {column.name.lower(): index for index, column in enumerate(columns)}
    result = list(columns)
    seen: dict[str, str] = {}
    for file_column in file_columns:
        if file_column.name == ROW_MARKER:
            continue
        lower = file_column.name.lower()
        if lower in seen:
            one, other = seen[lower], file_column.name
            how = (
                f"columns {one} and {other} differ in case alone"
                if one != other
                else f"the column {one} is there twice"
            )
            raise TableError("columns-ambiguous", f"{file}: {how}", file=file, column=other)
        seen[lower] = file_column.name
        index = indexes.get(lower)
        grown = evolved(None if index is None else result[index], file_column, file, rules)
        if grown is not None and index is None:
            result.append(grown)
        elif grown is not None and index is not None:
            result[index] = grown
    return tuple(result)


def evolved(column: Column | None, file_column: FileColumn, file: str, rules: Rules) -> Column | None:
    """One column of the table once this file is applied; `column` None where the table has none of this name.

    None for a new column that has no type yet. TableError `column-name-invalid`, `type-unsupported`, `type-changed`.
    """
    if file_column.unsupported is not None:
        raise TableError(
            "type-unsupported",
            f"{file}: column {file_column.name!r}: {file_column.unsupported}",
            file=file,
            column=file_column.name,
        )
    if file_column.table_type is None:
        return column
    if column is None:
        _check_name(file_column.name, file, rules)
        return _new(file_column, file, rules)
    if fits(file_column.table_type, column.type):
        return _with_zone(column, file_column, rules)
    wider = widens(column.type, file_column.table_type)
    if not (rules.widen and wider):
        raise TableError(
            "type-changed",
            f"{file}: column {file_column.name!r} is {file_column.table_type} in this file and {column.type} in the "
            "table",
            file=file, column=file_column.name,
            hint=_WIDEN if wider else _NTZ if column.type == "timestamp_ntz" else None,
        )  # fmt: skip
    return Column(column.name, file_column.table_type)


def _new(file_column: FileColumn, file: str, rules: Rules) -> Column:
    assert file_column.table_type is not None
    if file_column.table_type != "timestamp_ntz" or rules.zoneless == NTZ:
        return Column(file_column.name, file_column.table_type, file_column.zone)
    if rules.zoneless == UNREADABLE:
        why = "would be timestamp_ntz, which a declared reader cannot read"
        hint = "Set `zoneless` to utc or a zone, or take the reader out of `readers`."
        raise TableError("type-unsupported", f"{file}: column {file_column.name!r} {why}", file=file, hint=hint)
    return Column(file_column.name, "timestamp", zone_of(rules.zoneless))


def _with_zone(column: Column, file_column: FileColumn, rules: Rules) -> Column:
    """The column, with the zone of its first times without one: later ones are read in the same."""
    if column.type != "timestamp" or column.zone:
        return column
    zone = file_column.zone or (zone_of(rules.zoneless) if file_column.table_type == "timestamp_ntz" else "")
    return column._replace(zone=zone)


def zone_reader(columns: Sequence[Column], zoneless: str) -> Callable[[str], str]:
    """How delimited text for a table with these columns reads times without a zone: a `Zones.of`."""
    by_name = {column.name.lower(): column for column in columns}

    def zone(name: str) -> str:
        column = by_name.get(name.lower())
        if column is None:
            return NTZ if zoneless in (NTZ, UNREADABLE) else zone_of(zoneless)
        return NTZ if column.type == "timestamp_ntz" else column.zone or zone_of(zoneless)

    return zone


def _check_name(name: str, file: str, rules: Rules) -> None:
    why, hint = "", None
    if not name:
        why, hint = "Delta cannot hold a column without a name", _OTHER_NAME
    elif "\0" in name:
        why, hint = f"readers cannot hold the NUL in the name {name!r}", _OTHER_NAME
    elif name.lower() in (FILE, ROW, MARKER):
        why, hint = f"lakemirror uses the name {name!r} itself", _OTHER_NAME
    elif name.lower() in rules.reserved:
        why, hint = f"the change data feed has a column {name!r} of its own", _OTHER_NAME
    elif needs_mapping(name) and not rules.map_names:
        why = f"a column named {name!r} needs column mapping, which a declared reader cannot read"
    if why:
        raise TableError("column-name-invalid", f"{file}: {why}", file=file, column=name, hint=hint)


_WIDEN = (
    "Set on_type_change to widen, or replace the file by one with the table's type, or delete the table folder and "
    "publish it again."
)
_NTZ = (
    "The column holds times without a zone: publish them without one, or delete the table folder and publish it again."
)
_OTHER_NAME = "Replace the file by one whose column has another name."
