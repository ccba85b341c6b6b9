"""Files and folders that lakemirror made for its own work: only these are removed from its work folders.

    a file     its name is one that only lakemirror gives, and its first bytes are those of its format
    a folder   its name is a prefix and 128 random bits, and the mark is in it (`work_folder`)

Everything else stays, whoever named the work folder (contract, service.md section 4). Links are neither followed nor
removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

SPILLED = ".lakemirror-"
"""What the work folders begin with, in a table's folder, that hold what does not fit into memory."""

MARK = ".lakemirror-work"
_MARKED = b"lakemirror made this folder for its own work, and removes it with everything in it\n"
_HEAD = 64  # bytes of a file that tell its format


@contextlib.contextmanager
def work_folder(parent: Path, prefix: str, name: str = "") -> Iterator[Path]:
    """A new marked folder in `parent`. It is removed with everything in it when the block ends.

    `name`: a new UUID, which follows the prefix; empty: a random one.
    """
    folder = parent / f"{prefix}{name or uuid.uuid4()}"
    folder.mkdir(mode=0o700)
    try:
        (folder / MARK).write_bytes(_MARKED)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_work_folder(folder: Path, prefix: str, before: float) -> bool:
    """Removes a `work_folder` that a killed process has left. True if it is gone.

    It stays if something in it was changed at `before` (seconds since 1970) or later.
    """
    if not re.fullmatch(f"{re.escape(prefix)}[0-9a-f-]{{32,36}}", folder.name) or not is_folder(folder):
        return False
    with contextlib.suppress(OSError):
        if any(each.lstat().st_mtime >= before for each in (folder, *folder.rglob("*"))):
            return False
        if _head(folder / MARK, len(_MARKED)) == _MARKED:
            shutil.rmtree(folder)
        else:
            folder.rmdir()  # killed before the mark was written: then nothing is in it
        return True
    return False


def remove_own_file(path: Path, name: re.Pattern[str], begins: Callable[[bytes], bool]) -> bool:
    """Removes a regular file with such a name whose first bytes `begins` accepts. True if it is gone."""
    if not is_own_file(path, name, begins):
        return False
    with contextlib.suppress(OSError):
        path.unlink()
        return True
    return False


def is_own_file(path: Path, name: re.Pattern[str], begins: Callable[[bytes], bool]) -> bool:
    """True for a regular file with such a name whose first bytes `begins` accepts."""
    head = _head(path, _HEAD) if name.fullmatch(path.name) else None
    return head is not None and begins(head)


def begins_with(*formats: bytes) -> Callable[[bytes], bool]:
    """Accepts files of these formats, by their first bytes; also what a power cut leaves: cut short, or zeros."""
    return lambda head: not any(head) or any(head.startswith(each) or each.startswith(head) for each in formats)


def is_folder(path: Path) -> bool:
    """True for a folder that is no link."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def entries(folder: Path) -> list[Path]:
    """What is in a folder; nothing where there is no folder, or a link."""
    if not is_folder(folder):
        return []
    with contextlib.suppress(OSError):
        return list(folder.iterdir())
    return []


def _head(path: Path, size: int) -> bytes | None:
    """The first bytes of a regular file; None for anything else."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            return file.read(size) if stat.S_ISREG(os.fstat(handle).st_mode) else None
    return None
