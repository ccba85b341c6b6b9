"""Local files that appear complete or not at all, for `local.py` (in an open folder) and `durable.py` (by path).

data ─▶ a temporary file in the same folder ─▶ link, where the name must be free; else rename
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
from pathlib import Path

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a new file is opened: never through a link, never one that is there."""

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK}
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1


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
        with os.fdopen(os.open(name, NEW, 0o666, dir_fd=folder), "wb") as file:
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
