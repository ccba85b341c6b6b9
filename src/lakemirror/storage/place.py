"""A file or folder, on a local disk or in a store, by one set of names: those of `pathlib.Path`.

    place("/data/shop/Tables/orders")   a Path: everything local stays as it is
    place("s3://lake/shop/Tables/…")    a StorePath: the same names, by requests to the store

Code below the landing zone takes a table's address as text and asks `place` for it. `opened` gives what pyarrow reads
from: the path itself of a local file, which is mapped, or a file of ranged requests.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from lakemirror.errors import LakemirrorError
from lakemirror.storage.addresses import is_store_address, parse_address
from lakemirror.storage.connections import store_at
from lakemirror.storage.local import copy_file
from lakemirror.storage.object_file import ObjectFile
from lakemirror.storage.object_store import ObjectStore
from lakemirror.storage.object_writer import ObjectWriter
from lakemirror.storage.storage import DISK, STORE, Capabilities, Entry

_COPIES = threading.BoundedSemaphore(2)  # that a store makes at one time


class ObjectStatus(NamedTuple):
    """What `stat` of a StorePath gives: the fields of `os.stat_result` that are asked for, and the ETag."""

    st_size: int
    st_mtime_ns: int
    st_mode: int
    tag: str = ""

    @property
    def st_mtime(self) -> float:
        return self.st_mtime_ns / 1e9


@dataclass(frozen=True, order=True)
class StorePath:
    """A key in a bucket; a folder is a prefix that holds an object.

    `known`: the object as a listing showed it, so that `stat` needs no request and its content may be in memory.
    Methods raise what those of Path do, and LakemirrorError as `ObjectStore`.
    """

    root: str
    key: str
    known: Entry | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.store.uri(self.key)

    def __truediv__(self, below: str | os.PathLike[str]) -> StorePath:
        text = os.fspath(below).strip("/")
        return StorePath(self.root, f"{self.key}/{text}" if self.key else text)

    @property
    def store(self) -> ObjectStore:
        return store_at(self.root)

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def stem(self) -> str:
        name, dot, _ = self.name.rpartition(".")
        return name if dot and name else self.name

    @property
    def suffix(self) -> str:
        return self.name[len(self.stem) :]

    @property
    def parent(self) -> StorePath:
        return StorePath(self.root, self.key.rpartition("/")[0])

    @property
    def parents(self) -> list[StorePath]:
        found, key = [], self.key
        while key:
            key = key.rpartition("/")[0]
            found.append(StorePath(self.root, key))
        return found

    def with_name(self, name: str) -> StorePath:
        return self.parent / name

    def absolute(self) -> StorePath:
        return self

    def stat(self) -> ObjectStatus:
        entry = self.known or self.store.head(self.key)
        if entry is None:
            raise FileNotFoundError(2, "No such object", str(self))
        return ObjectStatus(entry.size, entry.modified, stat.S_IFREG, entry.tag)

    def exists(self) -> bool:
        """True for an object, or a prefix that holds one."""
        return self.store.head(self.key) is not None or self.is_dir()

    def is_file(self) -> bool:
        return self.store.head(self.key) is not None

    def is_dir(self) -> bool:
        """True for a prefix that holds an object."""
        return next(self.store.entries(f"{self.key}/" if self.key else ""), None) is not None

    def is_symlink(self) -> bool:
        return False

    def mkdir(self, *_: object, **__: object) -> None:
        """Does nothing: a folder exists once an object is in it."""

    def read_bytes(self) -> bytes:
        return self.store.read(self.key, self.known)

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.read_bytes().decode(encoding, errors)

    def write_bytes(self, data: bytes | bytearray) -> int:
        self.store.put(self.key, bytes(data))
        return len(data)

    def open(self, mode: str = "rb") -> Any:
        """The object for reading (`rb`) or a new one for writing (`wb`, `xb`)."""
        if mode in ("wb", "xb"):
            return self.store.writer(self.key)
        return io.BufferedReader(ObjectFile(self.store, self.key, self.known), 1 << 16)

    def unlink(self, missing_ok: bool = True) -> None:
        self.store.delete([self.key])

    def touch(self) -> None:
        """Sets the object's time to now, by a copy onto itself; FileNotFoundError."""
        self.store.copy(self.key, self.key)

    def iterdir(self) -> Iterator[StorePath]:
        """What is directly in the folder."""
        folders, entries = self.store.folders(f"{self.key}/" if self.key else "")
        yield from (StorePath(self.root, each) for each in folders)
        yield from (StorePath(self.root, each.path, each) for each in entries)

    def glob(self, pattern: str) -> Iterator[StorePath]:
        """The entries of the folder whose names match this pattern."""
        return (each for each in self.iterdir() if fnmatchcase(each.name, pattern))

    def below(self) -> Iterator[StorePath]:
        """Every object below the folder."""
        begin = f"{self.key}/" if self.key else ""
        return (StorePath(self.root, each.path, each) for each in self.store.entries(begin))


Place: TypeAlias = Path | StorePath
NewFile: TypeAlias = Path | ObjectWriter


def place(address: str | os.PathLike[str] | StorePath) -> Place:
    """The file or folder that a local path, a `file:` URI or the address of a store names."""
    if isinstance(address, Path | StorePath):
        return address
    text = os.fspath(address)
    if text.startswith("file:"):
        return Path(unquote(urlsplit(text).path))
    if is_store_address(text):
        return StorePath(*parse_address(text))
    return Path(text)


def capabilities_of(address: str | os.PathLike[str] | Place) -> Capabilities:
    """What the storage of that address can do, and what its operations cost."""
    in_store = is_store_address(address) if isinstance(address, str) else isinstance(address, StorePath)
    return STORE if in_store else DISK


def local_path(address: str | os.PathLike[str] | Place) -> Path | None:
    """The path on a local disk, for work that only a disk can do; None if there is none."""
    path = place(address)
    return path if isinstance(path, Path) else None


def etag_of(path: Place) -> str:
    """The ETag that a listing or a write of this process gave; empty if there is none. Sends no request."""
    return path.known.etag if isinstance(path, StorePath) and path.known is not None else ""


def written_here(path: Place) -> Place | None:
    """The file as this process wrote it last: `stat` and `read_bytes` then send no request, or fewer. None if that is
    not known, and on a disk.
    """
    known = path.store.cache.own(path.key) if isinstance(path, StorePath) else None
    return replace(path, known=known) if known is not None else None  # type: ignore[type-var]


def status_of_new(path: Place) -> os.stat_result | ObjectStatus:
    """Size and time of a file that this process has just made. `keep_young` then needs no request for it."""
    status = (written_here(path) or path).stat()
    if isinstance(path, StorePath) and isinstance(status, ObjectStatus):
        path.store.cache.remember(path.key, status.st_size, status.tag)
    return status


def opened(address: str | Place, known: Entry | None = None, *, written_once: bool = False) -> Any:
    """The source that pyarrow reads a file from: a local path as text, or an open file of a store; FileNotFoundError.

    `known`: the object as a listing showed it; FileNotFoundError if another one is in its place. `written_once`: the
    file is a data file, which nobody replaces.
    """
    path = place(address)
    if isinstance(path, StorePath):
        return ObjectFile(path.store, path.key, known or path.known, written_once=written_once)
    return str(path)


@contextlib.contextmanager
def opened_new(path: Place) -> Iterator[tuple[Any, Any]]:
    """A file that this process has just made, opened to be checked: for Python, and the same for pyarrow."""
    if isinstance(path, StorePath):
        with ObjectFile(path.store, path.key) as file:
            path.store.cache.remember(path.key, file.size, file.entry.tag)
            yield file, file
    else:
        with path.open("rb") as local:
            yield local, str(path)


def read_together(file: Any, pieces: Sequence[tuple[int, int]]) -> None:
    """Reads these pieces, from begin to end, of a file of `opened_new` by requests side by side, and keeps them for the
    next reads. Does nothing on a disk.
    """
    if isinstance(file, ObjectFile):
        file.hold(pieces)


def created(path: Place) -> NewFile:
    """The target that pyarrow writes a new file to. The caller ends it with `completed` or `abandoned`."""
    return path.store.writer(path.key) if isinstance(path, StorePath) else path


def size_so_far(target: NewFile) -> int:
    """The bytes that were written to a target of `created`."""
    return target.tell() if isinstance(target, ObjectWriter) else target.stat().st_size


def completed(target: NewFile) -> tuple[int, float]:
    """Completes a target of `created`. Returns its size and its modified time in seconds."""
    if isinstance(target, ObjectWriter):
        target.close()
        return target.tell(), time.time()
    status = target.stat()
    return status.st_size, status.st_mtime


def abandoned(target: NewFile) -> None:
    """Ends a target of `created` that is not completed. A local file stays for the caller to delete."""
    if isinstance(target, ObjectWriter):
        target.abort()


def make_folders(folder: Place, root: Place) -> None:
    """Makes a folder and its missing parents below `root`. Never makes `root`: a database or table that is deleted
    while it is written must stay deleted. FileNotFoundError if `root` is gone. Does nothing in a store.
    """
    if isinstance(folder, StorePath) or isinstance(root, StorePath):
        return
    for path in [*reversed([above for above in folder.parents if root in above.parents]), folder]:
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            continue
        if not path.is_dir():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def copy(source: str, target: Place, size: int = 0) -> None:
    """Copies a file to another file of the same kind of storage; replaces an older one. FileNotFoundError.

    `size`: of the source, if it is known. A store makes two copies at once: the first is read meanwhile.
    """
    if isinstance(target, StorePath):
        with _COPIES:
            target.store.copy(parse_address(source)[1], target.key, size)
    else:
        copy_file(source, target)


def names_in(folder: Place, first: str = "") -> Iterator[tuple[str, Place | None]]:
    """The names in a folder; in a store from the name `first` on, with what the listing says of each object.

    On a disk each name comes alone: there may be millions. FileNotFoundError if there is no folder.
    """
    if isinstance(folder, StorePath):
        is_empty = True
        begin = f"{folder.key}/" if folder.key else ""
        for entry in folder.store.entries(begin, begin + first[:-1] if first else ""):
            is_empty = False
            if "/" not in entry.path[len(begin) :]:
                yield entry.name, StorePath(folder.root, entry.path, entry)
        if is_empty:
            raise FileNotFoundError(2, "No such folder", str(folder))
    else:
        yield from ((name, None) for name in os.listdir(folder))  # noqa: PTH208, a Path for each takes seconds


def end_of(folder: Place, first: str) -> dict[str, Place]:
    """The files of a folder from the name `first` on, by name. A disk is not listed: only `first` is looked for."""
    if isinstance(folder, StorePath):
        with contextlib.suppress(FileNotFoundError):
            return {name: path for name, path in names_in(folder, first) if path is not None}
        return {}
    path = folder / first
    return {first: path} if path.exists() else {}


def folders_in(folder: Place) -> Iterator[Place]:
    """The folders that are directly in a folder; links are left out. None if there is no such folder."""
    if isinstance(folder, StorePath):
        keys, _ = folder.store.folders(f"{folder.key}/" if folder.key else "")
        yield from (StorePath(folder.root, key) for key in keys)
    else:
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            yield from [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def files_below(root: Place, enter: Callable[[str], bool]) -> Iterator[tuple[str, float]]:
    """The regular files below a folder: paths relative to it, and modified times in seconds. Links are not followed.

    `enter(name)` False: the content of folders with this name is left out. One listing in a store.
    """
    if isinstance(root, StorePath):
        begin = f"{root.key}/" if root.key else ""
        for found in root.store.entries(begin):
            path = found.path[len(begin) :]
            if all(map(enter, path.split("/")[:-1])):
                yield path, found.modified / 1e9
        return
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with contextlib.suppress(FileNotFoundError), storage_errors(root / below), os.scandir(root / below) as entries:
            for entry in entries:
                path = f"{below}/{entry.name}" if below else entry.name
                if entry.is_dir(follow_symlinks=False):
                    if enter(entry.name):
                        waiting.append(path)
                elif entry.is_file(follow_symlinks=False):
                    yield path, entry.stat(follow_symlinks=False).st_mtime


def relative_to(root: Place, address: str) -> str:
    """The path relative to `root` that a URI-encoded path or address names, as Delta logs have them."""
    if isinstance(root, StorePath):
        return unquote(address).removeprefix(f"{root}/")
    path = unquote(urlsplit(address).path if address.startswith("file:") else address)
    return os.path.relpath(path, root) if path.startswith("/") else path


@contextlib.contextmanager
def storage_errors(path: object) -> Iterator[None]:
    """Turns OSErrors of the block into `storage-unavailable`, with the path and the system's message.
    FileNotFoundError, NotADirectoryError and FileExistsError are raised unchanged.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, FileExistsError):
        raise
    except OSError as error:
        raise storage_unavailable(path, error) from error


def storage_unavailable(path: object, error: OSError) -> LakemirrorError:
    """The `storage-unavailable` error for an OSError: no space, read-only, input/output, no permission."""
    return LakemirrorError("storage-unavailable", f"{error.filename or path}: {error.strerror or error}")


__all__ = [
    "NewFile", "ObjectStatus", "Place", "StorePath", "abandoned", "capabilities_of", "completed", "copy", "created",
    "end_of",
    "etag_of", "files_below", "folders_in", "local_path", "make_folders", "names_in", "opened", "opened_new", "place",
    "read_together", "relative_to", "size_so_far", "status_of_new", "storage_errors", "storage_unavailable",
    "written_here",
]  # fmt: skip
