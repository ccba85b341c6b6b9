"""Syncs files and folders, in parallel, and creates files atomically, so that they survive a power cut.

    data files, vectors ─▶ sync_files ─▶ their folders ─▶ put_new(commit): file, link, folder ─▶ applied files move

`durability` chooses: `power` syncs everything; `process` syncs nothing, since the operating system keeps what a killed
process wrote (contract section 9). Objects in a store need no sync.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from lakemirror.storage.place import Place, StorePath, storage_errors, written_here
from lakemirror.storage.storage import Entry

POWER, PROCESS = "power", "process"

_AT_ONCE = 16  # syncs: a file system writes several in one turn of its journal
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK}
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1
_GONE = (FileNotFoundError, NotADirectoryError)

Put: TypeAlias = os.stat_result | Entry
"""The identity of a written file: inode and device, or the ETag."""


def sync_files(paths: Iterable[Place], root: Place) -> None:
    """Syncs files below `root`, then every folder from theirs up to `root`, so that contents and names are on disk.
    Errors: FileNotFoundError if one is gone, `storage-unavailable`.
    """
    if isinstance(root, StorePath):
        return
    top = os.fspath(root)
    files = sorted(os.fspath(path) for path in set(paths) if isinstance(path, Path))
    folders = {top}
    for file in files:
        folder = file.rpartition(os.sep)[0]
        while folder not in folders and folder.startswith(f"{top}{os.sep}"):
            folders.add(folder)
            folder = folder.rpartition(os.sep)[0]
    _sync_at_once(files)
    for folder in sorted(folders):  # the first waits for the file system's journal, which has the others in it
        _sync(folder)


def sync_each(paths: Iterable[Place]) -> None:
    """Syncs files or folders, several at once. FileNotFoundError, `storage-unavailable`."""
    _sync_at_once([os.fspath(path) for path in paths if isinstance(path, Path)])


def _sync_at_once(paths: Sequence[str]) -> None:
    if not paths:
        return
    waiting = [_pool().submit(_sync, path) for path in paths[1:]]
    try:
        _sync(paths[0])
    finally:
        wait(waiting)
    for each in waiting:
        each.result()


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads that wait for the disk, shared by all tables: a file system writes what waits in one turn."""
    return ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sync")


def sync(path: Place) -> None:
    """Syncs one file or folder. FileNotFoundError, `storage-unavailable`."""
    if not isinstance(path, StorePath):
        _sync(os.fspath(path))


def _sync(path: str) -> None:
    with storage_errors(path):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC or not Path(path).is_dir():
                raise  # else the file system cannot sync folders, and keeps names without it
        finally:
            os.close(handle)


def put_new(path: Place, data: bytes, *, durable: bool) -> Put | None:
    """Creates `path` atomically. Returns its identity, or None if it already exists.

    `durable`: content and name are on disk when this returns. In a store, no other writer may write the same content
    (`ObjectStore.create`). Errors: FileNotFoundError if the folder is gone, `storage-unavailable`.
    """
    if isinstance(path, StorePath):
        return path.store.create(path.key, data)
    temporary = _temporary(path)
    with storage_errors(path):
        try:
            ours = _write(temporary, data, durable=durable)
            try:
                _link_new(temporary, path)
            except FileExistsError:
                if not is_same(path, ours):  # a network file system may answer a link that it made twice
                    return None
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
    if durable:
        sync(path.parent)
    return ours


def put_over(path: Place, data: bytes, *, durable: bool) -> None:
    """Writes a file atomically; replaces an older one. Errors: FileNotFoundError, `storage-unavailable`."""
    if isinstance(path, StorePath):
        path.store.put(path.key, data)
        return
    temporary = _temporary(path)
    with storage_errors(path):
        try:
            _write(temporary, data, durable=durable)
            remove_hadoop_checksum(path)
            temporary.replace(path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def is_same(path: Place, ours: Put) -> bool:
    """True if `path` is still the file that was written. `storage-unavailable` if this cannot be determined."""
    if isinstance(path, StorePath) or isinstance(ours, Entry):
        found = path.store.head(path.key) if isinstance(path, StorePath) else None
        return found is not None and isinstance(ours, Entry) and found.etag == ours.etag
    with storage_errors(path):
        try:
            return os.path.samestat(path.stat(), ours)
        except _GONE:
            return False


def put_table(path: Place, write: Callable[[Any], object], *, durable: bool) -> None:
    """Writes a file atomically by `write`, which gets what pyarrow writes to; replaces an older one.

    Errors: FileNotFoundError, `storage-unavailable`, OSError of `write`.
    """
    if isinstance(path, StorePath):
        with path.store.writer(path.key) as sink:
            write(sink)
        return
    temporary = _temporary(path)
    try:
        write(temporary)
        if durable:
            sync(temporary)
        remove_hadoop_checksum(path)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def keep_young(paths: Iterable[Place], root: Place, before: float) -> None:
    """Checks that files below `root` still exist. Those that were changed before then (seconds since 1970) get the time
    of now: a vacuum removes old files that no commit names.

    FileNotFoundError, `storage-unavailable`. Sends no request for a file that this process has just made.
    """
    with storage_errors(root):
        for path in paths:
            own = written_here(path)
            if (own is None or own.stat().st_mtime < before) and path.stat().st_mtime < before:
                os.utime(path) if isinstance(path, Path) else path.touch()  # `Path.touch` would make a file


def remove_unchanged(path: Place, modified: float) -> bool:
    """Deletes a file if it was not changed after that time (seconds since 1970). True if it existed."""
    with storage_errors(path):
        try:
            if (path.stat() if isinstance(path, StorePath) else path.lstat()).st_mtime > modified:
                return False
            path.unlink()
        except FileNotFoundError:
            return False
    remove_hadoop_checksum(path)
    return True


def remove_hadoop_checksum(path: Place) -> None:
    """Deletes the `.crc` file that Hadoop keeps beside a local file: Hadoop refuses other content with it."""
    if isinstance(path, Path):
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")


def _write(path: Path, data: bytes, *, durable: bool) -> os.stat_result:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        if durable:
            os.fsync(file.fileno())
        return os.fstat(file.fileno())


def _link_new(source: Path, target: Path) -> None:
    """Gives a file a second name that is free. FileExistsError if the name is taken."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _rename_new(source, target, error)


def _rename_new(source: Path, target: Path, cause: OSError) -> None:
    """The same for a file system without links: a rename that replaces nothing, where the system has one."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise cause
    names = os.fsencode(source), os.fsencode(target)
    if rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_NOREPLACE):
        number = ctypes.get_errno()
        if number == errno.EEXIST:
            raise FileExistsError(number, os.strerror(number), str(target))
        raise cause
