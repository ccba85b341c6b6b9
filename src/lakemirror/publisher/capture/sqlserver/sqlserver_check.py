"""What a SQL Server database still needs before it can be captured, each with the statement that gives it.

Only questions are asked; nothing is changed. A need that is only advice does not stop a capture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.source_needs import Need, of_table, unnamed
from lakemirror.publisher.capture.sqlserver.sqlserver_catalog import (
    enabling,
    has_change_tables,
    read_columns,
    read_tables,
)
from lakemirror.publisher.capture.sqlserver.sqlserver_sessions import SqlServerSession, quoted
from lakemirror.publisher.capture.table_folders import table_folders

_RUNNING = "4"
_DAY = 1440  # minutes
_AGENT = "SELECT status FROM sys.dm_server_services WHERE servicename LIKE N'SQL Server Agent (%'"
_RETENTION = "SELECT retention FROM msdb.dbo.cdc_jobs WHERE database_id = DB_ID() AND job_type = N'cleanup'"


def needs_of(session: SqlServerSession, options: CaptureOptions) -> Iterator[Need]:
    """What is missing; first what concerns the whole database."""
    untried = "lakemirror was not tried against a SQL Server: its tests use events that Debezium's converters wrote"
    yield Need(untried, "-- compare the tables with the source before you rely on them", is_advice=True)
    yield from settings_needed(session)
    tables = read_tables(session, options)
    yield from unnamed(tables, options, "SCHEMA")
    folders, columns = table_folders(tables, options), read_columns(session)
    for table in tables:
        yield from of_table(table, folders)
        computed = {each.name for each in columns.get(table.number, ()) if each.is_computed}
        late = [name for name in table.left_out if name not in computed]
        if late and table.problem is None:
            instance = enabling(table.schema, table.name, f"{table.schema}_{table.name}_2")
            what = f"{table.title}: its change table has no column {', '.join(late)}"
            yield Need(what, instance, table.title, is_advice=True)


def settings_needed(session: SqlServerSession) -> Iterator[Need]:
    """What the database's settings and the user's rights lack."""
    row = session.one(
        "SELECT snapshot_isolation_state, DB_NAME(), USER_NAME() FROM sys.databases WHERE name = DB_NAME()"
    )
    state, database, user = row or ("1", "", "")
    if not has_change_tables(session):
        yield Need("change data capture is off", "EXEC sys.sp_cdc_enable_db;")
    elif session.one("SELECT HAS_PERMS_BY_NAME('cdc', 'SCHEMA', 'SELECT')") != ("1",):
        yield Need(f"{user} may not read change tables", f"GRANT SELECT ON SCHEMA::cdc TO {quoted(str(user))};")
    if state != "1":
        statement = f"ALTER DATABASE {quoted(str(database))} SET ALLOW_SNAPSHOT_ISOLATION ON;"
        yield Need("snapshot isolation is off: a load would not be consistent", statement)
    with suppress(LakemirrorError):  # only with VIEW SERVER STATE; Azure SQL has no agent
        if (agent := session.one(_AGENT)) is not None and agent[0] != _RUNNING:
            yield Need("SQL Server Agent does not run: nothing comes into the change tables", "-- start that service")
    with suppress(LakemirrorError):  # only with rights on msdb
        minutes = session.one(_RETENTION)
        if minutes is not None and minutes[0] is not None and int(minutes[0]) < _DAY:
            what = "changes are deleted after less than a day: a capture that is down for so long must load again"
            change = "EXEC sys.sp_cdc_change_job @job_type = N'cleanup', @retention = 4320;"
            yield Need(what, change, is_advice=True)
