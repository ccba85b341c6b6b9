"""One request of the storage plane, and what may be done with it: who asks, for which database, with which right."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from aiohttp import web
from multidict import CIMultiDict

from lakemirror.service.addresses import BLOB, DFS, Address, address_of, is_writable, source_segments
from lakemirror.service.interface import Authenticator, Caller, DatabaseEntry, Limits, Registry, WorkspaceEntry
from lakemirror.service.storage.answers import StorageError, forbidden, not_found
from lakemirror.service.storage.blocks import remove_old_blocks
from lakemirror.service.storage.place import Place
from lakemirror.service.storage.workers import Workers

KEPT_SECONDS = 7 * 86400
LETTERS = {"read": "r", "list": "l", "write": "wca", "delete": "d"}


class Places:
    """The databases that requests have met, one Place each."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._places: dict[str, Place] = {}
        self._lock = threading.Lock()

    def of(self, database: DatabaseEntry) -> Place:
        """The place of a database. Reads its staging folder the first time: call it in a worker thread."""
        return self._serve(self._at(database.id), database)

    def known(self, database: DatabaseEntry) -> Place | None:
        """The same without a look at the disk; None the first time."""
        place = self._places.get(database.id)
        return None if place is None else self._serve(place, database)

    def remove_old_uploads(self, now: float) -> None:
        """Removes what was staged and not touched for 7 days, in every database (service.md section 6)."""
        with suppress(FileNotFoundError):
            for folder in self._registry.staging.iterdir():
                place = self._at(folder.name)
                remove_old_blocks(place, now - KEPT_SECONDS)
                place.remove_old_uploads(now - KEPT_SECONDS)

    def _serve(self, place: Place, database: DatabaseEntry) -> Place:
        place.folder = database.folder
        place.is_served = partial(self._is_served, database)
        return place

    def _is_served(self, database: DatabaseEntry) -> bool:
        """False where the database was deleted, or moved, since a request found it."""
        if database.workspace is None:
            return True
        found = self._registry.database(database.workspace, database.id)
        return found is not None and (found.id, found.folder) == (database.id, database.folder)

    def _at(self, database_id: str) -> Place:
        with self._lock:
            if database_id not in self._places:
                staging = self._registry.staging / database_id
                self._places[database_id] = Place(staging, staging)  # its folder is set when it is asked for
            return self._places[database_id]


@dataclass
class Outcome:
    """What is known of a request when it is answered, for logs and metrics. "" and 0 where there is none.

    `parts`: path and status of each part of a batch.
    """

    principal: str = ""
    operation: str = ""
    workspace: str = ""
    database: str = ""
    uploaded_bytes: int = 0
    status: int = 0
    code: str = ""
    parts: list[tuple[str, int]] = field(default_factory=list)


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
    headers: Mapping[str, str]
    outcome: Outcome

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
        self.outcome.workspace, self.outcome.database = workspace.name, found.display_name
        return found

    def check_writable(self, path: str) -> None:
        """StorageError 403 where clients may not write."""
        if not is_writable(path):
            raise forbidden("Clients may write below Files/ only, and not where the engine writes.")

    def is_same_workspace(self, name_or_id: str) -> bool:
        """True where this names the workspace that is addressed."""
        ours = self.serving.registry.workspace(self.address.workspace)
        theirs = self.serving.registry.workspace(name_or_id) if name_or_id else None
        return ours is not None and theirs is not None and ours.id == theirs.id

    def for_part(self, address: Address, headers: Mapping[str, str]) -> Call:
        """The same caller's call for one part of a batch."""
        return replace(self, address=address, headers=CIMultiDict(headers), method="DELETE")

    def later(self, database: DatabaseEntry) -> Callable[[], Place]:
        """Gives a database's place when it is called, in a worker thread."""
        return lambda: self.serving.places.of(database)

    async def place(self, database: DatabaseEntry) -> Place:
        """The addressed database's place."""
        known = self.serving.places.known(database)
        return known if known is not None else await self.serving.workers.run(self.serving.places.of, database)

    def source(self, header: str, database: DatabaseEntry, wrong: StorageError) -> str:
        """The path inside the database that a rename or copy source names; `wrong` where it is not in the database."""
        address = address_of(source_segments(self.headers[header]), self.is_account)
        workspace = self.serving.registry.workspace(self.address.workspace)
        if workspace is None or not self.is_same_workspace(address.workspace) or not address.database:
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
