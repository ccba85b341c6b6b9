"""The audit log: one JSON object a line for every change, token refused and 403, and for credentials that are given.

disk    a line ─▶ audit.log, before the answer; at 64 MiB it becomes audit.log.1
store   a line ─▶ a second later at most, an object of `audit.log/` with the lines of the last minutes, put again
        a change is answered once its line is put, with those of all that are answered at that time
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

from lakemirror.errors import LakemirrorError
from lakemirror.storage import Place
from lakemirror.storage.durable import put_over
from lakemirror.storage.place import local_path, names_in
from lakemirror.storage.served_files import now_ns

log = logging.getLogger("lakemirror")

MOST_BYTES = 64 * 1024**2  # of one file
MOST_PATH = 512  # characters of a refused address: with long ones anybody could turn all files over in seconds
KEPT = 9  # older files beside it: audit.log.1 is the last
DELAY = 1.0  # seconds that a line waits for others before it is put into a store
AGAIN = 5.0  # seconds until a put that failed is repeated
OBJECT = 256 * 1024  # bytes of an object in a store
_MOST_WAITING = 32 * 1024**2  # bytes of lines that wait for a store which does not answer


class AuditLog:
    """`audit.log` in the service's own folder. Holds no token, secret, key or signature: of an address the path alone,
    and the beginning of it where the request was refused."""

    def __init__(self, path: Place, most_bytes: int = MOST_BYTES) -> None:
        file = local_path(path)
        self._lines = _Objects(path, most_bytes * (KEPT + 1)) if file is None else _File(file, most_bytes)

    def write(self, path: str, status: int, **told: str) -> None:
        """Appends a record. `told`: its other fields. OSError where the disk does not take it."""
        if status >= 400 and len(path) > MOST_PATH:
            path = f"{path[:MOST_PATH]}…"
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        record = {"time": now, **told, "path": path, "status": status}
        self._lines.add(json.dumps(record).encode() + b"\n")

    def kept(self) -> Future[None] | None:
        """Ends once every line so far is kept, or cannot be; None where that is so by now."""
        return self._lines.kept()

    def close(self) -> None:
        """Returns once every line is kept, or cannot be."""
        self._lines.close()


def audit_lines(path: Place) -> Iterator[bytes]:
    """The lines of an audit log, oldest first, each with its line feed. LakemirrorError where a store fails."""
    file = local_path(path)
    if file is None:
        parts = [path / name for name in sorted(_objects(path))]
    else:
        parts = [*(file.with_name(f"{file.name}.{number}") for number in range(KEPT, 0, -1)), file]
    for part in parts:
        with contextlib.suppress(FileNotFoundError), part.open("rb") as opened:
            yield from opened


class _File:
    """A file on a disk, and older ones beside it."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._handle = -1
        self._size = 0

    def add(self, line: bytes) -> None:
        if self._handle < 0 or self._size + len(line) > self._most_bytes:
            self._open(len(line))
        os.write(self._handle, line)
        self._size += len(line)

    def kept(self) -> None:
        """The operating system has each line."""

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1

    def _open(self, coming: int) -> None:
        self.close()
        if self._path.exists() and self._path.stat().st_size + coming > self._most_bytes:
            for number in range(KEPT - 1, 0, -1):
                older = self._path.with_name(f"{self._path.name}.{number}")
                if older.exists():
                    older.replace(self._path.with_name(f"{self._path.name}.{number + 1}"))
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        self._handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        self._size = os.fstat(self._handle).st_size


class _Objects:
    """Objects in a store, named by when they begin. The newest is put again with more lines: a store cannot append."""

    def __init__(self, folder: Place, most_bytes: int) -> None:
        self._folder, self._most_bytes = folder, most_bytes
        self._name, self._content = "", b""  # of the newest object
        self._waiting = bytearray()
        self._asked: list[Future[None]] = []
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def add(self, line: bytes) -> None:
        with self._changed:
            if len(self._waiting) + len(line) > _MOST_WAITING:
                raise OSError("too many lines wait for the store")
            self._waiting += line
            self._changed.notify()

    def kept(self) -> Future[None] | None:
        asked = Future[None]()
        asked.set_running_or_notify_cancel()  # who does not wait any more does not end it
        with self._changed:
            if not self._waiting:
                return None
            self._asked.append(asked)
            self._changed.notify()
        return asked

    def close(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        pause = DELAY
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._asked or self._ended)
                self._changed.wait_for(lambda: self._asked or self._ended, pause)
                count, ended = len(self._waiting), self._ended
                asked, self._asked = self._asked, []
            try:
                self._put(bytes(self._waiting[:count]))
                pause = DELAY
                with self._changed:
                    del self._waiting[:count]
                    left = len(self._waiting) + len(self._asked)
            except LakemirrorError as error:
                log.error("the audit log cannot be written: %s", error)
                pause, left = AGAIN, 0
            for each in asked:
                each.set_result(None)
            if ended and not left:
                return

    def _put(self, lines: bytes) -> None:
        if not lines:
            return
        if not self._name or len(self._content) + len(lines) > OBJECT:
            seconds, rest = divmod(now_ns(), 10**9)
            begins = time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds))
            self._name, self._content = f"{begins}.{rest:09}Z-{uuid.uuid4().hex[:8]}.jsonl", b""
            self._remove_oldest()
        put_over(self._folder / self._name, self._content + lines, durable=True)
        self._content += lines

    def _remove_oldest(self) -> None:
        """Removes the oldest objects beyond the limit."""
        found = _objects(self._folder)
        total = sum(found.values())
        for name in sorted(found):
            if total <= self._most_bytes:
                return
            (self._folder / name).unlink()
            total -= found[name]


def _objects(folder: Place) -> dict[str, int]:
    """The objects of a log, by name, with their sizes."""
    with contextlib.suppress(FileNotFoundError):
        return {name: found.stat().st_size for name, found in names_in(folder) if found is not None}
    return {}
