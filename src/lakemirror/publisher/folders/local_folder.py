"""A table folder on a local disk: files are written beside their place and get their number by a hard link."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from lakemirror.errors import LakemirrorError
from lakemirror.failpoints import reach
from lakemirror.publisher.folders.table_folder import (
    ABANDONED_SECONDS,
    DROPPED_PREFIX,
    IS_DROPPED,
    IS_TEMPORARY,
    TEMPORARY_PREFIX,
    TableFolder,
)
from lakemirror.storage.durable import sync
from lakemirror.storage.new_files import NO_LINKS, link_new

SEQUENCE = "_sequence"


class LocalFolder(TableFolder):
    """A table folder of a local landing zone. `_sequence` is its lock."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        return self._path

    def is_there(self) -> bool:
        return self._path.is_dir()

    def make(self) -> None:
        if not self._path.is_dir():
            self._path.mkdir(parents=True, exist_ok=True)
            for folder in (self._path.parent, self._path.parent.parent):
                sync_folder(folder)

    @contextlib.contextmanager
    def room(self) -> Iterator[None]:
        absent = self.absent()
        self.make()
        try:
            yield
        finally:
            remove_empty(absent)

    def absent(self) -> list[Path]:
        """The folder and those above it that do not exist, the innermost first."""
        return [folder for folder in (self._path, *self._path.parents) if not folder.exists()]

    def names(self, inner: str = "", first: str = "") -> list[str]:
        try:
            return [name for name in os.listdir(self._path / inner) if name >= first]  # noqa: PTH208  names alone
        except (FileNotFoundError, NotADirectoryError):
            return []

    def has(self, name: str) -> bool:
        return (self._path / name).exists()

    def open(self, name: str) -> BinaryIO:
        try:
            return (self._path / name).open("rb")
        except NotADirectoryError as error:
            raise FileNotFoundError(*error.args) from error

    def content(self, name: str) -> pa.Buffer:
        with pa.memory_map(str(self._path / name)) as source:
            return source.read_buffer()

    def staged(self, suffix: str = "tmp") -> Path:
        return self._path / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}.{suffix}"

    def replace(self, staged: Path, name: str, *, new: bool = False) -> None:
        if new:
            _link(staged, self._path / name)
        else:
            staged.replace(self._path / name)
        sync_folder(self._path)

    def keep(self, staged: Path) -> None:
        """Nothing is to be done: a staged file is in the table folder already."""

    is_kept = has

    def open_kept(self, name: str) -> BinaryIO:
        return self.open(name)

    def forget(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def number(self, kept: str, name: str) -> None:
        _link(self._path / kept, self._path / name)
        reach("publish.after-link")
        self.forget(kept)
        sync_folder(self._path)

    delete = forget

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        path = self._path / SEQUENCE
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                if _same_file(handle, path):
                    yield
                    return
                # the folder was deleted, and perhaps made again, while this waited for the lock
            finally:
                os.close(handle)

    def remember(self, number: int) -> None:
        # In place, because the file is also the lock. It is read only when every numbered file is gone.
        with contextlib.suppress(FileNotFoundError), (self._path / SEQUENCE).open("r+b") as file:
            file.write(b"%020d\n" % number)

    def remembered(self) -> int:
        try:
            return int((self._path / SEQUENCE).read_text("ascii"))
        except (FileNotFoundError, ValueError):
            return 0

    def drop(self, staged: Path | None = None) -> None:
        with self.locked():
            leaving = self._path.with_name(f"{DROPPED_PREFIX}{uuid.uuid4().hex}")
            self._path.rename(leaving)
        if staged is not None:
            self.make()
            (leaving / staged.name).rename(staged)
        sync_folder(self._path.parent)
        reach("publish.dropped")
        shutil.rmtree(leaving, ignore_errors=True)

    def sweep(self) -> None:
        for path in self._path.parent.glob(f"{DROPPED_PREFIX}*"):
            if IS_DROPPED(path.name):
                shutil.rmtree(path, ignore_errors=True)
        for path in self._path.glob(f"{TEMPORARY_PREFIX}*"):
            with contextlib.suppress(OSError):
                if IS_TEMPORARY(path.name) and time.time() - path.lstat().st_mtime > ABANDONED_SECONDS:
                    path.unlink()


def remove_empty(folders: Iterable[Path]) -> None:
    """Removes folders in this order; the first that is not empty ends it."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a loss of power, if it is still there."""
    with contextlib.suppress(OSError, LakemirrorError):
        sync(folder)


def _link(temporary: Path, target: Path) -> None:
    try:
        is_free = link_new(temporary, target)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        is_free = not target.exists()
        if is_free:
            temporary.rename(target)  # then the lock alone keeps publishers apart
    if not is_free:
        raise FileExistsError(errno.EEXIST, "taken", str(target))


def _same_file(handle: int, path: Path) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    opened = os.fstat(handle)
    return (opened.st_dev, opened.st_ino) == (found.st_dev, found.st_ino)
