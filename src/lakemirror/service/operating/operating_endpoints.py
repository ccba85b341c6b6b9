"""The operating plane over HTTP: health, metrics, the description of REST, the page (section 8)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from lakemirror.service.interface import Caller, DatabaseEntry
from lakemirror.service.operating import page
from lakemirror.service.operating.day_cache import DayCache
from lakemirror.service.operating.metrics import CONTENT_TYPE, ServiceMetrics
from lakemirror.service.operating.openapi import description
from lakemirror.service.operating.views import database_view, overview, table_view
from lakemirror.service.plane import Plane
from lakemirror.service.raw_query import raw_path_of
from lakemirror.service.refused import Refused
from lakemirror.service.request_notes import notes

_OPEN = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@dataclass
class Operating(Plane):
    """Answers the requests of the operating plane."""

    metrics: ServiceMetrics
    _days: DayCache = field(default_factory=DayCache)
    _all_looked_at: bool = False
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "metrics"))

    async def handle(self, request: web.BaseRequest) -> web.Response:
        """The answer. Refused."""
        if request.method not in ("GET", "HEAD"):
            raise Refused(405, "OperationNotSupported", "Use GET.", {"Allow": "GET, HEAD"})
        notes().operation, answer = ROUTES.get(raw_path_of(request.raw_path), ("Page", Operating._page))
        return await answer(self, request)

    async def _alive(self, request: web.BaseRequest) -> web.Response:
        return _json({"alive": True})

    async def _description(self, request: web.BaseRequest) -> web.Response:
        return _json(description(self.base_url(request), version()))

    async def _style(self, request: web.BaseRequest) -> web.Response:
        return web.Response(text=page.STYLE, content_type="text/css", headers={"X-Content-Type-Options": "nosniff"})

    async def _ready(self, request: web.BaseRequest) -> web.Response:
        reasons = []
        if not self._all_looked_at:
            waiting = len(self.host.not_looked_at(self.registry.all_databases()))
            self._all_looked_at = waiting == 0
            if waiting:
                reasons.append({"reason": "NotLookedAt", "message": f"{waiting} databases were not looked at yet"})
        if not self.has_room():
            reasons.append({"reason": "DiskFull", "message": "less than 1 GiB or 2 % of the disk is free"})
        return _json({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def _metrics(self, request: web.BaseRequest) -> web.Response:
        self.under_way.enter_metrics()
        caller = await self.authenticator.by_secret(request)
        if not caller.may("*", "read"):
            raise Refused(403, "InsufficientPrivileges", "The metrics need a role on *.")
        body = await asyncio.get_running_loop().run_in_executor(self._thread, self.metrics.text, self.under_way.total)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE, **_OPEN})

    async def _page(self, request: web.BaseRequest) -> web.Response:
        self.under_way.enter_unknown(request.remote or "")
        caller = await self.authenticator.by_secret(request)
        self.under_way.enter_principals(caller.name)
        try:
            parts = [unquote(part, errors="strict") for part in raw_path_of(request.raw_path).split("/") if part]
        except ValueError:
            parts = [""]
        now = time.time()
        if not parts or parts == ["ui", "overview.json"]:
            readable = [each for each in self.registry.all_databases() if _may_read(caller, each)]
            view = await asyncio.to_thread(overview, readable, self.host, now)
            return _json(view) if parts else _html(page.overview_page(view))
        found = await asyncio.to_thread(self._named, caller, parts, now)
        if found is None:
            return _html(page.no_page(), 404)
        view, as_json = found
        if as_json:
            return _json(view)
        return _html(page.table_page(view) if "history" in view else page.database_page(view))

    def _named(self, caller: Caller, parts: list[str], now: float) -> tuple[dict[str, Any], bool] | None:
        """The view of a database's or table's address, and whether its twin is meant."""
        if parts[:2] != ["ui", "databases"] or len(parts) not in (3, 5):
            return None
        as_json = len(parts) == 3 and parts[2].endswith(".json")
        wanted = parts[2].removesuffix(".json") if len(parts) == 3 else parts[2]
        databases = (each for each in self.registry.all_databases() if each.id == wanted.lower())
        database = next((each for each in databases if _may_read(caller, each)), None)
        if database is None:
            return None
        if len(parts) == 3:
            view = database_view(database, self.host, self._days, now, captures=self.captures.seen(database))
            return None if view is None else (view, as_json)
        if parts[3] == "page":
            number = parts[4].removesuffix(".json")
            page_number = int(number) if number.isascii() and number.isdigit() and len(number) < 8 else 0
            view = database_view(database, self.host, self._days, now, page_number, self.captures.seen(database))
            return None if view is None else (view, parts[4].endswith(".json"))
        if parts[3] != "tables":
            return None
        view = table_view(database, parts[4], self.host, self._days, now)
        if view is not None or not parts[4].endswith(".json"):
            return None if view is None else (view, False)
        twin = table_view(database, parts[4].removesuffix(".json"), self.host, self._days, now)
        return None if twin is None else (twin, True)


ROUTES: dict[str, tuple[str, Callable[[Operating, web.BaseRequest], Awaitable[web.Response]]]] = {
    "/livez": ("Livez", Operating._alive),
    "/readyz": ("Readyz", Operating._ready),
    "/openapi.json": ("OpenApi", Operating._description),
    "/ui/style.css": ("Style", Operating._style),
    "/metrics": ("Metrics", Operating._metrics),
}
"""The operation at each path, and its answer; every other path of the plane is a page."""


def _may_read(caller: Caller, database: DatabaseEntry) -> bool:
    return database.workspace is not None and caller.may(database.workspace.name, "read")


def _json(content: Any, status: int = 200) -> web.Response:
    body = json.dumps(content, indent=1).encode()
    return web.Response(status=status, body=body, content_type="application/json", headers=_OPEN)


def _html(text: str, status: int = 200) -> web.Response:
    return web.Response(status=status, text=text, content_type="text/html", headers=page.HEADERS)


def version() -> str:
    """The version of lakemirror that runs."""
    try:
        return metadata.version("lakemirror")
    except metadata.PackageNotFoundError:
        return "unknown"
