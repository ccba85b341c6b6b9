"""A file or folder, on a local disk or in a store, by one set of names: those of `pathlib.Path`.

    place("/data/shop/Tables/orders")   a Path: everything local stays as it is
    place("s3://lake/shop/Tables/…")    a StorePath: the same names, by requests to the store

Code below the landing zone takes a table's address as text and asks `place` for it. `opened` gives what pyarrow reads
from: the path itself of a local file, which is mapped, or a file of ranged requests.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from lakemirror.errors import LakemirrorError
from lakemirror.storage.addresses import is_store_address, local_folder, parse_address
from lakemirror.storage.connections import give_options
from lakemirror.storage.local import LocalStorage
from lakemirror.storage.object_file import ObjectFile
from lakemirror.storage.object_storage import ObjectStorage
from lakemirror.storage.served_files import ServedFiles
from lakemirror.storage.served_folder import ServedFolder
from lakemirror.storage.served_prefix import ServedPrefix
from lakemirror.storage.storage import DISK, STORE, Capabilities, Entry, Storage
from lakemirror.storage.store_path import StorePath

Place: TypeAlias = Path | StorePath


def place(address: str | os.PathLike[str] | StorePath) -> Place:
    """The file or folder that a local path, a `file:` URI or the address of a store names."""
    if isinstance(address, Path | StorePath):
        return address
    text = os.fspath(address)
    if text.startswith("file:"):
        return Path(unquote(urlsplit(text).path))
    return StorePath(*parse_address(text)) if "://" in text and is_store_address(text) else Path(text)


def storage_of(address: str | os.PathLike[str] | Place, options: Mapping[str, str] | None = None) -> Storage:
    """The storage of a database: a path, a `file:` address, or the address of an object store.

    `options`: of the store, over the environment. LakemirrorError `address-unsupported`, `setting-invalid`,
    `stores-extra-missing`. Nothing is opened.
    """
    text = str(address)
    if not is_store_address(text):
        return LocalStorage(local_folder(text))
    if options:
        give_options(text, options)
    return ObjectStorage(text)


def database_place(address: str) -> Place:
    """The folder that a path, a `file:` address or the address of an object store names; `address-unsupported`."""
    return place(address) if is_store_address(address) else local_folder(address)


def served_files(folder: Place) -> ServedFiles:
    """The files of the database at that place, as clients of a service see and change them."""
    return ServedPrefix(folder) if isinstance(folder, StorePath) else ServedFolder(folder)


def capabilities_of(address: str | os.PathLike[str] | Place) -> Capabilities:
    """What the storage of that address can do, and what its operations cost."""
    return STORE if isinstance(place(address), StorePath) else DISK


def local_path(address: str | os.PathLike[str] | Place) -> Path | None:
    """The path on a local disk, for work that only a disk can do; None if there is none."""
    path = place(address)
    return path if isinstance(path, Path) else None


def etag_of(path: Place) -> str:
    """The ETag that a listing or a write of this process gave; empty if there is none. Sends no request."""
    return path.listed.etag if isinstance(path, StorePath) and path.listed is not None else ""


def written_here(path: Place) -> Place | None:
    """The file as this process wrote it last: `stat` and `read_bytes` then send no request, or fewer. None if that is
    not known, and on a disk.
    """
    listed = path.store.cache.own(path.key) if isinstance(path, StorePath) else None
    return replace(path, listed=listed) if listed is not None else None  # type: ignore[type-var]


def opened(address: str | Place, listed: Entry | None = None, *, written_once: bool = False) -> Any:
    """The source that pyarrow reads a file from: a local path as text, or an open file of a store; FileNotFoundError.

    `listed`: the object as a listing showed it; FileNotFoundError if another one is in its place. `written_once`: the
    file is a data file, which nobody replaces.
    """
    path = place(address)
    if isinstance(path, StorePath):
        return ObjectFile(path.store, path.key, listed or path.listed, written_once=written_once)
    return str(path)


def read_pieces(address: str | Place, pieces: Sequence[tuple[int, int]], into: memoryview) -> None:
    """Reads the bytes of a data file from each begin to its end into memory, one piece after the other.

    The pieces ascend. In a store they are requests side by side. FileNotFoundError if there is no file; ValueError if
    it is shorter.
    """
    source = opened(address, written_once=True)
    with open(source, "rb", buffering=0) if isinstance(source, str) else source as file:  # noqa: PTH123
        if isinstance(file, ObjectFile):
            file.hold(pieces)
        at = 0
        for begin, end in pieces:
            file.seek(begin)
            while begin < end:
                count = file.readinto(into[at : at + end - begin])
                if not count:
                    raise ValueError(f"{address} ends at byte {begin}, and its footer says that it does not")
                begin, at = begin + count, at + count


def names_in(folder: Place, first: str = "") -> Iterable[tuple[str, Place | None]]:
    """The names in a folder; in a store from the name `first` on, with what the listing says of each object.

    On a disk each name comes alone: there may be millions. FileNotFoundError if there is no folder.
    """
    if isinstance(folder, StorePath):
        return _objects_in(folder, first)
    return ((name, None) for name in os.listdir(folder))  # noqa: PTH208, a Path for each takes seconds


def _objects_in(folder: StorePath, first: str) -> Iterator[tuple[str, Place]]:
    is_empty = True
    begin = f"{folder.key}/" if folder.key else ""
    for entry in folder.store.entries(begin, begin + first[:-1] if first else ""):
        is_empty = False
        if "/" not in entry.path[len(begin) :] and entry.name >= first:
            yield entry.name, StorePath(folder.root, entry.path, entry)
    if is_empty:
        raise FileNotFoundError(2, "No such folder", str(folder))


def end_of(folder: Place, first: str) -> dict[str, Place]:
    """The files of a folder from the name `first` on, by name. A disk is not listed: only `first` is looked for."""
    if isinstance(folder, StorePath):
        with contextlib.suppress(FileNotFoundError):
            return {name: path for name, path in names_in(folder, first) if path is not None}
        return {}
    path = folder / first
    return {first: path} if path.exists() else {}


def folders_in(folder: Place) -> Iterator[Place]:
    """The folders that are directly in a folder; links are left out. None if there is no such folder."""
    if isinstance(folder, StorePath):
        keys, _ = folder.store.folders(f"{folder.key}/" if folder.key else "")
        yield from (StorePath(folder.root, key) for key in keys)
    else:
        with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
            yield from [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]


def folder_id(folder: Place) -> int:
    """The number of one folder, as `folder_ids` has it. FileNotFoundError on a disk."""
    return 0 if isinstance(folder, StorePath) else folder.stat().st_ino


def folder_ids(folder: Place) -> dict[Place, int]:
    """The folders that are directly in a folder, by name; links are left out. Each with a number that another folder of
    that name does not have: 0 in a store, which knows no folders. FileNotFoundError on a disk."""
    if isinstance(folder, StorePath):
        return dict.fromkeys(sorted(folders_in(folder), key=str), 0)
    with os.scandir(folder) as entries:
        found = [(Path(each.path), each.inode()) for each in entries if each.is_dir(follow_symlinks=False)]
    return dict(sorted(found))


def files_below(root: Place, enter: Callable[[str], bool]) -> Iterator[tuple[str, float]]:
    """The regular files below a folder: paths relative to it, and modified times in seconds. Links are not followed.

    `enter(name)` False: the content of folders with this name is left out. One listing in a store.
    """
    if isinstance(root, StorePath):
        begin = f"{root.key}/" if root.key else ""
        for found in root.store.entries(begin):
            path = found.path[len(begin) :]
            if all(map(enter, path.split("/")[:-1])):
                yield path, found.modified / 1e9
        return
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with contextlib.suppress(FileNotFoundError), storage_errors(root / below), os.scandir(root / below) as entries:
            for entry in entries:
                path = f"{below}/{entry.name}" if below else entry.name
                if entry.is_dir(follow_symlinks=False):
                    if enter(entry.name):
                        waiting.append(path)
                elif entry.is_file(follow_symlinks=False):
                    yield path, entry.stat(follow_symlinks=False).st_mtime


def requests_sent(address: str | Place) -> Mapping[str, int]:
    """The requests that this process has sent to the store of that address, by verb; none for a disk."""
    path = place(address)
    return path.store.requests if isinstance(path, StorePath) else {}


def relative_to(root: Place, address: str) -> str:
    """The path relative to `root` that a URI-encoded path or address names, as Delta logs have them."""
    if isinstance(root, StorePath):
        return unquote(address).removeprefix(f"{root}/")
    path = unquote(urlsplit(address).path if address.startswith("file:") else address)
    return os.path.relpath(path, root) if path.startswith("/") else path


@contextlib.contextmanager
def storage_errors(path: object) -> Iterator[None]:
    """Turns OSErrors of the block into `storage-unavailable`, with the path and the system's message.
    FileNotFoundError, NotADirectoryError and FileExistsError are raised unchanged.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, FileExistsError):
        raise
    except OSError as error:
        raise storage_unavailable(path, error) from error


def storage_unavailable(path: object, error: OSError) -> LakemirrorError:
    """The `storage-unavailable` error for an OSError: no space, read-only, input/output, no permission."""
    return LakemirrorError("storage-unavailable", f"{error.filename or path}: {error.strerror or error}")
