"""Keeps objects of stores in the cache folder, so that a restarted engine sends fewer requests.

get ─▶ the checksum is right ─▶ content put ─▶ temporary file ─▶ rename ─▶ over `most_bytes`: the least recently used
are deleted

An entry's name holds bucket, key and ETag, so an entry is never out of date. A damaged entry is deleted. Errors are
never raised: an entry that cannot be read or written costs a request to the store.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
import threading
import time
from pathlib import Path

log = logging.getLogger("lakemirror")

_CHECK = 16  # bytes of the checksum in front of the content
_AFTER_FAILURE = 600.0  # seconds in which nothing is written after a write that failed
_USED_LATELY = 3600.0  # seconds for which an entry's time of use counts
_LEFT = 0.75  # of `most_bytes`, after room was made


class DiskCache:
    """A folder of small entries, at most `most_bytes` in total. Safe for several threads and processes."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder = folder
        self.most_bytes = most_bytes
        self._total: int | None = None
        self._not_before = 0.0
        self._lock = threading.Lock()

    def get(self, name: str) -> bytes | None:
        """The content of this name; None if there is none, or it is damaged."""
        path = self._path(name)
        try:
            held = path.read_bytes()
            if held[:_CHECK] != _checksum(name, held[_CHECK:]):
                path.unlink()
                return None
            if time.time() - path.stat().st_mtime > _USED_LATELY:
                os.utime(path)
        except OSError:
            return None
        return held[_CHECK:]

    def put(self, name: str, data: bytes) -> None:
        """Keeps the content, if there is room for it and none of this name."""
        path = self._path(name)
        size = _CHECK + len(data)
        if size > self.most_bytes // 8 or time.monotonic() < self._not_before:
            return
        try:
            if path.exists():
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            number, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
            try:
                with os.fdopen(number, "wb") as file:
                    file.write(_checksum(name, data) + data)
                Path(temporary).replace(path)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()
                raise
        except OSError as error:
            self._not_before = time.monotonic() + _AFTER_FAILURE
            log.info("objects of stores are not cached in %s: %s", self.folder, error.strerror or error)
            return
        self._make_room(size)

    def drop(self, name: str) -> None:
        """Deletes the content of this name, if there is any."""
        with contextlib.suppress(OSError):
            self._path(name).unlink()

    def _make_room(self, size: int) -> None:
        """Counts written bytes. Deletes the least recently used entries if the total exceeds `most_bytes`."""
        with self._lock:
            self._total = None if self._total is None else self._total + size
            if self._total is not None and self._total <= self.most_bytes:
                return
            held = []
            for path in self.folder.glob("*/*"):
                with contextlib.suppress(OSError):
                    stat = path.stat()
                    held.append((stat.st_mtime, stat.st_size, path))
            self._total = sum(size for _, size, _ in held)
            if self._total <= self.most_bytes:
                return
            for _, size, path in sorted(held):
                if self._total <= self.most_bytes * _LEFT:
                    break
                with contextlib.suppress(OSError):
                    path.unlink()
                self._total -= size

    def _path(self, name: str) -> Path:
        digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
        return self.folder / digest[:2] / digest[2:]


def _checksum(name: str, data: bytes) -> bytes:
    found = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=_CHECK)
    found.update(b"\0")
    found.update(data)
    return found.digest()


__all__ = ["DiskCache"]
