"""An object or a folder in a store, by its address: the names of `pathlib.Path` that both have."""

from __future__ import annotations

import io
import os
import stat
from dataclasses import dataclass, field
from typing import BinaryIO, Literal, cast

from lakemirror.storage.connections import store_at
from lakemirror.storage.object_file import ObjectFile
from lakemirror.storage.object_store import ObjectStore
from lakemirror.storage.storage import Entry


@dataclass(frozen=True, order=True)
class StorePath:
    """A key in a bucket; a folder is a prefix that holds an object.

    `listed`: the object as a listing showed it, so that `stat` needs no request and its content may be in memory.
    Methods raise what those of Path do, and LakemirrorError as `ObjectStore`.
    """

    root: str
    key: str
    listed: Entry | None = field(default=None, compare=False, repr=False)

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
    def parent(self) -> StorePath:
        return StorePath(self.root, self.key.rpartition("/")[0])

    def absolute(self) -> StorePath:
        return self

    def entry(self) -> Entry:
        entry = self.listed or self.store.head(self.key)
        if entry is None:
            raise FileNotFoundError(2, "No such object", str(self))
        return entry

    def stat(self) -> os.stat_result:
        """Size and modified time."""
        entry = self.entry()
        times = {"st_mtime": entry.modified / 1e9, "st_mtime_ns": entry.modified}
        return os.stat_result((stat.S_IFREG, 0, 0, 1, 0, 0, entry.size, 0, entry.modified // 10**9, 0), times)

    def is_file(self) -> bool:
        return self.store.head(self.key) is not None

    def is_dir(self) -> bool:
        """True for a prefix that holds an object."""
        return next(self.store.entries(f"{self.key}/" if self.key else ""), None) is not None

    def read_bytes(self) -> bytes:
        return self.store.read(self.key, self.listed)

    def write_bytes(self, data: bytes | bytearray) -> int:
        self.store.put(self.key, bytes(data))
        return len(data)

    def open(self, mode: Literal["rb"]) -> BinaryIO:
        """The object for reading."""
        return cast(BinaryIO, io.BufferedReader(ObjectFile(self.store, self.key, self.listed), 1 << 16))

    def unlink(self, missing_ok: bool = True) -> None:
        self.store.delete([self.key])
