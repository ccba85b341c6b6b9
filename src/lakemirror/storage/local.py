"""A mirrored database in a local folder. Links inside it are never followed; only regular files are ever opened.

`put_new_file` and `put_file` make files that appear complete or not at all, here and in `durable.py`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path
from typing import BinaryIO

from lakemirror.errors import LakemirrorError
from lakemirror.storage.folder_watch import NotWatched, not_watched
from lakemirror.storage.inside import enter, holding_folders, kind_of, not_a_file, open_file, open_folder
from lakemirror.storage.storage import DISK, Entry, Listing

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE = 0o644  # of files that other users read, whatever the umask is
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK}
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1

MOST_LEVELS = 64  # of folders below the one that is listed
MOST_ENTRIES = 5_000_000  # of one folder: each takes about 400 bytes of memory


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
        try:
            with self._folder_of(path) as (folder, name):
                return _entry(folder, name, path)
        except FileNotFoundError:
            return None

    def exists(self, path: str) -> bool:
        try:
            with self._folder_of(path) as (folder, name):
                os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def open(self, path: str, listed: Entry | None = None) -> BinaryIO:
        with self._folder_of(path) as (folder, name):
            return os.fdopen(open_file(folder, name, path), "rb")

    def read(self, path: str, most_bytes: int | None = None, listed: Entry | None = None) -> bytes:
        with self._folder_of(path) as (folder, name), os.fdopen(open_file(folder, name, path), "rb") as file:
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
        with self._folder_of(path, make_below="") as (folder, name):
            _put(folder, name, data)

    def rewrite(self, path: str, data: bytes) -> bool:
        try:
            with self._folder_of(path) as (folder, name):
                os.stat(name, dir_fd=folder, follow_symlinks=False)
                _put(folder, name, data)
        except FileNotFoundError:
            return False
        return True

    def write_new(self, path: str, data: bytes, *, durable: bool = True) -> bool:
        with self._folder_of(path) as (folder, name):
            return put_new_file(name, _temporary(), data, durable=durable, folder=folder, mode=_MODE) is not None

    def move(self, source: str, target: str) -> None:
        with self._folder_of(source) as (origin, name):
            os.stat(name, dir_fd=origin, follow_symlinks=False)  # nothing is made where there is nothing to move
            with self._folder_of(target, make_below=_above_both(source, target)) as (destination, new_name):
                os.replace(name, new_name, src_dir_fd=origin, dst_dir_fd=destination)

    def free_name(self, path: str, listed: Collection[str]) -> str:
        names = chain([path], (f"{path}.{number}" for number in count(1)))
        return next(name for name in names if not self.exists(name))

    def move_listed(self, entry: Entry, target: str) -> bool:
        try:
            with self._folder_of(entry.path) as (origin, name):
                if _entry(origin, name, entry.path) != entry:
                    return False
                with self._folder_of(target, make_below=_above_both(entry.path, target)) as (aside, new_name):
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
        with self._folder_of(path, make_below="") as (folder, name):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            return os.fdopen(_create(folder, name), "wb")

    def touch(self, path: str) -> None:
        with self._folder_of(path) as (folder, name):
            os.utime(name, dir_fd=folder, follow_symlinks=False)

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._folder_of(path) as (folder, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                _remove_folder(folder, name)
            else:
                os.unlink(name, dir_fd=folder)

    @contextlib.contextmanager
    def _folder_of(self, path: str, make_below: str | None = None) -> Iterator[tuple[int, str]]:
        """As `inside.folder_of`; OSErrors of the block become `storage-unavailable`, but not FileNotFoundError."""
        folder, name, is_held = -1, "", True
        try:
            folder, name, is_held = enter(self.root, path, make_below)
            yield folder, name
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _unavailable(path, error) from error
        finally:
            if not is_held:
                os.close(folder)

    def _list_folder(self, path: str, listing: Listing) -> Sequence[str]:
        """Adds the files of one folder to the listing. Returns its folders. FileNotFoundError."""
        below = f"{path}/" if path else ""
        folders = []
        with self._folder_of(path) as (parent, name):
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
                                listing.files.append(Entry(name, found.st_size, found.st_mtime_ns))
                            else:
                                listing.others[name] = kind_of(item.stat(follow_symlinks=False).st_mode)
                        except FileNotFoundError:
                            continue
                        except OSError as error:
                            listing.errors[path] = _unavailable(name, error)
            finally:
                os.close(here)
        return folders


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


def copy_file(source: str | os.PathLike[str], target: Path) -> None:
    """Copies a local file within the operating system; the copies share blocks if the file system can."""
    with Path(source).open("rb") as read, target.open("wb") as write:
        copied, size = 0, os.fstat(read.fileno()).st_size
        with contextlib.suppress(AttributeError, OSError):  # another system than Linux, two file systems
            while some := os.copy_file_range(read.fileno(), write.fileno(), 1 << 30):
                copied += some
        if copied != size:
            read.seek(0)  # some file systems answer that there is nothing to copy
            write.seek(0)
            write.truncate()
            shutil.copyfileobj(read, write, 1 << 20)


def put_file(
    name: str | Path, temporary: str | Path, data: bytes, *, durable: bool, folder: int | None = None,
    mode: int | None = None,
) -> None:  # fmt: skip
    """Writes a local file atomically; replaces an older one. Parameters as for `put_new_file`."""
    _write(temporary, data, durable, folder, mode)
    try:
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        _unlink(temporary, folder)
        raise


def put_new_file(
    name: str | Path, temporary: str | Path, data: bytes, *, durable: bool, folder: int | None = None,
    mode: int | None = None,
) -> os.stat_result | None:  # fmt: skip
    """Creates a local file atomically. Returns its identity, or None if the name is taken.

    `temporary`: another name in the same folder, which no other file has. `folder`: an open folder, to which the names
    are relative. `durable`: the content is on disk when this returns; the name is not. `mode`: whatever the umask is.
    """
    ours = _write(temporary, data, durable, folder, mode)
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:  # a network file system may answer a link that it made twice
        with contextlib.suppress(FileNotFoundError):
            return ours if os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), ours) else None
        return None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return ours if _rename_new(temporary, name, folder, error) else None
    finally:
        _unlink(temporary, folder)
    return ours


def _write(name: str | Path, data: bytes, durable: bool, folder: int | None, mode: int | None) -> os.stat_result:
    """Writes a new file. Returns its identity. Where it cannot be completed, it is removed."""
    try:
        with os.fdopen(os.open(name, _NEW, 0o666, dir_fd=folder), "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            return os.fstat(file.fileno())
    except BaseException:
        _unlink(name, folder)
        raise


def _rename_new(source: str | Path, target: str | Path, folder: int | None, cause: OSError) -> bool:
    """Renames a file to a name that is free, for file systems without links; False if the name is taken.

    Raises `cause` where the system has no rename that replaces nothing.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    at = _AT_FDCWD if folder is None else folder
    if rename is not None and not rename(at, os.fsencode(source), at, os.fsencode(target), _RENAME_NOREPLACE):
        return True
    if rename is None or ctypes.get_errno() != errno.EEXIST:
        raise cause
    return False


def _unlink(name: str | Path, folder: int | None) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)


def _create(folder: int, name: str) -> int:
    return os.open(name, _NEW, 0o644, dir_fd=folder)


def _entry(folder: int, name: str, path: str) -> Entry:
    """The file or folder of this name. FileNotFoundError, `path-refused`."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise not_a_file(path, kind_of(found.st_mode))
    return Entry(path, found.st_size, found.st_mtime_ns)


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
