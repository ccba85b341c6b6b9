"""Files that only the service's own user may read, written atomically.

write ─▶ temporary file 0600 ─▶ fsync ─▶ rename ─▶ fsync of the folder
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lakemirror.errors import LakemirrorError
from lakemirror.storage import Place
from lakemirror.storage.place import local_path

OWN_FOLDER = ".lakemirror"  # under the root


def own_folder(root: Place, state: Path | None = None) -> Path:
    """The service's own folder, made with mode 0700 where it is missing: `state`, else `.lakemirror` under the root.

    LakemirrorError `service-option-invalid` where the root is no folder, or is in a store and there is no `state`.
    """
    place = local_path(root)
    if place is None and state is None:
        raise LakemirrorError("service-option-invalid", f"{root} needs --state FOLDER, a folder on this machine's disk")
    if place is not None and not place.is_dir():
        raise LakemirrorError("service-option-invalid", f"{root} is no folder")
    folder = state if state is not None or place is None else place / OWN_FOLDER
    assert folder is not None
    try:
        folder.mkdir(mode=0o700, parents=state is not None, exist_ok=True)
    except FileExistsError:
        raise LakemirrorError("service-option-invalid", f"{folder} is no folder") from None
    folder.chmod(0o700)
    return folder


def write_private(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replaces the file by one with this content; on disk, with its name, when this returns."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def write_json(path: Path, content: Any, mode: int = 0o600) -> None:
    """`write_private` with the content as JSON."""
    write_private(path, json.dumps(content, indent=1).encode() + b"\n", mode)


def read_json(path: Path, most_bytes: int = 64 * 1024**2) -> dict[str, Any] | None:
    """The JSON object in a file; None where the file is missing, is a link, or holds anything else."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(handle, "rb") as file:
        try:
            found = json.loads(file.read(most_bytes))
        except (OSError, ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Holds a lock file within the block; False, without the lock, where another process has it and `wait` is False."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)
