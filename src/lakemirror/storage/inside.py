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
    """The descriptor of the folder that holds `path`, and the path's last part ("." for the root itself).

    `make_below`: folders that are missing are made, but only below this one ("" for the root). FileNotFoundError;
    `path-refused` where a part is a link.
    """
    *parts, name = path.split("/") if path else ["."]
    if ".." in (*parts, name) or "" in (*parts, name):
        raise LakemirrorError("path-refused", f"{path} is not a path inside the database", file=path)
    held, key = _holding.folders, (root, "/".join(parts))
    if held is not None and key in held:
        held.move_to_end(key)  # one that is in use is not the next to be closed
        yield held[key], name
        return
    at = _walk(root, parts, make_below)
    if held is None:
        try:
            yield at, name
        finally:
            os.close(at)
        return
    held[key] = at
    if len(held) > _MOST_HELD:
        os.close(held.popitem(last=False)[1])
    yield at, name


def _walk(root: Path, parts: list[str], make_below: str | None) -> int:
    kept = 0 if make_below is None or not make_below else len(make_below.split("/"))
    at = os.open(root, _FOLDER & ~os.O_NOFOLLOW)
    for depth, part in enumerate(parts):
        try:
            inner = _enter(at, part, "/".join(parts[: depth + 1]), make_below is not None and depth >= kept)
        finally:
            os.close(at)
        at = inner
    return at


def open_file(folder: int, name: str, path: str) -> int:
    """The descriptor of a regular file, for reading; FileNotFoundError, `path-refused`. Never waits."""
    _check_is_file(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode, path)
    try:
        file = os.open(name, _READ, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # it became a link or a FIFO just now
            raise not_a_file(path, "a link" if error.errno == errno.ELOOP else "a FIFO") from error
        raise
    try:
        _check_is_file(os.fstat(file).st_mode, path)
    except LakemirrorError:
        os.close(file)
        raise
    return file


def open_folder(folder: int, name: str, path: str) -> int:
    """The descriptor of a folder that can be listed; FileNotFoundError, `path-refused`."""
    try:
        return os.open(name, _LIST, dir_fd=folder)
    except OSError as error:
        raise _named(error, folder, name, path) from error


def _enter(folder: int, name: str, path: str, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
    except OSError as error:
        raise _named(error, folder, name, path) from error
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    return _enter(folder, name, path, make=False)


def _named(error: OSError, folder: int, name: str, path: str) -> Exception:
    """The same error, or `path-refused` if a link is in the folder's place."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        with suppress(OSError):
            kind = kind_of(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
            if kind == "a link":
                return not_a_file(path, kind)
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return error


def _check_is_file(mode: int, path: str) -> None:
    if not stat.S_ISREG(mode):
        raise not_a_file(path, kind_of(mode))


__all__ = ["folder_of", "holding_folders", "kind_of", "not_a_file", "open_file", "open_folder"]
