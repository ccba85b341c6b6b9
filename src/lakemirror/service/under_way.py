"""How many requests are under way, each in one room with a limit of its own (section 7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from aiohttp import web

from lakemirror.service.interface import Authenticator, Caller, Limits
from lakemirror.service.refused import Refused
from lakemirror.service.request_address import Target

_PRINCIPALS, _METRICS, _OPEN = "principals", "metrics", ""
_MOST_METRICS = 32
_OWN_PART = 16  # one part in 16 of --max-requests is each principal's own


@dataclass
class _Place:
    room: str = _OPEN


_PLACE: ContextVar[_Place] = ContextVar("lakemirror_place")


class UnderWay:
    """Counts requests. A request begins in no room, and enters one before it waits for anything. For one thread."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._in_room: Counter[str] = Counter()

    @property
    def total(self) -> int:
        return self._in_room.total()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Counts the request that this task handles."""
        place = _Place()
        _PLACE.set(place)
        self._in_room[place.room] += 1
        try:
            yield
        finally:
            self._leave(place)

    def enter_unknown(self, address: str) -> None:
        """The request waits before its principal is known. Refused where too many from this address do."""
        self._enter(f"unknown {address}", self._limits.most_unknown)

    def enter_principals(self, name: str, status: int = 503) -> None:
        """The principal of the request is known. Refused with this status beyond `--max-requests`.

        Each principal has a small room of its own, so that one whose requests are slow keeps no other out.
        """
        own = self._limits.max_requests // _OWN_PART
        room = f"principal {name}" if self._in_room[f"principal {name}"] < own else _PRINCIPALS
        self._enter(room, self._limits.max_requests - own, status)

    def enter_metrics(self) -> None:
        """The request asks for metrics. Refused where many do."""
        self._enter(_METRICS, _MOST_METRICS)

    def _enter(self, room: str, most: int, status: int = 503) -> None:
        place = _PLACE.get()
        if room != place.room and self._in_room[room] >= most:
            raise Refused(status, "ServerBusy", "Too many requests are under way.", {"Retry-After": "1"})
        self._leave(place)
        place.room = room
        self._in_room[room] += 1

    def _leave(self, place: _Place) -> None:
        self._in_room[place.room] -= 1
        if not self._in_room[place.room]:
            del self._in_room[place.room]


@dataclass(frozen=True)
class CountingAuthenticator:
    """An authenticator of the storage plane, after which the request counts with those of principals."""

    inner: Authenticator
    under_way: UnderWay

    def is_principal(self, name: str) -> bool:
        return self.inner.is_principal(name)

    async def authenticate(self, request: web.BaseRequest, target: Target | None = None) -> Caller:
        caller = await self.inner.authenticate(request, target)
        self.under_way.enter_principals(caller.name)
        return caller
