"""The audit log: one JSON object a line for every change, token refused and 403, and for credentials that are given."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

MOST_BYTES = 64 * 1024**2  # of one file
MOST_PATH = 512  # characters of a refused address: with long ones anybody could turn all files over in seconds
KEPT = 9  # older files beside it: audit.log.1 is the last


class AuditLog:
    """ROOT/.lakemirror/audit.log. Holds no token, secret, key or signature: of an address the path alone, and the
    beginning of it where the request was refused."""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._handle = -1
        self._size = 0

    def write(self, path: str, status: int, **told: str) -> None:
        """Appends a record. `told`: its other fields. OSError where the disk does not take it."""
        if status >= 400 and len(path) > MOST_PATH:
            path = f"{path[:MOST_PATH]}…"
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        record = {"time": now, **told, "path": path, "status": status}
        line = json.dumps(record).encode() + b"\n"
        if self._handle < 0 or self._size + len(line) > self._most_bytes:
            self._open(len(line))
        os.write(self._handle, line)
        self._size += len(line)

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
