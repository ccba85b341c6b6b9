"""Renames inside one database: one rename on disk, durable in both folders before the answer."""

from __future__ import annotations

import os

from lakemirror.failpoints import reach
from lakemirror.service.refused import Refused
from lakemirror.service.storage.conditions import Conditions
from lakemirror.service.storage.database_files import DatabaseFiles, Found, new_etag, now_ns
from lakemirror.service.storage.publish_file import publish, sync_file
from lakemirror.service.storage.uploads import begin_upload


def rename(files: DatabaseFiles, source: str, target: str, conditions: Conditions, of_source: Conditions) -> Found:
    """Renames a file or folder, over a file or an empty folder. Refused as service.md section 6 says."""
    with files.lock:
        found = files.find(source)
        if found is None:
            raise Refused(404, "SourcePathNotFound", "The source does not exist.")
        of_source.check_write(found, "PathAlreadyExists")
        parent = files.find(target.rpartition("/")[0])
        if parent is None or not parent.is_folder:
            raise Refused(404, "RenameDestinationParentPathNotFound", "The target's folder does not exist.")
        if found.is_folder and target.startswith(f"{source}/"):
            raise Refused(409, "InvalidRenameSourcePath", "A folder cannot be moved into itself.")
        there = files.find(target)
        conditions.check_write(there, "PathAlreadyExists")
        if source == target:
            return found
        if there is not None and there.is_folder != found.is_folder:
            message = "A file cannot replace a folder, nor a folder a file."
            raise Refused(409, "InvalidSourceOrDestinationResourceType", message)
        if there is not None and there.is_folder and not files.is_empty(target):
            raise Refused(409, "DirectoryNotEmpty", "The target is a folder that holds something.")
        if found.is_staged:
            return _publish_empty(files, source, target)
        _move(files, source, target, found.is_folder)
        moved = files.on_disk(target)
    reach("rename.done")
    files.sync_folder_of(target)
    files.sync_folder_of(source)
    if moved is None:
        raise Refused(404, "SourcePathNotFound", "The source was removed at once.")
    return moved


def _move(files: DatabaseFiles, source: str, target: str, is_folder: bool) -> None:
    with files.parent(source, make=False) as (origin, name), files.parent(target, make=False) as (folder, new_name):
        if not is_folder:
            now = now_ns()
            os.utime(name, ns=(now, now), dir_fd=origin, follow_symlinks=False)
            if _is_same(origin, name, folder, new_name):
                os.unlink(new_name, dir_fd=folder)  # two names of one file: a rename would leave both
        os.rename(name, new_name, src_dir_fd=origin, dst_dir_fd=folder)
    files.discard(source)
    files.discard(target)
    if is_folder:
        files.forget_durable_folders()
        for path in files.staged_below(source):
            upload = files.uploads[path]
            files.discard(path)
            if upload.is_create:  # a created file moves with its folder; its unflushed bytes do not
                moved = target + path[len(source) :]
                files.uploads[moved] = begin_upload(files.temporary("up"), moved, new_etag(), now_ns(), 0, "")


def _publish_empty(files: DatabaseFiles, source: str, target: str) -> Found:
    """A file that was created and never flushed has length 0: that is what the target becomes."""
    empty = files.temporary("put")
    empty.touch()
    sync_file(empty)
    found = publish(files, empty, target, Conditions(), "PathAlreadyExists")
    if files.on_disk(source) is not None:
        with files.parent(source, make=False) as (folder, name):
            os.unlink(name, dir_fd=folder)
        files.sync_folder_of(source)
    files.discard(source)
    return found


def _is_same(origin: int, name: str, folder: int, new_name: str) -> bool:
    try:
        target = os.stat(new_name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.stat(name, dir_fd=origin, follow_symlinks=False), target)
