"""Connections to the source: psycopg for questions and the slot, ADBC for rows. Passwords stay out of every message.

A password comes from the URL, from `--password-file`, or from what libpq reads itself: `PGPASSWORD`, `.pgpass`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.passwords import SHOWN, without_passwords
from lakemirror.publisher.capture.capture_options import CaptureOptions
from lakemirror.publisher.capture.postgresql.types import SESSION

if TYPE_CHECKING:
    from psycopg import Connection

_OURS = {**SESSION, "statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}


@contextmanager
def connected(options: CaptureOptions, *, replication: bool = False) -> Iterator[Connection[Any]]:
    """A connection in which each statement is a transaction. `replication`: it takes commands of replication."""
    psycopg = _module("psycopg")
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
    driver = _module("adbc_driver_postgresql.dbapi")
    with failing(options):
        connection = driver.connect(_parameters(options), autocommit=True)
    with connection:
        with failing(options), connection.cursor() as cursor:
            for name, value in _OURS.items():
                cursor.execute(f"set {name} = '{value}'")
            if snapshot:
                cursor.execute("begin isolation level repeatable read read only")
                cursor.execute(f"set transaction snapshot '{snapshot}'")
        yield connection


@contextmanager
def failing(options: CaptureOptions) -> Iterator[None]:
    """What the database or its drivers say, as `capture-source-failed`, without passwords, also in what caused it."""
    try:
        yield
        return
    except LakemirrorError:
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("psycopg", "adbc_driver_manager", "pyarrow", "builtins"):
            raise
        if not isinstance(error, OSError) and type(error).__module__ == "builtins":
            raise
        said = " ".join(str(error).split())  # one line, as every message is
    raise LakemirrorError("capture-source-failed", shown(said, options))


def shown(text: str, options: CaptureOptions) -> str:
    """A message of the source without any password."""
    found = without_passwords(text, options.source)
    return found.replace(options.password, SHOWN) if options.password else found


def _parameters(options: CaptureOptions, **more: str) -> str:
    """The connection string for libpq; `input-invalid` for a URL that it cannot read."""
    psycopg = _module("psycopg")
    conninfo = importlib.import_module("psycopg.conninfo")
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


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise SetupError("capture-extra-missing", f"the package {package} is not installed") from error


__all__ = ["connected", "failing", "reading", "shown"]
