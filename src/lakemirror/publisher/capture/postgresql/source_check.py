"""What a PostgreSQL database still needs before it can be captured, each with the statement that gives it.

Only questions are asked; nothing is changed. A need that is only advice does not stop a capture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.postgresql.catalog import read_tables
from lakemirror.publisher.capture.source_needs import Need, of_table, unnamed
from lakemirror.publisher.capture.source_tables import SourceTable
from lakemirror.publisher.capture.table_folders import table_folders

if TYPE_CHECKING:
    from psycopg import Connection

OLDEST = 130000
_RESTART = "-- then restart PostgreSQL"
_SETTINGS = """
select current_setting('server_version_num')::int, current_setting('server_version'), current_setting('wal_level'),
       current_setting('max_replication_slots')::int, (select count(*) from pg_replication_slots),
       current_setting('max_wal_senders')::int, (select count(*) from pg_stat_replication), pg_is_in_recovery(),
       current_setting('max_slot_wal_keep_size')
"""
_ROLE = """
select quote_ident(current_user), quote_ident(current_database()),
       (select rolreplication or rolsuper from pg_roles where rolname = current_user)
       or coalesce((select pg_has_role(r.oid, 'member') from pg_roles r where r.rolname = 'rds_replication'), false),
       exists (select 1 from pg_roles where rolname = 'rds_replication'),
       has_database_privilege(current_database(), 'create'),
       exists (select 1 from pg_publication where pubname = %s)
"""
_ENUMS = """
select t.typtype = 'd', format('%I.%I', n.nspname, t.typname), format_type(t.typbasetype, null)
from pg_type t join pg_namespace n on n.oid = t.typnamespace
where t.typcategory = 'E' and not exists (select 1 from pg_enum e where e.enumtypid = t.oid)
order by 2
"""


def needs_of(connection: Connection[Any], options: CaptureOptions) -> list[Need]:
    """What is missing; empty where everything is there. First what concerns the whole source."""
    found = list(_of_server(connection))
    tables = read_tables(connection, options)
    found += _of_role(connection, options)
    found += _of_tables(tables, options)
    return list({need.statement: need for need in found}.values())  # one statement once


def _of_server(connection: Connection[Any]) -> Iterator[Need]:
    number, version, level, slots, used_slots, senders, used_senders, is_standby, kept = _row(connection, _SETTINGS)
    if number < OLDEST:
        yield Need(f"the server is PostgreSQL {version}", "-- upgrade it to PostgreSQL 13 or newer")
    if is_standby:
        yield Need("the server is a standby", "-- name its primary: postgresql://USER@PRIMARY/DATABASE")
    if level != "logical":
        yield Need(f"wal_level is {level}", f"ALTER SYSTEM SET wal_level = logical; {_RESTART}")
    if used_slots + 2 > slots:
        yield Need(
            f"{used_slots} of {slots} replication slots are taken; a capture needs one, and one more for loads",
            f"ALTER SYSTEM SET max_replication_slots = {used_slots + 4}; {_RESTART}",
        )
    if used_senders + 2 > senders:
        yield Need(
            f"{used_senders} of {senders} senders of the log are taken; a capture needs one, and one more for loads",
            f"ALTER SYSTEM SET max_wal_senders = {used_senders + 4}; {_RESTART}",
        )
    if kept == "-1":
        yield Need(
            "nothing limits how much log a slot keeps while no capture runs: the disk may fill up",
            "ALTER SYSTEM SET max_slot_wal_keep_size = '20GB'; SELECT pg_reload_conf();",
            is_advice=True,
        )
    for is_domain, name, base in connection.execute(_ENUMS).fetchall():
        # Debezium 3.6 cannot read the list of types of such a database
        if is_domain:
            yield Need(
                f"{name} is a domain of an enum: the connector does not start in a database that has one",
                f"ALTER TABLE … ALTER COLUMN … TYPE {base}; DROP DOMAIN {name};",
            )
        else:
            yield Need(
                f"the enum {name} has no values: the connector does not start in a database that has one",
                f"DROP TYPE {name};",
            )


def _of_role(connection: Connection[Any], options: CaptureOptions) -> Iterator[Need]:
    role, database, may_replicate, is_rds, may_create, is_published = _row(connection, _ROLE, options.slot)
    if not may_replicate:
        statement = f"GRANT rds_replication TO {role};" if is_rds else f"ALTER ROLE {role} REPLICATION;"
        yield Need(f"the role {role} may not read the log", statement)
    if not may_create and not is_published:
        yield Need(f"the role {role} may not make a publication", f"GRANT CREATE ON DATABASE {database} TO {role};")


def _of_tables(tables: Sequence[SourceTable], options: CaptureOptions) -> Iterator[Need]:
    yield from unnamed(tables, options, "SCHEMA")
    folders = table_folders(tables, options)
    for table in tables:
        yield from of_table(table, folders)
        for why, statement in table.denied:
            yield Need(why, statement, table.title)


def _row(connection: Connection[Any], query: str, *values: Any) -> tuple[Any, ...]:
    found = connection.execute(query.encode(), values or None).fetchone()
    assert found is not None
    return tuple(found)
