"""The Delta Sharing protocol over HTTP, under `/delta-sharing/`.

path ─▶ operation ─▶ principal ─▶ share, schema, table ─▶ answer
files/<link> ─▶ principal of the link, still allowed ─▶ bytes
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NoReturn

from aiohttp import web

from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.service.auth.authenticator import PrincipalAuthenticator
from lakemirror.service.auth.principals import Principals
from lakemirror.service.interface import Caller, Limits
from lakemirror.service.raw_query import decoded, query_of, raw_path_of
from lakemirror.service.refused import Refused
from lakemirror.service.request_body import read_body
from lakemirror.service.request_notes import notes
from lakemirror.service.rest.paging import Paging
from lakemirror.service.rest.registry import FolderRegistry
from lakemirror.service.sharing.file_links import PREFIX, FileLinks
from lakemirror.service.sharing.ready_answers import ReadyAnswers
from lakemirror.service.sharing.response_format import HEADER, client_of
from lakemirror.service.sharing.shared_tables import (
    SharedTable,
    readable_shares,
    schemas_of,
    share_named,
    table_named,
    tables_in,
    tables_of_share,
)
from lakemirror.service.sharing.table_queries import Answer, TableQueries
from lakemirror.service.storage.ranges import ByteRange, range_of
from lakemirror.service.storage.reads import send_part
from lakemirror.service.storage.workers import Workers
from lakemirror.service.under_way import UnderWay
from lakemirror.storage.place import served_files
from lakemirror.storage.served_files import ServedFile

log = logging.getLogger("lakemirror")
ROOT = "/delta-sharing"
_MOST_BODY = 1024**2  # bytes of a query
_LINES_AT_ONCE = 512
_MINUTE = 60
_MOST_KEPT = 2_000  # files of an answer that is kept, some 1.2 MB; and bytes of its question
_JSON_LINES = "application/x-ndjson; charset=utf-8"


@dataclass(frozen=True)
class _Asked:
    """A request whose caller is known. `names`: share, schema and table, as many as its address has."""

    request: web.BaseRequest
    caller: Caller
    names: tuple[str, ...]
    query: Mapping[str, str]


@dataclass
class Sharing:
    """Answers the requests of the sharing plane."""

    registry: FolderRegistry
    authenticator: PrincipalAuthenticator
    principals: Principals
    under_way: UnderWay
    base_url: Callable[[web.BaseRequest], str]
    paging: Paging
    links: FileLinks
    limits: Limits
    _workers: Workers = field(default_factory=Workers)
    _queries: TableQueries = field(default_factory=TableQueries)

    def __post_init__(self) -> None:
        self._ready = ReadyAnswers(self._workers)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer. Refused; LakemirrorError if a table cannot be read."""
        path = raw_path_of(request.raw_path)
        if path.startswith(PREFIX):
            notes().operation = "ReadSharedFile"
            return await self._file(request, path[len(PREFIX) :])
        parts = tuple(decoded(part) for part in path[len(ROOT) :].split("/") if part)
        operation, names = _operation(request.method, parts)
        notes().operation = operation
        caller = await self.authenticator.for_sharing(request)
        self.under_way.enter_principals(caller.name, 429)
        return await _ANSWERS[operation](self, _Asked(request, caller, names, query_of(request.raw_path)))

    async def _shares(self, asked: _Asked) -> web.StreamResponse:
        found = readable_shares(self.registry, asked.caller)
        return self._page(asked, [{"name": each.name, "id": each.id} for each in found])

    async def _share(self, asked: _Asked) -> web.StreamResponse:
        found = share_named(self.registry, asked.caller, asked.names[0])
        return _json({"share": {"name": found.name, "id": found.id}})

    async def _schemas(self, asked: _Asked) -> web.StreamResponse:
        share = share_named(self.registry, asked.caller, asked.names[0])
        names = await self._workers.run(schemas_of, self.registry, share)
        return self._page(asked, [{"name": name, "share": share.name} for name in names])

    async def _tables(self, asked: _Asked) -> web.StreamResponse:
        share = share_named(self.registry, asked.caller, asked.names[0])
        found = await self._workers.run(tables_in, self.registry, share, asked.names[1])
        return self._page(asked, [_entry(each, share.id) for each in found])

    async def _all_tables(self, asked: _Asked) -> web.StreamResponse:
        share = share_named(self.registry, asked.caller, asked.names[0])
        found = await self._workers.run(tables_of_share, self.registry, share)
        return self._page(asked, [_entry(each, share.id) for each in found])

    async def _version(self, asked: _Asked) -> web.StreamResponse:
        table = await self._table(asked)
        version = await self._workers.run(self._queries.version, table, asked.query.get("startingtimestamp"))
        return web.Response(headers={"Delta-Table-Version": str(version), "Cache-Control": "no-store"})

    async def _metadata(self, asked: _Asked) -> web.StreamResponse:
        table, client = await self._table(asked), client_of(asked.request.headers.get(HEADER, ""))
        answer = await self._workers.run(self._queries.metadata, table, client, asked.query)
        tag = f'"{answer.table_id}-{answer.version}-{answer.format}"'
        if asked.request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag, **_headers(answer)})
        return await self._send(asked, table, answer, {"ETag": tag})

    async def _query(self, asked: _Asked) -> web.StreamResponse:
        table, client = await self._table(asked), client_of(asked.request.headers.get(HEADER, ""))
        body = await read_body(asked.request, self.limits, _MOST_BODY)
        answer = await self._workers.run(self._queries.query, table, client, _body(body))
        return await self._send(asked, table, answer, body=body)

    async def _changes(self, asked: _Asked) -> web.StreamResponse:
        table, client = await self._table(asked), client_of(asked.request.headers.get(HEADER, ""))
        return await self._send(
            asked, table, await self._workers.run(self._queries.changes, table, client, asked.query)
        )

    async def _table(self, asked: _Asked) -> SharedTable:
        share = share_named(self.registry, asked.caller, asked.names[0])
        found = await self._workers.run(table_named, self.registry, share, asked.names[1], asked.names[2])
        notes().workspace, notes().database = share.name, found.database.display_name
        return found

    async def _send(
        self,
        asked: _Asked,
        table: SharedTable,
        answer: Answer,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> web.StreamResponse:
        """Sends the lines in parts, so that a table of any size takes little memory. `body`: of the request."""
        now = int(time.time())
        expiry = now - now % _MINUTE + self.links.lifetime
        workspace = table.database.workspace
        address = (workspace.id if workspace else "", table.database.id)
        base_url, name = self.base_url(asked.request), asked.caller.name
        parts = _parts(answer.text(self.links.maker(base_url, name, address, expiry), expiry))
        if answer.files is not None and answer.files <= _MOST_KEPT and len(body) <= _MOST_KEPT:
            question = (name, base_url, table, answer.table_id, answer.version, answer.format, answer.has_end, body)
            kept = await self._ready.body(question, expiry, lambda: b"".join(parts))
            return web.Response(body=kept, headers=_headers(answer))
        first = await self._workers.run(next, parts, b"")  # what fails, fails before the status is sent
        response = web.StreamResponse(headers={**_headers(answer), **(headers or {})})
        await response.prepare(asked.request)
        try:
            while first:
                await response.write(first)
                first = await self._workers.run(next, parts, b"")
        except (Refused, LakemirrorError, OSError) as failure:
            _break_off(asked.request, failure)
        await response.write_eof()
        return response

    async def _file(self, request: web.BaseRequest, rest: str) -> web.StreamResponse:
        """The bytes that a link opens. Its principal must still be there, and may still read the workspace."""
        if request.method not in ("GET", "HEAD"):
            raise Refused(405, "OperationNotSupported", "Use GET.", {"Allow": "GET, HEAD"})
        self.under_way.enter_unknown(request.remote or "")
        file = self.links.open(decoded(rest), query_of(request.raw_path))
        principal, workspace = self.principals.by_name(file.principal), self.registry.workspace(file.workspace)
        if principal is None or workspace is None or not principal.caller().may(workspace.name, "read"):
            raise Refused(403, "LinkInvalid", "Who this link was made for may not read the table any more.")
        notes().caller = principal.caller()
        self.under_way.enter_principals(principal.name)
        database = self.registry.database(workspace, file.database)
        if database is None:
            raise Refused(404, "FileNotFound", "The database of this file is gone.")
        try:
            opened = await self._workers.run(served_files(database.folder).open, file.path)
        except (LakemirrorError, OSError):
            raise Refused(404, "FileNotFound", "This file is gone: query the table again.") from None
        try:
            return await self._bytes(request, opened, served_files(database.folder).piece)
        finally:
            opened.close()

    async def _bytes(self, request: web.BaseRequest, file: ServedFile, piece: int) -> web.StreamResponse:
        length = file.found.length
        part = range_of(request.headers, length)
        headers = {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream", "Cache-Control": "no-store"}
        if part is not None:
            headers["Content-Range"] = part.content_range
        wanted = part or ByteRange(0, length, length)
        status = 200 if part is None else 206
        if request.method == "HEAD":
            return web.Response(status=status, headers={**headers, "Content-Length": str(wanted.length)})
        answer = web.StreamResponse(status=status, headers=headers)
        answer.content_length = wanted.length
        await send_part(request, answer, file, wanted, piece, self._workers)
        return answer

    def _page(self, asked: _Asked, items: list[dict[str, str]]) -> web.Response:
        """A page of a list, in the order it comes."""
        most = _whole_number(asked.query.get("maxresults"), "maxResults")
        shown, token = self.paging.cut(
            items, lambda item: [item.get("schema", ""), item["name"]], asked.query.get("pagetoken", ""),
            raw_path_of(asked.request.raw_path), most,
        )  # fmt: skip
        return _json({"items": list(shown), **({"nextPageToken": token} if token else {})})


_Answerer = Callable[[Sharing, _Asked], Awaitable[web.StreamResponse]]

_ANSWERS: Mapping[str, _Answerer] = {
    "ListShares": Sharing._shares,
    "GetShare": Sharing._share,
    "ListSchemas": Sharing._schemas,
    "ListSharedTables": Sharing._tables,
    "ListAllSharedTables": Sharing._all_tables,
    "GetTableVersion": Sharing._version,
    "GetTableMetadata": Sharing._metadata,
    "QueryTable": Sharing._query,
    "GetTableChanges": Sharing._changes,
}

_ADDRESSES: tuple[tuple[str, str, str], ...] = (
    ("GET", "shares", "ListShares"),
    ("GET", "shares/*", "GetShare"),
    ("GET", "shares/*/schemas", "ListSchemas"),
    ("GET", "shares/*/schemas/*/tables", "ListSharedTables"),
    ("GET", "shares/*/all-tables", "ListAllSharedTables"),
    ("HEAD", "shares/*/schemas/*/tables/*", "GetTableVersion"),
    ("GET", "shares/*/schemas/*/tables/*/version", "GetTableVersion"),
    ("GET", "shares/*/schemas/*/tables/*/metadata", "GetTableMetadata"),
    ("POST", "shares/*/schemas/*/tables/*/query", "QueryTable"),
    ("GET", "shares/*/schemas/*/tables/*/changes", "GetTableChanges"),
)


def _operation(method: str, parts: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The operation at an address, and the names in it. Refused 404, 405."""
    others = []
    for verb, address, operation in _ADDRESSES:
        wanted = address.split("/")
        pairs = list(zip(wanted, parts, strict=False))
        if len(wanted) == len(parts) and all(own in ("*", given) for own, given in pairs):
            if verb == method:
                return operation, tuple(given for own, given in pairs if own == "*")
            others.append(verb)
    if others:
        raise Refused(405, "OperationNotSupported", f"Use {others[0]}.", {"Allow": ", ".join(others)})
    raise Refused(404, "ResourceNotFound", "The Delta Sharing protocol has nothing at this address.")


def _parts(lines: Iterable[str]) -> Iterator[bytes]:
    """The lines as bytes, many at a time."""
    following = iter(lines)
    while some := list(islice(following, _LINES_AT_ONCE)):
        yield "".join(f"{line}\n" for line in some).encode()


def _break_off(request: web.BaseRequest, failure: Exception) -> NoReturn:
    """Ends the connection in the middle of an answer, so that the client sees that it is not complete."""
    if not isinstance(failure, ConnectionError):
        log.error("%s", coded(failure))
        if request.transport is not None:
            request.transport.abort()
    raise ConnectionResetError("the answer is not complete") from failure


def _headers(answer: Answer) -> dict[str, str]:
    told = [f"responseformat={answer.format}"] + (["includeEndStreamAction=true"] if answer.has_end else [])
    return {
        "Content-Type": _JSON_LINES, "Delta-Table-Version": str(answer.version), HEADER: ";".join(told),
        "Cache-Control": "no-store",
    }  # fmt: skip


def _entry(table: SharedTable, share_id: str) -> dict[str, str]:
    return {"name": table.name, "schema": table.schema, "share": table.share, "shareId": share_id}


def _body(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refused(400, "InvalidRequest", "The body of a query is a JSON object.")
    return found


def _whole_number(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise Refused(400, "InvalidRequest", f"{name} is a number from 0.")
    return int(text)


def _json(content: Any) -> web.Response:
    return web.Response(body=json.dumps(content).encode(), content_type="application/json", charset="utf-8")
