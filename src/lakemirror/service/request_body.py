"""A small request body, read completely and bounded; `Expect: 100-continue` is answered first."""

from __future__ import annotations

import asyncio

from aiohttp import web


class BodyTooLarge(Exception):
    """The body is larger than it may be; nothing more of it was read."""


async def read_body(request: web.BaseRequest, most_bytes: int, timeout: float) -> bytes:
    """The body. BodyTooLarge; asyncio.TimeoutError after `timeout` seconds without a byte; ConnectionResetError."""
    if (request.content_length or 0) > most_bytes:
        raise BodyTooLarge
    await answer_expectation(request)
    chunks: list[bytes] = []
    size = 0
    while True:
        chunk = await asyncio.wait_for(request.content.readany(), timeout)
        if not chunk:
            return b"".join(chunks)
        size += len(chunk)
        if size > most_bytes:
            raise BodyTooLarge
        chunks.append(chunk)


async def answer_expectation(request: web.BaseRequest) -> None:
    """Tells a client that asked (`Expect: 100-continue`) to send its body. Call it once for a request."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


__all__ = ["BodyTooLarge", "answer_expectation", "read_body"]
