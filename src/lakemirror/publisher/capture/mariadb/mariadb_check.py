"""What a MariaDB or MySQL server still needs before it can be captured, each with the statement that gives it.

Only questions are asked; nothing is changed. A need that is only advice does not stop a capture.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.mariadb.binlog_files import BinlogFiles
from lakemirror.publisher.capture.mariadb.mariadb_catalog import read_tables
from lakemirror.publisher.capture.mariadb.mariadb_sessions import MariaSession
from lakemirror.publisher.capture.source_needs import Need, of_table, unnamed
from lakemirror.publisher.capture.table_folders import table_folders

_RESTART = "-- then restart the server"
_DAY = 86_400
_REFUSED = (
    ("log_bin_compress", "ON", "compressed events cannot be read", "SET GLOBAL log_bin_compress = OFF;"),
    ("binlog_row_value_options", "PARTIAL_JSON", "parts of JSON values cannot be read",
     "SET GLOBAL binlog_row_value_options = '';"),
)  # fmt: skip


def needs_of(session: MariaSession, options: CaptureOptions) -> Iterator[Need]:
    """What is missing; none where everything is there. First what concerns the whole server."""
    yield from settings_needed(session)
    yield from _of_role(session)
    tables = read_tables(session, options)
    yield from unnamed(tables, options, "DATABASE")
    folders = table_folders(tables, options)
    for table in tables:
        yield from of_table(table, folders)


def settings_needed(session: MariaSession) -> Iterator[Need]:
    """What the server's settings lack."""
    if session.is_mariadb and session.version < (10, 5):
        yield Need("MariaDB 10.5 or later is needed: older logs do not name columns", "-- upgrade the server")
        return
    if session.setting("log_bin") != "ON":
        yield Need(
            "the server writes no binary log", f"-- log_bin = ON below [mysqld] of its configuration; {_RESTART}"
        )
        return
    if not session.is_mariadb and session.setting("binlog_row_metadata") is None:
        yield Need("MySQL 8.0.1 or later is needed: older logs do not name columns", "-- upgrade the server")
        return
    for name, wanted, why in (
        ("binlog_format", "ROW", "the log holds statements in place of rows"),
        ("binlog_row_metadata", "FULL", "the log does not name columns"),
    ):
        found = session.setting(name)
        if found is not None and found.upper() != wanted:
            permanent = f"-- and {name} = {wanted} below [mysqld] of its configuration"
            yield Need(f"{name} is {found}: {why}", f"SET GLOBAL {name} = {wanted}; {permanent}")
    for name, value, why, statement in _REFUSED:
        if (session.setting(name) or "").upper() == value:
            yield Need(f"{name} is {value}: {why}", statement)
    seconds = _expiry(session)
    if 0 < seconds < _DAY:
        yield Need(
            "the server deletes its log after less than a day: a capture that is down for so long must load again",
            "SET GLOBAL expire_logs_days = 3;"
            if session.is_mariadb
            else "SET GLOBAL binlog_expire_logs_seconds = 259200;",
            is_advice=True,
        )


def _expiry(session: MariaSession) -> float:
    """After how many seconds log is deleted; 0: never."""
    seconds = float(session.setting("binlog_expire_logs_seconds") or 0)
    return seconds or float(session.setting("expire_logs_days") or 0) * _DAY


def _of_role(session: MariaSession) -> Iterator[Need]:
    row = session.one("SELECT CURRENT_USER()")
    user, _, host = str(row[0] if row else "").rpartition("@")
    role = f"'{user}'@'{host}'"
    query = "SELECT PRIVILEGE_TYPE FROM information_schema.USER_PRIVILEGES WHERE GRANTEE = %s"
    given = {str(row[0]) for row in session.all(query, role)}
    if not given & {"REPLICATION SLAVE", "REPLICATION REPLICA", "SUPER"}:
        yield Need(f"{role} may not read the binary log", f"GRANT REPLICATION SLAVE ON *.* TO {role};")
    monitor = "BINLOG MONITOR" if session.is_mariadb else "REPLICATION CLIENT"
    try:
        BinlogFiles(session).status()
        BinlogFiles(session).sizes()
    except LakemirrorError:
        yield Need(f"{role} may not ask how long the binary log is", f"GRANT {monitor} ON *.* TO {role};")
    if not session.is_mariadb and not given & {"RELOAD", "SUPER"}:
        yield Need(f"{role} may not lock tables for the moment a load begins", f"GRANT RELOAD ON *.* TO {role};")
