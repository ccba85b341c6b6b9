"""The body of a request: the one place that reads it, bounded in size and time; `Expect: 100-continue` comes first."""

from __future__ import annotations

import asyncio

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

from lakemirror.service.interface import Limits
from lakemirror.service.pace import Pace
from lakemirror.service.refused import Refused

CODING, TOO_LARGE, TOO_SLOW, INCOMPLETE = (
    "InvalidHeaderValue",
    "RequestBodyTooLarge",
    "OperationTimedOut",
    "IncompleteBody",
)


def announced_length(request: web.BaseRequest, most: int) -> int | None:
    """The length that the request announces, None where the body comes in chunks.

    Refused 413 before anything is read, 400 for another coding than chunks.
    """
    coding = request.headers.getall("Transfer-Encoding", [])
    if coding:
        if [each.strip().lower() for each in coding] != ["chunked"]:
            raise _refused(400, CODING, "The only transfer coding is chunked.")
        return None
    length = request.content_length or 0
    if length > most:
        raise _too_large(most)
    return length


async def read_body(request: web.BaseRequest, limits: Limits, most: int) -> bytes:
    """The complete body of at most `most` bytes. Refused."""
    body = BodyChunks(request, limits, most)
    await body.expected()
    data = bytearray()  # a list of chunks of two bytes would take twenty times as much
    async for chunk in body:
        data += chunk
    return bytes(data)


class BodyChunks:
    """The chunks of a body as they arrive. Refused where it is too large, too slow, or ends early."""

    def __init__(self, request: web.BaseRequest, limits: Limits, most: int) -> None:
        """Refused 413, 400 as `announced_length`; nothing is read yet."""
        self._request = request
        self._announced = announced_length(request, most)
        self._most = most
        self._pace = Pace(limits, most if self._announced is None else self._announced)
        self._received = 0
        self._loop = asyncio.get_running_loop()

    async def expected(self) -> None:
        """Tells a client that asked (`Expect: 100-continue`) to send its body. Call it once, before the first chunk."""
        if self._request.headers.get("Expect", "").lower() == "100-continue":
            await self._request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._request.writer.output_size = 0

    def __aiter__(self) -> BodyChunks:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = self._request.content.read_nowait() or await self._next()
        except asyncio.TimeoutError:
            raise _refused(408, TOO_SLOW, "The body arrived too slowly.") from None
        except (OSError, ClientPayloadError, HttpProcessingError) as error:
            raise _incomplete() from error
        if not chunk:
            if self._announced is not None and self._received != self._announced:
                raise _incomplete()
            raise StopAsyncIteration
        self._received += len(chunk)
        if self._received > self._most:
            raise _too_large(self._most)
        return chunk

    async def _next(self) -> bytes:
        """Waits for bytes, b"" at the end. asyncio.TimeoutError where the client is too slow."""
        content, began = self._request.content, self._loop.time()
        if content.at_eof():
            return b""
        timer = self._loop.call_later(max(self._pace.left, 0.0), content.set_exception, asyncio.TimeoutError())
        try:
            chunk = await content.readany()
        finally:
            timer.cancel()
        self._pace.waited(self._loop.time() - began, len(chunk))
        return chunk


def _refused(status: int, code: str, message: str) -> Refused:
    """A body that is not taken. The rest of it is not read, so the connection ends."""
    return Refused(status, code, message, {"Connection": "close"})


def _incomplete() -> Refused:
    return _refused(400, INCOMPLETE, "The body ended early.")


def _too_large(most: int) -> Refused:
    return _refused(413, TOO_LARGE, f"A body may have {most:,} bytes here.")
