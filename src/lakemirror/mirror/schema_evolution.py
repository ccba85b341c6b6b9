"""What change files and other writers do to the columns of a table (contract sections 6 and 10); pure.

    evolve               the columns after a change file
    key_properties       apply ─▶ property: name of each needed column ─▶ its name in the data files
    check_needed_columns look ─▶ has the table a column of that name, with that name in the data files? ─▶ else it stops

Needed are the key columns, those of the sequence, and those that say what is deleted and when a version holds.

Another writer can rename and drop columns once the table has column mapping. A column that was dropped and added again
has another name in the data files, and is NULL in all older rows. A key column that no change file has typed yet is not
in the property: it is NULL in all rows, and nobody has dropped it.

Other columns may go: a change file that still has one adds a new column, with a warning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakemirror.delta.protocol import MAPPING
from lakemirror.delta.schema import PHYSICAL_NAME, Column, fields_of, needs_mapping
from lakemirror.engines.row_work import PLACES
from lakemirror.errors import TableError
from lakemirror.landing_zone.column_types import FileColumn, becomes_text, fits, widens
from lakemirror.landing_zone.metadata import Warned
from lakemirror.landing_zone.row_markers import NEVER_COLUMNS, UNCHANGED, is_misspelt_names
from lakemirror.landing_zone.zoneless import NTZ, UNREADABLE, UTC, zone_of


@dataclass(frozen=True)
class ColumnRules:
    """How a table's columns may grow.

    `widen`: a column takes a file's wider type where nothing is lost. `map_names`: names that plain Delta refuses are
    kept by column mapping. `reserved`: names, in lower case, that the table cannot have. `misspelt_marker`: True
    accepts a column whose name resembles `__rowMarker__` as an ordinary column. `zoneless`: the setting, or
    `UNREADABLE`. `added`: the columns that lakemirror adds to this table, which no change file can have.
    """

    widen: bool = False
    map_names: bool = True
    reserved: frozenset[str] = frozenset()
    misspelt_marker: bool = False
    zoneless: str = UTC
    added: frozenset[str] = frozenset()


def evolve(
    columns: Sequence[Column], file_columns: Sequence[FileColumn], file: str, rules: ColumnRules | None = None
) -> tuple[Column, ...]:
    """The table's columns once this file is applied: the same, wider, or with new ones at the end.

    TableError: `columns-ambiguous`, `column-name-invalid`, `column-name-reserved`, `type-unsupported`, `type-changed`.
    """
    rules = rules or ColumnRules()
    indexes = {column.name.lower(): index for index, column in enumerate(columns)}
    result = list(columns)
    seen: dict[str, str] = {}
    for file_column in file_columns:
        if file_column.name in NEVER_COLUMNS:
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
        if rules.added:
            check_not_added(file_column.name, file, rules)
        index = indexes.get(lower)
        grown = evolved(None if index is None else result[index], file_column, file, rules)
        if grown is not None and index is None:
            result.append(grown)
        elif grown is not None and index is not None:
            result[index] = grown
    return tuple(result)


def check_not_added(name: str, file: str, rules: ColumnRules) -> None:
    """TableError `column-name-reserved` for the name of a column that lakemirror adds."""
    own = next((each for each in rules.added if each.lower() == name.lower()), None)
    if own is not None:
        message = f"{file}: column {name!r} has the name of the column {own!r}, which lakemirror adds to this table"
        raise TableError("column-name-reserved", message, file=file, column=name)


def evolved(column: Column | None, file_column: FileColumn, file: str, rules: ColumnRules) -> Column | None:
    """One column of the table once this file is applied; `column` None where the table has none of this name.

    None for a new column that has no type yet. TableError `column-name-invalid`, `type-unsupported`, `type-changed`,
    `partial-row-invalid`.
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


def _new(file_column: FileColumn, file: str, rules: ColumnRules) -> Column:
    assert file_column.table_type is not None
    if file_column.table_type != "timestamp_ntz" or rules.zoneless == NTZ:
        return Column(file_column.name, file_column.table_type, file_column.zone)
    if rules.zoneless == UNREADABLE:
        why = "would be timestamp_ntz, which a declared reader cannot read"
        hint = "Set `zoneless` to utc or a zone, or take the reader out of `readers`."
        raise TableError("type-unsupported", f"{file}: column {file_column.name!r} {why}", file=file, hint=hint)
    return Column(file_column.name, "timestamp", zone_of(rules.zoneless))


def _with_zone(column: Column, file_column: FileColumn, rules: ColumnRules) -> Column:
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


def _check_name(name: str, file: str, rules: ColumnRules) -> None:
    why, hint = "", None
    if is_misspelt_names(name):
        message = f"{file}: column {name!r} is almost {UNCHANGED}"
        raise TableError("partial-row-invalid", message, file=file, column=name)
    if not name:
        why, hint = "Delta cannot hold a column without a name", _OTHER_NAME
    elif "\0" in name:
        why, hint = f"readers cannot hold the NUL in the name {name!r}", _OTHER_NAME
    elif name.lower() in PLACES:
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


_ORDERED = ("smallint", "int", "bigint", "float", "double", "date", "timestamp", "timestamp_ntz", "string")


def check_sequence(
    file_columns: Sequence[FileColumn], columns: Sequence[Column], sequence: Sequence[str], file: str
) -> None:
    """A file with changes has every column of the sequence, of a type with an order. `columns`: the table's with it.

    TableError `sequence-missing`, `sequence-null`.
    """
    held = {column.name.lower(): column.arrow_type for column in file_columns}
    types = {column.name.lower(): column.type for column in columns}
    for name in sequence:
        kind, hint = types.get(name.lower()), None
        if name.lower() not in held:
            message = f"{file}: column {name!r} is the sequence of this table, and the file lacks it"
        elif kind is None:
            message = f"{file}, row 1: column {name!r} is NULL, and it is the sequence of this table"
            raise TableError("sequence-null", message, file=file, row=1, column=name)
        elif becomes_text(given := held[name.lower()]) or (kind not in _ORDERED and not kind.startswith("decimal")):
            message = f"{file}: column {name!r} is {given}; a sequence is of numbers, dates, timestamps or strings"
            hint = "Name another column as `sequence` in _metadata.json, or publish the column in one of these types."
        else:
            continue
        raise TableError("sequence-missing", message, file=file, column=name, hint=hint)


KEYS_PROPERTY = "lakemirror.keyColumns"
STORED_PROPERTY = "lakemirror.storedKeyColumns"


def key_properties(
    metadata: Mapping[str, Any], key_columns: Sequence[str], needed: Sequence[str] = ()
) -> dict[str, str]:
    """The properties of a table that name its key columns, and how they and other `needed` columns are stored;
    `metadata` with the columns after the apply."""
    held = stored_names(metadata)
    names = {name.lower(): name for name in held}
    stored = {names[key.lower()]: held[names[key.lower()]] for key in (*key_columns, *needed) if key.lower() in names}
    return {KEYS_PROPERTY: json.dumps(list(key_columns)), STORED_PROPERTY: json.dumps(stored)}


def stored_names(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The name of each column in the data files, by its name in the table."""
    mapped = (metadata.get("configuration") or {}).get(MAPPING, "none") != "none"
    return {
        field["name"]: (field.get("metadata") or {}).get(PHYSICAL_NAME, field["name"]) if mapped else field["name"]
        for field in fields_of(metadata["schemaString"])
    }


def missing_columns(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The needed columns that another writer renamed or dropped, each with the name that it has now; '' for none."""
    configuration = metadata.get("configuration") or {}
    held = stored_names(metadata)
    wanted = {key.lower(): (key, stored) for key, stored in _recorded(configuration, held).items()}
    is_mapped = configuration.get(MAPPING, "none") != "none"  # else it was dropped, and the files have other names now
    for name, stored in held.items():
        if name.lower() in wanted and (wanted[name.lower()][1] == stored or not is_mapped):
            del wanted[name.lower()]
    now = {stored: name for name, stored in held.items()}
    return {key: now.get(stored, "") for key, stored in wanted.values()}


def check_needed_columns(missing: Mapping[str, str], table: str, hint: str | None = None) -> None:
    """TableError `key-columns-missing-in-table` if a needed column is missing. `hint`: another than the usual one."""
    if not missing:
        return
    told = [f"{key!r} ({f'its values are in {now!r}' if now else 'dropped'})" for key, now in missing.items()]
    raise TableError(
        "key-columns-missing-in-table",
        f"{table}: another writer renamed or dropped columns that no change can be applied without: {', '.join(told)}",
        table=table,
        column=next(iter(missing)),
        hint=hint,
    )


def replaced_columns(
    before: Mapping[str, Any], now: Mapping[str, Any], after: Sequence[Column], file: str
) -> tuple[Warned, ...]:
    """A warning for each column that another writer renamed or dropped, and that an apply adds again.

    `before`: the table's metadata after our last apply, `now`: before this one; `after`: the columns after this one.
    `file`: a change file of this apply.
    """
    stored, held = stored_names(before), stored_names(now)
    lower, names = {name.lower() for name in held}, {stored: name for name, stored in held.items()}
    again = {column.name.lower() for column in after} - lower
    warnings = []
    for name, in_files in stored.items():
        if name.lower() in again:
            what = (
                f"renamed column {name!r} to {names[in_files]!r}" if in_files in names else f"dropped column {name!r}"
            )
            message = f"another writer {what}: a change file that still has it adds a new column, NULL in older rows"
            warnings.append(Warned("column-added-again", message, file))
    return tuple(warnings)


def _recorded(configuration: Mapping[str, str], held: Mapping[str, str]) -> dict[str, str]:
    """The needed columns and their names in data files as the last apply recorded them.

    Without that record, all declared key columns of a table with column mapping count as recorded, as they are now if
    they are there: without column mapping, nobody can rename or drop a column.
    """
    try:
        return dict(json.loads(configuration[STORED_PROPERTY]))
    except (KeyError, ValueError, TypeError):
        if configuration.get(MAPPING, "none") == "none":
            return {}
    spelled = {name.lower(): stored for name, stored in held.items()}
    return {key: spelled.get(key.lower(), key) for key in json.loads(configuration.get(KEYS_PROPERTY, "[]"))}
