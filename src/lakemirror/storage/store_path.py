"""An object or a folder in a store, by its address: the names of `pathlib.Path` that both have."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from lakemirror.storage.connections import store_at
from lakemirror.storage.object_file import ObjectFile
from lakemirror.storage.object_store import ObjectStore
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


__all__ = ["ObjectStatus", "StorePath"]
