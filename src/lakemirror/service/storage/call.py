"""One request of the storage plane, and what may be done with it: who asks, for which database, with which right."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import TypeVar

from aiohttp import web

from lakemirror.service.interface import Authenticator, Caller, DatabaseEntry, Limits, Registry, WorkspaceEntry
from lakemirror.service.refused import Refused
from lakemirror.service.request_address import BLOB, DFS, Address, Target, address_of, is_writable, source_segments
from lakemirror.service.request_body import announced_length
from lakemirror.service.request_notes import notes
from lakemirror.service.storage.blocks import remove_old_blocks
from lakemirror.service.storage.conditions import Conditions, conditions_of
from lakemirror.service.storage.database_files import DatabaseFiles
from lakemirror.service.storage.publish_file import drop_published
from lakemirror.service.storage.staged_copies import StagedCopies
from lakemirror.service.storage.storage_answers import CODES, Codes, forbidden, invalid_parameter, not_found
from lakemirror.service.storage.workers import Workers
from lakemirror.service.storage_operations import OBJECT, PUBLISHES, SERVICE, Operation, kind_of, operation_of
from lakemirror.storage.place import Place, folders_in

KEPT_SECONDS = 7 * 86400
LANDING_ZONE = "Files/LandingZone"

_METHODS = frozenset({"GET", "HEAD", "PUT", "PATCH", "POST", "DELETE"})


class FilesByDatabase:
    """The files of every database that requests have met."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._files: dict[str, DatabaseFiles] = {}
        self._loading: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def of(self, database: DatabaseEntry) -> DatabaseFiles:
        """The files of a database. Reads what is staged the first time: call it in a worker thread."""
        return self._serve(self._at(database.id, database.folder), database)

    def known(self, database: DatabaseEntry) -> DatabaseFiles | None:
        """The same without a look at the disk; None the first time."""
        files = self._files.get(database.id)
        return None if files is None else self._serve(files, database)

    def remove_old_uploads(self, now: float) -> None:
        """Removes what was staged and not touched for 7 days, in every database (service.md section 6)."""
        copies = self._registry.staged_copies
        with suppress(FileNotFoundError):
            for folder in self._registry.staging.iterdir():
                if copies is not None and folder.name not in self._files:
                    continue  # of an earlier process: a request restores it
                files = self._at(folder.name)
                remove_old_blocks(files, now - KEPT_SECONDS)
                files.remove_old_uploads(now - KEPT_SECONDS)
                files.copies.settle()
        if copies is not None:
            for below in folders_in(copies):  # of databases that no request has met
                StagedCopies(below, self._registry.staging / below.name).remove_old(now - KEPT_SECONDS)

    def _serve(self, files: DatabaseFiles, database: DatabaseEntry) -> DatabaseFiles:
        files.serve(database.folder, partial(self._is_served, database))
        return files

    def _is_served(self, database: DatabaseEntry) -> bool:
        """False where the database was deleted, or moved, since a request found it."""
        if database.workspace is None:
            return True
        found = self._registry.database(database.workspace, database.id)
        return found is not None and (found.id, found.folder) == (database.id, database.folder)

    def _at(self, database_id: str, folder: Place | None = None) -> DatabaseFiles:
        with self._lock:
            loading = self._loading.setdefault(database_id, threading.Lock())
        with loading:  # of one database: what a store has staged of it may be large
            if database_id not in self._files:
                staging, copies = self._registry.staging / database_id, self._registry.staged_copies
                place = copies if copies is None else copies / database_id
                files = DatabaseFiles(folder or staging, staging, place)
                if folder is not None and place is not None:
                    drop_published(files)
                self._files[database_id] = files
            return self._files[database_id]


@dataclass(frozen=True)
class Serving:
    """What all requests share."""

    registry: Registry
    authenticator: Authenticator
    limits: Limits
    databases: FilesByDatabase
    workers: Workers


@dataclass(frozen=True)
class Call:
    """A request whose caller is known. `method` is the one that is meant, an override applied.

    `operation`: what is asked for. It says which role and which letters of a SAS allow it, and how it is answered.
    """

    request: web.BaseRequest
    serving: Serving
    caller: Caller
    method: str
    dialect: str
    operation: Operation
    query: Mapping[str, str]
    address: Address
    headers: Mapping[str, str]

    def check_sas(self) -> None:
        """Refused 403 where the caller's SAS does not allow the operation."""
        wanted = self.operation
        if wanted.kind not in self.caller.sas_kinds:
            raise Refused(403, "AuthenticationFailed", f"The SAS is not for this kind of resource: {wanted.kind}.")
        if not self.caller.sas_allows(wanted.letters) or not self.caller.sas_allows(wanted.source):
            raise forbidden("The SAS does not allow this.")
        if not self.caller.sas_opens(self._subject().full_name):
            raise forbidden("The SAS opens another folder.")

    def _subject(self) -> Address:
        """What the operation is about: the folder that it lists, or what is addressed. Refused."""
        if self.operation.name == "ListPaths":
            return self.address.below_directory(self.query.get("directory", ""))
        if self.operation.name == "ListBlobs":
            return self.address.below_prefix(self.query.get("prefix", ""))
        return self.address

    def conditions(self) -> Conditions:
        """The conditions under which the operation may change what is at the path."""
        creates_only = self.operation.creates and not self.caller.sas_allows("w")
        return replace(conditions_of(self.headers), creates_only=creates_only)

    def workspace(self) -> WorkspaceEntry:
        """The workspace that is addressed. Refused 403 without the operation's role, 404 where there is none."""
        name = self.address.workspace
        found = self.serving.registry.workspace(name) if name else None
        if not name or not self.caller.may(found.name if found else name, self.operation.role):
            raise forbidden("This caller has no such role on the workspace.")
        if found is None:
            raise Refused(404, self.codes.no_workspace, "The workspace does not exist.")
        return found

    def database(self) -> DatabaseEntry:
        """The database that is addressed. Refused 403, 404."""
        workspace = self.workspace()
        found = self.serving.registry.database(workspace, self.address.database) if self.address.database else None
        if found is None:
            raise not_found(self.dialect)
        notes().workspace, notes().database = workspace.name, found.display_name
        return found

    def check_writable(self, path: str) -> None:
        """Refused 403 where clients may not write."""
        if not is_writable(path):
            raise forbidden("Clients may write below Files/ only, and not where the engine writes.")

    def is_same_workspace(self, name_or_id: str) -> bool:
        """True where this names the workspace that is addressed."""
        ours = self.serving.registry.workspace(self.address.workspace)
        theirs = self.serving.registry.workspace(name_or_id) if name_or_id else None
        return ours is not None and theirs is not None and ours.id == theirs.id

    def for_part(self, method: str, target: Target, operation: Operation, headers: Mapping[str, str]) -> Call:
        """The same caller's call for one part of a batch."""
        return replace(
            self, method=method, operation=operation, query=target.query, address=target.address, headers=headers
        )

    def tree(self, workspace: WorkspaceEntry, name: str) -> Mapping[str, Callable[[], DatabaseFiles]] | None:
        """The database of this name, or all of the workspace where it is empty, by the names that listings have. Each
        gives its files when it is called, in a worker thread. None where there is no such database."""
        registry, files_of = self.serving.registry, self.serving.databases.of
        if not name:
            found = registry.databases(workspace)
            return {f"{each.display_name}.MirroredDatabase": partial(files_of, each) for each in found}
        named = registry.database(workspace, name)
        return None if named is None else {name: partial(files_of, named)}

    async def files(self, database: DatabaseEntry) -> DatabaseFiles:
        """The files of the addressed database."""
        known = self.serving.databases.known(database)
        return known if known is not None else await self.serving.workers.run(self.serving.databases.of, database)

    @property
    def makes_folder(self) -> bool:
        """True for a request that makes a folder, in the way of either dialect."""
        if self.operation.name == "PutBlob" and self.headers.get("x-ms-meta-hdi_isfolder", "").lower() == "true":
            return announced_length(self.request, self.serving.limits.max_body) == 0
        return self.operation.name == "CreateDirectory"

    def source(self, header: str, wrong: Refused) -> str:
        """The path inside the database that a rename or copy source names; `wrong` where it is not in the database."""
        database = self.database()
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
    def codes(self) -> Codes:
        """The error codes of the request's dialect."""
        return CODES[self.dialect]


Answer = TypeVar("Answer")


def on_path(
    act: Callable[[Call, DatabaseFiles], Coroutine[None, None, Answer]],
) -> Callable[[Call], Coroutine[None, None, Answer]]:
    """An operation on a path: `act` gets the files of the addressed database.

    An operation with an effect is refused where clients may not write; what it has published wakes the replicator.
    """

    @wraps(act)
    async def answer(call: Call) -> Answer:
        database = call.database()
        if call.operation.effect and not (call.address.path == LANDING_ZONE and call.makes_folder):
            call.check_writable(call.address.path)
        answer = await act(call, await call.files(database))
        if call.operation.effect == PUBLISHES:
            call.serving.registry.published(database)
        return answer

    return answer


def meant_method(method: str, headers: Mapping[str, str]) -> str:
    """The method that is meant: PATCH where a PUT says so. Refused 400, 405."""
    override = headers.get("X-HTTP-Method-Override")
    if override is not None:
        if method != "PUT" or override.upper() != "PATCH":
            raise Refused(400, "InvalidHeaderValue", "X-HTTP-Method-Override can make PUT a PATCH only.")
        return "PATCH"
    if method not in _METHODS:
        raise Refused(405, "UnsupportedHttpVerb", "The resource does not support this verb.")
    return method


def asked_for(dialect: str, method: str, target: Target, headers: Mapping[str, str]) -> Operation:
    """The operation that a request asks for. Refused 400, 405 where there is none."""
    found = operation_of(dialect, method, target.address, target.query, headers)
    if found is not None:
        return found
    kind = kind_of(dialect, target.address, target.query)
    if dialect == BLOB and (kind == SERVICE or target.query.get("comp")):
        raise invalid_parameter("comp")
    if dialect == DFS and kind == OBJECT and method in ("PUT", "PATCH"):
        raise invalid_parameter("resource" if method == "PUT" else "action")
    raise Refused(405, "UnsupportedHttpVerb", "The resource does not support this verb.")
