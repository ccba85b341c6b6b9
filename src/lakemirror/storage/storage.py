"""What the engine asks of a store: one small protocol, and what a listing gives back.

All paths are relative to the root of the mirrored database, with `/` between their parts, so that nothing above this
package knows where a database is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from lakemirror.errors import LakemirrorError

MOVING = "_lakemirror_moving.json"
"""In the log of a table whose folder is being moved within an object store: where from and where to. Whoever finds it
carries on (`Storage.finish_move`)."""


@dataclass(frozen=True)
class Entry:
    """One file as a listing shows it. `size` in bytes, `modified` in nanoseconds since the epoch.

    `tag`: the ETag of an object in a store, which differs for another content; empty for a local file.
    """

    path: str
    size: int
    modified: int
    tag: str = ""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def etag(self) -> str:
        """Differs whenever the content may differ: size and modified time of a local file, size and ETag of an object.

        The modified time of an object does not count: a copy of the bucket has other times and the same content.
        """
        return f"{self.size:x}-{self.tag or format(self.modified, 'x')}"


@dataclass
class Listing:
    """A folder and everything below it; every path is relative to the root.

    `others`: what is neither a regular file nor a folder, with what it is ("a link", "a FIFO"); never opened.
    `errors`: folders that could not be listed, or not completely. What is known of other folders is complete.
    """

    files: list[Entry] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    errors: dict[str, LakemirrorError] = field(default_factory=dict)


class Storage(Protocol):
    """The store that holds one mirrored database.

    Every method raises FileNotFoundError or LakemirrorError and nothing else: `storage-unavailable` where the store
    fails, `path-refused` where a part of the path is a link, or the last part is a FIFO, a socket or a device.
    """

    look_again: float
    """Seconds for which a look at a table holds while its files stay as they are: another look costs requests. 0: looks
    cost nothing."""

    def uri(self, path: str = "") -> str:
        """The path as Spark reads it."""

    def probe(self) -> None:
        """`store-unsafe` where the store would let two writers make one version."""

    def holding_folders(self) -> AbstractContextManager[None]:
        """Within the block a folder of the disk is entered once for many files. For short pieces of work alone: a
        folder that is deleted or replaced meanwhile is still the one that was entered."""

    def list(self, path: str, enter: Callable[[str], bool] = ...) -> Listing:
        """All files and folders below a folder; `enter(path)` False leaves a folder's content out (it is still named).

        Raises only where the folder itself cannot be listed; FileNotFoundError where it is missing. What is wrong with
        a folder below it is in the listing's `errors`.
        """

    def stat(self, path: str) -> Entry | None:
        """The file or folder, or None. None for a folder in an object store, where it has no time."""

    def exists(self, path: str) -> bool:
        """True for anything at that path, also for a link."""

    def check(self, path: str) -> None:
        """`path-refused` where a part of the path is a link, or the last part is neither a file nor a folder."""

    def open(self, path: str, known: Entry | None = None) -> BinaryIO:
        """The regular file, opened for reading bytes with seek; FileNotFoundError. Never waits for another process.

        `known`: as a listing showed it. A store then reads this content or none.
        """

    def read(self, path: str, most_bytes: int | None = None, known: Entry | None = None) -> bytes:
        """The complete file; FileNotFoundError. `content-too-large`, unread, where it has more than `most_bytes`.

        `known`: as a listing showed it. A store then gives this content, perhaps from memory, or a newer one.
        """

    def write(self, path: str, data: bytes) -> None:
        """Puts the complete file there or nothing, over an older one, with folders as needed.

        It is not synced: for what is written again anyway, such as the status. A power cut may leave it empty.
        """

    def rewrite(self, path: str, data: bytes) -> bool:
        """Writes the file again that this process wrote last; False where that is gone or another one is there.

        Always False where looking costs nothing.
        """

    def write_new(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        """The same only where no file is; False where one is. The folder must exist: FileNotFoundError.

        `durable`: synced, so that a power cut does not leave it empty.
        """

    def move(self, source: str, target: str) -> None:
        """Moves a file or a folder, over an older file, with folders as needed; FileNotFoundError."""

    def set_aside(self, entry: Entry, target: str) -> bool:
        """Moves the file of a listing, which gets the time of the move; False where another file is in its place.

        The folder may have been deleted and made again since it was listed, with another file under the same name,
        which nobody has applied. So the file is compared with the listed one, and stays if it is another.
        """

    def finish_move(self, path: str) -> bool:
        """Carries on with a move of a table's folder from or to `path` that was interrupted; True where one was."""

    def create(self, path: str) -> BinaryIO:
        """A new file, opened for writing, with folders as needed; over an older one."""

    def link(self, source: str, target: str) -> None:
        """The file under a second name, with folders as needed, without copying where the store can; FileNotFoundError.

        Over an older file. What happens to the first name later does not touch the second.
        """

    def touch(self, path: str) -> None:
        """Sets a file's modified time to now; FileNotFoundError."""

    def delete(self, path: str) -> None:
        """Deletes a file or a complete folder; nothing where none is."""


def seconds_since(modified: int, now: float | None = None) -> float:
    """The age in seconds of a modified time in nanoseconds."""
    return (time.time() if now is None else now) - modified / 1e9


__all__ = ["MOVING", "Entry", "Listing", "Storage", "seconds_since"]
