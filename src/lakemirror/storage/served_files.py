"""The files of one database as clients of a service see and change them: the verbs that a disk and a store both have.

    find, open, listed ─▶ what is published        put, move, remove_file, take_folder ─▶ changes

Paths are relative to the database, without empty or dot segments. What is `waits`: see `storage.Capabilities`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

PIECE = 1 << 20  # bytes of a file that are read at once from a disk


@dataclass(frozen=True)
class Found:
    """What a path holds. `etag` without quotes. `is_staged`: created, nothing flushed yet."""

    is_folder: bool
    length: int
    etag: str
    modified_ns: int
    is_staged: bool = False


class _Whatever(Enum):
    ANY = "any"


ANY = _Whatever.ANY
"""Whatever is at a path may be replaced."""

Expected: TypeAlias = Found | Literal[_Whatever.ANY] | None
"""What must be at a path when it is written: this file, nothing, or `ANY`."""


class Changed(Exception):
    """Something else is at the path than was expected: the caller looks again."""


class ServedFile(Protocol):
    """A published file, open for reading. All bytes are of the content that `found` tells."""

    found: Found

    def read_at(self, size: int, offset: int) -> bytes:
        """At most `size` bytes; none behind the end. OSError, LakemirrorError."""

    def copy_to(self, target: int, length: int) -> None:
        """Writes the first `length` bytes to the start of an open file. EOFError where the file is shorter."""

    def close(self) -> None: ...


class ServedNames(Protocol):
    """A folder, open to be listed. `names`: what is directly in it; True for a folder."""

    names: Mapping[str, bool]

    def find(self, name: str) -> Found | None: ...

    def close(self) -> None: ...


class ServedFiles(Protocol):
    """The published files of a database. Safe for threads.

    `waits`: each verb is a request, so callers hold no lock meanwhile, and `Expected` is a condition of the store. Else
    callers hold a lock, and `Expected` is what they have seen under it. `piece`: bytes to read at once.
    """

    waits: bool
    piece: int

    def find(self, path: str) -> Found | None:
        """None for nothing, and for links."""

    def open(self, path: str) -> ServedFile:
        """FileNotFoundError where there is no file, or a link."""

    def listed(self, path: str) -> ServedNames:
        """FileNotFoundError where there is no folder, or a link."""

    def make_folder(self, path: str) -> None:
        """Makes a folder and its parents. FileNotFoundError, NotADirectoryError where a file is in the way."""

    def check_folders(self, path: str) -> None:
        """As `make_folder`, where folders need no making: only looks whether a file is in the way."""

    def put(self, path: str, source: Path, expected: Expected) -> Found | None:
        """Publishes a synced file of the staging folder, which is gone then; None where it was taken away at once.
        Changed: nothing has happened."""

    def move(self, source: str, target: str, expected: Expected, *, is_folder: bool) -> None:
        """Moves a file, whose modified time is then now, or a folder. FileNotFoundError, Changed."""

    def remove_file(self, path: str, *, keeps_folder: bool = True) -> None:
        """`keeps_folder`: the folder stays where this is the last file in it."""

    def take_folder(self, path: str, aside: Path) -> None:
        """Removes a folder with all in it; on a disk it becomes `aside`, where that is possible."""

    def settle(self, path: str) -> None:
        """Makes the names of the folder that holds `path`, and of those above it, durable."""

    def forget_settled(self) -> None:
        """Called when a folder goes or moves: its number may be given to another one."""


def now_ns() -> int:
    """The time, in nanoseconds since 1970; each call of a process gives a later one."""
    global _last_ns
    with _clock:
        _last_ns = max(time.time_ns(), _last_ns + 1)
        return _last_ns


_clock = threading.Lock()
_last_ns = 0
