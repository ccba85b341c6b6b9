"""Which columns of a change file are read, and how each is converted to the table's type. Pure.

footer of the file, columns of the table ─▶ the same as planned? ─▶ names, types fit? ─▶ WantedColumns or Bad
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.engines.kernels.calendar_days import Calendar, calendar_of
from lakemirror.engines.kernels.convert_types import SAME_TYPE, Conversion
from lakemirror.engines.row_work import ChangeUnit, TargetColumn
from lakemirror.errors import Bad, LakemirrorError, Rejected
from lakemirror.landing_zone.column_types import FileColumn, file_columns, fits
from lakemirror.landing_zone.reserved_columns import NEVER_COLUMNS, ROW_MARKER, SOURCE_TIME, UNCHANGED


class Wanted(NamedTuple):
    """A top-level column of the file to be read: its position, its first leaf column and its number of leaf columns."""

    place: int
    first_leaf: int
    leaves: int
    column: FileColumn


@dataclass(frozen=True)
class WantedColumns:
    """The columns of a file to be read, in the file's order.

    `leaves`: the positions of their leaf columns. `at`: the position in `read` by the position in the file.
    `conversions`: by name of the table's column; a column that the file lacks has none. `marker`: the row marker's
    column, if the file has one. `absent_key`: a key column that the file lacks. `unchanged`: as `marker`. `time`: the
    source's time of each change, if it is asked for and the file has it.
    """

    read: tuple[Wanted, ...]
    leaves: tuple[int, ...]
    at: Mapping[int, int]
    conversions: Mapping[str, tuple[Wanted, Conversion]]
    marker: Wanted | None
    absent_key: str | None
    unchanged: Wanted | None = None
    time: tuple[Wanted, Conversion] | None = None


def wanted_columns(
    footer: pq.FileMetaData,
    unit: ChangeUnit,
    asked: Sequence[TargetColumn],
    key_columns: Sequence[str],
    *,
    with_time: bool = False,
) -> WantedColumns:
    """What to read of a file for these columns of the table. Bad if names are ambiguous or a type does not fit.
    `with_time`: the source's time of each change is needed.

    LakemirrorError `concurrent-commit` if the file has other columns than the planned ones.
    """
    found = _columns(footer, unit)
    _check_names(found, unit.name)
    held = {each.column.name.lower(): each for each in found if each.column.name not in NEVER_COLUMNS}
    marker = next((each for each in found if each.column.name == ROW_MARKER), None)
    unchanged = next((each for each in found if each.column.name == UNCHANGED), None)
    constants = {name.lower() for name, _ in unit.constants}
    absent_key = next((key for key in key_columns if key.lower() not in held.keys() | constants), None)
    conversions: dict[str, tuple[Wanted, Conversion]] = {}
    for column in asked:
        each = held.get(column.name.lower())
        if each is None or (each.column.table_type is None and each.column.unsupported is None):
            continue
        if each.column.unsupported is not None or not fits(each.column.table_type or "", column.type):
            raise _misfit(each.column, column, unit.name)
        conversions[column.name] = (each, _conversion(footer, each, column.type, column.zone))
    chosen = {each.place: each for each, _ in conversions.values()}
    time = _time(found, footer) if with_time else None
    chosen |= {each.place: each for each in (marker, unchanged, time and time[0]) if each is not None}
    if not chosen and found:
        chosen[found[0].place] = found[0]  # one column is needed to count the rows
    if marker is not None and not _can_mark(marker.column.arrow_type):
        raise _wrong(marker, unit.name, "row-marker-invalid", "an integer or a string")
    if time is not None and not fits(time[0].column.table_type or "", "timestamp"):
        raise _wrong(time[0], unit.name, "type-unsupported", "a timestamp")
    read = tuple(chosen[place] for place in sorted(chosen))
    return WantedColumns(
        read,
        tuple(leaf for each in read for leaf in range(each.first_leaf, each.first_leaf + each.leaves)),
        {each.place: at for at, each in enumerate(read)},
        conversions,
        marker,
        absent_key,
        unchanged,
        time,
    )


def _time(found: Sequence[Wanted], footer: pq.FileMetaData) -> tuple[Wanted, Conversion] | None:
    """The column of the source's times, of which those without a zone are UTC; None without one, or if all are NULL."""
    held = next((each for each in found if each.column.name == SOURCE_TIME), None)
    if held is None or (held.column.table_type is None and held.column.unsupported is None):
        return None
    return held, _conversion(footer, held, "timestamp", "UTC")


def _conversion(footer: pq.FileMetaData, each: Wanted, type_: str, zone: str) -> Conversion:
    """How a column of the file is converted to a column of the table of this type."""
    if each.column.arrow_type in SAME_TYPE:
        return Conversion(each.column, type_, Calendar(), zone=zone)
    leaves_of = range(each.first_leaf, each.first_leaf + each.leaves)
    int96 = any(footer.schema.column(leaf).physical_type == "INT96" for leaf in leaves_of)
    return Conversion(each.column, type_, calendar_of(footer.metadata), int96, zone)


def _columns(footer: pq.FileMetaData, unit: ChangeUnit) -> list[Wanted]:
    found, leaf = [], 0
    for place, column in enumerate(file_columns(footer)):
        found.append(Wanted(place, leaf, column.leaves, column))
        leaf += column.leaves
    planned = {each.name: each for each in unit.columns}
    if not all(_is_same(planned.get(each.column.name), each.column) for each in found):
        raise LakemirrorError("concurrent-commit", f"{unit.name} was replaced by another file", file=unit.name)
    return found


def _is_same(planned: FileColumn | None, found: FileColumn) -> bool:
    if planned is None or planned.encoding != found.encoding:
        return False
    return bool(planned.arrow_type == found.arrow_type) or str(planned.arrow_type) == str(found.arrow_type)


def _check_names(found: Collection[Wanted], file: str) -> None:
    seen: set[str] = set()
    for each in found:
        name = each.column.name
        same = name if name in NEVER_COLUMNS else name.lower()
        if same in seen:
            message = f"{file}: more than one column is named {name!r} if case is ignored"
            raise Bad(Rejected("columns-ambiguous", message, file, column=name))
        seen.add(same)


def _misfit(found: FileColumn, column: TargetColumn, file: str) -> Bad:
    if found.unsupported is not None:
        message = f"{file}: column {found.name!r}: {found.unsupported}"
        return Bad(Rejected("type-unsupported", message, file, column=found.name))
    message = f"{file}: column {found.name!r} is {found.table_type} in this file and {column.type} in the table"
    return Bad(Rejected("type-changed", message, file, column=found.name))


def _wrong(found: Wanted, file: str, code: str, needed: str) -> Bad:
    """The error of a column of ours that has a type which it cannot have."""
    name = found.column.name
    message = f"{file}: {name} is {found.column.arrow_type}; it must be {needed}"
    return Bad(Rejected(code, message, file, column=name))


def _can_mark(kind: pa.DataType) -> bool:
    """True for types that a row marker may have: integers, strings, and the null type for a column of NULLs."""
    while pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        kind = kind.value_type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view()
    return bool(pa.types.is_integer(kind) or is_text or pa.types.is_null(kind))
