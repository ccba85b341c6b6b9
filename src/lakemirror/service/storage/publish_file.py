"""Publishing: a complete, synced file gets its name in the landing zone by one rename, or one put to a store.

    staged bytes ─▶ assembled ─▶ checked ─▶ fsync ─▶ condition and rename ─▶ fsync of the folder ─▶ answer
                                                  ─▶ put with the condition ─▶ answer

The engine sees the old file or the new one. After the answer the file survives a power cut (service.md section 6).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lakemirror.failpoints import reach
from lakemirror.service.refused import Refused
from lakemirror.service.storage.checksums import check_file
from lakemirror.service.storage.conditions import Conditions
from lakemirror.service.storage.database_files import DatabaseFiles, new_etag
from lakemirror.service.storage.uploads import DATA, Part, Upload, begin_upload, chain
from lakemirror.storage.new_files import copy_into
from lakemirror.storage.served_files import ANY, Changed, Expected, Found, now_ns

_PIECE = 4 << 20  # bytes that are compared at once
_TRIES = 5  # of a publish while others replace the file


def create_file(files: DatabaseFiles, path: str, conditions: Conditions) -> Found:
    """Creates a file that clients see with length 0; disk and engine see nothing of it. Refused."""
    with files.publishing(path):
        check_now(files, path, conditions)
        make_parents(files, path)
        with files.lock:
            files.discard(path)
            upload = begin_upload(files.temporary("up"), path, new_etag(), now_ns(), 0, "")
            files.uploads[path] = upload
            created = files.staged(path)
        files.copies.keep(upload)
    files.copies.settle()
    assert created is not None
    reach("upload.created")
    return created


def drop_published(files: DatabaseFiles) -> None:
    """Gives up uploads that were published by a service that was killed before it could say so."""
    for path, upload in list(files.uploads.items()):
        found = files.published.find(path) if upload.is_create and upload.end else None
        if found is not None and not found.is_folder and found.length == upload.end:
            _assemble(files, upload, upload.end)
            with suppress(FileNotFoundError), contextlib.closing(files.published.open(path)) as file:
                if _has_content(upload.data, file.read_at, found.length):
                    files.discard(path)
    files.copies.settle()


def upload_for_append(files: DatabaseFiles, path: str) -> tuple[Upload | None, int]:
    """The upload that an append goes to, and the flushed length. A published file begins one when needed.

    Refused 404 where there is nothing, 409 for a folder. Call it under the lock of the files.
    """
    upload = files.open_upload(path)
    if upload is not None:
        return upload, upload.base
    found = files.find(path)
    if found is None:
        raise Refused(404, "PathNotFound", "The path does not exist.")
    if found.is_folder:
        raise Refused(409, "PathConflict", "The path is a folder.")
    return None, found.length


def begin_append(files: DatabaseFiles, path: str) -> Upload:
    """An upload that goes on after the published file at a path. Call it under the lock of the files."""
    found = files.published.find(path)
    if found is None:
        raise Refused(404, "PathNotFound", "The path does not exist.")
    upload = begin_upload(files.temporary("up"), path, found.etag, found.modified_ns, found.length, found.etag)
    files.uploads[path] = upload
    return upload


def flush(files: DatabaseFiles, path: str, position: int, conditions: Conditions, md5: bytes | None) -> Found:
    """Publishes what is appended to a path, which must end at `position`. Refused."""
    while True:
        with files.lock:
            upload = files.open_upload(path)
            if upload is None:
                return _flushed_already(files, path, position, conditions, md5)
        with upload.flushing:
            with files.lock:
                if files.uploads.get(path) is not upload:
                    continue
                check_now(files, path, conditions)
                if position != upload.end:
                    raise _wrong_position(upload.end)
                if position == upload.base and not upload.is_create:
                    return _flushed_already(files, path, position, conditions, md5)
                upload.sealed = True
            try:
                _assemble(files, upload, position)
                sync_file(upload.data, md5)
                found = publish(files, upload.data, path, conditions, "PathAlreadyExists", upload)
            finally:
                upload.sealed = False
        files.take_back(upload)
        files.copies.settle()
        return found


def publish(
    files: DatabaseFiles,
    source: Path,
    path: str,
    conditions: Conditions,
    exists_code: str,
    upload: Upload | None = None,
) -> Found:
    """Renames a synced file of the staging folder to its path and syncs the folder. Refused.

    `upload`: the one that is published; Refused 409 where another has taken its place meanwhile.
    """
    reach("publish.synced")
    with files.publishing(path):
        found = _put(files, source, path, lambda: _expected(files, path, conditions, exists_code, upload))
        with files.lock:
            if upload is None:
                files.discard(path)
            elif files.uploads.get(path) is upload:
                del files.uploads[path]
    reach("publish.renamed")
    files.settle(path)
    reach("publish.durable")
    if found is None:
        raise Refused(404, "PathNotFound", "The path was removed at once.")
    return found


def _put(files: DatabaseFiles, source: Path, path: str, expected: Callable[[], Expected]) -> Found | None:
    """Puts the file at its path while nothing else comes there than is expected. Refused."""
    for _ in range(_TRIES):
        try:
            found = files.published.put(path, source, expected())
        except Changed:
            continue
        if files.published.waits and not files.is_served():
            files.published.remove_file(
                path, keeps_folder=False
            )  # the database was deleted meanwhile: what comes later goes, too
            raise _deleted()
        return found
    raise Refused(503, "ServerBusy", "Others replace this file at the same time.", {"Retry-After": "1"})


def _expected(
    files: DatabaseFiles, path: str, conditions: Conditions, exists_code: str, upload: Upload | None
) -> Expected:
    """What may be replaced at the path now. Refused where nothing may be written there."""
    with files.lock:
        if upload is not None and files.uploads.get(path) is not upload:
            raise Refused(409, "PathConflict", "Another request created or deleted this path meanwhile.")
        if not files.is_served():
            raise _deleted()
        staged = files.staged(path)
        parents = path.rpartition("/")[0]
        check_parents(files, path)
    found = staged or files.published.find(path)
    check(found, conditions, exists_code)
    files.check_folders(parents)
    return ANY if staged is not None or conditions == Conditions() else found


def _deleted() -> Refused:
    return Refused(404, "PathNotFound", "The mirrored database was deleted meanwhile.")


def check_now(files: DatabaseFiles, path: str, conditions: Conditions, exists_code: str = "PathAlreadyExists") -> None:
    """Refused where a file may not be written at the path now: a condition, or a folder there."""
    check(files.find(path), conditions, exists_code)


def check(found: Found | None, conditions: Conditions, exists_code: str) -> None:
    """Refused where this may not be replaced by a file."""
    conditions.check_write(found, exists_code)
    if found and found.is_folder:
        raise Refused(409, exists_code, "A folder has this name.")


def make_parents(files: DatabaseFiles, path: str) -> None:
    """Makes the folders above a path. Refused 409 `PathConflict` where one of them is a file."""
    check_parents(files, path)
    files.make_folder(path.rpartition("/")[0])


def check_parents(files: DatabaseFiles, path: str) -> None:
    """Refused 409 `PathConflict` where one of the folders above a path is an upload."""
    parts = path.split("/")[:-1]
    for depth in range(len(parts)):
        if "/".join(parts[: depth + 1]) in files.uploads:
            raise Refused(409, "PathConflict", "A file is in the place of a folder of this path.")


def sync_file(path: Path, md5: bytes | None = None) -> None:
    """Syncs one staged file, once its MD5 is checked. Refused 400 `Md5Mismatch`."""
    with path.open("rb") as file:
        check_file(lambda size, at: os.pread(file.fileno(), size, at), md5)
        os.fsync(file.fileno())


def _assemble(files: DatabaseFiles, upload: Upload, end: int) -> None:
    """Makes the upload's `data` the complete file. Can be repeated after a crash."""
    chosen = chain(upload.parts, upload.base, end)
    if upload.base == 0 and len(chosen) == 1 and chosen[0].file != DATA:
        (upload.folder / chosen[0].file).replace(upload.data)
        upload.parts[:] = [Part(0, end, DATA)]
        return
    target = os.open(upload.data, os.O_WRONLY | os.O_CLOEXEC)
    try:
        if upload.base:
            _copy_base(files, upload, target)
        for part in chosen:
            if part.file != DATA:
                source = os.open(upload.folder / part.file, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    copy_into(source, target, part.position, part.length)
                finally:
                    os.close(source)
        os.ftruncate(target, end)
    finally:
        os.close(target)


def _has_content(path: Path, read_at: Callable[[int, int], bytes], length: int) -> bool:
    with path.open("rb") as file:
        return all(file.read(_PIECE) == read_at(_PIECE, at) for at in range(0, length, _PIECE))


def _copy_base(files: DatabaseFiles, upload: Upload, target: int) -> None:
    gone = Refused(412, "ConditionNotMet", "The file that was appended to was replaced.")
    try:
        source = files.published.open(upload.path)
    except FileNotFoundError:
        raise gone from None
    try:
        source.copy_to(target, upload.base)
    except (EOFError, FileNotFoundError):
        raise gone from None
    finally:
        source.close()


def _flushed_already(
    files: DatabaseFiles, path: str, position: int, conditions: Conditions, md5: bytes | None
) -> Found:
    found = files.published.find(path)
    if found is None:
        raise Refused(404, "PathNotFound", "The path does not exist.")
    if found.is_folder:
        raise Refused(409, "PathConflict", "The path is a folder.")
    conditions.check_write(found, "PathAlreadyExists")
    if position != found.length:
        raise _wrong_position(found.length)
    if md5 is not None:
        file = files.published.open(path)
        try:
            check_file(file.read_at, md5)
        finally:
            file.close()
    files.settle(path)
    return found


def _wrong_position(end: int) -> Refused:
    return Refused(400, "InvalidFlushPosition", f"The bytes without a gap end at {end}.")
