"""Drivers of a source: their import, and what they say as `capture-source-failed`, without passwords."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.passwords import SHOWN, without_passwords
from lakemirror.publisher.capture.capture_options import CaptureOptions

_VARIABLES = ("PGPASSWORD", "MYSQL_PWD", "SQLCMDPASSWORD")
"""Where drivers find a password that no option gives."""


@dataclass(frozen=True)
class Address:
    """Where a database is, and who asks. `database`: empty for none. `driver`: properties of its driver."""

    host: str
    port: int
    database: str
    user: str
    password: str = field(repr=False)
    driver: Mapping[str, str]


def address_of(
    options: CaptureOptions,
    port: int,
    password_variable: str,
    properties: Iterable[str],
    hint: str,
    *,
    port_variable: str = "",
    needs_database: bool = False,
) -> Address:
    """Where the source is; `input-invalid` with `hint` for an address that cannot be read.

    `port`: unless the address names one, or the variable `port_variable` does. `password_variable`: of a password that
    no option gives. `properties`: of the driver, which the address may set.
    """
    try:
        url = urlsplit(options.source)
        port = url.port or int(os.environ.get(port_variable) or port)
    except ValueError as error:
        raise LakemirrorError("input-invalid", shown(str(error), options), hint=hint) from None
    given, database = dict(parse_qsl(url.query)), unquote(url.path.strip("/"))
    unknown = given.keys() - set(properties)
    if not url.hostname or not url.username or (needs_database and not database) or unknown:
        missing = "no host, user or database" if needs_database else "no host or no user"
        what = f"unknown: {', '.join(sorted(unknown))}" if unknown else f"the source names {missing}"
        raise LakemirrorError("input-invalid", shown(what, options), hint=hint)
    password = options.password or unquote(url.password or "") or os.environ.get(password_variable, "")
    return Address(url.hostname, port, database, unquote(url.username), password, given)


def driver(name: str, hint: str | None = None) -> Any:
    """The module of this name. `capture-extra-missing` where its package is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise SetupError("capture-extra-missing", f"the package {package} is not installed", hint=hint) from error


@contextmanager
def failing(options: CaptureOptions, said_by: Callable[[Exception], str | None]) -> Iterator[None]:
    """What the database or its drivers say, as `capture-source-failed`, without passwords, also in what caused it.

    `said_by` gives what an error says that is theirs; None for any other error, which is raised as it is.
    """
    try:
        yield
        return
    except LakemirrorError:
        raise
    except Exception as error:
        said = said_by(error)
        if said is None:
            raise
        text = " ".join(said.split())  # one line, as every message is
    raise LakemirrorError("capture-source-failed", shown(text, options))


def shown(text: str, options: CaptureOptions) -> str:
    """A message of the source without any password."""
    found = without_passwords(text, options.source)
    for secret in (options.password, *(os.environ.get(name, "") for name in _VARIABLES)):
        found = found.replace(secret, SHOWN) if secret else found
    return found
