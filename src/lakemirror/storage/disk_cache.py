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
import re
import threading
import time
import uuid
from pathlib import Path

from lakemirror.storage.new_files import put_file
from lakemirror.storage.own_files import begins_with, entries, is_own_file, remove_own_file

log = logging.getLogger("lakemirror")

_FORMAT = b"LMCACHE1"
_CHECK = 16  # bytes of the checksum in front of the content
_HEAD = len(_FORMAT) + _CHECK
_PART = re.compile("[0-9a-f]{2}")
_ENTRY = re.compile(r"[0-9a-f]{30}|\.[0-9a-f]{32}\.tmp")
_BEGINS = begins_with(_FORMAT)
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
            if held[:_HEAD] != _head(name, held[_HEAD:]):
                remove_own_file(path, _ENTRY, _BEGINS)
                return None
            if time.time() - path.stat().st_mtime > _USED_LATELY:
                os.utime(path)
        except OSError:
            return None
        return held[_HEAD:]

    def put(self, name: str, data: bytes) -> None:
        """Keeps the content, if there is room for it and none of this name."""
        path = self._path(name)
        size = _HEAD + len(data)
        if size > self.most_bytes // 8 or time.monotonic() < self._not_before:
            return
        try:
            if path.exists():
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            put_file(path, path.with_name(f".{uuid.uuid4().hex}.tmp"), _head(name, data) + data, durable=False)
        except OSError as error:
            self._not_before = time.monotonic() + _AFTER_FAILURE
            log.info("objects of stores are not cached in %s: %s", self.folder, error.strerror or error)
            return
        self._make_room(size)

    def drop(self, name: str) -> None:
        """Deletes the content of this name, if there is any."""
        remove_own_file(self._path(name), _ENTRY, _BEGINS)

    def _make_room(self, size: int) -> None:
        """Counts written bytes. Deletes the least recently used entries if the total exceeds `most_bytes`.

        Only entries count: anything else in the folder is left alone.
        """
        with self._lock:
            self._total = None if self._total is None else self._total + size
            if self._total is not None and self._total <= self.most_bytes:
                return
            held = []
            for path in self._entries():
                if is_own_file(path, _ENTRY, _BEGINS):
                    with contextlib.suppress(OSError):
                        stat = path.stat()
                        held.append((stat.st_mtime, stat.st_size, path))
            self._total = sum(size for _, size, _ in held)
            if self._total <= self.most_bytes:
                return
            for _, size, path in sorted(held):
                if self._total <= self.most_bytes * _LEFT:
                    break
                remove_own_file(path, _ENTRY, _BEGINS)
                self._total -= size

    def _entries(self) -> list[Path]:
        return [path for part in entries(self.folder) if _PART.fullmatch(part.name) for path in entries(part)]

    def _path(self, name: str) -> Path:
        digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
        return self.folder / digest[:2] / digest[2:]


def _head(name: str, data: bytes) -> bytes:
    """What is in front of the content: the format, and a checksum of name and content."""
    found = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=_CHECK)
    found.update(b"\0")
    found.update(data)
    return _FORMAT + found.digest()
