"""Which folder each table gets, and why one cannot get any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.zone import TableName
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.source_tables import SourceTable
from lakemirror.publisher.landing import checked_name

SCHEMA_FOLDER = ".schema"


def table_folders(
    tables: Iterable[SourceTable], options: CaptureOptions
) -> Mapping[tuple[str, str], TableName | TableError]:
    """For each table, by schema and name, the name of its folder; `capture-table-name` where it can have none.

    Two tables that differ by case alone, or only by their schema with `flat`, would be one Delta table: the older one
    keeps the name.
    """
    found: dict[tuple[str, str], TableName | TableError] = {}
    taken: dict[str, str] = {}
    for table in sorted(tables, key=lambda each: each.number):
        named = table.title
        wanted = options.renames.get(named) or options.renames.get(table.qualified) or table.name
        folder = TableName("" if options.flat else table.schema, wanted)
        problem = _problem(folder, named) or _met(named, folder, taken.get(str(folder).lower()))
        if problem is None:
            taken[str(folder).lower()] = named
        found[table.id] = problem or folder
    return found


def _problem(folder: TableName, named: str) -> TableError | None:
    for name, what in ((folder.schema, "schema"), (folder.table, "table")):
        try:
            checked_name(name, what)
        except LakemirrorError as error:
            return _error(named, error.message, "--flat leaves the schema out" if what == "schema" else "")
        if name.endswith(SCHEMA_FOLDER):
            return _error(named, f"{name!r} cannot be a {what} name: folders of schemas end like that", "")
    return None


def _met(named: str, folder: TableName, other: str | None) -> TableError | None:
    return None if other is None else _error(named, f"{other} has the folder {str(folder)!r} already", "")


def _error(named: str, why: str, instead: str) -> TableError:
    hint = f"Give it another name: --rename {named}=NAME"
    return TableError("capture-table-name", f"{named}: {why}", hint=f"{instead or hint}.", table=named)
