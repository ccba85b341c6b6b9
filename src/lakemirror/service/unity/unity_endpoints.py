"""Unity Catalog's open REST interface over HTTP, under `/api/2.1/unity-catalog/`: its read side.

catalogs are workspaces, schemas are databases (`shop`, and `shop:crm` for a schema of one), tables are mirrored tables
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from lakemirror.errors import LakemirrorError
from lakemirror.readers.unity_columns import columns_of
from lakemirror.service.interface import Caller, WorkspaceEntry
from lakemirror.service.plane import Plane
from lakemirror.service.raw_query import decoded, query_of, raw_path_of
from lakemirror.service.refused import Refused
from lakemirror.service.request_body import read_body
from lakemirror.service.request_notes import notes
from lakemirror.service.sharing.shared_tables import (
    SharedTable,
    readable_shares,
    share_named,
    tables_at,
    tables_in,
    tables_of_share,
)
from lakemirror.service.sharing.snapshots import Snapshots
from lakemirror.service.storage.workers import Workers
from lakemirror.storage.place import local_path

log = logging.getLogger("lakemirror")

API = "/api/2.1/unity-catalog"
_MOST_BODY = 64 * 1024  # bytes
_CODES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    405: "UNIMPLEMENTED", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE",
}  # fmt: skip


@dataclass(frozen=True)
class _Asked:
    """A request whose caller is known. `name`: the last part of its address, where it names one thing."""

    request: web.BaseRequest
    caller: Caller
    name: str
    query: Mapping[str, str]


@dataclass
class Unity(Plane):
    """Answers the requests of the catalog's plane."""

    file_locations: bool = False
    _workers: Workers = field(default_factory=Workers)
    _snapshots: Snapshots = field(default_factory=Snapshots)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer. Refused."""
        parts = [decoded(part) for part in raw_path_of(request.raw_path)[len(API) :].split("/") if part]
        is_for_key = parts == ["temporary-table-credentials"]
        found = _OPERATIONS.get((parts[0], len(parts))) if parts else None
        notes().operation = "GenerateTemporaryTableCredential" if is_for_key else found[0] if found else ""
        caller = await self.by_any_token(request)
        if is_for_key:
            return await self._credentials(request)
        if found is None:
            raise Refused(404, "ResourceNotFound", "The read side of Unity Catalog has nothing at this address.")
        if request.method != "GET":
            raise Refused(405, "OperationNotSupported", "This catalog is read-only.", {"Allow": "GET"})
        return await found[1](self, _Asked(request, caller, parts[-1], query_of(request.raw_path)))

    async def _catalogs(self, asked: _Asked) -> web.Response:
        found = readable_shares(self.registry, asked.caller)
        return self._listed(asked, "catalogs", [_catalog(each) for each in found])

    async def _catalog(self, asked: _Asked) -> web.Response:
        return _json(_catalog(share_named(self.registry, asked.caller, asked.name)))

    async def _schemas(self, asked: _Asked) -> web.Response:
        catalog = share_named(self.registry, asked.caller, _given(asked, "catalog_name"))
        return self._listed(asked, "schemas", await self._workers.run(self._schemas_of, catalog))

    async def _schema(self, asked: _Asked) -> web.Response:
        for catalog in readable_shares(self.registry, asked.caller):
            if asked.name.lower().startswith(f"{catalog.name.lower()}."):
                for each in await self._workers.run(self._schemas_of, catalog):
                    if each["full_name"].lower() == asked.name.lower():
                        return _json(each)
        raise Refused(404, "SchemaNotFound", f"There is no schema {asked.name[:256]} that you may read.")

    async def _tables(self, asked: _Asked) -> web.Response:
        catalog = share_named(self.registry, asked.caller, _given(asked, "catalog_name"))
        schema = _given(asked, "schema_name")
        found = await self._workers.run(tables_in, self.registry, catalog, schema)
        found = [each for each in found if _schema_of(each).lower() == schema.lower()]
        shown, token = self._cut(asked, found, lambda each: [each.name])
        rows = [await self._workers.run(self._row_or_name, asked.request, each) for each in shown]
        return _json({"tables": [row for row in rows if row], **({"next_page_token": token} if token else {})})

    async def _table(self, asked: _Asked) -> web.Response:
        found = await self._workers.run(self._named, readable_shares(self.registry, asked.caller), asked.name)
        found = [each for each in found if _full_name(each) == asked.name] or found
        if len(found) > 1:
            raise Refused(400, "TableAmbiguous", f"Several tables are named {asked.name[:256]}.")
        if not found:
            raise Refused(404, "TableNotFound", f"There is no table {asked.name[:256]} that you may read.")
        return _json(await self._workers.run(self._row, asked.request, found[0]))

    async def _credentials(self, request: web.BaseRequest) -> web.Response:
        """A SAS that opens the folder of one table for reading, until its time is over. No token of a profile file
        gets one: it opens Delta Sharing alone."""
        if request.method != "POST":
            raise Refused(405, "OperationNotSupported", "Ask for credentials by POST.", {"Allow": "POST"})
        caller = await self.authenticator.authenticate(request)
        table_id, operation = _named_in(await read_body(request, self.limits, _MOST_BODY))
        if operation == "READ_WRITE":
            raise Refused(403, "InsufficientPrivileges", "This catalog is read-only: ask for the operation READ.")
        if operation != "READ" or not table_id:
            raise Refused(400, "InvalidRequest", "The body is an object with table_id, and operation READ.")
        table = await self._workers.run(self._with_id, caller, table_id)
        folder = "/".join(_place_of(table))
        sas, expiry = self.authenticator.sas_for_folder(caller, folder, secure=request.secure)
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(expiry))
        notes().granted = {"table": _full_name(table), "until": until}
        return _json({"azure_user_delegation_sas": {"sas_token": sas}, "expiration_time": expiry * 1000})

    def _with_id(self, caller: Caller, table_id: str) -> SharedTable:
        """The table of this id. Refused 404."""
        catalogs = readable_shares(self.registry, caller)
        tables = (table for catalog in catalogs for table in tables_of_share(self.registry, catalog))
        for table in tables:
            if table_id.startswith(_place_mark(table)):
                with contextlib.suppress(Refused, LakemirrorError):  # just dropped, or its log cannot be read
                    if _table_id(table, self._snapshots.newest(table).metadata.id) == table_id:
                        return table
        raise Refused(404, "TableNotFound", f"There is no table {table_id[:256]} that you may read.")

    def _named(self, catalogs: Sequence[WorkspaceEntry], full_name: str) -> list[SharedTable]:
        """The tables of this name, in any case. A database's name may have dots, as the table's."""
        named = []
        for catalog in catalogs:
            if full_name.lower().startswith(f"{catalog.name.lower()}."):
                below = full_name[len(catalog.name) + 1 :]
                for dot in (place for place, letter in enumerate(below) if letter == "."):
                    database, _, inner = below[:dot].partition(":")
                    for each in self.registry.databases(catalog):
                        if each.display_name.lower() == database.lower():
                            named += tables_at(catalog, each, inner, below[dot + 1 :])
        return [each for each in named if _full_name(each).lower() == full_name.lower()]

    def _schemas_of(self, catalog: WorkspaceEntry) -> list[dict[str, str]]:
        names = {each.display_name for each in self.registry.databases(catalog)}
        names |= {_schema_of(table) for table in tables_of_share(self.registry, catalog)}
        return [
            {"name": name, "catalog_name": catalog.name, "full_name": f"{catalog.name}.{name}"}
            for name in sorted(names)
        ]

    def _row_or_name(self, request: web.BaseRequest, table: SharedTable) -> dict[str, Any]:
        """A table; empty for one that has just been dropped; without columns where its log cannot be read."""
        try:
            return self._row(request, table)
        except Refused:
            return {}
        except LakemirrorError as error:
            log.error("%s", error)
            unread = {"table_id": _table_id(table, ""), "comment": "The Delta log of this table cannot be read."}
            return {**self._names(request, table), **unread}

    def _row(self, request: web.BaseRequest, table: SharedTable) -> dict[str, Any]:
        """A table. Refused 404 for one that has just been dropped; LakemirrorError where its log cannot be read."""
        metadata = self._snapshots.newest(table).metadata
        columns = columns_of(metadata.schema, metadata.partition_columns)
        more = {"columns": columns, "table_id": _table_id(table, metadata.id), "properties": metadata.configuration}
        return {**self._names(request, table), **more}

    def _names(self, request: web.BaseRequest, table: SharedTable) -> dict[str, Any]:
        return {
            "name": table.name, "catalog_name": table.share, "schema_name": _schema_of(table),
            "full_name": _full_name(table), "table_type": "EXTERNAL", "data_source_format": "DELTA",
            "storage_location": self._location(request, table),
        }  # fmt: skip

    def _location(self, request: web.BaseRequest, table: SharedTable) -> str:
        folder = local_path(table.folder)
        if self.file_locations and folder is not None and _is_of_this_machine(request):
            return folder.as_uri()
        workspace, *inner = _place_of(table)
        return f"abfss://{workspace}@{self.base_url(request).partition('://')[2]}/{'/'.join(inner)}"

    def _listed(self, asked: _Asked, name: str, items: list[dict[str, str]]) -> web.Response:
        shown, token = self._cut(asked, items, lambda each: [each["name"]])
        return _json({name: list(shown), **({"next_page_token": token} if token else {})})

    def _cut(self, asked: _Asked, items: Sequence[Any], place: Callable[[Any], list[str]]) -> tuple[Sequence[Any], str]:
        """A page. `max_results` 0 is a page of the service's size, as if it were not given."""
        text = asked.query.get("max_results", "0")
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise Refused(400, "InvalidRequest", "max_results is a number from 0.")
        names = [asked.query.get(each, "").lower() for each in ("catalog_name", "schema_name")]
        scope = json.dumps([raw_path_of(asked.request.raw_path), *names])
        return self.paging.cut(items, place, asked.query.get("page_token", ""), scope, int(text) or None)


def unity_refusal(error: Refused) -> web.Response:
    """A refusal in the form of the interface."""
    content = {"error_code": _CODES.get(error.status, "INTERNAL"), "message": error.message, "details": []}
    return web.Response(
        status=error.status, body=json.dumps(content).encode(), content_type="application/json", headers=error.headers
    )


_OPERATIONS: Mapping[tuple[str, int], tuple[str, Callable[[Unity, _Asked], Awaitable[web.Response]]]] = {
    ("catalogs", 1): ("ListCatalogs", Unity._catalogs),
    ("catalogs", 2): ("GetCatalog", Unity._catalog),
    ("schemas", 1): ("ListCatalogSchemas", Unity._schemas),
    ("schemas", 2): ("GetCatalogSchema", Unity._schema),
    ("tables", 1): ("ListCatalogTables", Unity._tables),
    ("tables", 2): ("GetCatalogTable", Unity._table),
}
"""For the first part of an address, and how many parts it has."""


def _schema_of(table: SharedTable) -> str:
    """`shop`, or `shop:crm` for a schema of the database: a dot would end the name."""
    database = table.database.display_name
    inner = table.schema.removeprefix(database).removeprefix(".")
    return f"{database}:{inner}" if inner else database


def _full_name(table: SharedTable) -> str:
    return f"{table.share}.{_schema_of(table)}.{table.name}"


def _catalog(workspace: WorkspaceEntry) -> dict[str, str]:
    return {"name": workspace.name, "id": workspace.id}


def _table_id(table: SharedTable, log_id: str) -> str:
    """Of the table's place and its Delta log: a table that was made again, and a copy, have others."""
    whole = str(uuid.uuid5(uuid.UUID(table.database.id), f"{table.path}/{log_id}"))
    return _place_mark(table) + whole[13:]


def _place_mark(table: SharedTable) -> str:
    """How the ids of tables at this place begin: the table of an id is found without reading the log of another."""
    mark = hashlib.blake2b(f"{table.database.id}/{table.path}".encode("utf-8", "surrogatepass"), digest_size=6)
    return f"{mark.hexdigest()[:8]}-{mark.hexdigest()[8:]}"


def _place_of(table: SharedTable) -> tuple[str, str, str]:
    """Ids of its workspace and database, and its path."""
    workspace = table.database.workspace
    return workspace.id if workspace else "", table.database.id, table.path


def _is_of_this_machine(request: web.BaseRequest) -> bool:
    """True if the client reached this machine from its own address, and no proxy says that it asks for another."""
    if request.transport is None or {"Forwarded", "X-Forwarded-For"} & request.headers.keys():
        return False
    here, there = (request.transport.get_extra_info(name) for name in ("sockname", "peername"))
    return bool(here and there) and (ipaddress.ip_address(there[0]).is_loopback or here[0] == there[0])


def _named_in(body: bytes) -> tuple[str, str]:
    """`table_id` and `operation` of a request for credentials; empty texts where they are missing."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    found = given if isinstance(given, dict) else {}
    table_id, operation = found.get("table_id"), found.get("operation")
    return (table_id, operation) if isinstance(table_id, str) and isinstance(operation, str) else ("", "")


def _given(asked: _Asked, name: str) -> str:
    found = asked.query.get(name, "")
    if not found:
        raise Refused(400, "InvalidRequest", f"{name} is missing.")
    return found


def _json(content: Any) -> web.Response:
    headers = {"Cache-Control": "no-store"}
    return web.Response(body=json.dumps(content).encode(), content_type="application/json", headers=headers)
