"""The tables of a PostgreSQL database that a capture takes: columns, keys, and why a table cannot be captured.

One query for tables, one for columns; a partitioned table is its root alone. Nothing is changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakemirror.errors import TableError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.postgresql.types import UNSENT, TypeName, source_column
from lakemirror.publisher.capture.source_form import SourceForm
from lakemirror.publisher.capture.source_tables import SourceTable

if TYPE_CHECKING:
    from psycopg import Connection

_TABLES = """
select c.oid, n.nspname, c.relname, format('%I.%I', n.nspname, c.relname), c.relpersistence = 'u',
       c.relreplident::text, greatest(c.reltuples, 0)::float8,
       (select array_agg(a.attname::text order by k.place)
        from pg_index i, unnest(i.indkey) with ordinality as k(number, place), pg_attribute a
        where i.indrelid = c.oid and a.attrelid = c.oid and a.attnum = k.number
          and case when c.relreplident = 'i' then i.indisreplident else i.indisprimary end),
       -- a partition that is made as one: its bound is noted after it inherits, and nothing is rewritten since; one
       -- that is attached, even in the transaction that made and filled it: both are noted by the same command
       (select json_object_agg(p.relid::oid::text, case when i.xmin = a.xmin
                 and not (r.xmin = i.xmin and r.cmin = i.cmin)
                 and coalesce(pg_relation_filenode(p.relid), p.relid) = p.relid then 0
                 else coalesce(pg_relation_filenode(p.relid), p.relid)::int8 end)
        from pg_partition_tree(c.oid) p join pg_inherits i on i.inhrelid = p.relid
        join pg_attribute a on a.attrelid = p.relid and a.attname = 'tableoid' join pg_class r on r.oid = p.relid
        where c.relkind = 'p' and p.level > 0),
       -- the type of a table's rows has its name and schema, and changes with them alone, or with the owner
       (select t.xmin::text::bigint from pg_type t where t.oid = c.reltype),
       array_remove(array[
            case when not has_schema_privilege(n.oid, 'usage') then jsonb_build_array(
                 format('the role %I may not use the schema', current_user),
                 format('GRANT USAGE ON SCHEMA %I TO %I;', n.nspname, current_user)) end,
            case when not has_table_privilege(c.oid, 'select') or exists (
                 select 1 from pg_partition_tree(c.oid) p where not has_table_privilege(p.relid, 'select'))
            then jsonb_build_array(format('the role %I may not read it, or a partition of it', current_user),
                 format('GRANT SELECT ON %I.%I TO %I;', n.nspname, c.relname, current_user)) end,
            case when not pg_has_role(c.relowner, 'usage') and not exists (
                 select 1 from pg_publication_rel r join pg_publication p on p.oid = r.prpubid
                 where r.prrelid = c.oid and p.pubname = '{slot}')
            then jsonb_build_array(format('only its owner may publish its changes, %I', pg_get_userbyid(c.relowner)),
                 format('GRANT %I TO %I;', pg_get_userbyid(c.relowner), current_user)) end,
            case when row_security_active(c.oid) then jsonb_build_array(
                 format('policies hide rows from the role %I', current_user),
                 format('ALTER ROLE %I BYPASSRLS;', current_user)) end], null)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and not c.relispartition and c.relpersistence <> 't'
  and n.nspname <> 'information_schema' and n.nspname !~ '^pg_'
order by 2, 3
"""
_COLUMNS = """
with recursive base(oid, id, kind, modifier, is_domain, dimensions) as (
  select t.oid, t.oid, t.typtype, -1, false, 0 from pg_type t
  where t.oid in (select atttypid from pg_attribute where attrelid = any($1) and attnum > 0 and not attisdropped)
  union all
  select b.oid, t.typbasetype, s.typtype, case when b.modifier = -1 then t.typtypmod else b.modifier end,
         true, t.typndims
  from base b join pg_type t on t.oid = b.id join pg_type s on s.oid = t.typbasetype where b.kind = 'd'
)
select a.attrelid, a.attname, a.attgenerated <> '', coalesce(e.typname, t.typname),
       format_type(b.id, case when b.modifier = -1 then a.atttypmod else b.modifier end),
       case when b.modifier = -1 then a.atttypmod else b.modifier end,
       coalesce(e.typtype, t.typtype)::text, e.oid is not null, b.is_domain, greatest(a.attndims, b.dimensions),
       a.attnum, a.atthasmissing or a.atthasdef or a.attidentity <> ''
from pg_attribute a join base b on b.oid = a.atttypid and b.kind <> 'd' join pg_type t on t.oid = b.id
left join pg_type e on e.oid = t.typelem and t.typcategory = 'A' and t.typlen = -1
where a.attrelid = any($1) and a.attnum > 0 and not a.attisdropped
order by a.attrelid, a.attnum
"""


def read_tables(connection: Connection[Any], options: CaptureOptions) -> tuple[SourceTable, ...]:
    """The tables that the options name, in order of their names."""
    query = _TABLES.replace("{slot}", options.slot)
    found = [row for row in connection.execute(query.encode()).fetchall() if options.names(*row[1:4])]
    columns = _read_columns(connection, [row[0] for row in found])
    return tuple(_table(row, columns[row[0]], options) for row in found)


def _read_columns(connection: Connection[Any], numbers: Sequence[int]) -> Mapping[int, list[tuple[Any, ...]]]:
    columns: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    query = _COLUMNS.replace("$1", "%(numbers)s::oid[]")
    for number, *column in connection.execute(query.encode(), {"numbers": list(numbers)}).fetchall():
        columns[number].append(tuple(column))
    return columns


def _table(row: tuple[Any, ...], columns: Iterable[tuple[Any, ...]], options: CaptureOptions) -> SourceTable:
    number, schema, name, qualified, is_unlogged, identity, rows, key, parts, named, denied = row
    key = tuple(key or ())
    kept, left_out, numbers, defaults = [], [], {}, []
    for column, is_generated, *kind, place, has_default in columns:
        numbers[column] = place
        if is_generated:
            left_out.append(column)
        else:
            defaults += [column] if has_default else []
            type_ = replace(TypeName(*kind), sends_all=identity == "f")
            kept.append(source_column(column, type_, options, column in key))
    form = SourceForm(number, numbers, key, parts or {}, tuple(defaults), named or 0)
    table = SourceTable(schema, name, qualified, number, tuple(kept), key, int(rows), tuple(left_out), form=form)
    inserts_only = options.takes_inserts_only(schema, name, qualified)
    problem = _problem(table, is_unlogged, identity, inserts_only)
    if problem is None and denied:
        why, statement = denied[0]
        problem = table.error("capture-not-ready", f"{table.title}: {why}", f"Run in the source: {statement}")
    return replace(table, problem=problem, denied=tuple(map(tuple, denied)))


def _problem(table: SourceTable, is_unlogged: bool, identity: str, inserts_only: bool) -> TableError | None:
    """Why the table cannot be captured, with the statement that helps."""
    named, alter = table.title, f"Run in the source: ALTER TABLE {table.qualified}"
    if is_unlogged:
        message = f"{named} is an unlogged table: its changes are in no log"
        return table.error("capture-not-ready", message, f"{alter} SET LOGGED;")
    if not inserts_only and (not table.key or identity == "n"):
        why, statement = "no primary key", "ADD PRIMARY KEY (…)"
        if table.key:
            why = "REPLICA IDENTITY NOTHING, so updates do not say which row they change"
            statement = "REPLICA IDENTITY DEFAULT"
        hint = f"{alter} {statement}; or capture its inserts alone: --insert-only {named}"
        return table.error("capture-no-key", f"{named} has {why}", hint)
    if inserts_only and not table.key and identity != "f":
        return table.error(
            "capture-not-ready",
            f"{named} has no key: while its inserts are captured, the source would refuse each update and delete of it",
            f"{alter} REPLICA IDENTITY FULL; then the first update or delete stops the capture of this table alone.",
        )
    if (column := table.refused) is not None:
        hint = f"Leave the table out: --exclude {named}; or change the column's type in the source."
        if column.refused.endswith(UNSENT):
            hint = f"{alter} REPLICA IDENTITY FULL; or leave it out: --exclude {named}"
        return table.error("capture-value", f"{named}: {column.refused}", hint, column.name)
    return None
