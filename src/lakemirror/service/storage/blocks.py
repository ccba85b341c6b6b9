"""Blocks of the Blob dialect: staged one by one, then put together in the order of a list and published.

Put Block ─▶ blocks/<path>/<id> ─▶ Put Block List ─▶ one complete file ─▶ publish
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from contextlib import suppress
from pathlib import Path

from lakemirror.failpoints import reach
from lakemirror.service.refused import Refused
from lakemirror.service.storage.conditions import Conditions
from lakemirror.service.storage.database_files import DatabaseFiles
from lakemirror.service.storage.publish_file import check_now, publish, sync_file
from lakemirror.service.storage.storage_answers import invalid_parameter
from lakemirror.service.storage.uploads import BLOCK, BLOCKS, remove_files
from lakemirror.storage.new_files import copy_into
from lakemirror.storage.own_files import is_folder
from lakemirror.storage.served_files import Found

_MOST_ID_BYTES = 64
_MOST_COMMITTED = 1024


def block_name(text: str) -> str:
    """The staged file's name for a block id. Refused 400 where it is not Base64 of 1 to 64 bytes."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid_parameter("blockid") from None
    if not 1 <= len(raw) <= _MOST_ID_BYTES:
        raise invalid_parameter("blockid")
    return base64.urlsafe_b64encode(raw).decode()


def keep_block(files: DatabaseFiles, path: str, name: str, temporary: Path, conditions: Conditions) -> None:
    """Makes a received block count, over one with the same id. Refused 403 where something may not be replaced."""
    folder = _folder(files, path)
    is_there = conditions.creates_only and files.find(path) is not None
    with files.lock:
        conditions.check_overwrite(is_there or (folder / name).exists())
        folder.mkdir(parents=True, exist_ok=True)
        temporary.rename(folder / name)
        copies = files.copies.folder_for_block(folder)
    files.copies.keep_block(folder / name, copies)
    reach("block.staged")


def uncommitted(files: DatabaseFiles, path: str) -> list[tuple[str, int]]:
    """The blocks that no list has used: ids in Base64, lengths in bytes."""
    found = []
    with suppress(FileNotFoundError):
        for block in sorted(_folder(files, path).iterdir()):
            with suppress(FileNotFoundError):
                found.append((base64.b64encode(base64.urlsafe_b64decode(block.name)).decode(), block.stat().st_size))
    return found


def publish_blocks(
    files: DatabaseFiles, path: str, listed: list[tuple[str, str]], conditions: Conditions, md5: bytes | None
) -> Found:
    """Publishes the listed blocks as one file. Refused 400 `InvalidBlockList` for a block that is not there.

    Blocks that are not listed are dropped. The last list of a path may be repeated, as after a lost answer.
    """
    names = []
    for kind, text in listed:
        try:
            names.append(block_name(text))
        except Refused:
            raise _unknown() from None
        if kind == "Committed":
            raise _unknown()
    check_now(files, path, conditions, "BlobAlreadyExists")
    complete = files.temporary("put")
    folder = _folder(files, path)
    try:
        _join(folder, names, complete)
        sync_file(complete, md5)
        found = publish(files, complete, path, conditions, "BlobAlreadyExists")
    except BaseException as error:
        complete.unlink(missing_ok=True)
        there = files.published.find(path)
        is_unknown = isinstance(error, Refused) and error.code == "InvalidBlockList"
        if is_unknown and there and files.committed.get(path) == (names, there.etag) and not uncommitted(files, path):
            return there
        raise
    with files.lock:
        drop_blocks(files, path)
        if len(files.committed) >= _MOST_COMMITTED:
            files.committed.clear()
        files.committed[path] = (names, found.etag)
    files.copies.settle()
    return found


def drop_blocks(files: DatabaseFiles, path: str) -> None:
    """Removes the blocks of a path."""
    folder = _folder(files, path)
    if folder.exists():
        files.copies.forget(folder)
        files.trash(folder)


def remove_old_blocks(files: DatabaseFiles, before: float) -> None:
    """Removes blocks of paths that nobody has gone on with since a time (Unix seconds)."""
    with suppress(FileNotFoundError):
        for folder in (files.staging / "blocks").iterdir():
            if not BLOCKS.fullmatch(folder.name) or not is_folder(folder):
                continue
            with files.lock, suppress(FileNotFoundError):
                if max([folder.stat().st_mtime, *(each.lstat().st_mtime for each in folder.iterdir())]) < before:
                    files.copies.forget(folder)
                    remove_files(folder, BLOCK)


def _join(folder: Path, names: list[str], complete: Path) -> None:
    target = os.open(complete, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        at = 0
        for name in names:
            try:
                block = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                raise _unknown() from None
            try:
                length = os.fstat(block).st_size
                copy_into(block, target, at, length)
                at += length
            finally:
                os.close(block)
    finally:
        os.close(target)


def _folder(files: DatabaseFiles, path: str) -> Path:
    return files.staging / "blocks" / hashlib.sha256(path.encode()).hexdigest()


def _unknown() -> Refused:
    return Refused(400, "InvalidBlockList", "The list names a block that was not put.")
