"""A database in a local folder, as clients of a service see it. Links are never followed; a publish is one rename.

staged file, synced ─▶ rename to its path ─▶ settle: fsync of its folder and of those above
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from lakemirror.errors import LakemirrorError
from lakemirror.storage.local import LocalStorage, folder_of, open_file, open_folder
from lakemirror.storage.new_files import copy_into
from lakemirror.storage.served_files import PIECE, Expected, Found, now_ns

_MOST_KNOWN_FOLDERS = 100_000


class ServedFolder:
    """The files of a database on a disk."""

    waits = False
    piece = PIECE

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._settled: set[tuple[int, int]] = set()
        self._settled_paths: dict[str, tuple[int, int]] = {}  # folders that are durable with all above them

    def find(self, path: str) -> Found | None:
        status = self._status(path)
        return None if status is None else _found(status)

    def open(self, path: str) -> OpenFile:
        try:
            with folder_of(self.folder, path, coded=False) as (folder, name):
                return OpenFile(open_file(folder, name, path))
        except (LakemirrorError, NotADirectoryError) as error:
            raise FileNotFoundError(path) from error

    def listed(self, path: str) -> OpenFolder:
        return OpenFolder(self._open_to_list(path))

    def make_folder(self, path: str) -> None:
        if not path:
            return
        found = self.find(path)
        if found is None:
            self.forget_settled()
        if found is None or not found.is_folder:
            with self._parent(f"{path}/x", make=True):
                pass

    check_folders = make_folder

    def put(self, path: str, source: Path, expected: Expected) -> Found | None:
        with self._parent(path, make=True) as (folder, name):
            now = now_ns()
            os.utime(source, ns=(now, now))
            _rename(source, folder, name)
            with suppress(FileNotFoundError):  # another process has taken it away
                return _found(os.stat(name, dir_fd=folder, follow_symlinks=False))
        return None

    def move(self, source: str, target: str, expected: Expected, *, is_folder: bool) -> None:
        with self._parent(source) as (origin, name), self._parent(target) as (folder, new_name):
            if not is_folder:
                now = now_ns()
                os.utime(name, ns=(now, now), dir_fd=origin, follow_symlinks=False)
                if _is_same(origin, name, folder, new_name):
                    os.unlink(new_name, dir_fd=folder)  # two names of one file: a rename would leave both
            os.rename(name, new_name, src_dir_fd=origin, dst_dir_fd=folder)
        if is_folder:
            self.forget_settled()

    def remove_file(self, path: str, *, keeps_folder: bool = True) -> None:
        with self._parent(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def take_folder(self, path: str, aside: Path) -> None:
        try:
            with self._parent(path) as (folder, name):
                os.rename(name, aside, src_dir_fd=folder)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            LocalStorage(self.folder).delete(path)  # the database is on another file system than the staging folder
        self.forget_settled()

    def settle(self, path: str) -> None:
        whole = folder = path.rpartition("/")[0]
        synced = self._sync(folder)
        if synced is not None and self._settled_paths.get(folder) == synced:
            return
        while folder:
            parent = folder.rpartition("/")[0]
            status = self._status(folder)
            if status is None:
                return
            identity = (status.st_dev, status.st_ino)
            if identity not in self._settled:
                self._sync(parent)
                if len(self._settled) >= _MOST_KNOWN_FOLDERS:
                    self._settled.clear()
                self._settled.add(identity)
            folder = parent
        if synced is not None:
            if len(self._settled_paths) >= _MOST_KNOWN_FOLDERS:
                self._settled_paths.clear()
            self._settled_paths[whole] = synced

    def forget_settled(self) -> None:
        self._settled.clear()
        self._settled_paths.clear()

    @contextmanager
    def _parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The descriptor of the folder that holds `path`, and the last name; FileNotFoundError."""
        try:
            with folder_of(self.folder, path, "" if make else None, coded=False) as at:
                yield at
        except LakemirrorError as error:
            raise FileNotFoundError(path) from error

    def _open_to_list(self, path: str) -> int:
        try:
            with folder_of(self.folder, path, coded=False) as (folder, name):
                return open_folder(folder, name, path)
        except (LakemirrorError, NotADirectoryError) as error:
            raise FileNotFoundError(path) from error

    def _sync(self, folder: str) -> tuple[int, int] | None:
        """Syncs a folder; what identifies it, None where it is gone."""
        try:
            handle = self._open_to_list(folder)
        except FileNotFoundError:
            return None
        try:
            os.fsync(handle)
            status = os.fstat(handle)
            return status.st_dev, status.st_ino
        finally:
            os.close(handle)

    def _status(self, path: str) -> os.stat_result | None:
        try:
            with folder_of(self.folder, path, coded=False) as (folder, name):
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError, LakemirrorError):
            return None


class OpenFile:
    """A file on a disk, by its descriptor."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        found = _found(os.fstat(handle))
        assert found is not None
        self.found = found

    def read_at(self, size: int, offset: int) -> bytes:
        return os.pread(self._handle, size, offset)

    def copy_to(self, target: int, length: int) -> None:
        copy_into(self._handle, target, 0, length)

    def close(self) -> None:
        os.close(self._handle)


class OpenFolder:
    """A folder on a disk, by its descriptor."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        try:
            self.names: Mapping[str, bool] = _names(handle)
        except BaseException:
            os.close(handle)
            raise

    def find(self, name: str) -> Found | None:
        with suppress(FileNotFoundError, NotADirectoryError):
            return _found(os.stat(name, dir_fd=self._handle, follow_symlinks=False))
        return None

    def close(self) -> None:
        os.close(self._handle)


def _names(handle: int) -> dict[str, bool]:
    names: dict[str, bool] = {}
    with os.scandir(handle) as scan:
        for item in scan:
            with suppress(OSError):
                if item.is_dir(follow_symlinks=False):
                    names[item.name] = True
                elif item.is_file(follow_symlinks=False):
                    names[item.name] = False
    return names


def _found(status: os.stat_result) -> Found | None:
    """What a stat result says, None for what is neither a file nor a folder."""
    if stat.S_ISDIR(status.st_mode):
        return Found(True, 0, _etag(status.st_dev, status.st_ino), status.st_mtime_ns)
    if stat.S_ISREG(status.st_mode):
        etag = _etag(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        return Found(False, status.st_size, etag, status.st_mtime_ns)
    return None


def _etag(*parts: int) -> str:
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8)
    return f"0x{digest.hexdigest().upper()}"


def _is_same(origin: int, name: str, folder: int, new_name: str) -> bool:
    try:
        target = os.stat(new_name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.stat(name, dir_fd=origin, follow_symlinks=False), target)


def _rename(source: Path, folder: int, name: str) -> None:
    try:
        os.rename(source, name, dst_dir_fd=folder)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _rename_across(source, folder, name)


def _rename_across(source: Path, folder: int, name: str) -> None:
    """The same where the database is on another file system: copied beside its name first."""
    beside = f".{now_ns():x}.lakemirror.tmp"
    target = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder)
    try:
        with source.open("rb") as file:
            copy_into(file.fileno(), target, 0, os.fstat(file.fileno()).st_size)
        os.fsync(target)
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(beside, dir_fd=folder)
        raise
    finally:
        os.close(target)
    source.unlink()
