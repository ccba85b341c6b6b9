"""The body of a request, written to a file as it arrives, with bounded memory (service.md sections 5 and 7)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from lakemirror.service.request_body import BodyChunks, read_body
from lakemirror.service.request_notes import notes
from lakemirror.service.storage.call import Call
from lakemirror.service.storage.checksums import BodyChecksum

_BUFFER = 1 << 20


async def receive(call: Call, file: Callable[[], int], offset: int, then: Callable[[], object] = lambda: None) -> int:
    """Writes the body to an open file from `offset` on; the number of bytes. `file` opens it, in a worker thread;
    `then` is called there once the body is complete and the file closed.

    Refused where the body ends early, is too slow or too large; Refused 400 where its checksum differs. What
    is written then is nothing's content yet: the caller drops it.
    """
    limits, workers = call.serving.limits, call.serving.workers
    body = BodyChunks(call.request, limits, limits.max_body)
    checksum = BodyChecksum(call.headers)
    await body.expected()
    target = -1
    received, buffered, buffer = 0, 0, []
    try:
        async for chunk in body:
            buffer.append(chunk)
            buffered += len(chunk)
            if buffered >= _BUFFER:
                target = target if target >= 0 else await workers.run(file)
                await workers.run(_write, target, buffer, offset + received, checksum)
                received, buffered, buffer = received + buffered, 0, []
        opened, target = target, -1
        await workers.run(_finish, opened, file, buffer, offset + received, checksum, then)
    finally:
        if target >= 0:
            os.close(target)
    notes().uploaded = received + buffered
    return received + buffered


def to_new_file(path: Path) -> Callable[[], int]:
    """Opens a file that does not exist yet, for `receive`."""
    return lambda: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)


async def read_small(call: Call, most: int) -> bytes:
    """A small body. Refused, also 400 where its checksum differs."""
    checksum = BodyChecksum(call.headers)
    data = await read_body(call.request, call.serving.limits, most)
    checksum.add(data)
    checksum.check()
    return data


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
