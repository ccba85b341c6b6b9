"""The Delta Sharing protocol over HTTP, under `/delta-sharing/`.

path ─▶ operation ─▶ principal ─▶ share, schema, table ─▶ answer, in one turn of a thread
files/<link> ─▶ principal of the link, still allowed ─▶ bytes
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, NoReturn

from aiohttp import web

from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.service.interface import Caller
from lakemirror.service.plane import Plane
from lakemirror.service.raw_query import decoded, query_of, raw_path_of
from lakemirror.service.refused import Refused
from lakemirror.service.request_body import read_body
from lakemirror.service.request_notes import notes
from lakemirror.service.sharing.file_links import LIFETIME, PREFIX, FileLinks
from lakemirror.service.sharing.linked_lines import LinkedLines
from lakemirror.service.sharing.response_format import HEADER, Client, client_of
from lakemirror.service.sharing.response_lines import end_line
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
from lakemirror.storage.place import served_files
from lakemirror.storage.served_files import ServedFile

log = logging.getLogger("lakemirror")
ROOT = "/delta-sharing"
_MOST_BODY = 1024**2  # bytes of a query
_LINES_AT_ONCE = 128
_MINUTE = 60
_JSON_LINES = "application/x-ndjson; charset=utf-8"


@dataclass(frozen=True)
class _Asked:
    """A request whose caller is known. `names`: share, schema and table, as many as its address has."""

    request: web.BaseRequest
    caller: Caller
    names: tuple[str, ...]
    query: Mapping[str, str]


@dataclass(frozen=True)
class _Sent:
    """An answer in parts. `length`: of all; None where it is not known yet, and a part may take long."""

    answer: Answer
    first: bytes
    parts: Iterator[bytes]
    length: int | None


@dataclass
class Sharing(Plane):
    """Answers the requests of the sharing plane."""

    links: FileLinks
    _workers: Workers = field(default_factory=Workers)
    _queries: TableQueries = field(default_factory=TableQueries)

    _linked: LinkedLines = field(default_factory=LinkedLines)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer. Refused; LakemirrorError if a table cannot be read."""
        path = raw_path_of(request.raw_path)
        if path.startswith(PREFIX):
            notes().operation = "ReadSharedFile"
            return await self._file(request, path[len(PREFIX) :])
        parts = tuple(decoded(part) for part in path[len(ROOT) :].split("/") if part)
        operation, names = _operation(request.method, parts)
        notes().operation = operation
        caller = await self.by_any_token(request)
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
        def version_of() -> int:
            return self._queries.version(self._table(asked), asked.query.get("startingtimestamp"))

        version = await self._workers.run(version_of)
        return web.Response(headers={"Delta-Table-Version": str(version), "Cache-Control": "no-store"})

    async def _metadata(self, asked: _Asked) -> web.StreamResponse:
        made = await self._made(asked, self._queries.metadata, asked.query)
        tag = f'"{made.answer.table_id}-{made.answer.version}-{made.answer.format}"'
        if asked.request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag, **_headers(made.answer)})
        return await self._send(asked.request, made, {"ETag": tag})

    async def _query(self, asked: _Asked) -> web.StreamResponse:
        wanted = _body(await read_body(asked.request, self.limits, _MOST_BODY))
        return await self._send(asked.request, await self._made(asked, self._queries.query, wanted))

    async def _changes(self, asked: _Asked) -> web.StreamResponse:
        return await self._send(asked.request, await self._made(asked, self._queries.changes, asked.query))

    def _table(self, asked: _Asked) -> SharedTable:
        share = share_named(self.registry, asked.caller, asked.names[0])
        return table_named(self.registry, share, asked.names[1], asked.names[2])

    async def _made(
        self, asked: _Asked, ask: Callable[[SharedTable, Client, Mapping[str, Any]], Answer], wanted: Mapping[str, Any]
    ) -> _Sent:
        """The answer with its first part: what fails, fails before the status is sent. Refused."""
        client, base_url = client_of(asked.request.headers.get(HEADER, "")), self.base_url(asked.request)

        def make() -> _Sent:
            table = self._table(asked)
            answer = ask(table, client, wanted)
            now = int(time.time())
            expiry = now - now % _MINUTE + LIFETIME
            workspace = table.database.workspace
            scope = (base_url, asked.caller.name, (workspace.id if workspace else "", table.database.id))
            link = self.links.maker(*scope, expiry)
            known = self._linked.of(list(answer.files), scope, link, expiry) if answer.stays else None
            files = (file.line(link, expiry) for file in answer.files) if known is None else known
            lines: Iterable[bytes] = chain(answer.head, files, [end_line(expiry)] if answer.has_end else [])
            if known is not None:
                lines = list(lines)
            parts = _parts(lines)
            return _Sent(answer, next(parts), parts, sum(map(len, lines)) if isinstance(lines, list) else None)

        return await self._workers.run(make)

    async def _send(
        self, request: web.BaseRequest, made: _Sent, headers: Mapping[str, str] | None = None
    ) -> web.StreamResponse:
        """Sends an answer in parts, so that a table of any size takes little memory."""
        response = web.StreamResponse(headers={**_headers(made.answer), **(headers or {})})
        response.content_length = made.length
        await response.prepare(request)
        try:
            part = made.first
            while part:
                await response.write(part)
                is_ready = made.length is not None
                part = next(made.parts, b"") if is_ready else await self._workers.run(next, made.parts, b"")
        except (Refused, LakemirrorError, OSError) as failure:
            _break_off(request, failure)
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
        most = _most_results(asked.query.get("maxresults"))
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

_TABLE = ("shares", "schemas", "tables")
_ADDRESSES: Mapping[tuple[int, tuple[str, ...]], Mapping[str, str]] = {
    (1, ("shares",)): {"GET": "ListShares"},
    (2, ("shares",)): {"GET": "GetShare"},
    (3, ("shares", "schemas")): {"GET": "ListSchemas"},
    (3, ("shares", "all-tables")): {"GET": "ListAllSharedTables"},
    (5, _TABLE): {"GET": "ListSharedTables"},
    (6, _TABLE): {"HEAD": "GetTableVersion"},
    (7, (*_TABLE, "version")): {"GET": "GetTableVersion"},
    (7, (*_TABLE, "metadata")): {"GET": "GetTableMetadata"},
    (7, (*_TABLE, "query")): {"POST": "QueryTable"},
    (7, (*_TABLE, "changes")): {"GET": "GetTableChanges"},
}
"""For how many parts an address has, and every other one of them: the operation of each verb."""


def _operation(method: str, parts: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The operation at an address, and the names in it. Refused 404, 405."""
    found = _ADDRESSES.get((len(parts), parts[::2]))
    if found is None:
        raise Refused(404, "ResourceNotFound", "The Delta Sharing protocol has nothing at this address.")
    if method not in found:
        verb = next(iter(found))
        raise Refused(405, "OperationNotSupported", f"Use {verb}.", {"Allow": verb})
    return found[method], parts[1::2]


def _parts(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines, many at a time."""
    following = iter(lines)
    while some := list(islice(following, _LINES_AT_ONCE)):
        yield b"".join(some)


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


def _most_results(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise Refused(400, "InvalidRequest", "maxResults is a number from 0.")
    return int(text)


def _json(content: Any) -> web.Response:
    return web.Response(body=json.dumps(content).encode(), content_type="application/json", charset="utf-8")
