"""The tables of a SQL Server database that a capture takes: columns, keys, capture instances, and what is missing.

A table's changes are in one or two change tables; its columns are those of the newest. Nothing is changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from lakemirror.errors import TableError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.source_form import SourceForm
from lakemirror.publisher.capture.source_tables import SourceTable
from lakemirror.publisher.capture.sqlserver.log_positions import position_of
from lakemirror.publisher.capture.sqlserver.sqlserver_sessions import SqlServerSession, quoted, text
from lakemirror.publisher.capture.sqlserver.sqlserver_types import TypeName, source_column

_TABLES = """
SELECT s.name, t.name, t.object_id,
       COALESCE((SELECT SUM(p.rows) FROM sys.partitions p WHERE p.object_id = t.object_id AND p.index_id IN (0, 1)), 0),
       HAS_PERMS_BY_NAME(QUOTENAME(s.name) + '.' + QUOTENAME(t.name), 'OBJECT', 'SELECT'), USER_NAME()
FROM sys.tables t JOIN sys.schemas s ON s.schema_id = t.schema_id
WHERE t.is_ms_shipped = 0 AND s.name <> 'cdc' ORDER BY 1, 2
"""
_COLUMNS = """
SELECT c.object_id, c.name, c.column_id, c.max_length, c.precision, c.scale, c.is_computed,
       CASE WHEN c.system_type_id = 240 THEN TYPE_NAME(c.user_type_id) ELSE TYPE_NAME(c.system_type_id) END
FROM sys.columns c JOIN sys.tables t ON t.object_id = c.object_id ORDER BY c.object_id, c.column_id
"""
_KEYS = """
SELECT i.object_id, c.name FROM sys.indexes i
JOIN sys.index_columns x ON x.object_id = i.object_id AND x.index_id = i.index_id
JOIN sys.columns c ON c.object_id = x.object_id AND c.column_id = x.column_id
WHERE i.is_primary_key = 1 AND x.key_ordinal > 0 ORDER BY i.object_id, x.key_ordinal
"""
_INSTANCES = """
SELECT t.source_object_id, CONVERT(varchar(22), t.start_lsn, 2), c.column_name
FROM cdc.change_tables t JOIN cdc.captured_columns c ON c.object_id = t.object_id
WHERE t.start_lsn IS NOT NULL ORDER BY t.source_object_id, t.start_lsn, c.column_ordinal
"""


@dataclass(frozen=True)
class Captured:
    """What change tables hold of one table. `oldest`: from which position on. `columns`: of the newest."""

    oldest: int
    newest: int
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Column:
    """A column as the catalog has it."""

    name: str
    number: int
    kind: TypeName
    is_computed: bool


def has_change_tables(session: SqlServerSession) -> bool:
    """True if change data capture is on for the database."""
    return session.one("SELECT is_cdc_enabled FROM sys.databases WHERE name = DB_NAME()") == ("1",)


def read_captured(session: SqlServerSession) -> Mapping[int, Captured]:
    """What change tables hold, by the number of the table."""
    found: dict[int, Captured] = {}
    for number, start, column in session.all(_INSTANCES) if has_change_tables(session) else ():
        position, known = position_of(str(start)), found.get(int(str(number)))
        if known is None or position > known.newest:
            known = Captured(position if known is None else known.oldest, position, ())
        found[int(str(number))] = replace(known, columns=(*known.columns, str(column)))
    return found


def read_tables(session: SqlServerSession, options: CaptureOptions) -> tuple[SourceTable, ...]:
    """The tables that the options name, in order of their names."""
    captured, columns, keys = read_captured(session), read_columns(session), defaultdict[int, list[str]](list)
    for number, name in session.all(_KEYS):
        keys[int(str(number))].append(str(name))
    found = []
    for schema, name, object_id, rows, readable, user in session.all(_TABLES):
        place, named = int(str(object_id)), (str(schema), str(name), _qualified(str(schema), str(name)))
        if options.names(*named):
            held, key = captured.get(place), tuple(keys.get(place, ()))
            given = SourceTable(*named, place, (), key, int(float(str(rows))))
            table = _table(given, columns.get(place, ()), held)
            problem = _unlogged(table, held, options) or _unkept(table, "" if readable == "1" else str(user))
            found.append(replace(table, problem=problem))
    return tuple(found)


def read_columns(session: SqlServerSession) -> Mapping[int, tuple[Column, ...]]:
    """The columns of each table, by its number."""
    found: dict[int, tuple[Column, ...]] = defaultdict(tuple)
    for table, name, number, length, precision, scale, computed, kind in session.all(_COLUMNS):
        sizes = (int(str(each)) for each in (length, precision, scale))
        column = Column(str(name), int(str(number)), TypeName(str(kind), *sizes), computed == "1")
        found[int(str(table))] += (column,)
    return found


def types_of(session: SqlServerSession, schema: str, table: str) -> dict[str, tuple[str, bool, str]]:
    """For each column no name of its type, as aliases hide it, that old rows may have got a value, and its type.

    Until a capture instance has a new column, nobody logs what is written to it.
    """
    row = session.one("SELECT OBJECT_ID(?)", _qualified(schema, table))
    columns = read_columns(session).get(int(row[0]), ()) if row is not None and row[0] else ()
    return {each.name: ("", True, each.kind.full) for each in columns}


def _qualified(schema: str, name: str) -> str:
    return f"{quoted(schema)}.{quoted(name)}"


def _table(table: SourceTable, columns: tuple[Column, ...], held: Captured | None) -> SourceTable:
    """The table with the columns that its change table has, and the form that they give it."""
    logged = () if held is None else held.columns
    kept = [each for each in columns if each.name in logged and not each.is_computed]
    numbers = {each.name: each.number for each in kept}
    return replace(
        table,
        columns=tuple(source_column(each.name, each.kind, each.name in table.key) for each in kept),
        left_out=tuple(each.name for each in columns if each not in kept),
        form=SourceForm(table.number, numbers, table.key, defaults=tuple(numbers)),
    )


def enabling(schema: str, name: str, instance: str = "") -> str:
    """The statement that makes a change table."""
    more = f", @capture_instance = {text(instance)}" if instance else ""
    return (
        f"EXEC sys.sp_cdc_enable_table @source_schema = {text(schema)}, @source_name = {text(name)}, "
        f"@role_name = NULL{more};"
    )


def _unlogged(table: SourceTable, held: Captured | None, options: CaptureOptions) -> TableError | None:
    """Why change tables do not tell which rows change, with the statement that helps. `held`: what they hold of it."""
    if not table.key:
        statement = f"ALTER TABLE {table.qualified} ADD PRIMARY KEY (…)"
        why = "has no primary key"
        if options.takes_inserts_only(*table.id, table.qualified):
            why += "; inserts alone cannot be captured, as a load may hold what the change table has, too"
        hint = f"Run in the source: {statement}; or leave it out: --exclude {table.title}"
        return table.error("capture-no-key", f"{table.title} {why}", hint)
    if held is None:
        hint = f"Run in the source: {enabling(*table.id)}"
        return table.error("capture-not-ready", f"{table.title} has no change table", hint)
    if missing := [name for name in table.key if name not in held.columns]:
        hint = f"Run in the source: {enabling(*table.id, f'{table.schema}_{table.name}_2')}"
        why = f"has a change table without its key column {missing[0]}"
        return table.error("capture-not-ready", f"{table.title} {why}", hint, missing[0])
    return None


def _unkept(table: SourceTable, denied: str) -> TableError | None:
    """Why the rows cannot be read or kept, with what helps. `denied`: who may not read them; empty: all may."""
    if denied:
        hint = f"Run in the source: GRANT SELECT ON {table.qualified} TO {quoted(denied)};"
        return table.error("capture-not-ready", f"{table.title} cannot be read by {denied}", hint)
    if (column := table.refused) is not None:
        change = "Change the column's type, or leave it out of the change table (@captured_column_list)"
        message = f"{table.title} cannot be kept: {column.refused}"
        return table.error("capture-value", message, f"{change}; or --exclude {table.title}", column.name)
    return None
