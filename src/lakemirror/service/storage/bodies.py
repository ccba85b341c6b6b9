"""The body of a request, written to a file as it arrives, with bounded memory (service.md sections 5 and 7)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

from lakemirror.service.interface import Limits
from lakemirror.service.request_body import answer_expectation
from lakemirror.service.storage.answers import StorageError
from lakemirror.service.storage.call import Call
from lakemirror.service.storage.checksums import BodyChecksum

_BUFFER = 1 << 20


def announced_length(request: web.BaseRequest, limits: Limits) -> int | None:
    """The length that the request announces, None where the body comes in chunks.

    StorageError 413 `RequestBodyTooLarge` before anything is read, 400 for another coding than chunks.
    """
    coding = request.headers.getall("Transfer-Encoding", [])
    if coding:
        if [each.strip().lower() for each in coding] != ["chunked"]:
            message = "The only transfer coding is chunked."
            raise StorageError(400, "InvalidHeaderValue", message, {"Connection": "close"})
        return None
    length = request.content_length or 0
    if length > limits.max_body:
        raise _too_large(limits)
    return length


async def receive(call: Call, file: Callable[[], int], offset: int, then: Callable[[], object] = lambda: None) -> int:
    """Writes the body to an open file from `offset` on; the number of bytes. `file` opens it, in a worker thread;
    `then` is called there once the body is complete and the file closed.

    StorageError 400 where the body ends early or its checksum differs, 408 where nothing arrives for
    `limits.body_timeout` seconds, 413. What is written then is nothing's content yet: the caller drops it.
    """
    request, limits, workers = call.request, call.serving.limits, call.serving.workers
    expected = announced_length(request, limits)
    checksum = BodyChecksum(call.headers)
    await answer_expectation(request)
    target = -1
    received, buffered, buffer = 0, 0, []
    try:
        async for chunk in _chunks(request, limits.body_timeout):
            buffer.append(chunk)
            buffered += len(chunk)
            if received + buffered > (limits.max_body if expected is None else expected):
                raise _too_large(limits)
            if buffered >= _BUFFER:
                target = target if target >= 0 else await workers.run(file)
                await workers.run(_write, target, buffer, offset + received, checksum)
                received, buffered, buffer = received + buffered, 0, []
        if expected is not None and received + buffered != expected:
            raise _ended_early()
        opened, target = target, -1
        await workers.run(_finish, opened, file, buffer, offset + received, checksum, then)
    finally:
        if target >= 0:
            os.close(target)
    call.outcome.uploaded_bytes = received + buffered
    return received + buffered


def to_new_file(path: Path) -> Callable[[], int]:
    """Opens a file that does not exist yet, for `receive`."""
    return lambda: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)


async def read_small(call: Call, most: int) -> bytes:
    """A small body. StorageError 413, 400, 408 as above."""
    request, limits = call.request, call.serving.limits
    if (request.content_length or 0) > most:
        raise StorageError(413, "RequestBodyTooLarge", f"This body may have {most:,} bytes.")
    checksum = BodyChecksum(call.headers)
    await answer_expectation(request)
    data = bytearray()
    async for chunk in _chunks(request, limits.body_timeout):
        data += chunk
        if len(data) > most:
            raise StorageError(413, "RequestBodyTooLarge", f"This body may have {most:,} bytes.")
    if request.content_length is not None and len(data) != request.content_length:
        raise _ended_early()
    checksum.add(bytes(data))
    checksum.check()
    return bytes(data)


class _chunks:
    """The chunks of a body. One timer ends a body that stalls."""

    def __init__(self, request: web.BaseRequest, timeout: float) -> None:
        self._content = request.content
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._waits = False
        self._timer = self._loop.call_later(timeout, self._look)

    def __aiter__(self) -> _chunks:
        return self

    async def __anext__(self) -> bytes:
        self._waits = True
        self._last = self._loop.time()
        try:
            chunk = await self._content.readany()
        except asyncio.TimeoutError:
            raise StorageError(408, "OperationTimedOut", "The body stalled.", {"Connection": "close"}) from None
        except (OSError, ClientPayloadError, HttpProcessingError, asyncio.CancelledError) as error:
            self._timer.cancel()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise _ended_early() from error
        finally:
            self._waits = False
        if not chunk:
            self._timer.cancel()
            raise StopAsyncIteration
        return chunk

    def _look(self) -> None:
        left = self._last + self._timeout - self._loop.time()
        if self._waits and left <= 0:
            self._content.set_exception(asyncio.TimeoutError())
        else:
            self._timer = self._loop.call_later(max(left, 0.01) if self._waits else self._timeout, self._look)


def _write(target: int, buffer: list[bytes], offset: int, checksum: BodyChecksum) -> None:
    if checksum.is_needed:
        for chunk in buffer:
            checksum.add(chunk)
    data = memoryview(b"".join(buffer) if len(buffer) > 1 else buffer[0])
    while data:
        written = os.pwrite(target, data, offset)
        data, offset = data[written:], offset + written


def _finish(
    target: int,
    file: Callable[[], int],
    buffer: list[bytes],
    offset: int,
    checksum: BodyChecksum,
    then: Callable[[], object],
) -> None:
    """Writes the rest, closes the file, and does what comes then: one turn of a thread for a small body."""
    opened = file() if target < 0 else target
    try:
        if buffer:
            _write(opened, buffer, offset, checksum)
        checksum.check()
    finally:
        os.close(opened)
    then()


def _ended_early() -> StorageError:
    return StorageError(400, "IncompleteBody", "The body ended early.", {"Connection": "close"})


def _too_large(limits: Limits) -> StorageError:
    message = f"A body may have {limits.max_body:,} bytes."
    return StorageError(413, "RequestBodyTooLarge", message, {"Connection": "close"})
