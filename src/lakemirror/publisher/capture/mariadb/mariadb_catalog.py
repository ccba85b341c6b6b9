"""The tables of a MariaDB or MySQL server that a capture takes: columns, keys, and why a table cannot be captured.

A database of the server is what others call a schema. Nothing is changed.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from lakemirror.errors import TableError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.mariadb.mariadb_sessions import MariaSession, quoted
from lakemirror.publisher.capture.mariadb.mariadb_types import CatalogType, family, source_column
from lakemirror.publisher.capture.source_form import SourceForm
from lakemirror.publisher.capture.source_tables import SourceTable

_TABLES = """
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, COALESCE(ENGINE, ''), COALESCE(TABLE_ROWS, 0)
FROM information_schema.TABLES
WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')
  AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')
  AND (%s = '' OR TABLE_SCHEMA = %s)
ORDER BY 1, 2
"""
_COLUMNS = """
SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, COALESCE(CHARACTER_SET_NAME, ''), IS_NULLABLE,
       EXTRA, COLUMN_DEFAULT
FROM information_schema.COLUMNS WHERE %s = '' OR TABLE_SCHEMA = %s ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION
"""
_KEYS = """
SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.STATISTICS
WHERE INDEX_NAME = 'PRIMARY' AND (%s = '' OR TABLE_SCHEMA = %s) ORDER BY TABLE_SCHEMA, TABLE_NAME, SEQ_IN_INDEX
"""
_CASCADES = """
SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS
WHERE (DELETE_RULE NOT IN ('RESTRICT', 'NO ACTION') OR UPDATE_RULE NOT IN ('RESTRICT', 'NO ACTION'))
  AND (%s = '' OR CONSTRAINT_SCHEMA = %s) ORDER BY 1, 2, 3
"""


@dataclass(frozen=True)
class CatalogColumn:
    """A column as the catalog has it. `has_default`: rows that were there before the column may have a value."""

    name: str
    kind: CatalogType
    is_nullable: bool
    is_generated: bool
    has_default: bool


def database_of(options: CaptureOptions) -> str:
    """The database that the address names; empty for all."""
    return urlsplit(options.source).path.strip("/")


def read_tables(session: MariaSession, options: CaptureOptions) -> tuple[SourceTable, ...]:
    """The tables that the options name, in order of their names."""
    only = (database_of(options),) * 2
    columns, keys, cascades = read_columns(session, *only), _grouped(session, _KEYS, only), dict[tuple[str, str], str]()
    logs_cascades = session.setting("innodb_native_foreign_keys") == "OFF"  # MySQL from 9.6 on
    for schema, name, constraint in [] if logs_cascades else session.all(_CASCADES, *only):
        cascades.setdefault((schema, name), constraint)
    found = []
    for number, (schema, name, kind, engine, rows) in enumerate(session.all(_TABLES, *only), 1):
        named = (schema, name, f"{quoted(schema)}.{quoted(name)}")
        if options.names(*named):
            key = tuple(keys.get((schema, name), ()))
            table = _table(SourceTable(*named, number, (), key, int(rows)), columns.get((schema, name), ()), options)
            needs_key = not options.takes_inserts_only(*named)
            cascade = cascades.get((schema, name), "")
            problem = _unlogged(table, kind, engine, cascade) or _unkept(table, needs_key=needs_key)
            found.append(replace(table, problem=problem))
    return tuple(found)


def read_columns(session: MariaSession, *only: str) -> Mapping[tuple[str, str], Sequence[CatalogColumn]]:
    """The columns of each table. `only`: twice a database, or twice nothing."""
    found: dict[tuple[str, str], list[CatalogColumn]] = defaultdict(list)
    for schema, table, name, kind, full, charset, nullable, extra, default in session.all(_COLUMNS, *only):
        is_generated = "GENERATED" in extra.upper() and "DEFAULT_GENERATED" not in extra.upper()
        is_nullable = nullable == "YES"
        has_default = not is_nullable or default not in (None, "NULL")
        column = CatalogColumn(
            name, CatalogType(kind, full, charset, session.is_mariadb), is_nullable, is_generated, has_default
        )
        found[(schema, table)].append(column)
    return found


def _grouped(session: MariaSession, query: str, only: tuple[str, str]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for schema, table, name in session.all(query, *only):
        found[(schema, table)].append(name)
    return found


def _table(table: SourceTable, columns: Sequence[CatalogColumn], options: CaptureOptions) -> SourceTable:
    """The table with its columns, and the form that they give it."""
    kept = [each for each in columns if not each.is_generated]
    return replace(
        table,
        columns=tuple(source_column(each.name, each.kind, options, each.name in table.key) for each in kept),
        left_out=tuple(each.name for each in columns if each.is_generated),
        form=SourceForm(1, {each.name: _mark(each) for each in columns}, table.key),
    )


def _mark(column: CatalogColumn) -> int:
    """A number of a column that is another one where its definition is, or that of any other column."""
    said: Any = (column.name, column.kind.full, column.kind.charset, column.is_nullable, column.is_generated)
    return zlib.crc32(repr(said).encode())


def _unlogged(table: SourceTable, kind: str, engine: str, cascade: str) -> TableError | None:
    """Why the log does not have all changes of the table, with the statement that helps."""
    leave_out, alter = f"leave it out: --exclude {table.title}", f"Run in the source: ALTER TABLE {table.qualified}"
    if kind != "BASE TABLE":
        why, hint = "is system-versioned: its history is changed without being logged", leave_out
    elif engine.lower() not in ("innodb", "rocksdb", "tokudb"):
        why = f"is of the engine {engine or 'that is not there'}, which has no snapshots"
        hint = f"{alter} ENGINE = InnoDB; or {leave_out}"
    elif cascade:
        why = f"has the foreign key {cascade}, which changes its rows without logging them"
        hint = f"{alter} DROP FOREIGN KEY {quoted(cascade)}, and make it RESTRICT; or {leave_out}"
    else:
        return None
    return table.error("capture-not-ready", f"{table.title} {why}", hint)


def _unkept(table: SourceTable, *, needs_key: bool) -> TableError | None:
    """Why change files cannot hold the table, with what helps."""
    if not table.key and needs_key:
        statement = f"ALTER TABLE {table.qualified} ADD PRIMARY KEY (…)"
        hint = f"Run in the source: {statement}; or capture its inserts alone: --insert-only {table.title}"
        return table.error("capture-no-key", f"{table.title} has no primary key", hint)
    if (column := table.refused) is not None:
        hint = f"Change the column's type in the source; or leave it out: --exclude {table.title}"
        return table.error("capture-value", f"{table.title} cannot be kept: {column.refused}", hint, column.name)
    return None


def types_of(session: MariaSession, schema: str, table: str) -> dict[str, tuple[str, bool, str]]:
    """For each column the name of its type as events have it, whether old rows may have got a default, its type."""
    columns = read_columns(session, schema, schema).get((schema, table), ())
    return {each.name: (family(each.kind).upper(), each.has_default, each.kind.full) for each in columns}
