"""Opens files and folders inside one root folder, without following a link and without waiting.

    root ─▶ open each part of the path from the folder before it (O_NOFOLLOW) ─▶ the last folder's descriptor, a name

If a path were checked and then opened by name, another process could replace it by a link in between. A path that is
opened part by part cannot lead out of the root. The root's own path may be a link.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lakemirror.errors import LakemirrorError

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_KINDS = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)


def kind_of(mode: int) -> str:
    """What a mode means, in words for a message: "a link", "a FIFO"; "a file" for a regular file."""
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "a file")


def not_a_file(path: str, kind: str) -> LakemirrorError:
    """The error for something that is never opened."""
    return LakemirrorError("path-refused", f"{path} is {kind}: it is not opened", file=path)


_MOST_HELD = 16  # folders that one thread holds open
_Held = OrderedDict[tuple[Path, str], int]


class _Holding(threading.local):
    folders: _Held | None = None


_holding = _Holding()


@contextmanager
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


@contextmanager
def folder_of(root: Path, path: str, *, make_below: str | None = None) -> Iterator[tuple[int, str]]:
    """The descriptor of the folder that holds `path`, and the path's last part. As `enter`."""
    folder, name, is_held = enter(root, path, make_below)
    try:
        yield folder, name
    finally:
        if not is_held:
            os.close(folder)


def enter(root: Path, path: str, make_below: str | None = None) -> tuple[int, str, bool]:
    """The descriptor of the folder that holds `path`, the path's last part ("." for the root itself), and whether the
    folder is held open; else the caller closes it.

    `make_below`: folders that are missing are made, but only below this one ("" for the root). FileNotFoundError;
    `path-refused` where a part is a link.
    """
    *parts, name = path.split("/") if path else ["."]
    if ".." in (*parts, name) or "" in (*parts, name):
        raise LakemirrorError("path-refused", f"{path} is not a path inside the database", file=path)
    held, key = _holding.folders, (root, "/".join(parts))
    if held is not None and key in held:
        held.move_to_end(key)  # one that is in use is not the next to be closed
        return held[key], name, True
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
    if held is not None:
        held[key] = at
        if len(held) > _MOST_HELD:
            os.close(held.popitem(last=False)[1])
    return at, name, held is not None


def _made(error: OSError, folder: int, name: str, path: str, *, make: bool) -> int:
    """The descriptor of a folder that could not be opened, because it was missing. Raises the error otherwise."""
    if not make or not isinstance(error, FileNotFoundError):
        raise _named(error, folder, name, path) from error
    with suppress(FileExistsError):
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
        with suppress(OSError):
            kind = kind_of(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
            if kind == "a link":
                return not_a_file(path, kind)
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return error
