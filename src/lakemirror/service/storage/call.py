"""One request of the storage plane, and what may be done with it: who asks, for which database, with which right."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from lakemirror.service.addresses import BLOB, DFS, Address, address_of, is_writable, source_segments
from lakemirror.service.interface import Authenticator, Caller, DatabaseEntry, Limits, Registry, WorkspaceEntry
from lakemirror.service.storage.answers import StorageError, forbidden, not_found
from lakemirror.service.storage.place import Place
from lakemirror.service.storage.workers import Workers

LETTERS = {"read": "r", "list": "l", "write": "wca", "delete": "d"}


class Places:
    """The databases that requests have met, one Place each."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._places: dict[str, Place] = {}
        self._lock = threading.Lock()

    def of(self, database: DatabaseEntry) -> Place:
        """The place of a database. Reads its staging folder the first time: call it in a worker thread."""
        with self._lock:
            place = self._places.get(database.id)
            if place is None or place.folder != database.folder:
                place = Place(Path(database.folder), Path(self._registry.staging) / database.id)
                self._places[database.id] = place
            return place

    def all(self) -> list[Place]:
        """Those that requests have met."""
        with self._lock:
            return list(self._places.values())


@dataclass(frozen=True)
class Serving:
    """What all requests share."""

    registry: Registry
    authenticator: Authenticator
    limits: Limits
    places: Places
    workers: Workers


@dataclass(frozen=True)
class Call:
    """A request whose caller is known. `method` is the one that is meant, an override applied."""

    request: web.BaseRequest
    serving: Serving
    caller: Caller
    method: str
    dialect: str
    query: Mapping[str, str]
    address: Address

    @property
    def headers(self) -> Mapping[str, str]:
        return self.request.headers

    def workspace(self, role: str, act: str) -> WorkspaceEntry:
        """The workspace that is addressed. StorageError 403 without the role, 404 where there is none.

        `act`: `read`, `list`, `write` or `delete`, which an account SAS has to allow.
        """
        name = self.address.workspace
        found = self.serving.registry.workspace(name) if name else None
        if not name or not self.caller.may(found.name if found else name, role):
            raise forbidden("This caller has no such role on the workspace.")
        self.check_sas(act)
        if found is None:
            code = "FilesystemNotFound" if self.dialect == DFS else "ContainerNotFound"
            raise StorageError(404, code, "The workspace does not exist.")
        return found

    def check_sas(self, act: str) -> None:
        """StorageError 403 where the request's SAS does not allow the act."""
        allowed = self.caller.sas_permissions
        if allowed is not None and allowed.isdisjoint(LETTERS[act]):
            raise StorageError(403, "AuthorizationPermissionMismatch", "The SAS does not allow this.")

    def database(self, role: str, act: str) -> DatabaseEntry:
        """The database that is addressed. StorageError 403, 404."""
        workspace = self.workspace(role, act)
        found = self.serving.registry.database(workspace, self.address.database) if self.address.database else None
        if found is None:
            raise not_found(self.dialect)
        return found

    def check_writable(self, path: str) -> None:
        """StorageError 403 where clients may not write."""
        if not is_writable(path):
            raise forbidden("Clients may write below Files/ only, and not where the engine writes.")

    async def place(self, database: DatabaseEntry) -> Place:
        """The addressed database's place."""
        return await self.serving.workers.run(self.serving.places.of, database)

    def source(self, header: str, database: DatabaseEntry, wrong: StorageError) -> str:
        """The path inside the database that a rename or copy source names; `wrong` where it is not in the database."""
        address = address_of(source_segments(self.headers[header]), self.is_account)
        workspace = self.serving.registry.workspace(self.address.workspace)
        theirs = self.serving.registry.workspace(address.workspace) if address.workspace else None
        if workspace is None or theirs is None or theirs.id != workspace.id or not address.database:
            raise wrong
        other = self.serving.registry.database(workspace, address.database)
        if other is None or other.id != database.id:
            raise wrong
        return address.path

    def is_account(self, name: str) -> bool:
        return self.serving.authenticator.is_principal(name)

    @property
    def exists_code(self) -> str:
        return "BlobAlreadyExists" if self.dialect == BLOB else "PathAlreadyExists"
