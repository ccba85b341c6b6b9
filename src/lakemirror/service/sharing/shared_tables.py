"""What the service shares: shares are workspaces, schemas are databases, tables are mirrored tables.

    workspace sales ─▶ share sales     database shop, table orders           ─▶ sales.shop.orders
                                       database shop, table orders in crm    ─▶ sales.shop.crm.orders

Names are found in any case. A schema of a database has two spellings, `shop.crm` and `shop:crm`: some clients split
the complete name of a table at its dots.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from lakemirror.delta.log_folder import has_log, tables_below
from lakemirror.mirror.table_log import is_for_late_changes
from lakemirror.service.interface import Caller, DatabaseEntry, Registry, WorkspaceEntry
from lakemirror.service.refused import Refused
from lakemirror.storage import Place
from lakemirror.storage.place import folders_in

_TABLES = "Tables"


@dataclass(frozen=True)
class SharedTable:
    """One table that is shared. `path`: of its folder, relative to the database's folder."""

    share: str
    schema: str
    name: str
    database: DatabaseEntry
    path: str

    @property
    def folder(self) -> Place:
        return self.database.folder / self.path

    @property
    def full_name(self) -> str:
        return f"{self.share}.{self.schema}.{self.name}"


def readable_shares(registry: Registry, caller: Caller) -> list[WorkspaceEntry]:
    """The workspaces that the caller may read, by name."""
    found = (each for each in registry.workspaces() if caller.may(each.name, "read"))
    return sorted(found, key=lambda each: each.name)


def share_named(registry: Registry, caller: Caller, name: str) -> WorkspaceEntry:
    """The workspace of this name. Refused 403 without a role on it, whether it exists or not; 404."""
    found = registry.workspace(name)
    if not caller.may(found.name if found else "*", "read"):
        raise Refused(403, "InsufficientPrivileges", f"{caller.name} may not read this share.")
    if found is None:
        raise Refused(404, "ShareNotFound", f"There is no share {name[:128]}.")
    return found


def schemas_of(registry: Registry, share: WorkspaceEntry) -> list[str]:
    """The names of the share's schemas, sorted. A database without tables is one."""
    names: set[str] = set()
    for database in registry.databases(share):
        names |= {table.schema for table in _tables_of(share, database)} or {database.display_name}
    return sorted(names)


def tables_of_share(registry: Registry, share: WorkspaceEntry) -> list[SharedTable]:
    """All tables of the share, by schema and name."""
    found = (table for database in registry.databases(share) for table in _tables_of(share, database))
    return sorted(found, key=lambda table: (table.schema, table.name))


def tables_in(registry: Registry, share: WorkspaceEntry, schema: str) -> list[SharedTable]:
    """The tables of one schema, by name. Refused 404 if there is no such schema."""
    named = [database for database in registry.databases(share) if _is_in(schema, database.display_name)]
    wanted = _plain(schema)
    found = [table for database in named for table in _tables_of(share, database) if _plain(table.schema) == wanted]
    if not found and wanted not in {_plain(database.display_name) for database in named}:
        raise Refused(404, "SchemaNotFound", f"There is no schema {schema[:128]} in share {share.name}.")
    return sorted(found, key=lambda table: table.name)


def table_named(registry: Registry, share: WorkspaceEntry, schema: str, name: str) -> SharedTable:
    """The table of this name. Refused 404; 400 where two tables share it."""
    found = [
        each
        for database in registry.databases(share)
        if _is_in(schema, database.display_name)
        for each in tables_at(share, database, _plain(schema)[len(database.display_name) + 1 :], name)
    ]
    if len(found) > 1:
        found = [each for each in found if each.name == name and each.schema == _dotted(schema)] or found
    if ":" in schema:
        found = [each for each in found if _is_spelled(schema, each)]
    if not found:
        tables_in(registry, share, schema)  # says if there is no such schema
        raise Refused(404, "TableNotFound", f"There is no table {name[:128]} in schema {schema[:128]}.")
    if len(found) > 1:
        message = (
            f"Two tables are named {schema[:128]}.{name[:128]}. For one in a schema of a database: DATABASE:SCHEMA."
        )
        raise Refused(400, "TableAmbiguous", message)
    return found[0]


def tables_at(share: WorkspaceEntry, database: DatabaseEntry, inner: str, name: str) -> list[SharedTable]:
    """The tables of this name in a database, or in its schema `inner`. No other table is looked at, of thousands."""
    folders = [database.folder / _TABLES]
    if inner:
        folders = [each for each in _folders_named(folders[0], _plain(inner)) if not has_log(each)]
    found = (table for folder in folders for table in _folders_named(folder, _plain(name)) if has_log(table))
    return [each for folder in found for each in _shared(share, database, folder)]


def _folders_named(folder: Place, name: str) -> list[Place]:
    with contextlib.suppress(OSError):
        return [each for each in folders_in(folder) if _plain(each.name) == name and each.name[0] not in "_."]
    return []


def _is_spelled(schema: str, table: SharedTable) -> bool:
    """True if `database:schema` is this table's: a database's name may have dots, but no colon."""
    database = schema.partition(":")[0]
    return table.database.display_name.lower() == database.lower()


def _dotted(schema: str) -> str:
    return schema.replace(":", ".")


def _plain(schema: str) -> str:
    return _dotted(schema).lower()


def _is_in(schema: str, database: str) -> bool:
    given, name = _plain(schema), database.lower()
    return given == name or given.startswith(f"{name}.")


def _tables_of(share: WorkspaceEntry, database: DatabaseEntry) -> Iterator[SharedTable]:
    for folder in tables_below(database.folder / _TABLES):
        yield from _shared(share, database, folder)


def _shared(share: WorkspaceEntry, database: DatabaseEntry, folder: Place) -> Iterator[SharedTable]:
    """The table of this folder; none for a table that is not shared."""
    parts = PurePosixPath(str(folder).removeprefix(f"{database.folder / _TABLES}/")).parts
    if 1 <= len(parts) <= 2 and not is_for_late_changes(str(folder)):
        schema = ".".join([database.display_name, *parts[:-1]])
        yield SharedTable(share.name, schema, parts[-1], database, "/".join([_TABLES, *parts]))
