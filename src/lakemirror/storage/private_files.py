"""The service's own files, written atomically: on a disk only its own user may read them.

disk    write ─▶ temporary file 0600 ─▶ fsync ─▶ rename ─▶ fsync of the folder
store   write ─▶ put, on condition that the object is as it was read
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

from lakemirror.errors import LakemirrorError
from lakemirror.storage.durable import put_over, sync
from lakemirror.storage.new_files import put_file
from lakemirror.storage.place import Place
from lakemirror.storage.store_path import StorePath

_TRIES = 20  # of a change while others change the same object


def write_private(path: Place, data: bytes, mode: int = 0o600) -> None:
    """Replaces the file by one with this content; durable, with its name, when this returns. In a store, who may read
    it is the store's to say. OSError, LakemirrorError."""
    if not isinstance(path, Path):
        put_over(path, data, durable=True)
        return
    put_file(path, path.with_name(f".{path.name}.{secrets.token_hex(6)}"), data, durable=True, mode=mode)
    sync(path.parent)


def change_private(path: Place, made: Callable[[bytes | None], bytes | None]) -> bytes:
    """The content of a file after a change, between which and the last one nobody else has changed it.

    `made` gives the new content for the one that is there, None where there is no file; None leaves it as it is. It may
    be called again: so of two processes both changes count. An answer of a store may be lost, so `made` returns None
    where its own change is in the content already, whatever others have changed since.
    """
    if not isinstance(path, Path):
        return _change_object(path, made)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with locked(path.parent / "lock"):
        before = content_of(path)
        after = made(before)
        if after is not None:
            write_private(path, after)
        return (before or b"") if after is None else after


def _change_object(path: StorePath, made: Callable[[bytes | None], bytes | None]) -> bytes:
    for _ in range(_TRIES):
        entry = path.store.head(path.key)
        try:
            before = None if entry is None else path.store.range(path.key, 0, entry.size, entry.tag)
        except FileNotFoundError:
            continue  # another one was put meanwhile
        after = made(before)
        if after is None:
            return before or b""
        try:
            put = path.store.put_over(path.key, after, entry.tag) if entry else path.store.create(path.key, after)
        except LakemirrorError:
            found = content_of(path)
            if found is None or made(found) is not None:
                raise
            return found  # the answer was lost
        if put is not None:
            return after
    raise LakemirrorError("storage-unavailable", f"{path} is changed by others all the time")


def content_of(path: Place) -> bytes | None:
    """The bytes of a file; None where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


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
