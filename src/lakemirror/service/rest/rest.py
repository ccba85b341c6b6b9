"""The REST interface: workspaces and mirrored databases (specification of the service, section 4).

path ─▶ call ─▶ role ─▶ registry, engine host ─▶ answer
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from lakemirror.bounded_json import parsed
from lakemirror.errors import LakemirrorError
from lakemirror.service.captures.capture_declaration import declared
from lakemirror.service.interface import Caller, DatabaseEntry, WorkspaceEntry
from lakemirror.service.plane import Plane
from lakemirror.service.raw_query import query_of, raw_path_of
from lakemirror.service.refused import Refused
from lakemirror.service.request_body import read_body
from lakemirror.service.request_notes import notes
from lakemirror.service.rest.body_names import description_of, display_name
from lakemirror.service.rest.calls import DATABASE, OPERATOR, OTHER_ITEMS, RestCall, calls_at
from lakemirror.service.rest.database_status import read_definition_file, status_of, table_rows, written_error
from lakemirror.service.rest.definition import default_schema, definition_of, parts_of, stored_definition
from lakemirror.service.rest.registry import NameInUse
from lakemirror.service.rest.rest_answers import answer, invalid
from lakemirror.service.rest.workspace_calls import WorkspaceCalls
from lakemirror.service.workspace_names import is_guid

MOST_BYTES = 16 * 1024**2  # of a request
STOP_WITHIN = 60.0  # seconds that a deletion waits for the engine before it is answered


@dataclass(frozen=True)
class _Asked:
    request: web.BaseRequest
    caller: Caller
    query: Mapping[str, str]
    address: str
    workspace: WorkspaceEntry | None = None
    database: DatabaseEntry | None = None
    capture: str = ""

    @property
    def the_workspace(self) -> WorkspaceEntry:
        assert self.workspace is not None
        return self.workspace

    @property
    def the_database(self) -> DatabaseEntry:
        assert self.database is not None
        return self.database


class Rest(Plane):
    """Answers the calls of section 4."""

    @property
    def _workspace_calls(self) -> WorkspaceCalls:
        return WorkspaceCalls(self.registry, self.principals)

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """The answer. Refused; LakemirrorError where the store fails."""
        caller = await self.authenticator.authenticate(request)
        self.under_way.enter_principals(caller.name, 429)
        try:
            raw = raw_path_of(request.raw_path)
            parts = [unquote(part, errors="strict") for part in raw.split("/") if part][1:]
            query = query_of(request.raw_path)
        except ValueError as error:
            raise invalid("The address is no UTF-8.") from error
        asked = _Asked(request, caller, query, f"{self.base_url(request)}{raw}")
        call = call_at(parts, request.method)
        notes().operation = call.operation
        found = self._found(asked, call, parts)
        return await self.act(call.operation)(found)

    def _found(self, asked: _Asked, call: RestCall, parts: list[str]) -> _Asked:
        """The request with the workspace and the database that its address names; its role is checked."""
        if len(parts) == 1:
            if call.role == OPERATOR and not asked.caller.may("*", "contribute"):
                raise Refused(403, "InsufficientPrivileges", f"{asked.caller.name} has no role for this.")
            return asked
        workspace = self._workspace(asked.caller, parts[1], call.role)
        if not call.offered:
            raise Refused(501, "OperationNotSupported", "This service has mirrored databases only.")
        database = None
        if len(parts) > 3:
            database = self.registry.database(workspace, parts[3]) if is_guid(parts[3]) else None
            if database is None or database.id != parts[3].lower():
                raise _no_item()
        return replace(asked, workspace=workspace, database=database, capture="".join(parts[5:6]))

    def act(self, operation: str) -> Callable[[_Asked], Awaitable[web.Response]]:
        """The function that answers a call."""
        return {
            "ListWorkspaces": self._workspaces,
            "GetWorkspace": self._get_workspace,
            "CreateWorkspace": self._create_workspace,
            "UpdateWorkspace": self._update_workspace,
            "DeleteWorkspace": self._delete_workspace,
            "ListItems": self._items,
            "ListMirroredDatabases": self._databases,
            "CreateMirroredDatabase": self._create,
            "GetMirroredDatabase": self._get,
            "UpdateMirroredDatabase": self._update,
            "DeleteMirroredDatabase": self._delete,
            "GetDefinition": self._get_definition,
            "UpdateDefinition": self._update_definition,
            "StartMirroring": self._start,
            "StopMirroring": self._stop,
            "GetMirroringStatus": self._status,
            "GetTablesMirroringStatus": self._tables,
            "ListCaptures": self._captures,
            "GetCapture": self._capture,
            "DeclareCapture": self._declare_capture,
            "DeleteCapture": self._delete_capture,
            "ReloadCapture": self._reload_capture,
        }[operation]

    def _workspace(self, caller: Caller, name_or_id: str, role: str) -> WorkspaceEntry:
        found = self.registry.workspace(name_or_id)
        is_allowed = (
            caller.may("*", "contribute") if role == OPERATOR else caller.may(found.name if found else "*", role)
        )
        if not is_allowed:
            raise Refused(403, "InsufficientPrivileges", f"{caller.name} has no role for this on the workspace.")
        if found is None:
            raise Refused(404, "WorkspaceNotFound", "There is no such workspace.")
        return found

    async def _workspaces(self, asked: _Asked) -> web.Response:
        readable = [each for each in self.registry.workspaces() if asked.caller.may(each.name, "read")]
        shown, more = self.paging.page(readable, lambda each: (each.name.lower(),), asked.query, asked.address)
        return answer({"value": [_workspace_row(each) for each in shown], **more})

    async def _get_workspace(self, asked: _Asked) -> web.Response:
        return answer(_workspace_row(asked.the_workspace))

    async def _create_workspace(self, asked: _Asked) -> web.Response:
        made = await asyncio.to_thread(self._workspace_calls.create, await self._body(asked.request))
        return answer(_workspace_row(made), 201)

    async def _update_workspace(self, asked: _Asked) -> web.Response:
        body = await self._body(asked.request)
        return answer(_workspace_row(await asyncio.to_thread(self._workspace_calls.rename, asked.the_workspace, body)))

    async def _delete_workspace(self, asked: _Asked) -> web.Response:
        await asyncio.to_thread(self._workspace_calls.delete, asked.the_workspace)
        return answer()

    async def _items(self, asked: _Asked) -> web.Response:
        other = asked.query.get("type", DATABASE).lower() != DATABASE.lower()
        return self._listed(asked, [] if other else self.registry.databases(asked.the_workspace))

    async def _databases(self, asked: _Asked) -> web.Response:
        return self._listed(asked, self.registry.databases(asked.the_workspace), self._row)

    def _listed(
        self, asked: _Asked, found: list[DatabaseEntry], row: Callable[[_Asked, DatabaseEntry], Any] | None = None
    ) -> web.Response:
        shown, more = self.paging.page(
            found, lambda each: (each.display_name.casefold(), each.id), asked.query, asked.address
        )
        return answer({"value": [row(asked, each) if row else _item_row(each) for each in shown], **more})

    async def _create(self, asked: _Asked) -> web.Response:
        body = await self._body(asked.request)
        name, description = display_name(body), description_of(body)
        if name is None:
            raise invalid("The request has no displayName.")
        data, bounds = definition_of(body), self.host.settings.bounds
        definition = await asyncio.to_thread(stored_definition, data, None, bounds)
        try:
            made = await asyncio.to_thread(
                self.registry.create, asked.the_workspace, name, description or "", definition
            )
        except NameInUse as error:
            raise _name_in_use(name) from error
        except KeyError as error:
            raise Refused(404, "WorkspaceNotFound", "There is no such workspace.") from error
        return answer(_item_row(made), 201)

    async def _get(self, asked: _Asked) -> web.Response:
        return answer(await asyncio.to_thread(self._row, asked, asked.the_database))

    async def _update(self, asked: _Asked) -> web.Response:
        body = await self._body(asked.request)
        name, description = display_name(body), description_of(body)
        if name is None and description is None:
            raise invalid("The request has neither displayName nor description.")
        try:
            renamed = await self._change(self.registry.rename, asked.the_database, name, description)
        except NameInUse as error:
            raise _name_in_use(name or "") from error
        return answer(_item_row(renamed))

    async def _delete(self, asked: _Asked) -> web.Response:
        hard = asked.query.get("harddelete", "").lower() == "true"
        database = asked.the_database
        try:
            await asyncio.to_thread(self.registry.delete, database, hard=hard)
        except KeyError as error:
            raise _no_item() from error
        self.host.stop(database.id)
        await asyncio.to_thread(self.captures.forget, database.id)
        if await self._has_stopped(database.id):
            await asyncio.to_thread(self.registry.bury, database)
        return answer()

    async def _has_stopped(self, database_id: str) -> bool:
        """False where an engine or a capture works still after STOP_WITHIN. No thread waits, so others find one."""
        deadline = time.monotonic() + STOP_WITHIN
        while not (self.host.has_stopped(database_id) and self.captures.has_ended(database_id)):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.02)
        return True

    async def _get_definition(self, asked: _Asked) -> web.Response:
        data = await asyncio.to_thread(read_definition_file, asked.the_database)
        return answer(parts_of(asked.the_database, data))

    async def _update_definition(self, asked: _Asked) -> web.Response:
        data = definition_of(await self._body(asked.request))
        database = asked.the_database
        bounds = self.host.settings.bounds

        def stored() -> bytes:
            return stored_definition(data, read_definition_file(database), bounds)

        await asyncio.to_thread(stored)
        before = await asyncio.to_thread(read_definition_file, database)
        state, _ = self.host.state(database)
        if default_schema(data) != default_schema(before) and state not in ("Initialized", "Stopped"):
            raise Refused(400, "OperationNotSupportedForItem", "defaultSchema changes only while mirroring is stopped.")
        await self._change(self.registry.define, database, stored)
        self.host.wake(database.id)
        return answer()

    async def _start(self, asked: _Asked) -> web.Response:
        self.host.start(await self._change(self.registry.set_state, asked.the_database, "Running"))
        return answer()

    async def _stop(self, asked: _Asked) -> web.Response:
        if asked.the_database.state != "Initialized":
            await self._change(self.registry.set_state, asked.the_database, "Stopped")
        self.host.stop(asked.the_database.id)
        return answer()

    async def _status(self, asked: _Asked) -> web.Response:
        state, error = self.host.state(asked.the_database)
        if error is None and state == "Running":
            error = await asyncio.to_thread(written_error, asked.the_database)
        shown = {"error": {"errorCode": error.code, "message": error.message}} if error else {}
        return answer({"status": state, **shown})

    async def _tables(self, asked: _Asked) -> web.Response:
        database = asked.the_database
        state, _ = self.host.state(database)
        found = await asyncio.to_thread(status_of, database, state, self.host.status(database.id))
        shown, more = self.paging.page(
            sorted(found.tables, key=lambda t: (t.schema, t.table)), lambda t: (t.schema, t.table), asked.query,
            asked.address,
        )  # fmt: skip
        return answer({"data": table_rows(shown), **more})

    async def _captures(self, asked: _Asked) -> web.Response:
        return answer({"value": [each.row() for each in self.captures.seen(asked.the_database)]})

    async def _capture(self, asked: _Asked) -> web.Response:
        for each in self.captures.seen(asked.the_database):
            if each.declaration.name == asked.capture:
                return answer(each.row())
        raise _no_capture()

    async def _declare_capture(self, asked: _Asked) -> web.Response:
        declaration = declared(asked.capture, await self._body(asked.request))
        is_new = await asyncio.to_thread(self.captures.declare, asked.the_database, declaration)
        shown = await self._capture(asked)
        shown.set_status(201 if is_new else 200)
        return shown

    async def _delete_capture(self, asked: _Asked) -> web.Response:
        give_back = asked.query.get("giveback", "").lower() == "true"
        try:
            removed = await asyncio.to_thread(
                self.captures.remove, asked.the_database, asked.capture, give_back=give_back
            )
        except LakemirrorError as error:
            raise Refused(
                error.kind.http_status, "CaptureNotGivenBack", f"{error.message}. The capture goes on."
            ) from error
        if not removed:
            raise _no_capture()
        return answer()

    async def _reload_capture(self, asked: _Asked) -> web.Response:
        tables = (await self._body(asked.request)).get("tables")
        if not isinstance(tables, list) or not tables or not all(isinstance(each, str) and each for each in tables):
            raise invalid('The request has no tables, such as ["public.orders"] or ["all"].')
        if not self.captures.reload(asked.the_database, asked.capture, tuple(tables)):
            raise _no_capture()
        return answer()

    async def _change(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """The act in a thread; `ItemNotFound` where the database was deleted meanwhile."""
        try:
            return await asyncio.to_thread(act, *arguments)
        except KeyError as error:
            raise _no_item() from error

    async def _body(self, request: web.BaseRequest) -> dict[str, Any]:
        if not self.has_room():
            raise Refused(503, "ServerBusy", "The disk is almost full.", {"Retry-After": "60"})
        try:
            found = parsed((await read_body(request, self.limits, MOST_BYTES)).decode("utf-8-sig"))
        except Refused as error:
            code = {408: "RequestTimeout", 413: error.code}.get(error.status, "InvalidRequest")
            raise Refused(error.status, code, error.message, error.headers) from error
        except (ValueError, RecursionError) as error:
            raise invalid(f"The body is no JSON: {error}.") from error
        if not isinstance(found, dict):
            raise invalid("The body is no JSON object.")
        return found

    def _row(self, asked: _Asked, database: DatabaseEntry) -> dict[str, Any]:
        schema = default_schema(read_definition_file(database))
        assert database.workspace is not None
        path = f"{self.base_url(asked.request)}/{database.workspace.id}/{database.id}/Tables"
        properties = {"oneLakeTablesPath": path, **({"defaultSchema": schema} if schema else {})}
        return {**_item_row(database), "properties": properties}


def _item_row(database: DatabaseEntry) -> dict[str, Any]:
    assert database.workspace is not None
    return {
        "id": database.id,
        "type": DATABASE,
        "displayName": database.display_name,
        "description": database.description,
        "workspaceId": database.workspace.id,
    }


def _workspace_row(workspace: WorkspaceEntry) -> dict[str, str]:
    return {"id": workspace.id, "displayName": workspace.name, "type": "Workspace"}


def call_at(parts: list[str], method: str) -> RestCall:
    """The call of a request. Refused 404 `EntityNotFound`, 405 `OperationNotSupported`."""
    if len(parts) > 2 and parts[0] == "workspaces" and parts[2] in OTHER_ITEMS:
        return RestCall("OtherItemType", method, "", "read", offered=False)
    calls = calls_at(parts)
    if not calls:
        raise Refused(404, "EntityNotFound", "There is nothing at this address.")
    if method not in calls:
        allowed = ", ".join(call.method for call in calls.values() if call.offered)
        raise Refused(405, "OperationNotSupported", f"Use {allowed}.", {"Allow": allowed})
    return calls[method]


def _no_item() -> Refused:
    return Refused(404, "ItemNotFound", "There is no such mirrored database in this workspace.")


def _no_capture() -> Refused:
    return Refused(404, "EntityNotFound", "There is no such capture of this database.")


def _name_in_use(name: str) -> Refused:
    return Refused(409, "ItemDisplayNameAlreadyInUse", f"There is a mirrored database {name} in this workspace.")
