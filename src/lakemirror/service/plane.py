"""What the planes over HTTP share: what there is, who asks, and how much they may ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from lakemirror.service.auth.authenticator import PrincipalAuthenticator
from lakemirror.service.auth.principals import Principals
from lakemirror.service.captures.capture_host import CaptureHost
from lakemirror.service.host import EngineHost
from lakemirror.service.interface import Caller, Limits
from lakemirror.service.rest.paging import Paging
from lakemirror.service.rest.registry import FolderRegistry
from lakemirror.service.under_way import UnderWay


@dataclass
class Plane:
    """One plane of the service. `base_url`: scheme and host under which a client reaches it. `has_room`: False where
    the disk is almost full."""

    registry: FolderRegistry
    host: EngineHost
    captures: CaptureHost
    principals: Principals
    authenticator: PrincipalAuthenticator
    under_way: UnderWay
    base_url: Callable[[web.BaseRequest], str]
    paging: Paging
    limits: Limits
    has_room: Callable[[], bool]

    async def by_any_token(self, request: web.BaseRequest) -> Caller:
        """Who asks, by any token, also that of a profile file; the request counts with those of principals. Refused."""
        caller = await self.authenticator.for_sharing(request)
        self.under_way.enter_principals(caller.name, 429)
        return caller
