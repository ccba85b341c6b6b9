"""What the operator says of one capture, as REST takes it and as it is on disk. It names a secret and never holds it.

    body ─▶ declaration ─▶ words of `lakemirror capture`

A secret is a file of `secrets` in the service's own folder or a variable that begins with LAKEMIRROR_CAPTURE_: so
nobody can have another file of the machine sent to a database of their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from lakemirror.errors import LakemirrorError
from lakemirror.service.rest.rest_answers import invalid
from lakemirror.storage import Place

SECRETS = "secrets"  # in the service's own folder
VARIABLE = "LAKEMIRROR_CAPTURE_"
SCHEMES = ("postgresql", "postgres", "mariadb", "mysql", "sqlserver")
_PARAMETERS = frozenset({"sslmode", "sslrootcert", "connect_timeout", "target_session_attrs", "ssl_ca", "encrypt",
                         "trustServerCertificate", "hostNameInCertificate", "applicationIntent"})  # fmt: skip
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_VARIABLE = re.compile(VARIABLE + "[A-Z0-9_]{1,60}")
_ADDRESS = re.compile(r"[!-~]{1,1000}")
_MOST = 300  # entries of a list

_OPTIONS: Mapping[str, tuple[str, str]] = {
    "tables": ("--tables", "texts"),
    "exclude": ("--exclude", "texts"),
    "insertOnly": ("--insert-only", "texts"),
    "renames": ("--rename", "pairs"),
    "flat": ("--flat", "flag"),
    "numeric": ("--numeric", "text"),
    "infinite": ("--infinite", "text"),
    "afterDdl": ("--after-ddl", "text"),
    "cutSeconds": ("--cut", "number"),
}
"""For each member of a body the option of the command that it is, and what kind of value it has."""


@dataclass(frozen=True)
class CaptureDeclaration:
    """One capture. `secret`: `file` or `environment` to a name; empty: no password. `options`: members of the body."""

    name: str
    source: str
    secret: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def content(self) -> dict[str, Any]:
        """The body that declares it, for JSON."""
        secret = {"passwordFrom": dict(self.secret)} if self.secret else {}
        return {"source": self.source, **secret, **self.options}

    def words(self) -> list[str]:
        """The source, the name and the options as words of the command."""
        words = [f"--from={self.source}", f"--name={self.name}"]
        for name, value in self.options.items():
            option, kind = _OPTIONS[name]
            if kind == "flag":
                words += [option] if value else []
            elif kind == "texts":
                words += [f"{option}={each}" for each in value]
            elif kind == "pairs":
                words += [f"{option}={table}={renamed}" for table, renamed in value.items()]
            else:
                words.append(f"{option}={value}")
        return words

    def password(self, own: Place) -> str | None:
        """The password as it is now; None where none is named. `own`: the service's own folder. `input-invalid`."""
        if "environment" in self.secret:
            name = self.secret["environment"]
            if name not in os.environ:
                raise _missing(f"the service has no variable {name}", f"Start the service with {name} set.")
            return os.environ[name]
        if "file" not in self.secret:
            return None
        file = own / SECRETS / self.secret["file"]
        try:
            return file.read_bytes().decode().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
            hint = f"Write the password into ROOT/.lakemirror/{SECRETS}/{file.name}."
            raise _missing(f"the file of the password, {file.name}, cannot be read: {reason}", hint) from error


def declared(name: str, body: Mapping[str, Any]) -> CaptureDeclaration:
    """The declaration that a body makes. Refused `InvalidRequest`."""
    if not _NAME.fullmatch(name):
        raise invalid("A capture's name has small letters, digits and _, at most 40, a letter first.")
    if unknown := sorted(body.keys() - {"source", "passwordFrom", *_OPTIONS}):
        raise invalid(f"{unknown[0]!r} is no member of a capture.")
    options = {}
    for member, value in body.items():
        if member in _OPTIONS:
            if not _fits(value, _OPTIONS[member][1]):
                raise invalid(f"{member} has a value of another kind.")
            options[member] = value
    return CaptureDeclaration(name, _source(body.get("source")), _secret(body.get("passwordFrom")), options)


def shown(source: str) -> str:
    """A source as everybody may read it who reads the database: without its user and parameters."""
    parts = urlsplit(source)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _source(source: Any) -> str:
    if not isinstance(source, str) or not _ADDRESS.fullmatch(source):
        raise invalid("The request has no source, such as postgresql://USER@HOST/DATABASE.")
    try:
        parts = urlsplit(source)
        has_host, has_password = bool(parts.hostname), parts.password is not None
    except ValueError as error:
        raise invalid("The source is no address, such as postgresql://USER@HOST/DATABASE.") from error
    if parts.scheme not in SCHEMES or not has_host or parts.fragment:
        raise invalid(f"The source is no address that begins with {' or '.join(each + '://' for each in SCHEMES)}.")
    if has_password:
        raise invalid("The source holds a password: name a file or a variable that has it, as passwordFrom.")
    for parameter, _ in parse_qsl(parts.query, keep_blank_values=True, separator="&"):
        if parameter not in _PARAMETERS:
            raise invalid(f"A source's parameters are {', '.join(sorted(_PARAMETERS))}.")
    return source


def _secret(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    form = {"file": _FILE, "environment": _VARIABLE}
    if isinstance(given, dict) and len(given) == 1:
        ((kind, name),) = given.items()
        if kind in form and isinstance(name, str) and form[kind].fullmatch(name):
            return {kind: name}
    raise invalid(
        f'passwordFrom is {{"file": NAME}} of ROOT/.lakemirror/{SECRETS}, or {{"environment": "{VARIABLE}…"}}.'
    )


def _fits(value: Any, kind: str) -> bool:
    if kind == "flag":
        return isinstance(value, bool)
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 86_400
    if kind == "text":
        return _is_text(value)
    if kind == "pairs":
        return isinstance(value, dict) and len(value) <= _MOST and all(map(_is_text, [*value, *value.values()]))
    return isinstance(value, list) and len(value) <= _MOST and all(map(_is_text, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 300 and value.isprintable()


def _missing(message: str, hint: str) -> LakemirrorError:
    return LakemirrorError("input-invalid", message, hint=hint)
