"""The listener: TLS, HTTP parsing with its limits, connections that never hold up others (section 7)."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from lakemirror.errors import LakemirrorError
from lakemirror.service.interface import Limits
from lakemirror.service.pace import Pace

HANDSHAKE = 10.0  # seconds for the TLS handshake, and then for the headers of a request
MOST_LINE = 16 * 1024
MOST_HEADER_BYTES = 64 * 1024
MOST_HEADERS = 200
_IDLE = 75.0  # seconds that a connection may be kept without a request
_BACKLOG = 1024
_OPEN_FILES = 65_536

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Listener:
    """One listening socket. `port` is the one that was given, or was chosen for 0."""

    def __init__(self, handler: Handler, limits: Limits) -> None:
        self.port = 0
        self._handler = handler
        self._limits = limits
        self._server: _Server | None = None
        self._listening: asyncio.Server | None = None

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        """LakemirrorError `listen-failed`."""
        _allow_open_files()
        handshake = HANDSHAKE if tls else None
        self._server = _Server(self._handler, self._limits)
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                self._server, host, port, ssl=tls, backlog=_BACKLOG, ssl_handshake_timeout=handshake
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise LakemirrorError("listen-failed", f"{host} port {port} cannot be listened on: {reason}") from error
        self.port = self._listening.sockets[0].getsockname()[1]

    @property
    def is_busy(self) -> bool:
        """True while a request under way, or one that has begun to arrive, is not answered."""
        return self._server is not None and any(
            each.connected and not each.is_idle for each in self._server.open_connections
        )

    def refuse_new(self) -> None:
        """No connection is taken from now on; idle ones are closed. What a client goes on to send is still read."""
        if self._listening is not None:
            self._listening.close()
        for connection in self._server.open_connections if self._server else ():
            if connection.is_idle:
                connection.force_close()

    async def end(self, patience: float) -> None:
        """Lets requests under way finish for `patience` seconds, then closes every connection."""
        if self._server is not None:
            await self._server.shutdown(patience)


class _Server(web.Server):
    def __init__(self, handler: Handler, limits: Limits) -> None:
        super().__init__(handler)
        self._limits = limits

    @property
    def open_connections(self) -> list[_Connection]:
        return [each for each in self.connections if isinstance(each, _Connection)]

    def __call__(self) -> RequestHandler:
        return _Connection(
            self,
            self._limits,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=_IDLE,
            max_line_size=MOST_LINE,
            max_headers=MOST_HEADERS,
            max_field_size=MOST_HEADER_BYTES,
            auto_decompress=False,
            access_log=None,
            lingering_time=2.0,
            logger=_quiet,
        )


class _Connection(RequestHandler):
    """A connection whose client must send request headers within HANDSHAKE seconds, and keep reading answers."""

    __slots__ = ("_deadline", "_has_begun", "_limits", "_reading")

    def __init__(self, server: _Server, limits: Limits, **options: Any) -> None:
        super().__init__(server, **options)
        self._limits = limits
        self._deadline: asyncio.TimerHandle | None = None
        self._has_begun = False
        self._reading: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """True where nothing of a request has arrived since the last answer."""
        return self._is_waiting and not self._has_begun

    @property
    def _is_waiting(self) -> bool:
        """True where the next request is waited for."""
        return self._waiter is not None and not self._waiter.done()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._headers_are_here()
        self._is_read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        known = self._request_count
        super().data_received(data)
        if self._request_count > known:
            self._headers_are_here()
        elif data and (self._is_waiting or not known):
            self._has_begun = True
            if self._deadline is None:
                self._await_headers()

    def pause_writing(self) -> None:
        """The client does not read as fast as is written: it has the time that a body has."""
        super().pause_writing()
        self._await_reading(Pace(self._limits), self._unread)

    def resume_writing(self) -> None:
        self._is_read()
        super().resume_writing()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The answer to a request that cannot be parsed; then the connection ends."""
        code = "InvalidInput"
        if isinstance(exc, LineTooLong):
            status, code = (414, "UriTooLong") if exc.args[1] == MOST_LINE else (431, "RequestHeaderFieldsTooLarge")
        elif message and "Too many headers" in message:
            status, code = 431, "RequestHeaderFieldsTooLarge"
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        body = {"error": {"code": code, "message": "The request is no HTTP that is understood here."}}
        answer = web.Response(
            status=status, body=json.dumps(body).encode(), content_type="application/json",
            headers={"x-ms-error-code": code},
        )  # fmt: skip
        answer.force_close()
        return answer

    def _await_headers(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE, self._too_late)

    def _headers_are_here(self) -> None:
        self._has_begun = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self._current_request is None and not self._messages and self.transport is not None:
            self.force_close()

    @property
    def _unread(self) -> int:
        """Bytes that are written and not yet taken by the client's side of the connection."""
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    def _await_reading(self, pace: Pace, before: int) -> None:
        """Looks again when the client would be too slow, and ends the connection if it is."""
        wait, loop = max(pace.left, 0.001), asyncio.get_running_loop()

        def look() -> None:
            unread = self._unread
            pace.waited(wait, max(before - unread, 0))
            if pace.left > 0:
                self._await_reading(pace, unread)
            elif self.transport is not None:
                self.transport.abort()

        self._reading = loop.call_later(wait, look)

    def _is_read(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None


def _allow_open_files() -> None:
    """Raises the soft limit of open files, so that idle connections leave room for others."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


_quiet: Any = logging.getLogger("lakemirror.http")
_quiet.setLevel(logging.CRITICAL)  # broken requests are the client's; what is ours is caught and logged by the service
