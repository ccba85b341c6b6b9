"""A table folder in an object store.

A file gets its number by a copy on condition that nothing is there, which is one step; an answer that is lost is
settled by the file's own token. Then the upload is deleted.
"""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from lakemirror.errors import LakemirrorError
from lakemirror.failpoints import reach
from lakemirror.landing_zone.zone import MARKER, METADATA
from lakemirror.publisher.change_writer import token_of
from lakemirror.publisher.folders.remote_folder import KEPT, RemoteFolder
from lakemirror.storage.object_file import ObjectFile
from lakemirror.storage.store_path import StorePath


class StoreFolder(RemoteFolder):
    """A table folder of a database in a store."""

    def __init__(self, database: StorePath, path: str) -> None:
        super().__init__(str(database), path)
        self._database = database
        self._store = database.store

    def is_there(self) -> bool:
        return (self._database / self._folder).is_dir()

    def make(self) -> None:
        """Nothing: a folder is there once an object is in it."""

    def names(self, inner: str = "", first: str = "") -> list[str]:
        below = f"{self._key(f'{self._folder}/{inner}')}/"
        if first:
            found = self._store.entries(below, after=below + first[:-1])
            return [name for entry in found if (name := entry.path[len(below) :]) >= first and "/" not in name]
        folders, entries = self._store.folders(below)
        return [*(folder.rpartition("/")[2] for folder in folders), *(entry.name for entry in entries)]

    def number(self, kept: str, name: str) -> None:
        super().number(kept, name)
        self.forget(kept)

    def drop(self, staged: Path | None = None) -> None:
        """Deletes the folder's objects: change files first, newest first, so that an engine only waits; what tells it
        which folder this is, last."""
        self._remembered = 0
        below = f"{self._key(self._folder)}/"
        keys = sorted((entry.path for entry in self._store.entries(below)), reverse=True)
        last = [key for name in (METADATA, MARKER) if (key := below + name) in keys]
        for some in ([key for key in keys if key not in last], *([key] for key in last)):
            if some:
                self._store.delete(some)
                reach("publish.dropped")

    def sweep(self) -> None:
        with contextlib.suppress(LakemirrorError):
            super().sweep()

    def _exists(self, path: str) -> bool:
        return self._store.head(self._key(path)) is not None

    def _opened(self, path: str) -> BinaryIO:
        return cast(BinaryIO, io.BufferedReader(ObjectFile(self._store, self._key(path)), 1 << 16))

    def _upload(self, staged: Path, path: str) -> None:
        with staged.open("rb") as source, self._store.writer(self._key(path)) as sink:
            shutil.copyfileobj(source, sink, 1 << 20)

    def _remove(self, *paths: str) -> None:
        self._store.delete([self._key(path) for path in paths])

    def _name(self, kept: str, path: str) -> None:
        if not self._store.copy_new(self._key(f"{KEPT}/{kept}"), self._key(path)):
            name = path.removeprefix(f"{self._folder}/")
            if token_of(self, name) != kept:
                raise FileExistsError(name)

    def _take_back(self, path: str, kept: str) -> None:
        self._remove(path)  # the upload is still there

    def _uploads(self) -> Iterator[tuple[str, float]]:
        return ((entry.name, entry.modified / 1e9) for entry in self._store.entries(f"{self._key(KEPT)}/"))

    def _key(self, path: str) -> str:
        return (self._database / path).key
