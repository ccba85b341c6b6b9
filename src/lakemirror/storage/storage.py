"""The storage protocol: the operations on the files of one mirrored database, and the result of a listing.

All paths are relative to the root of the mirrored database, with `/` between their parts.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from lakemirror.errors import LakemirrorError
from lakemirror.storage.folder_watch import NotWatched

MOVING = "_lakemirror_moving.json"
"""In the log of a table whose folder is being moved within an object store: source and target. Any process that finds
it finishes the move (`Storage.finish_move`).
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file as a listing shows it. `size` in bytes, `modified` in nanoseconds since the epoch.

    `tag`: the ETag of an object in a store, which differs for another content; empty for a local file. `inode`,
    `changed`: of a local file, and its ctime in nanoseconds; 0 unknown.
    """

    path: str
    size: int
    modified: int
    tag: str = ""
    inode: int = field(default=0, compare=False)
    changed: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def etag(self) -> str:
        """Changes if the content may have changed: size and modified time of a local file, size and ETag of an object.

        The modified time of an object is not used: a copied bucket has other times and the same content.
        """
        return f"{self.size:x}-{self.tag or format(self.modified, 'x')}"

    def is_same(self, other: Entry) -> bool:
        """False if the content may be another than it was at an earlier look of this process.

        Beside what `etag` has, another local file in its place has another inode and another ctime. One of them alone
        says nothing: links, moves and permissions change the ctime, and network mounts may give a file another inode.
        """
        if self.size != other.size or (self.tag or self.modified) != (other.tag or other.modified):
            return False
        return self.inode == other.inode or self.changed == other.changed or not (self.inode and other.inode)


@dataclass
class Listing:
    """A folder and everything below it; every path is relative to the root.

    `others`: entries that are neither regular files nor folders, with their kind ("a link", "a FIFO"); never opened.
    `errors`: folders that could not be listed, or not completely. All other folders are complete.
    """

    files: list[Entry] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    errors: dict[str, LakemirrorError] = field(default_factory=dict)


@dataclass(frozen=True)
class Capabilities:
    """What a kind of storage can do, and what its operations cost. Code above `storage/` asks for these, never for the
    kind.

    `looks_last`: seconds for which a listing counts, because a listing costs requests. 0: listings are free.
    `waits`: an operation is a request that waits for its answer. Several at once need no processor, neighbouring bytes
    are better read together, and a request that can be left out is left out.
    `folder_times`: a folder has a modified time, which changes with its entries.
    `reads_listed`: `Storage.open` of a listed file reads the listed content or raises.
    `time_step`: modified times are multiples of so many seconds.
    """

    looks_last: float
    waits: bool
    folder_times: bool
    reads_listed: bool
    time_step: float


DISK = Capabilities(looks_last=0.0, waits=False, folder_times=True, reads_listed=False, time_step=0.0)
STORE = Capabilities(looks_last=30.0, waits=True, folder_times=False, reads_listed=True, time_step=1.0)


class Storage(Protocol):
    """The store that holds one mirrored database.

    Every method raises FileNotFoundError or LakemirrorError and nothing else: `storage-unavailable` where the store
    fails, `path-refused` where a part of the path is a link, or the last part is a FIFO, a socket or a device.
    """

    capabilities: Capabilities

    def uri(self, path: str = "") -> str:
        """The path as Spark reads it."""

    def probe(self) -> None:
        """`store-unsafe` if the store lets two writers make the same version."""

    def watchable(self) -> Path | NotWatched:
        """The folder whose changes the system tells of (`FolderWatch`), or why it does not."""

    def holding_folders(self) -> AbstractContextManager[None]:
        """Within the block each folder on disk is opened once for many files. For short work only: a folder that is
        deleted or replaced meanwhile is still the old one here.
        """

    def list(self, path: str, enter: Callable[[str], bool] = ...) -> Listing:
        """All files and folders below a folder. `enter(path)` False skips a folder's content; the folder itself is
        listed.

        Raises only if the folder itself cannot be listed; FileNotFoundError if it is missing. Errors of folders below
        it are in the listing's `errors`.
        """

    def stat(self, path: str) -> Entry | None:
        """The file or folder; None if there is none, and for folders in an object store."""

    def exists(self, path: str) -> bool:
        """True if anything is at that path, also a link."""

    def open(self, path: str, listed: Entry | None = None) -> BinaryIO:
        """The regular file, opened for reading bytes with seek; FileNotFoundError. Never waits for another process.

        `listed`: the file as a listing showed it. A store then reads this content or raises.
        """

    def read(self, path: str, most_bytes: int | None = None, listed: Entry | None = None) -> bytes:
        """The file's content; FileNotFoundError. `content-too-large`, without reading, if it has more than
        `most_bytes`.

        `listed`: the file as a listing showed it. A store then returns this content, perhaps from memory, or a newer
        one.
        """

    def write(self, path: str, data: bytes) -> None:
        """Writes the file atomically; replaces an older one and makes missing folders.

        It is not synced, and a power cut may leave it empty: use it for files that are written repeatedly, such as the
        status.
        """

    def rewrite(self, path: str, data: bytes) -> bool:
        """Replaces a file as `write` does, but makes none: False if it is gone.

        In a store it is one request, and False also if another file is there than this process wrote last.
        """

    def write_new(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        """Creates the file atomically; False if one exists. FileNotFoundError if the folder is missing.

        `durable`: synced, so that a power cut does not leave it empty.
        """

    def move(self, source: str, target: str) -> None:
        """Moves a file or a folder; replaces an older file and makes missing folders. FileNotFoundError."""

    def free_name(self, path: str, listed: Collection[str]) -> str:
        """`path`, or `path.1`, `path.2` … if files have these names. `listed`: the files that a listing shows there; a
        store asks for no more, because a copy never replaces an object.
        """

    def move_listed(self, entry: Entry, target: str) -> bool:
        """Moves a listed file and sets its time to now; False if another file is in its place.

        The folder may have been deleted and recreated since the listing, with a new file of the same name that is not
        applied. So the file is compared with the listed one, and is not moved if it differs.
        """

    def move_all_listed(self, moves: Iterable[tuple[Entry, str]]) -> Iterator[tuple[Entry, str]]:
        """`move_listed` for several files; yields those that were moved. A store moves many at once.

        A file that cannot be moved is skipped.
        """

    def finish_move(self, path: str) -> bool:
        """Finishes an interrupted move of a table's folder from or to `path`; True if there was one."""

    def create(self, path: str) -> BinaryIO:
        """A file opened for writing; replaces an older one and makes missing folders."""

    def touch(self, path: str) -> None:
        """Sets a file's modified time to now; FileNotFoundError."""

    def delete(self, path: str) -> None:
        """Deletes a file or a folder with its content; does nothing if there is none."""


_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)


def kind_of(mode: int) -> str:
    """What a mode means, in words for a message: "a link", "a FIFO"; "a file" for a regular file."""
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "a file")


def not_a_file(path: str, kind: str) -> LakemirrorError:
    """The error for something that is never opened."""
    return LakemirrorError("path-refused", f"{path} is {kind}: it is not opened", file=path)


def seconds_since(modified: int, now: float | None = None) -> float:
    """The age in seconds of a modified time in nanoseconds."""
    return (time.time() if now is None else now) - modified / 1e9
