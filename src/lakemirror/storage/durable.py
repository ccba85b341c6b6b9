"""Syncs files and folders, in parallel, and creates files atomically, so that they survive a power cut.

    data files, vectors ─▶ sync_files ─▶ their folders ─▶ put_new(commit): file, link, folder ─▶ applied files move

`durability` chooses: `power` syncs everything; `process` syncs nothing, since the operating system keeps what a killed
process wrote (contract section 9). Objects in a store need no sync.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from lakemirror.storage.addresses import parse_address
from lakemirror.storage.new_files import copy_file, put_file, put_new_file
from lakemirror.storage.object_file import ObjectFile
from lakemirror.storage.object_writer import ObjectWriter
from lakemirror.storage.place import Place, storage_errors, storage_unavailable
from lakemirror.storage.storage import Entry
from lakemirror.storage.store_path import StorePath

POWER, PROCESS = "power", "process"

_AT_ONCE = 16  # syncs: a file system writes several in one turn of its journal
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
_COPIES = threading.BoundedSemaphore(2)  # that a store makes at one time
_GONE = (FileNotFoundError, NotADirectoryError)

NewFile: TypeAlias = Path | ObjectWriter
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
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except _GONE:
        raise
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC or not Path(path).is_dir():
            raise storage_unavailable(path, error) from error  # else the file system keeps names without it


def put_new(path: Place, data: bytes, *, durable: bool) -> Put | None:
    """Creates `path` atomically. Returns its identity, or None if it already exists.

    `durable`: content and name are on disk when this returns. In a store, no other writer may write the same content
    (`ObjectStore.create`). Errors: FileNotFoundError if the folder is gone, `storage-unavailable`.
    """
    if isinstance(path, StorePath):
        return path.store.create(path.key, data)
    try:
        ours = put_new_file(path, _temporary(path), data, durable=durable)
    except _GONE:
        raise
    except OSError as error:
        raise storage_unavailable(path, error) from error
    if durable and ours is not None:
        _sync(os.fspath(path.parent))
    return ours


def put_over(path: Place, data: bytes, *, durable: bool) -> None:
    """Writes a file atomically; replaces an older one. Errors: FileNotFoundError, `storage-unavailable`."""
    if isinstance(path, StorePath):
        path.store.put(path.key, data)
        return
    with storage_errors(path):
        remove_hadoop_checksum(path)
        put_file(path, _temporary(path), data, durable=durable)


def created(path: Place) -> NewFile:
    """The target that pyarrow writes a new file to. The caller ends it with `completed` or `abandoned`."""
    return path.store.writer(path.key) if isinstance(path, StorePath) else path


def writing(target: NewFile) -> Any:
    """A target of `created`, open to be written. The caller closes it before it ends the target if it is another."""
    return target if isinstance(target, ObjectWriter) else target.open("xb")


def size_so_far(target: NewFile) -> int:
    """The bytes that were written to a target of `created`."""
    return target.tell() if isinstance(target, ObjectWriter) else target.stat().st_size


def completed(target: NewFile) -> tuple[int, float]:
    """Completes a target of `created`. Returns its size and its modified time in seconds."""
    if isinstance(target, ObjectWriter):
        target.close()
        return target.tell(), time.time()
    status = target.stat()
    return status.st_size, status.st_mtime


def abandoned(target: NewFile) -> None:
    """Ends a target of `created` that is not completed. A local file stays for the caller to delete."""
    if isinstance(target, ObjectWriter):
        target.abort()


def copy(source: str, target: Place, size: int = 0) -> None:
    """Copies a file to another file of the same kind of storage; replaces an older one. FileNotFoundError.

    `size`: of the source, if it is known. A store makes two copies at once: the first is read meanwhile.
    """
    if isinstance(target, StorePath):
        with _COPIES:
            target.store.copy(parse_address(source)[1], target.key, size)
    else:
        copy_file(source, target)


def make_folders(folder: Place, root: Place) -> None:
    """Makes a folder and its missing parents below `root`. Never makes `root`: a database or table that is deleted
    while it is written must stay deleted. FileNotFoundError if `root` is gone. Does nothing in a store.
    """
    if isinstance(folder, StorePath) or isinstance(root, StorePath):
        return
    for path in [*reversed([above for above in folder.parents if root in above.parents]), folder]:
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            continue
        if not path.is_dir():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def remove_empty_folders(folder: Place) -> None:
    """Removes a folder if no file is in it or below it, as far as possible. Does nothing in a store."""
    if not isinstance(folder, StorePath):
        for path, _, _ in os.walk(folder, topdown=False):
            with contextlib.suppress(OSError):
                Path(path).rmdir()


@contextlib.contextmanager
def opened_new(path: Place) -> Iterator[tuple[Any, Any]]:
    """A file that this process has just made, opened to be checked: for Python, and the same for pyarrow."""
    if isinstance(path, StorePath):
        with ObjectFile(path.store, path.key) as file:
            path.store.cache.remember(path.key, file.size, file.entry.tag)
            yield file, file
    else:
        with path.open("rb") as local:
            yield local, str(path)


def read_together(file: Any, pieces: Sequence[tuple[int, int]]) -> None:
    """Reads these pieces, from begin to end, of a file of `opened_new` by requests side by side, and keeps them for the
    next reads. Does nothing on a disk.
    """
    if isinstance(file, ObjectFile):
        file.hold(pieces)


def status_of_new(path: Place) -> os.stat_result:
    """Size and time of a file that this process has just made. `keep_young` then needs no request for it."""
    if isinstance(path, StorePath):
        path = replace(path, listed=path.store.cache.own(path.key))
        entry = path.entry()
        path.store.cache.remember(path.key, entry.size, entry.tag)
    return path.stat()


def begin_folder(folder: Place, name: str, data: bytes) -> None:
    """Makes a folder with its parents. A store has no empty folder: there it begins with the object `name`."""
    if isinstance(folder, StorePath):
        (folder / name).write_bytes(data)
    else:
        folder.mkdir(parents=True, exist_ok=True)


def is_same(path: Place, ours: Put) -> bool:
    """True if `path` is still the file that was written. `storage-unavailable` if this cannot be determined."""
    if isinstance(path, StorePath) or isinstance(ours, Entry):
        found = path.store.head(path.key) if isinstance(path, StorePath) else None
        return found is not None and isinstance(ours, Entry) and found.etag == ours.etag
    try:
        return os.path.samestat(path.stat(), ours)
    except _GONE:
        return False
    except OSError as error:
        raise storage_unavailable(path, error) from error


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


def keep_young(paths: Iterable[Place], before: float) -> None:
    """Checks that these files still exist. Those that were changed before then (seconds since 1970) get the time
    of now: a vacuum removes old files that no commit names.

    FileNotFoundError, `storage-unavailable`. Sends no request for a file that this process has just made.
    """
    for path in paths:
        if isinstance(path, StorePath):
            own = path.store.cache.own(path.key)
            if (own is None or own.modified / 1e9 < before) and path.entry().modified / 1e9 < before:
                path.store.renew(path.key)
            continue
        try:
            if path.stat().st_mtime < before:
                os.utime(path)
        except _GONE:
            raise
        except OSError as error:
            raise storage_unavailable(path, error) from error


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


def remove_file(path: Place) -> None:
    """Deletes a file, and Hadoop's checksum beside it; does nothing if there is none."""
    path.unlink(missing_ok=True)
    remove_hadoop_checksum(path)


def remove_hadoop_checksum(path: Place) -> None:
    """Deletes the `.crc` file that Hadoop keeps beside a local file: Hadoop refuses other content with it."""
    if isinstance(path, Path):
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
