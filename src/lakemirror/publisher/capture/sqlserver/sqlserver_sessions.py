"""Sessions with SQL Server, by Microsoft's JDBC driver, which is beside Debezium. Passwords stay out of every message.

A password comes from the URL, from `--password-file`, or from the variable `SQLCMDPASSWORD`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture import source_drivers
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.debezium import java_class
from lakemirror.publisher.capture.source_drivers import Address

_DRIVER = ("encrypt", "trustServerCertificate", "hostNameInCertificate", "trustStore", "applicationIntent")
_HINT = "Give sqlserver://USER@HOST/DATABASE; %-encode what is special."
Row = tuple["str | None", ...]


class SqlServerSession(Protocol):
    """Questions to a database. Values arrive as texts; NULL as None."""

    def all(self, query: str, *values: str) -> list[Row]:
        """All rows of a query; none for a statement without rows. `capture-source-failed`."""

    def one(self, query: str, *values: str) -> Row | None:
        """The first row of a query; None where there is none."""


class JdbcSession:
    """One session, for any thread; each statement is a transaction."""

    def __init__(self, connection: Any, options: CaptureOptions) -> None:
        self._connection, self._options = connection, options
        self._lock = threading.RLock()

    def all(self, query: str, *values: str) -> list[Row]:
        with self._lock, failing(self._options):
            statement = self._connection.prepareStatement(query)
            try:
                for place, value in enumerate(values, 1):
                    statement.setString(place, value)
                return _rows(statement.getResultSet()) if statement.execute() else []
            finally:
                statement.close()

    def one(self, query: str, *values: str) -> Row | None:
        return next(iter(self.all(query, *values)), None)


def _rows(found: Any) -> list[Row]:
    width, rows = found.getMetaData().getColumnCount(), []
    while found.next():
        values = (found.getString(place) for place in range(1, width + 1))
        rows.append(tuple(None if value is None else str(value) for value in values))
    return rows


@contextmanager
def opened(options: CaptureOptions) -> Iterator[SqlServerSession]:
    """A session. `capture-source-failed`, `input-invalid` for a URL that cannot be read."""
    at = address_of(options)
    with failing(options):
        properties = java_class("java.util.Properties")()
        given = {"user": at.user, "password": at.password, "databaseName": at.database, "loginTimeout": "20"}
        for name, value in {**given, **at.driver, "applicationName": "lakemirror"}.items():
            properties.setProperty(name, value)
        driver = java_class("com.microsoft.sqlserver.jdbc.SQLServerDriver")()
        connection = driver.connect(f"jdbc:sqlserver://{at.host}:{at.port}", properties)
    try:
        yield JdbcSession(connection, options)
    finally:
        connection.close()


def address_of(options: CaptureOptions) -> Address:
    """Where the source is; `input-invalid` for a URL that cannot be read."""
    at = source_drivers.address_of(options, 1433, "SQLCMDPASSWORD", _DRIVER, _HINT, needs_database=True)
    if any(mark in at.host + at.database for mark in ";{}"):
        raise LakemirrorError("input-invalid", "a host or a database has ;, { or } in its name", hint=_HINT)
    return at


def failing(options: CaptureOptions) -> AbstractContextManager[None]:
    """What the database or its driver says, as `capture-source-failed`, without passwords."""
    return source_drivers.failing(options, _said)


def _said(error: Exception) -> str | None:
    """What a Java exception says."""
    return str(error.getMessage() or error) if hasattr(error, "getMessage") else None


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return "[" + name.replace("]", "]]") + "]"


def text(value: str) -> str:
    """A string as SQL writes it."""
    return "N'" + value.replace("'", "''") + "'"
