"""The principals of a root folder: names, roles, secrets as slow salted hashes, account keys.

They are in ROOT/.lakemirror/principals/principals.json, which `lakemirror access` writes and a running service reads
again when it has changed (specification of the service, sections 1 and 3).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.service.interface import Caller
from lakemirror.service.private_files import locked, own_folder, read_json, write_json
from lakemirror.service.root_folder import make_workspace, workspace_folders
from lakemirror.service.workspace_names import is_reserved, is_workspace_name
from lakemirror.storage import Place

ROLES = ("read", "contribute")
FOLLOW = 1.0  # seconds after which a change of the file is looked for
_NAME = re.compile(r"[a-z0-9]{3,24}")
_COST = {"n": 2**14, "r": 8, "p": 1}  # of scrypt: 16 MiB and some 50 ms


@dataclass(frozen=True)
class Principal:
    """A program that may use the service. `secret`: salt and scrypt hash, Base64. `account_key`: Base64 of 64 bytes."""

    name: str
    client_id: str
    roles: Mapping[str, str]
    account_key: str
    secret: Mapping[str, Any]

    def caller(self) -> Caller:
        return Caller(self.name, self.roles)


@dataclass(frozen=True)
class Issued:
    """A principal with its secret, which is known this once."""

    principal: Principal
    client_secret: str
    tenant_id: str

    def shown(self) -> dict[str, str]:
        return {
            "name": self.principal.name,
            "client_id": self.principal.client_id,
            "client_secret": self.client_secret,
            "tenant_id": self.tenant_id,
            "account_key": self.principal.account_key,
        }


@dataclass(frozen=True)
class _Content:
    tenant_id: str
    principals: Mapping[str, Principal]
    by_id: Mapping[str, Principal] = field(default_factory=dict)


class Principals:
    """The principals of one root folder. Safe to use from several threads and processes."""

    def __init__(self, root: Place, state: Path | None = None) -> None:
        """Makes the file with a new tenant id where there is none. `state`: as `own_folder`."""
        self._root = root
        self.own = own_folder(root, state)
        self._folder = self.own / "principals"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._path = self._folder / "principals.json"
        self._lock = threading.Lock()
        with locked(self._folder / "lock"):
            if not self._path.exists():
                self._write(_Content(str(uuid.uuid4()), {}))
        self._stamp = self._stamp_now()
        self._content = self._read()
        self._looked = time.monotonic()

    @property
    def tenant_id(self) -> str:
        return self._current().tenant_id

    def all(self) -> list[Principal]:
        """In the order of their names."""
        return sorted(self._current().principals.values(), key=lambda each: each.name)

    def by_name(self, name: str) -> Principal | None:
        return self._current().principals.get(name)

    def by_client_id(self, client_id: str) -> Principal | None:
        """By GUID in any case, or by name."""
        content = self._current()
        return content.by_id.get(client_id.lower()) or content.principals.get(client_id)

    def add(self, name: str, roles: Sequence[str]) -> Issued:
        """A new principal; makes the folders of its workspaces.

        `roles`: WORKSPACE=read or WORKSPACE=contribute. LakemirrorError `principal-invalid`.
        """
        granted = parse_roles(roles)
        if not _NAME.fullmatch(name) or is_reserved(name):
            raise LakemirrorError("principal-invalid", f"{name!r} is no name for a principal: [a-z0-9]{{3,24}}")
        folders = set(workspace_folders(self._root))
        if name in folders or name in {workspace.lower() for workspace in granted}:
            raise LakemirrorError("principal-invalid", f"{name} is the name of a workspace")
        taken = [workspace for workspace in granted if workspace != "*" and self.by_name(workspace.lower())]
        if taken:
            raise LakemirrorError("principal-invalid", f"{taken[0]} is the name of a principal, no workspace")
        secret = secrets.token_urlsafe(32)
        principal = Principal(
            name, str(uuid.uuid4()), {w.lower(): r for w, r in granted.items()}, _new_key(), hashed(secret)
        )
        with locked(self._folder / "lock"):
            content = self._read()
            if name in content.principals:
                raise LakemirrorError("principal-invalid", f"there is a principal {name} already")
            for workspace in granted:
                _make_workspace(self._root, workspace)
            self._write(_Content(content.tenant_id, {**content.principals, name: principal}))
        return Issued(principal, secret, content.tenant_id)

    def remove(self, name: str) -> None:
        """LakemirrorError `principal-missing`."""
        with locked(self._folder / "lock"):
            content = self._read()
            self._require(content, name)
            self._write(_Content(content.tenant_id, {n: each for n, each in content.principals.items() if n != name}))

    def rotate(self, name: str) -> Issued:
        """The principal with a new secret and account key; the old ones are refused. LakemirrorError
        `principal-missing`."""
        secret = secrets.token_urlsafe(32)
        with locked(self._folder / "lock"):
            content = self._read()
            before = self._require(content, name)
            principal = Principal(name, before.client_id, before.roles, _new_key(), hashed(secret))
            self._write(_Content(content.tenant_id, {**content.principals, name: principal}))
        return Issued(principal, secret, content.tenant_id)

    def move_roles(self, workspace: str, to: str | None) -> None:
        """Gives every role on a workspace for another name of it; None: takes the roles away."""
        old = workspace.lower()
        with locked(self._folder / "lock"):
            content = self._read()
            moved = dict(content.principals)
            for name, each in content.principals.items():
                if old in each.roles:
                    left = {key: role for key, role in each.roles.items() if key != old}
                    roles = left if to is None else {**left, to.lower(): each.roles[old]}
                    moved[name] = replace(each, roles=roles)
            if moved != content.principals:
                self._write(_Content(content.tenant_id, moved))

    def _require(self, content: _Content, name: str) -> Principal:
        found = content.principals.get(name)
        if found is None:
            raise LakemirrorError("principal-missing", f"there is no principal {name}")
        return found

    def _current(self) -> _Content:
        with self._lock:
            if time.monotonic() - self._looked > FOLLOW:
                self._looked = time.monotonic()
                stamp = self._stamp_now()
                if stamp != self._stamp:
                    self._stamp, self._content = stamp, self._read()
            return self._content

    def _stamp_now(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return (found.st_ino, found.st_size, found.st_mtime_ns)

    def _read(self) -> _Content:
        found = read_json(self._path)
        if found is None or not isinstance(found.get("principals"), dict):
            raise LakemirrorError("principal-invalid", f"{self._path} cannot be read: restore it from a backup")
        principals = {
            name: Principal(name, row["client_id"], row["roles"], row["account_key"], row["secret"])
            for name, row in found["principals"].items()
        }
        by_id = {each.client_id.lower(): each for each in principals.values()}
        return _Content(found["tenant_id"], principals, by_id)

    def _write(self, content: _Content) -> None:
        rows = {
            each.name: {
                "client_id": each.client_id,
                "roles": dict(each.roles),
                "account_key": each.account_key,
                "secret": dict(each.secret),
            }
            for each in content.principals.values()
        }
        write_json(self._path, {"tenant_id": content.tenant_id, "principals": rows})
        with self._lock:
            self._stamp, self._content = self._stamp_now(), self._read()


def parse_roles(roles: Sequence[str]) -> dict[str, str]:
    """Workspace to role of `WORKSPACE=ROLE` texts. LakemirrorError `principal-invalid`."""
    granted: dict[str, str] = {}
    for text in roles:
        workspace, equals, role = text.rpartition("=")
        if not equals or role not in ROLES:
            raise LakemirrorError("principal-invalid", f"{text!r} is not WORKSPACE=read or WORKSPACE=contribute")
        if workspace != "*" and (not is_workspace_name(workspace) or is_reserved(workspace)):
            raise LakemirrorError("principal-invalid", f"{workspace!r} is no name for a workspace")
        granted[workspace] = role
    if not granted:
        raise LakemirrorError("principal-invalid", "a principal needs a role: --role WORKSPACE=contribute")
    return granted


def hashed(secret: str) -> dict[str, Any]:
    """The secret as salt and scrypt hash, with the cost."""
    salt = secrets.token_bytes(16)
    return {"salt": _text(salt), "hash": _text(_scrypt(secret, salt, _COST)), **_COST}


def fits(secret: str, stored: Mapping[str, Any] | None) -> bool:
    """True where the secret is the one that was hashed. Takes as long where there is nothing to compare it with."""
    if stored is None:
        stored = _NOBODY
    found = _scrypt(secret, base64.b64decode(stored["salt"]), stored)
    return hmac.compare_digest(found, base64.b64decode(stored["hash"])) and stored is not _NOBODY


def _scrypt(secret: str, salt: bytes, cost: Mapping[str, Any]) -> bytes:
    data = secret.encode("utf-8", "surrogatepass")[:1024]
    return hashlib.scrypt(data, salt=salt, n=cost["n"], r=cost["r"], p=cost["p"], maxmem=64 * 1024**2, dklen=32)


def _make_workspace(root: Place, name: str) -> None:
    if name != "*" and name.lower() not in workspace_folders(root):
        make_workspace(root, name, str(uuid.uuid4()), name)


def _new_key() -> str:
    return _text(secrets.token_bytes(64))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


_NOBODY: Mapping[str, Any] = {"salt": _text(bytes(16)), "hash": _text(bytes(32)), **_COST}
