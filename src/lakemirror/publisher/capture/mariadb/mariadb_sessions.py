"""Sessions with MariaDB or MySQL, by PyMySQL. Passwords stay out of every message.

A password comes from the URL, from `--password-file`, or from the variable `MYSQL_PWD`; a port that the URL does not
name from `MYSQL_TCP_PORT`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from lakemirror.publisher.capture import source_drivers
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.source_drivers import address_of, driver

_SESSION = ("SET time_zone = '+00:00', sql_mode = 'NO_BACKSLASH_ESCAPES', wait_timeout = 86400, "
            "net_write_timeout = 3600, character_set_results = 'utf8mb4'")  # fmt: skip
_TLS = ("ssl_ca", "ssl_cert", "ssl_key")
_INSTALL = 'Run `pip install "lakemirror[mariadb]"`.'
_HINT = "Give mariadb://USER@HOST/DATABASE or mysql://USER@HOST/DATABASE; %-encode what is special."


class MariaSession:
    """One session, for any thread. Values arrive as the texts that the server sends; bytes as bytes; NULL as None."""

    def __init__(self, connection: Any, options: CaptureOptions) -> None:
        self.connection, self._options = connection, options
        self._lock = threading.RLock()
        said = str(self.one("SELECT VERSION()")[0])  # type: ignore[index]
        self.is_mariadb = "mariadb" in said.lower()
        found = re.match(r"(?:5\.5\.5-)?(\d+)\.(\d+)", said)
        self.version = (int(found[1]), int(found[2])) if found else (0, 0)

    @property
    def kind(self) -> str:
        return "mariadb" if self.is_mariadb else "mysql"

    def all(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """All rows of a query. `capture-source-failed`."""
        with self._lock, failing(self._options), self.connection.cursor() as cursor:
            cursor.execute(query, values or None)
            return list(cursor.fetchall())

    def one(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        """The first row of a query; None where there is none."""
        return next(iter(self.all(query, *values)), None)

    def setting(self, name: str) -> str | None:
        """A variable of the server; None where it has none of that name."""
        row = self.one("SHOW GLOBAL VARIABLES LIKE %s", name)
        return None if row is None else str(row[1])

    def rows(self, query: str, count: int) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a query as the server sends them, so many at a time."""
        cursors = driver("pymysql.cursors", _INSTALL)
        with failing(self._options), self.connection.cursor(cursors.SSCursor) as cursor:
            cursor.execute(query)
            while found := cursor.fetchmany(count):
                yield list(found)


@contextmanager
def opened(options: CaptureOptions) -> Iterator[MariaSession]:
    """A session in which each statement is a transaction, in UTC."""
    pymysql = driver("pymysql", _INSTALL)
    conversions = driver("pymysql.converters", _INSTALL).conversions
    with failing(options):
        parameters = connection_parameters(options)
        keep = {kind: convert for kind, convert in conversions.items() if not isinstance(kind, int)}
        connection = pymysql.connect(**parameters, autocommit=True, charset="utf8mb4", conv=keep, init_command=_SESSION)
    try:
        yield MariaSession(connection, options)
    finally:
        connection.close()


def connection_parameters(options: CaptureOptions) -> dict[str, Any]:
    """What the driver needs; `input-invalid` for a URL that cannot be read."""
    at = address_of(options, 3306, "MYSQL_PWD", _TLS, _HINT, port_variable="MYSQL_TCP_PORT")
    patience = {"connect_timeout": 20, "read_timeout": 3600}
    return {"host": at.host, "port": at.port, "user": at.user, "password": at.password, **patience, **at.driver}


def failing(options: CaptureOptions) -> AbstractContextManager[None]:
    """What the database or its driver says, as `capture-source-failed`, without passwords."""
    return source_drivers.failing(options, _said)


def _said(error: Exception) -> str | None:
    """What an error of the driver or of the system says, and of the package that a server's way to log in needs."""
    is_theirs = type(error).__module__.partition(".")[0] == "pymysql" or isinstance(error, OSError)
    if not is_theirs and not (isinstance(error, RuntimeError) and "cryptography" in str(error)):
        return None
    return str(error.args[1]) if len(error.args) > 1 else str(error)


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return "`" + name.replace("`", "``") + "`"
