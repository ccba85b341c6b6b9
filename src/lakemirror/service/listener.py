"""The listener: TLS, HTTP parsing with its limits, connections that never hold up others (section 7)."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from lakemirror.errors import LakemirrorError

HANDSHAKE = 10.0  # seconds for the TLS handshake, and then for the headers of a request
MOST_LINE = 16 * 1024
MOST_HEADER_BYTES = 64 * 1024
MOST_HEADERS = 200
_IDLE = 75.0  # seconds that a connection may be kept without a request
_BACKLOG = 1024

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Listener:
    """One listening socket. `port` is the one that was given, or was chosen for 0."""

    def __init__(self, handler: Handler) -> None:
        self.port = 0
        self._handler = handler
        self._server: _Server | None = None
        self._listening: asyncio.Server | None = None

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        """LakemirrorError `listen-failed`."""
        handshake = HANDSHAKE if tls else None
        self._server = _Server(self._handler)
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                self._server, host, port, ssl=tls, backlog=_BACKLOG, ssl_handshake_timeout=handshake
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise LakemirrorError("listen-failed", f"{host} port {port} cannot be listened on: {reason}") from error
        self.port = self._listening.sockets[0].getsockname()[1]

    @property
    def connections(self) -> int:
        return len(self._server.connections) if self._server else 0

    def refuse_new(self) -> None:
        """No connection is taken from now on; those without a request under way are closed."""
        if self._listening is not None:
            self._listening.close()
        if self._server is not None:
            self._server.pre_shutdown()

    async def end(self, patience: float) -> None:
        """Lets requests under way finish for `patience` seconds, then closes every connection."""
        if self._server is not None:
            await self._server.shutdown(patience)


class _Server(web.Server):
    def __init__(self, handler: Handler) -> None:
        super().__init__(handler)

    def __call__(self) -> RequestHandler:
        return _Connection(
            self,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=_IDLE,
            max_line_size=MOST_LINE,
            max_headers=MOST_HEADERS,
            max_field_size=MOST_HEADER_BYTES,
            auto_decompress=False,
            access_log=None,  # type: ignore[arg-type]
            lingering_time=2.0,
            logger=_quiet,
        )


class _Connection(RequestHandler):
    """A connection whose request headers must arrive within HANDSHAKE seconds."""

    __slots__ = ("_deadline",)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._deadline: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._headers_are_here()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._current_request is not None or self._messages:
            self._headers_are_here()
        elif self._deadline is None:
            self._await_headers()

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
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if self._current_request is None and not self._messages and self.transport is not None:
            self.force_close()


_quiet: Any = logging.getLogger("lakemirror.http")
_quiet.setLevel(logging.CRITICAL)  # broken requests are the client's; what is ours is caught and logged by the service

__all__ = ["HANDSHAKE", "MOST_HEADER_BYTES", "MOST_LINE", "Handler", "Listener"]
