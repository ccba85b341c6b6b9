"""Connections to the source: psycopg for questions and the slot, ADBC for rows. Passwords stay out of every message.

A password comes from the URL, from `--password-file`, or from what libpq reads itself: `PGPASSWORD`, `.pgpass`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from lakemirror.errors import LakemirrorError
from lakemirror.publisher.capture import source_drivers
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.postgresql.types import SESSION
from lakemirror.publisher.capture.source_drivers import driver, shown

if TYPE_CHECKING:
    from psycopg import Connection

_OURS = {**SESSION, "statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}


@contextmanager
def connected(options: CaptureOptions, *, replication: bool = False) -> Iterator[Connection[Any]]:
    """A connection in which each statement is a transaction. `replication`: it takes commands of replication."""
    psycopg = driver("psycopg")
    with failing(options):
        given = {"replication": "database"} if replication else {}
        connection = psycopg.connect(_parameters(options, **given), autocommit=True)
    with connection:
        if not replication:
            with failing(options):
                for name, value in _OURS.items():
                    connection.execute(f"set {name} = '{value}'")
        yield connection


@contextmanager
def reading(options: CaptureOptions, snapshot: str = "") -> Iterator[Any]:
    """An ADBC connection in a transaction that sees exactly this snapshot; without it each query sees what is there."""
    adbc = driver("adbc_driver_postgresql.dbapi")
    with failing(options):
        connection = adbc.connect(_parameters(options), autocommit=True)
    with connection:
        with failing(options), connection.cursor() as cursor:
            for name, value in _OURS.items():
                cursor.execute(f"set {name} = '{value}'")
            if snapshot:
                cursor.execute("begin isolation level repeatable read read only")
                cursor.execute(f"set transaction snapshot '{snapshot}'")
        yield connection


def failing(options: CaptureOptions) -> AbstractContextManager[None]:
    """What the database or its drivers say, as `capture-source-failed`, without passwords."""
    return source_drivers.failing(options, _said)


def _said(error: Exception) -> str | None:
    """What an error of the drivers, of Arrow or of the system says."""
    module = type(error).__module__.partition(".")[0]
    is_theirs = module in ("psycopg", "adbc_driver_manager", "pyarrow")
    return str(error) if is_theirs or (module == "builtins" and isinstance(error, OSError)) else None


def _parameters(options: CaptureOptions, **more: str) -> str:
    """The connection string for libpq; `input-invalid` for a URL that it cannot read."""
    psycopg = driver("psycopg")
    conninfo = driver("psycopg.conninfo")
    if not options.source.startswith(("postgresql://", "postgres://")):
        raise LakemirrorError(
            "input-invalid", "the source is no PostgreSQL", hint="Give postgresql://USER@HOST/DATABASE."
        )
    password = {"password": options.password} if options.password else {}
    try:
        return str(conninfo.make_conninfo(options.source, application_name="lakemirror", **more, **password))
    except psycopg.Error as error:
        said = shown(str(error).strip(), options)
    raise LakemirrorError("input-invalid", said, hint="Give postgresql://USER@HOST/DATABASE; %-encode what is special.")
