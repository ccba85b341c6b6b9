"""Publishing: a complete, synced file gets its name in the landing zone by one rename.

    staged bytes ─▶ assembled ─▶ checked ─▶ fsync ─▶ lock: condition, rename ─▶ fsync of the folder ─▶ answer

The engine sees the old file or the new one. After the answer the file survives a power cut (service.md section 6).
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from lakemirror.failpoints import reach
from lakemirror.service.refused import Refused
from lakemirror.service.storage.checksums import check_file
from lakemirror.service.storage.conditions import Conditions
from lakemirror.service.storage.database_files import DatabaseFiles, Found, found_of, new_etag, now_ns
from lakemirror.service.storage.uploads import DATA, Part, Upload, begin_upload, chain

_COPY = 64 << 20


def create_file(files: DatabaseFiles, path: str, conditions: Conditions) -> Found:
    """Creates a file that clients see with length 0; disk and engine see nothing of it. Refused."""
    with files.lock:
        found = files.find(path)
        conditions.check_write(found, "PathAlreadyExists")
        if found and found.is_folder:
            raise Refused(409, "PathAlreadyExists", "A folder has this name.")
        make_parents(files, path)
        files.discard(path)
        upload = begin_upload(files.temporary("up"), path, new_etag(), now_ns(), 0, "")
        files.uploads[path] = upload
        created = files.find(path)
    assert created is not None
    reach("upload.created")
    return created


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
    found = files.on_disk(path)
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
        files.trash(upload.folder)
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
    with files.lock:
        if upload is not None and files.uploads.get(path) is not upload:
            raise Refused(409, "PathConflict", "Another request created or deleted this path meanwhile.")
        if not files.is_served():
            raise Refused(404, "PathNotFound", "The mirrored database was deleted meanwhile.")
        check_now(files, path, conditions, exists_code)
        make_parents(files, path)
        with files.parent(path, make=True) as (folder, name):
            now = now_ns()
            os.utime(source, ns=(now, now))
            _rename(files, source, folder, name)
            found = _status(folder, name)
        if upload is None:
            files.discard(path)
        else:
            del files.uploads[path]
    reach("publish.renamed")
    files.sync_folder_of(path)
    reach("publish.durable")
    if found is None:
        raise Refused(404, "PathNotFound", "The path was removed at once.")
    return found


def check_now(files: DatabaseFiles, path: str, conditions: Conditions, exists_code: str = "PathAlreadyExists") -> None:
    """Refused where a file may not be written at the path now: a condition, or a folder there."""
    found = files.find(path)
    conditions.check_write(found, exists_code)
    if found and found.is_folder:
        raise Refused(409, exists_code, "A folder has this name.")


def make_parents(files: DatabaseFiles, path: str) -> None:
    """Makes the folders above a path. Refused 409 `PathConflict` where one of them is a file."""
    parts = path.split("/")[:-1]
    for depth in range(len(parts)):
        if "/".join(parts[: depth + 1]) in files.uploads:
            raise Refused(409, "PathConflict", "A file is in the place of a folder of this path.")
    if parts:
        folder = "/".join(parts)
        found = files.on_disk(folder)
        if found is None:
            files.forget_durable_folders()
        if found is None or not found.is_folder:
            files.make_folder(folder)


def sync_file(path: Path, md5: bytes | None = None) -> None:
    """Syncs one staged file, once its MD5 is checked. Refused 400 `Md5Mismatch`."""
    with path.open("rb") as file:
        check_file(file.fileno(), md5)
        os.fsync(file.fileno())


def copy_into(source: int, target: int, offset: int, length: int) -> None:
    """Copies `length` bytes from the start of `source` to `offset` of `target`. EOFError where it is shorter."""
    copied = 0
    while copied < length:
        try:
            size = os.copy_file_range(source, target, min(_COPY, length - copied), copied, offset + copied)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            size = os.pwrite(target, os.pread(source, min(1 << 20, length - copied), copied), offset + copied)
        if not size:
            raise EOFError
        copied += size


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


def _copy_base(files: DatabaseFiles, upload: Upload, target: int) -> None:
    gone = Refused(412, "ConditionNotMet", "The file that was appended to was replaced.")
    try:
        source = files.open(upload.path)
    except FileNotFoundError:
        raise gone from None
    try:
        copy_into(source, target, 0, upload.base)
    except EOFError:
        raise gone from None
    finally:
        os.close(source)


def _flushed_already(
    files: DatabaseFiles, path: str, position: int, conditions: Conditions, md5: bytes | None
) -> Found:
    found = files.on_disk(path)
    if found is None:
        raise Refused(404, "PathNotFound", "The path does not exist.")
    if found.is_folder:
        raise Refused(409, "PathConflict", "The path is a folder.")
    conditions.check_write(found, "PathAlreadyExists")
    if position != found.length:
        raise _wrong_position(found.length)
    if md5 is not None:
        file = files.open(path)
        try:
            check_file(file, md5)
        finally:
            os.close(file)
    files.sync_folder_of(path)
    return found


def _wrong_position(end: int) -> Refused:
    return Refused(400, "InvalidFlushPosition", f"The bytes without a gap end at {end}.")


def _status(folder: int, name: str) -> Found | None:
    """What a name in an open folder holds; None where another process has taken it away."""
    with suppress(FileNotFoundError):
        return found_of(os.stat(name, dir_fd=folder, follow_symlinks=False))
    return None


def _rename(files: DatabaseFiles, source: Path, folder: int, name: str) -> None:
    try:
        os.rename(source, name, dst_dir_fd=folder)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _rename_across(source, folder, name)


def _rename_across(source: Path, folder: int, name: str) -> None:
    """The same where the database is on another file system: copied beside its name first."""
    beside = f".{now_ns():x}.lakemirror.tmp"
    target = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder)
    try:
        with source.open("rb") as file:
            copy_into(file.fileno(), target, 0, os.fstat(file.fileno()).st_size)
        os.fsync(target)
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.unlink(beside, dir_fd=folder)
        raise
    finally:
        os.close(target)
    source.unlink()
