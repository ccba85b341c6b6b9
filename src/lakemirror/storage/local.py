"""A mirrored database in a local folder. Links inside it are never followed; only regular files are ever opened.

    root ─▶ open each part of the path from the folder before it (O_NOFOLLOW) ─▶ the last folder's descriptor, a name

If a path were checked and then opened by name, another process could replace it by a link in between. A path that is
opened part by part cannot lead out of the root. The root's own path may be a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import BinaryIO

from lakemirror.errors import LakemirrorError
from lakemirror.storage.folder_watch import NotWatched, not_watched
from lakemirror.storage.new_files import NEW, put_file, put_new_file
from lakemirror.storage.storage import DISK, Entry, Listing, kind_of, not_a_file

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o644  # of files that other users read, whatever the umask is

MOST_LEVELS = 64  # of folders below the one that is listed
MOST_ENTRIES = 5_000_000  # of one folder: each takes about 400 bytes of memory


_MOST_HELD = 16  # folders that one thread holds open
_Held = OrderedDict[tuple[Path, str], int]


class _Holding(threading.local):
    folders: _Held | None = None


_holding = _Holding()


@contextlib.contextmanager
def holding_folders() -> Iterator[None]:
    """Keeps the folders open that `folder_of` enters in this thread, so that many files in few folders cost one walk
    for each folder.

    Use it for short work only: a folder that is deleted or replaced meanwhile is still the old one here.
    """
    if _holding.folders is not None:
        yield
        return
    held = _holding.folders = OrderedDict()
    try:
        yield
    finally:
        _holding.folders = None
        for folder in held.values():
            os.close(folder)


class LocalStorage:
    """A mirrored database in a local folder."""

    capabilities = DISK

    def __init__(
        self, root: str | os.PathLike[str], *, most_entries: int = MOST_ENTRIES, most_levels: int = MOST_LEVELS
    ) -> None:
        """`most_entries`: entries of one folder. `most_levels`: depth of nested folders. A listing ends at these limits
        and reports that in its `errors`.
        """
        self.root = Path(root).absolute()
        self._most_entries = most_entries
        self._most_levels = most_levels

    def uri(self, path: str = "") -> str:
        return str(self.root / path) if path else str(self.root)

    def probe(self) -> None:
        """Does nothing: every local file system refuses a link to a name that is taken."""

    def watchable(self) -> Path | NotWatched:
        return not_watched(self.root) or self.root

    holding_folders = staticmethod(holding_folders)

    def list(self, path: str, enter: Callable[[str], bool] = lambda _: True) -> Listing:
        return list_by_folder(path, enter, self._list_folder, self._most_levels)

    def stat(self, path: str) -> Entry | None:
        with contextlib.suppress(FileNotFoundError), folder_of(self.root, path) as (folder, name):
            return _entry(folder, name, path)
        return None

    def exists(self, path: str) -> bool:
        with contextlib.suppress(FileNotFoundError), folder_of(self.root, path) as (folder, name):
            os.stat(name, dir_fd=folder, follow_symlinks=False)
            return True
        return False

    def open(self, path: str, listed: Entry | None = None) -> BinaryIO:
        with folder_of(self.root, path) as (folder, name):
            return os.fdopen(open_file(folder, name, path), "rb")

    def read(self, path: str, most_bytes: int | None = None, listed: Entry | None = None) -> bytes:
        with folder_of(self.root, path) as (folder, name), os.fdopen(open_file(folder, name, path), "rb") as file:
            if most_bytes is None:
                return file.read()
            size = os.fstat(file.fileno()).st_size
            data = file.read(most_bytes + 1) if size <= most_bytes else b""
            if max(size, len(data)) > most_bytes:
                raise LakemirrorError(
                    "content-too-large",
                    f"{path} has {size:,} bytes, more than {most_bytes:,}: it is not read",
                    file=path,
                )
            return data

    def write(self, path: str, data: bytes) -> None:
        with folder_of(self.root, path, make_below="") as (folder, name):
            _put(folder, name, data)

    def rewrite(self, path: str, data: bytes) -> bool:
        try:
            with folder_of(self.root, path) as (folder, name):
                os.stat(name, dir_fd=folder, follow_symlinks=False)
                _put(folder, name, data)
        except FileNotFoundError:
            return False
        return True

    def write_new(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        with folder_of(self.root, path) as (folder, name):
            return put_new_file(name, _temporary(), data, durable=durable, folder=folder, mode=_MODE) is not None

    def move(self, source: str, target: str) -> None:
        with folder_of(self.root, source) as (origin, name):
            os.stat(name, dir_fd=origin, follow_symlinks=False)  # nothing is made where there is nothing to move
            with folder_of(self.root, target, make_below=_above_both(source, target)) as (destination, new_name):
                os.replace(name, new_name, src_dir_fd=origin, dst_dir_fd=destination)

    def free_name(self, path: str, listed: Collection[str]) -> str:
        names = chain([path], (f"{path}.{number}" for number in count(1)))
        return next(name for name in names if not self.exists(name))

    def move_listed(self, entry: Entry, target: str) -> bool:
        try:
            with folder_of(self.root, entry.path) as (origin, name):
                if not _entry(origin, name, entry.path).is_same(entry):
                    return False
                with folder_of(self.root, target, make_below=_above_both(entry.path, target)) as (aside, new_name):
                    os.replace(name, new_name, src_dir_fd=origin, dst_dir_fd=aside)
                    if _entry(aside, new_name, entry.path) != entry:  # it was replaced in between
                        os.replace(new_name, name, src_dir_fd=aside, dst_dir_fd=origin)
                        return False
                    with contextlib.suppress(OSError):  # a file of another owner keeps its own time
                        os.utime(new_name, dir_fd=aside, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def move_all_listed(self, moves: Iterable[tuple[Entry, str]]) -> Iterator[tuple[Entry, str]]:
        for entry, target in moves:
            with contextlib.suppress(OSError, LakemirrorError):
                if self.move_listed(entry, target):
                    yield entry, target

    def finish_move(self, path: str) -> bool:
        """False: a rename on a local disk is atomic."""
        return False

    def create(self, path: str) -> BinaryIO:
        with folder_of(self.root, path, make_below="") as (folder, name):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            return os.fdopen(os.open(name, NEW, 0o644, dir_fd=folder), "wb")

    def touch(self, path: str) -> None:
        with folder_of(self.root, path) as (folder, name):
            os.utime(name, dir_fd=folder, follow_symlinks=False)

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), folder_of(self.root, path) as (folder, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                _remove_folder(folder, name)
            else:
                os.unlink(name, dir_fd=folder)

    def _list_folder(self, path: str, listing: Listing) -> Sequence[str]:
        """Adds the files of one folder to the listing. Returns its folders. FileNotFoundError."""
        below = f"{path}/" if path else ""
        folders = []
        with folder_of(self.root, path) as (parent, name):
            here = open_folder(parent, name, path)
            try:
                with os.scandir(here) as scan:
                    for number, item in enumerate(scan):
                        if number >= self._most_entries:
                            message = f"{path} holds more than {self._most_entries:,} files"
                            listing.errors[path] = LakemirrorError("listing-too-large", message, file=path)
                            break
                        name = below + item.name
                        try:
                            if item.is_dir(follow_symlinks=False):
                                folders.append(name)
                            elif item.is_file(follow_symlinks=False):
                                found = item.stat(follow_symlinks=False)
                                known = found.st_size, found.st_mtime_ns, "", found.st_ino, found.st_ctime_ns
                                listing.files.append(Entry(name, *known))
                            else:
                                listing.others[name] = kind_of(item.stat(follow_symlinks=False).st_mode)
                        except FileNotFoundError:
                            continue
                        except OSError as error:
                            listing.errors[path] = _unavailable(name, error)
            finally:
                os.close(here)
        return folders


@contextlib.contextmanager
def folder_of(root: Path, path: str, make_below: str | None = None, *, coded: bool = True) -> Iterator[tuple[int, str]]:
    """The descriptor of the folder that holds `path`, and the path's last part ("." for the root itself).

    `make_below`: folders that are missing are made, but only below this one ("" for the root). `coded`: OSErrors, also
    of the block, become `storage-unavailable`, but not FileNotFoundError. `path-refused` where a part is a link.
    """
    *parts, name = path.split("/") if path else ["."]
    if ".." in (*parts, name) or "" in (*parts, name):
        raise LakemirrorError("path-refused", f"{path} is not a path inside the database", file=path)
    held, key = _holding.folders, (root, "/".join(parts))
    folder = held.get(key, -1) if held is not None else -1
    try:
        if held is not None and folder >= 0:
            held.move_to_end(key)  # one that is in use is not the next to be closed
        else:
            folder = _enter(root, parts, make_below)
            if held is not None:
                held[key] = folder
                if len(held) > _MOST_HELD:
                    os.close(held.popitem(last=False)[1])
        yield folder, name
    except FileNotFoundError:
        raise
    except OSError as error:
        if not coded:
            raise
        raise _unavailable(path, error) from error
    finally:
        if held is None and folder >= 0:
            os.close(folder)


def _enter(root: Path, parts: Sequence[str], make_below: str | None) -> int:
    """The descriptor of the folder with this path. Parameters as of `folder_of`."""
    kept = len(make_below.split("/")) if make_below else 0
    at = os.open(root, _FOLDER & ~os.O_NOFOLLOW)
    for depth, part in enumerate(parts):
        above = at
        try:
            at = os.open(part, _FOLDER, dir_fd=above)
        except OSError as error:
            shown = "/".join(parts[: depth + 1])
            at = _made(error, above, part, shown, make=make_below is not None and depth >= kept)
        finally:
            os.close(above)
    return at


def _made(error: OSError, folder: int, name: str, path: str, *, make: bool) -> int:
    """The descriptor of a folder that could not be opened, because it was missing. Raises the error otherwise."""
    if not make or not isinstance(error, FileNotFoundError):
        raise _named(error, folder, name, path) from error
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except OSError as failure:
        raise _named(failure, folder, name, path) from failure


def open_file(folder: int, name: str, path: str) -> int:
    """The descriptor of a regular file, for reading; FileNotFoundError, `path-refused`. Never waits."""
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if not stat.S_ISREG(mode):
        raise not_a_file(path, kind_of(mode))
    try:
        file = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # it became a link or a FIFO just now
            raise not_a_file(path, "a link" if error.errno == errno.ELOOP else "a FIFO") from error
        raise
    mode = os.fstat(file).st_mode
    if not stat.S_ISREG(mode):
        os.close(file)
        raise not_a_file(path, kind_of(mode))
    return file


def open_folder(folder: int, name: str, path: str) -> int:
    """The descriptor of a folder that can be listed; FileNotFoundError, `path-refused`."""
    try:
        return os.open(name, _LIST, dir_fd=folder)
    except OSError as error:
        raise _named(error, folder, name, path) from error


def _named(error: OSError, folder: int, name: str, path: str) -> Exception:
    """The same error, or `path-refused` if a link is in the folder's place."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        with contextlib.suppress(OSError):
            kind = kind_of(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
            if kind == "a link":
                return not_a_file(path, kind)
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return error


def list_by_folder(
    path: str,
    enter: Callable[[str], bool],
    list_folder: Callable[[str, Listing], Sequence[str]],
    most_levels: int = MOST_LEVELS,
) -> Listing:
    """`Storage.list` folder by folder. `list_folder` adds the files of one folder to a listing and returns its folders.
    Folders that are nested deeper than `most_levels` are errors.
    """
    listing = Listing()
    pending = [(path, 0)]
    while pending:
        folder, level = pending.pop()
        try:
            inner = list_folder(folder, listing)
        except FileNotFoundError:
            if folder == path:
                raise
            continue  # deleted by its publisher between two listings
        except LakemirrorError as error:
            if folder == path:
                raise
            listing.errors[folder] = error
            continue
        listing.folders += inner
        for name in filter(enter, inner):
            if level < most_levels:
                pending.append((name, level + 1))
            else:
                message = f"{name} is nested deeper than {most_levels} folders"
                listing.errors[name] = LakemirrorError("listing-too-large", message, file=name)
    return listing


def _entry(folder: int, name: str, path: str) -> Entry:
    """The file or folder of this name. FileNotFoundError, `path-refused`."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise not_a_file(path, kind_of(found.st_mode))
    return Entry(path, found.st_size, found.st_mtime_ns, "", found.st_ino, found.st_ctime_ns)


def _above_both(source: str, target: str) -> str:
    """The folder below which a move makes folders: a table folder that its publisher deletes at this moment must not
    come back as an empty one."""
    return os.path.commonpath([source.rpartition("/")[0] or ".", target.rpartition("/")[0] or "."])


def _put(folder: int, name: str, data: bytes) -> None:
    put_file(name, _temporary(), data, durable=False, folder=folder, mode=_MODE)


def _temporary() -> str:
    return f"_lakemirror-{secrets.token_hex(8)}.tmp"


def _remove_folder(folder: int, name: str) -> None:
    """Removes a folder and everything in it that can be removed. Links are removed, not followed."""
    with contextlib.suppress(OSError, LakemirrorError):
        inner = open_folder(folder, name, name)
        try:
            with os.scandir(inner) as scan:
                items = [(item.name, item.is_dir(follow_symlinks=False)) for item in scan]
            for each, is_folder in items:
                if is_folder:
                    _remove_folder(inner, each)
                else:
                    with contextlib.suppress(OSError):
                        os.unlink(each, dir_fd=inner)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)


def _unavailable(path: str, error: OSError) -> LakemirrorError:
    return LakemirrorError("storage-unavailable", f"{path or '.'}: {error.strerror or error}", file=path)
