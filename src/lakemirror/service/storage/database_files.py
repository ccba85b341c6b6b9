"""One mirrored database as clients of the storage plane see it: what is on disk, and uploads that are not published.

    request ─▶ DatabaseFiles.find ─▶ created upload, else the disk ─▶ condition and act under DatabaseFiles.lock

The lock is held for look-ups and renames only, never while bytes are copied or synced.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lakemirror.errors import LakemirrorError
from lakemirror.service.refused import Refused
from lakemirror.service.storage.uploads import Upload, last_touched, load_uploads
from lakemirror.storage.inside import folder_of, open_file, open_folder

_MOST_KNOWN_FOLDERS = 100_000


@dataclass(frozen=True)
class Found:
    """What a path holds. `etag` without quotes. `is_staged`: created, nothing flushed yet."""

    is_folder: bool
    length: int
    etag: str
    modified_ns: int
    is_staged: bool = False


class DatabaseFiles:
    """A mirrored database. Paths are relative to its folder, without empty or dot segments. Safe for threads."""

    def __init__(self, folder: Path, staging: Path) -> None:
        """`staging`: a folder of this database alone, made when it is needed."""
        self.folder = folder
        self.staging = staging
        self.is_served: Callable[[], bool] = _always  # False: another database may have the folder by now
        self.lock = threading.RLock()
        self.uploads: dict[str, Upload] = load_uploads(staging)
        self.committed: dict[str, tuple[list[str], str]] = {}  # path to its last block list, and the ETag it got
        self._durable_folders: set[tuple[int, int]] = set()
        self._durable_paths: dict[str, tuple[int, int]] = {}  # folders that are durable with all above them

    def find(self, path: str) -> Found | None:
        """What clients see at a path, None for nothing and for links."""
        upload = self.uploads.get(path)
        if upload is not None and upload.is_create:
            return Found(False, 0, upload.etag, upload.time_ns, is_staged=True)
        return self.on_disk(path)

    def on_disk(self, path: str) -> Found | None:
        """What is published at a path."""
        status = self._status(path)
        return None if status is None else found_of(status)

    def open(self, path: str) -> int:
        """A descriptor to read a published file; FileNotFoundError where there is none, or a link."""
        try:
            with folder_of(self.folder, path) as (folder, name):
                return open_file(folder, name, path)
        except (LakemirrorError, NotADirectoryError) as error:
            raise FileNotFoundError(path) from error

    def open_to_list(self, path: str) -> int:
        """A descriptor of a folder, to list it; FileNotFoundError where there is none, or a link."""
        try:
            with folder_of(self.folder, path) as (folder, name):
                return open_folder(folder, name, path)
        except (LakemirrorError, NotADirectoryError) as error:
            raise FileNotFoundError(path) from error

    @contextmanager
    def parent(self, path: str, *, make: bool) -> Iterator[tuple[int, str]]:
        """The descriptor of the folder that holds `path`, and the last name.

        `make`: missing folders are made; Refused 409 `PathConflict` where a file is in the way. Else
        FileNotFoundError.
        """
        try:
            with folder_of(self.folder, path, make_below="" if make else None) as at:
                yield at
        except LakemirrorError as error:
            raise FileNotFoundError(path) from error

    def make_folder(self, path: str) -> None:
        """Makes a folder and its parents. Refused 409 `PathConflict` where a file is in the way."""
        try:
            with self.parent(f"{path}/x", make=True):
                pass
        except (FileNotFoundError, NotADirectoryError):
            raise Refused(409, "PathConflict", "A file is in the place of a folder of this path.") from None

    def open_upload(self, path: str) -> Upload | None:
        """The upload at a path that can go on. One whose published file was replaced since is discarded."""
        upload = self.uploads.get(path)
        if upload is not None and not upload.is_create:
            found = self.on_disk(path)
            if found is None or found.etag != upload.base_etag:
                self.discard(path)
                return None
        return upload

    def discard(self, path: str) -> None:
        """Forgets the upload at a path and its bytes."""
        upload = self.uploads.pop(path, None)
        if upload is not None:
            self.trash(upload.folder)

    def remove_old_uploads(self, before: float) -> None:
        """Discards uploads to which nothing has come since a time (Unix seconds)."""
        with self.lock:
            for path, upload in list(self.uploads.items()):
                if last_touched(upload) < before and not upload.claims and not upload.sealed:
                    self.discard(path)

    def staged_below(self, folder: str) -> list[str]:
        """The paths of uploads below a folder."""
        return [path for path in self.uploads if path.startswith(f"{folder}/")]

    def is_empty(self, folder: str) -> bool:
        """True for a folder with nothing in it, neither on disk nor created."""
        handle = self.open_to_list(folder)
        try:
            with os.scandir(handle) as scan:
                return next(scan, None) is None and not any(
                    self.uploads[path].is_create for path in self.staged_below(folder)
                )
        finally:
            os.close(handle)

    def temporary(self, kind: str) -> Path:
        """A new name in the staging folder, which exists."""
        if not self.staging.is_dir():
            self.staging.mkdir(parents=True, exist_ok=True)
        return self.staging / f"{kind}-{secrets.token_hex(16)}"

    def trash(self, path: Path) -> None:
        """Takes a staged file or folder away at once; its bytes are removed a little later, in another thread."""
        doomed = self.temporary("trash")
        with suppress(FileNotFoundError):
            path.rename(doomed)
            _REMOVER.submit(_erase, doomed)

    def sync_folder_of(self, path: str) -> None:
        """Syncs the folder that holds `path`, and above it those whose names are not yet known to be durable."""
        whole = folder = path.rpartition("/")[0]
        synced = self._sync(folder)
        if synced is not None and self._durable_paths.get(folder) == synced:
            return
        while folder:
            parent = folder.rpartition("/")[0]
            status = self._status(folder)
            if status is None:
                return
            identity = (status.st_dev, status.st_ino)
            if identity not in self._durable_folders:
                self._sync(parent)
                if len(self._durable_folders) >= _MOST_KNOWN_FOLDERS:
                    self._durable_folders.clear()
                self._durable_folders.add(identity)
            folder = parent
        if synced is not None:
            if len(self._durable_paths) >= _MOST_KNOWN_FOLDERS:
                self._durable_paths.clear()
            self._durable_paths[whole] = synced

    def forget_durable_folders(self) -> None:
        """Called when a folder goes or moves: its number may be given to another one."""
        self._durable_folders.clear()
        self._durable_paths.clear()

    def _sync(self, folder: str) -> tuple[int, int] | None:
        """Syncs a folder; what identifies it, None where it is gone."""
        try:
            handle = self.open_to_list(folder)
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
            with folder_of(self.folder, path) as (folder, name):
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError, LakemirrorError):
            return None


def found_of(status: os.stat_result) -> Found | None:
    """What a stat result says, None for what is neither a file nor a folder."""
    if stat.S_ISDIR(status.st_mode):
        return Found(True, 0, _etag(status.st_dev, status.st_ino), status.st_mtime_ns)
    if stat.S_ISREG(status.st_mode):
        etag = _etag(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        return Found(False, status.st_size, etag, status.st_mtime_ns)
    return None


def new_etag() -> str:
    """An ETag that nothing has yet."""
    return f"0x{secrets.token_hex(8).upper()}"


def now_ns() -> int:
    """The time, in nanoseconds since 1970; each call of a process gives a later one."""
    global _last_ns
    with _clock:
        _last_ns = max(time.time_ns(), _last_ns + 1)
        return _last_ns


def _etag(*parts: int) -> str:
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8)
    return f"0x{digest.hexdigest().upper()}"


def _always() -> bool:
    return True


def _erase(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


_REMOVER = ThreadPoolExecutor(1, thread_name_prefix="remover")
_clock = threading.Lock()
_last_ns = 0
