"""The principals of a root folder: names, roles, secrets as slow salted hashes, account keys.

They are in principals/principals.json of the service's own folder, which `lakemirror access` writes and a running
service reads again when it has changed (specification of the service, sections 1 and 3).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.service.interface import Caller
from lakemirror.service.own_folder import PRINCIPALS, own_folder
from lakemirror.service.root_folder import make_workspace, read_object, workspace_folders
from lakemirror.service.workspace_names import is_reserved, is_workspace_name
from lakemirror.storage import Place
from lakemirror.storage.place import capabilities_of, storage_of
from lakemirror.storage.private_files import change_private

ROLES = ("read", "contribute")
FOLLOW = 1.0  # seconds after which a change of the file is looked for
_FILE = "principals.json"
_MARKS = 64  # changes that the file remembers: more than others make while one waits for its answer
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
    """`changes`: the marks of the last changes, by which one whose answer is lost is found again."""

    tenant_id: str
    principals: Mapping[str, Principal]
    by_id: Mapping[str, Principal] = field(default_factory=dict)
    changes: Sequence[str] = ()


class Principals:
    """The principals of one root folder. Safe to use from several threads and processes.

    What is asked for on a disk is looked for there; in a store, `follow` looks, since a request takes its time.
    """

    def __init__(self, root: Place, state: str | Path | None = None) -> None:
        """Makes the file with a new tenant id where there is none. `state`: as `own_folder`."""
        self._root = root
        self.own = own_folder(root, state)
        self._folder = self.own / PRINCIPALS
        self._waits = capabilities_of(self.own).waits
        self._lock = threading.Lock()
        self._stamp, self._looked = "", 0.0
        self._change(lambda content: content)

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
        """A new principal; makes the folders of its workspaces, which are open to nobody else then.

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

        def added(content: _Content) -> _Content:
            if name in content.principals:
                raise LakemirrorError("principal-invalid", f"there is a principal {name} already")
            others = content.principals
            for workspace in granted:
                others = self._without_stale_roles(others, workspace)
                _make_workspace(self._root, workspace)
            return _Content(content.tenant_id, {**others, name: principal})

        return Issued(principal, secret, self._change(added).tenant_id)

    def remove(self, name: str) -> None:
        """LakemirrorError `principal-missing`."""

        def removed(content: _Content) -> _Content:
            self._require(content, name)
            return _Content(content.tenant_id, {n: each for n, each in content.principals.items() if n != name})

        self._change(removed)

    def rotate(self, name: str) -> Issued:
        """The principal with a new secret and account key; the old ones are refused. LakemirrorError
        `principal-missing`."""
        secret = secrets.token_urlsafe(32)
        key, hash_ = _new_key(), hashed(secret)
        issued: list[Principal] = []  # the last: another process may have changed or removed it since

        def rotated(content: _Content) -> _Content:
            issued.append(replace(self._require(content, name), account_key=key, secret=hash_))
            return _Content(content.tenant_id, {**content.principals, name: issued[-1]})

        tenant_id = self._change(rotated).tenant_id
        return Issued(issued[-1], secret, tenant_id)

    def move_roles(self, workspace: str, to: str | None) -> None:
        """Gives every role on a workspace for another name of it; None: takes the roles away."""
        self._change(lambda content: _Content(content.tenant_id, _moved(content.principals, workspace.lower(), to)))

    def forget_stale_roles(self, workspace: str) -> None:
        """Takes away the roles on a workspace that does not exist: those of one whose rename or deletion was killed."""

        def forgotten(content: _Content) -> _Content:
            return _Content(content.tenant_id, self._without_stale_roles(content.principals, workspace))

        self._change(forgotten)

    def _without_stale_roles(self, principals: Mapping[str, Principal], workspace: str) -> Mapping[str, Principal]:
        """Looks at the folders after the principals were read: a folder is made before its first role is given."""
        if workspace == "*" or workspace.lower() in workspace_folders(self._root):
            return principals
        return _moved(principals, workspace.lower(), None)

    def follow(self) -> None:
        """Reads what another process has changed. LakemirrorError where a store does not answer."""
        with self._lock:
            before = self._stamp
        stamp = self._stamp_now()
        if stamp != before:
            content = self._read()
            with self._lock:
                self._stamp, self._content = stamp, content

    def _require(self, content: _Content, name: str) -> Principal:
        found = content.principals.get(name)
        if found is None:
            raise LakemirrorError("principal-missing", f"there is no principal {name}")
        return found

    def _current(self) -> _Content:
        with self._lock:
            is_due = not self._waits and time.monotonic() - self._looked > FOLLOW
            self._looked = time.monotonic() if is_due else self._looked
        if is_due:
            self.follow()
        return self._content

    def _stamp_now(self) -> str:
        found = storage_of(self._folder).stat(_FILE)
        return "" if found is None else found.etag

    def _read(self) -> _Content:
        content = _content_of(read_object(self._folder, _FILE))
        if content is None:
            raise _unreadable(self._folder / _FILE)
        return content

    def _change(self, made: Callable[[_Content], _Content]) -> _Content:
        """The content after a change, which is durable. In a store others may have changed it since."""
        mark = secrets.token_hex(8)

        def changed(data: bytes | None) -> bytes | None:
            before = _Content(str(uuid.uuid4()), {}) if data is None else _content_of(_loaded(data))
            if before is None:
                raise _unreadable(self._folder / _FILE)
            if mark in before.changes:
                return None
            after = made(before)
            if data is not None and after.principals == before.principals:
                return None
            return _dumped(replace(after, changes=[*before.changes, mark][-_MARKS:]))

        content = _content_of(_loaded(change_private(self._folder / _FILE, changed)))
        assert content is not None
        with self._lock:
            self._stamp, self._content, self._looked = "", content, time.monotonic()  # the next look reads it again
        return content


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


def _loaded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _content_of(found: Any) -> _Content | None:
    """What a file says; None for anything that is no file of principals."""
    if not isinstance(found, dict) or not isinstance(found.get("principals"), dict):
        return None
    principals = {
        name: Principal(name, row["client_id"], row["roles"], row["account_key"], row["secret"])
        for name, row in found["principals"].items()
    }
    by_id = {each.client_id.lower(): each for each in principals.values()}
    return _Content(found["tenant_id"], principals, by_id, found.get("changes") or ())


def _dumped(content: _Content) -> bytes:
    rows = {
        each.name: {
            "client_id": each.client_id,
            "roles": dict(each.roles),
            "account_key": each.account_key,
            "secret": dict(each.secret),
        }
        for each in content.principals.values()
    }
    written = {"tenant_id": content.tenant_id, "principals": rows, "changes": content.changes}
    return json.dumps(written, indent=1).encode() + b"\n"


def _unreadable(path: Place) -> LakemirrorError:
    return LakemirrorError("principal-invalid", f"{path} cannot be read: restore it from a backup")


def _scrypt(secret: str, salt: bytes, cost: Mapping[str, Any]) -> bytes:
    data = secret.encode("utf-8", "surrogatepass")[:1024]
    return hashlib.scrypt(data, salt=salt, n=cost["n"], r=cost["r"], p=cost["p"], maxmem=64 * 1024**2, dklen=32)


def _moved(principals: Mapping[str, Principal], old: str, to: str | None) -> dict[str, Principal]:
    """The principals, with their roles on the workspace `old` for another one; None: without them."""
    moved = dict(principals)
    for name, each in principals.items():
        if old in each.roles:
            left = {key: role for key, role in each.roles.items() if key != old}
            moved[name] = replace(each, roles=left if to is None else {**left, to.lower(): each.roles[old]})
    return moved


def _make_workspace(root: Place, name: str) -> None:
    if name != "*" and name.lower() not in workspace_folders(root):
        make_workspace(root, name, str(uuid.uuid4()), name)


def _new_key() -> str:
    return _text(secrets.token_bytes(64))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


_NOBODY: Mapping[str, Any] = {"salt": _text(bytes(16)), "hash": _text(bytes(32)), **_COST}
