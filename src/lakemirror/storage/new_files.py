"""Local files that appear complete or not at all, for `local.py` (in an open folder) and `durable.py` (by path).

data ─▶ a temporary file in the same folder ─▶ link, where the name must be free; else rename
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from pathlib import Path

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a new file is opened: never through a link, never one that is there."""

NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK}
"""Errors of a file system without hard links."""
_RANGE, _PIECE = 64 << 20, 1 << 20  # bytes that are copied at once: by the operating system, and by this process
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1


def copy_file(source: str | os.PathLike[str], target: Path) -> None:
    """Copies a local file, as `copy_into`; as much as there is of one that becomes shorter meanwhile."""
    with Path(source).open("rb") as read, target.open("wb") as write, contextlib.suppress(EOFError):
        copy_into(read.fileno(), write.fileno(), 0, os.fstat(read.fileno()).st_size)


def copy_into(source: int, target: int, offset: int, length: int) -> None:
    """Copies `length` bytes from the start of an open file to `offset` of another. EOFError where it is shorter.

    The operating system copies, and the files share blocks, if the file system can do that.
    """
    copied, by_system = 0, True
    while copied < length:
        size = 0
        if by_system:
            with contextlib.suppress(AttributeError, OSError):  # a Python that lacks it, two file systems
                size = os.copy_file_range(source, target, min(_RANGE, length - copied), copied, offset + copied)
            by_system = size > 0  # some file systems answer that there is nothing to copy
        if not size:
            size = os.pwrite(target, os.pread(source, min(_PIECE, length - copied), copied), offset + copied)
        if not size:
            raise EOFError
        copied += size


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
        return ours if link_new(temporary, name, folder) else None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)


def link_new(source: str | Path, name: str | Path, folder: int | None = None) -> bool:
    """Gives a file a name that is free, in one step; False if the name is taken. It may lose its old name.

    OSError of `NO_LINKS` if the file system has neither links nor a rename that replaces nothing.
    """
    try:
        os.link(source, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:  # a network file system may answer a link that it made twice
        with contextlib.suppress(FileNotFoundError):
            there, ours = (os.stat(each, dir_fd=folder, follow_symlinks=False) for each in (name, source))
            return os.path.samestat(there, ours)
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return _rename_new(source, name, folder, error)
    return True


def _write(name: str | Path, data: bytes, durable: bool, folder: int | None, mode: int | None) -> os.stat_result:
    """Writes a new file. Returns its identity. Where it cannot be completed, it is removed."""
    try:
        with os.fdopen(os.open(name, NEW, 0o666 if mode is None else mode, dir_fd=folder), "wb") as file:
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
