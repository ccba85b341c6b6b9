"""A table folder in an object store.

    staged in a local file ─▶ uploaded to Files/_publishing/ ─▶ copied to its number, only if none is there ─▶ deleted

The conditional copy is one step: so a file gets one number, and an answer that is lost is settled by the file's own
token. There is no lock in a store. A publisher that slept between counting and the copy may take a number that was
applied and moved away meanwhile; then the moved file is still there, and this one is taken back and numbered again.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.failpoints import reach
from lakemirror.landing_zone.zone import MARKER, METADATA, PROCESSED
from lakemirror.publisher.change_writer import token_of
from lakemirror.publisher.folders.table_folder import ABANDONED_SECONDS, IS_TEMPORARY, TEMPORARY_PREFIX, write_whole
from lakemirror.storage.object_file import ObjectFile
from lakemirror.storage.store_path import StorePath

KEPT = "Files/_publishing"  # of the database: uploads that have no number yet
SEQUENCE = "_sequence"
_LOCKS: dict[str, threading.Lock] = {}


class StoreFolder:
    """A table folder of a database in a store (`table_folder.TableFolder`)."""

    def __init__(self, database: StorePath, path: str) -> None:
        self._database, self._folder = database, path
        self._store = database.store
        self._remembered = 0

    @property
    def path(self) -> Path:
        return Path(self._folder)

    def is_there(self) -> bool:
        return (self._database / self._folder).is_dir()

    def make(self) -> None:
        """Nothing: a folder is there once an object is in it."""

    def names(self, inner: str = "", first: str = "") -> list[str]:
        below = f"{self._key(inner)}/"
        if first:
            found = self._store.entries(below, after=below + first[:-1])
            return [name for entry in found if (name := entry.path[len(below) :]) >= first and "/" not in name]
        folders, entries = self._store.folders(below)
        return [*(each.rpartition("/")[2] for each in folders), *(entry.name for entry in entries)]

    def has(self, name: str) -> bool:
        return self._store.head(self._key(name)) is not None

    def open(self, name: str) -> BinaryIO:
        return self._opened(self._key(name))

    def content(self, name: str) -> pa.Buffer:
        return pa.py_buffer(self._store.read(self._key(name)))

    @contextlib.contextmanager
    def room(self) -> Iterator[None]:
        """Nothing is to be done: staged files are not in the table folder."""
        yield

    def staged(self, suffix: str = "tmp") -> Path:
        return Path(tempfile.gettempdir()) / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}.{suffix}"

    def replace(self, staged: Path, name: str, *, new: bool = False) -> None:
        if not new:
            self._upload(staged, self._key(name))
            return
        kept = self._kept(f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}")
        self._upload(staged, kept)
        try:
            if not self._store.copy_new(kept, self._key(name)):
                raise FileExistsError(name)
        finally:
            self._store.delete([kept])

    def keep(self, staged: Path) -> None:
        try:
            self._upload(staged, self._kept(staged.name))
        finally:
            with contextlib.suppress(OSError):
                staged.unlink()

    def is_kept(self, name: str) -> bool:
        return self._store.head(self._kept(name)) is not None

    def open_kept(self, name: str) -> BinaryIO:
        return self._opened(self._kept(name))

    def forget(self, name: str) -> None:
        self._store.delete([self._kept(name)])

    def number(self, kept: str, name: str) -> None:
        if not self._store.copy_new(self._kept(kept), self._key(name)) and token_of(self, name) != kept:
            raise FileExistsError(name)
        reach("publish.after-link")
        applied = f"{PROCESSED}/{name}"
        if self.has(applied) and token_of(self, applied) != kept:
            self._take_back(kept, name)
            raise FileExistsError(name)
        self._store.delete([self._kept(kept)])

    def delete(self, name: str) -> None:
        self._store.delete([self._key(name)])

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps the other threads of this process out; publishers elsewhere are met by `number`."""
        with _LOCKS.setdefault(str(self._database / self._folder), threading.Lock()):
            yield

    def remember(self, number: int) -> None:
        self._remembered = number
        write_whole(self, SEQUENCE, b"%020d\n" % number)

    def remembered(self) -> int:
        if not self._remembered:
            with contextlib.suppress(FileNotFoundError, ValueError):
                self._remembered = int(self._store.read(self._key(SEQUENCE)))
        return self._remembered

    def drop(self, staged: Path | None = None) -> None:
        """Deletes the folder's objects: change files first, newest first, so that an engine only waits; what tells it
        which folder this is, last."""
        self._remembered = 0
        below = f"{self._key('')}/"
        keys = sorted((entry.path for entry in self._store.entries(below)), reverse=True)
        last = [key for name in (METADATA, MARKER) if (key := below + name) in keys]
        for some in ([key for key in keys if key not in last], *([key] for key in last)):
            if some:
                self._store.delete(some)
                reach("publish.dropped")

    def sweep(self) -> None:
        with contextlib.suppress(LakemirrorError):
            before = (time.time() - ABANDONED_SECONDS) * 1e9
            found = self._store.entries(f"{self._kept('')}/")
            left = [entry.path for entry in found if entry.modified < before and IS_TEMPORARY(entry.name)]
            if left:
                self._store.delete(left)

    def _take_back(self, kept: str, name: str) -> None:
        """Removes a file whose number was applied before: the engine leaves it alone, or has set it aside."""
        repeated = (each for each in self.names(PROCESSED, name) if each.startswith(f"{name}."))
        for place in (name, *(f"{PROCESSED}/{each}" for each in repeated)):
            if token_of(self, place) == kept:
                self._store.delete([self._key(place)])
                return

    def _opened(self, key: str) -> BinaryIO:
        return cast(BinaryIO, io.BufferedReader(ObjectFile(self._store, key), 1 << 16))

    def _upload(self, staged: Path, key: str) -> None:
        with staged.open("rb") as source, self._store.writer(key) as sink:
            shutil.copyfileobj(source, sink, 1 << 20)

    def _key(self, name: str) -> str:
        return (self._database / self._folder / name).key if name else (self._database / self._folder).key

    def _kept(self, name: str) -> str:
        return (self._database / KEPT / name).key if name else (self._database / KEPT).key


__all__ = ["StoreFolder"]
