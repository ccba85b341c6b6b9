"""What table folders behind a network have in common, in an object store and at a service.

    staged in a local file ─▶ uploaded to Files/_publishing/ ─▶ named by its number, where that is free

There is no lock across the network. A publisher that slept between counting and naming may take a number that was
applied and moved away meanwhile; then the moved file is still there, and this one is taken back and numbered again.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from lakemirror.failpoints import reach
from lakemirror.landing_zone.zone import PROCESSED
from lakemirror.publisher.change_writer import token_of
from lakemirror.publisher.folders.table_folder import (
    ABANDONED_SECONDS,
    IS_TEMPORARY,
    TEMPORARY_PREFIX,
    TableFolder,
    write_whole,
)

KEPT = "Files/_publishing"  # of the database: uploads that have no number yet
SEQUENCE = "_sequence"
_LOCKS: dict[str, threading.Lock] = {}


class RemoteFolder(TableFolder, ABC):
    """A table folder of a database that is reached by requests. A subclass says how, by paths below the database."""

    def __init__(self, database: str, path: str) -> None:
        """`database`: its address, `path`: of the folder in it."""
        self._address = f"{database}/{path}"
        self._folder = path
        self._remembered = 0

    @property
    def path(self) -> Path:
        return Path(self._folder)

    @abstractmethod
    def _exists(self, path: str) -> bool: ...

    @abstractmethod
    def _opened(self, path: str) -> BinaryIO:
        """FileNotFoundError."""

    @abstractmethod
    def _upload(self, staged: Path, path: str) -> None:
        """Makes the file at a path this one, durably; a repeated upload does no harm."""

    @abstractmethod
    def _remove(self, *paths: str) -> None:
        """Deletes files and folders; nothing where there is none."""

    @abstractmethod
    def _name(self, kept: str, path: str) -> None:
        """Gives an upload its name in one step, whatever becomes of answers. FileExistsError, FileNotFoundError."""

    @abstractmethod
    def _take_back(self, path: str, kept: str) -> None:
        """Takes a name back from an upload."""

    @abstractmethod
    def _uploads(self) -> Iterator[tuple[str, float]]:
        """The names in `KEPT`, and when each was last modified, in Unix seconds."""

    def has(self, name: str) -> bool:
        return self._exists(f"{self._folder}/{name}")

    def open(self, name: str) -> BinaryIO:
        return self._opened(f"{self._folder}/{name}")

    def content(self, name: str) -> pa.Buffer:
        with self.open(name) as file:
            return pa.py_buffer(file.read())

    @contextlib.contextmanager
    def room(self) -> Iterator[None]:
        """Nothing is to be done: staged files are not in the table folder."""
        yield

    def staged(self, suffix: str = "tmp") -> Path:
        return Path(tempfile.gettempdir()) / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}.{suffix}"

    def replace(self, staged: Path, name: str, *, new: bool = False) -> None:
        if not new:
            self._upload(staged, f"{self._folder}/{name}")
            return
        # uploaded under a name of its own, then named: so a repeated request cannot meet its own file
        kept = f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        self._upload(staged, f"{KEPT}/{kept}")
        try:
            self._name(kept, f"{self._folder}/{name}")
        finally:
            self.forget(kept)

    def keep(self, staged: Path) -> None:
        try:
            self._upload(staged, f"{KEPT}/{staged.name}")
        finally:
            with contextlib.suppress(OSError):
                staged.unlink()

    def is_kept(self, name: str) -> bool:
        return self._exists(f"{KEPT}/{name}")

    def open_kept(self, name: str) -> BinaryIO:
        return self._opened(f"{KEPT}/{name}")

    def forget(self, name: str) -> None:
        self._remove(f"{KEPT}/{name}")

    def number(self, kept: str, name: str) -> None:
        self._name(kept, f"{self._folder}/{name}")
        reach("publish.after-link")
        applied = f"{PROCESSED}/{name}"
        if self.has(applied) and token_of(self, applied) != kept:
            # the engine leaves the file alone, or has set it aside
            repeated = (each for each in self.names(PROCESSED, name) if each.startswith(f"{name}."))
            for place in (name, *(f"{PROCESSED}/{each}" for each in repeated)):
                if token_of(self, place) == kept:
                    self._take_back(f"{self._folder}/{place}", kept)
                    break
            raise FileExistsError(name)

    def delete(self, name: str) -> None:
        self._remove(f"{self._folder}/{name}")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps the other threads of this process out; publishers elsewhere, and a folder that is gone, are met by
        `number`."""
        with _LOCKS.setdefault(self._address, threading.Lock()):
            yield

    def remember(self, number: int) -> None:
        self._remembered = number
        write_whole(self, SEQUENCE, b"%020d\n" % number)

    def remembered(self) -> int:
        if not self._remembered:
            with contextlib.suppress(FileNotFoundError, ValueError), self.open(SEQUENCE) as file:
                self._remembered = int(file.read())
        return self._remembered

    def sweep(self) -> None:
        before = time.time() - ABANDONED_SECONDS
        left = [f"{KEPT}/{name}" for name, modified in self._uploads() if IS_TEMPORARY(name) and modified < before]
        if left:
            self._remove(*left)
