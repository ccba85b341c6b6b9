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
from lakemirror.publisher.capture.source_tables import SourceTable, ValueOptions, is_wanted, value_options
from lakemirror.publisher.capture.table_folders import matches

_TABLES = """
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, COALESCE(ENGINE, ''), COALESCE(TABLE_ROWS, 0),
       COALESCE(CREATE_OPTIONS, '') LIKE '%%partitioned%%'
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


@dataclass(frozen=True)
class _Found:
    schema: str
    name: str
    is_versioned: bool
    engine: str
    rows: int
    is_partitioned: bool


def database_of(options: CaptureOptions) -> str:
    """The database that the address names; empty for all."""
    return urlsplit(options.source).path.strip("/")


def read_tables(session: MariaSession, options: CaptureOptions) -> tuple[SourceTable, ...]:
    """The tables that the options name, in order of their names; `input-invalid` for a type that is none."""
    only = (database_of(options),) * 2
    columns, keys, cascades = read_columns(session, *only), _grouped(session, _KEYS, only), dict[tuple[str, str], str]()
    logs_cascades = session.setting("innodb_native_foreign_keys") == "OFF"  # MySQL from 9.6 on
    for schema, name, constraint in [] if logs_cascades else session.all(_CASCADES, *only):
        cascades.setdefault((schema, name), constraint)
    values, found = value_options(options), []
    for number, (schema, name, kind, engine, rows, parts) in enumerate(session.all(_TABLES, *only), 1):
        if not is_wanted(schema, name, _qualified(schema, name), options):
            continue
        table = _Found(schema, name, kind != "BASE TABLE", engine, int(rows), parts == "1")
        key = tuple(keys.get((schema, name), ()))
        made = _table(table, columns.get((schema, name), ()), key, values)
        made = replace(made, number=number)
        problem = _problem(made, table, cascades.get((schema, name), ""), options)
        found.append(replace(made, problem=problem))
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


def _qualified(schema: str, name: str) -> str:
    return f"{quoted(schema)}.{quoted(name)}"


def _table(table: _Found, columns: Sequence[CatalogColumn], key: tuple[str, ...], values: ValueOptions) -> SourceTable:
    kept = [source_column(each.name, each.kind, values, each.name in key) for each in columns if not each.is_generated]
    left_out = tuple(each.name for each in columns if each.is_generated)
    return SourceTable(
        table.schema,
        table.name,
        _qualified(table.schema, table.name),
        0,
        tuple(kept),
        key,
        table.is_partitioned,
        table.rows,
        left_out,
        form=SourceForm(1, {each.name: _mark(each) for each in columns}, key),
    )


def _mark(column: CatalogColumn) -> int:
    """A number of a column that is another one where its definition is, or that of any other column."""
    said: Any = (column.name, column.kind.full, column.kind.charset, column.is_nullable, column.is_generated)
    return zlib.crc32(repr(said).encode())


def _problem(table: SourceTable, found: _Found, cascade: str, options: CaptureOptions) -> TableError | None:
    """Why the table cannot be captured, with the statement that helps."""
    named = f"{table.schema}.{table.name}"
    leave_out = f"leave it out: --exclude {named}"
    inserts_only = matches(table.schema, table.name, table.qualified, options.insert_only)

    def error(code: str, why: str, hint: str, column: str | None = None) -> TableError:
        return TableError(code, f"{named} {why}", hint=hint, table=named, column=column)

    if found.is_versioned:
        return error("capture-not-ready", "is system-versioned: its history is changed without being logged", leave_out)
    if found.engine.lower() not in ("innodb", "rocksdb", "tokudb"):
        statement = f"ALTER TABLE {table.qualified} ENGINE = InnoDB"
        why = f"is of the engine {found.engine or 'that is not there'}, which has no snapshots"
        return error("capture-not-ready", why, f"Run in the source: {statement}; or {leave_out}")
    if cascade:
        statement = f"ALTER TABLE {table.qualified} DROP FOREIGN KEY {quoted(cascade)}"
        why = f"has the foreign key {cascade}, which changes its rows without logging them"
        return error("capture-not-ready", why, f"Run in the source: {statement}, and make it RESTRICT; or {leave_out}")
    if not table.key and not inserts_only:
        statement = f"ALTER TABLE {table.qualified} ADD PRIMARY KEY (…)"
        hint = f"Run in the source: {statement}; or capture its inserts alone: --insert-only {named}"
        return error("capture-no-key", "has no primary key", hint)
    refused = next((column for column in table.columns if column.refused), None)
    if refused is not None:
        hint = f"Change the column's type in the source; or {leave_out}"
        return error("capture-value", f"cannot be kept: {refused.refused}", hint, refused.name)
    return None


def types_of(session: MariaSession, schema: str, table: str) -> dict[str, tuple[str, bool, str]]:
    """For each column the name of its type as events have it, whether old rows may have got a default, its type."""
    columns = read_columns(session, schema, schema).get((schema, table), ())
    return {each.name: (family(each.kind).upper(), each.has_default, each.kind.full) for each in columns}
