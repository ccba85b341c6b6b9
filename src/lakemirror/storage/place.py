"""A file or folder, on a local disk or in a store, by one set of names: those of `pathlib.Path`.

    place("/data/shop/Tables/orders")   a Path: everything local stays as it is
    place("s3://lake/shop/Tables/…")    a StorePath: the same names, by requests to the store

Code below the landing zone takes a table's address as text and asks `place` for it. `opened` gives what pyarrow reads
from: the path itself of a local file, which is mapped, or a file of ranged requests.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from lakemirror.storage.addresses import is_store_address, parse_address
from lakemirror.storage.connections import store_at
from lakemirror.storage.object_file import ObjectFile
from lakemirror.storage.object_store import ObjectStore
from lakemirror.storage.object_writer import ObjectWriter
from lakemirror.storage.storage import Entry


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

    def as_written(self) -> StorePath:
        """The same, `known` as this process wrote it last; as it is where it did not."""
        return replace(self, known=self.store.cache.own(self.key))

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


def is_in_store(address: str | Place) -> bool:
    """True for what is in a store, not on a local disk."""
    return isinstance(address, StorePath) or (isinstance(address, str) and is_store_address(address))


def opened(address: str | Place, known: Entry | None = None, *, written_once: bool = False) -> Any:
    """The source that pyarrow reads a file from: a local path as text, or an open file of a store; FileNotFoundError.

    `known`: the object as a listing showed it; FileNotFoundError if another one is in its place. `written_once`: the
    file is a data file, which nobody replaces.
    """
    found = place(address)
    if isinstance(found, StorePath):
        return ObjectFile(found.store, found.key, known or found.known, written_once=written_once)
    return str(found)


def created(address: Place) -> Path | ObjectWriter:
    """The target that pyarrow writes a new file to: a local path, or a writer of a store, which the caller closes."""
    return address.store.writer(address.key) if isinstance(address, StorePath) else address


def names_in(folder: Place, after: str = "") -> Iterator[tuple[str, Place]]:
    """The entries of a folder by name; in a store with size, time and ETag of the listing. FileNotFoundError if there
    is none. `after`: in a store, only names behind it."""
    if isinstance(folder, StorePath):
        found = False
        begin = f"{folder.key}/" if folder.key else ""
        for entry in folder.store.entries(begin, f"{begin}{after}" if after else ""):
            found = True
            if "/" not in entry.path[len(begin) :]:
                yield entry.name, StorePath(folder.root, entry.path, entry)
        if not found:
            raise FileNotFoundError(2, "No such folder", str(folder))
        return
    with os.scandir(folder) as entries:
        for each in entries:
            yield each.name, folder / each.name


__all__ = ["ObjectStatus", "Place", "StorePath", "created", "is_in_store", "names_in", "opened", "place"]
