"""Drivers of a source: their import, and what they say as `capture-source-failed`, without passwords."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.passwords import SHOWN, without_passwords
from lakemirror.publisher.capture.capture_options import CaptureOptions

_VARIABLES = ("PGPASSWORD", "MYSQL_PWD", "SQLCMDPASSWORD")
"""Where drivers find a password that no option gives."""


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
