"""Renames inside one database: one rename on disk, durable in both folders before the answer.

A store has no rename: a file is copied, on condition that nothing has come to its target, and then deleted.
"""

from __future__ import annotations

from contextlib import suppress

from lakemirror.failpoints import reach
from lakemirror.service.refused import Refused
from lakemirror.service.storage.conditions import Conditions
from lakemirror.service.storage.database_files import DatabaseFiles, new_etag
from lakemirror.service.storage.publish_file import publish, sync_file
from lakemirror.service.storage.uploads import begin_upload
from lakemirror.storage.served_files import ANY, Changed, Expected, Found, now_ns


def rename(files: DatabaseFiles, source: str, target: str, conditions: Conditions, of_source: Conditions) -> Found:
    """Renames a file or folder, over a file or an empty folder. Refused as service.md section 6 says."""
    with files.publishing(target):
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
        _move(files, source, target, None if there is None and conditions != Conditions() else ANY, found.is_folder)
        moved = files.published.find(target)
    reach("rename.done")
    for path in files.staged_below(target) if found.is_folder else ():
        with suppress(KeyError):  # gone meanwhile
            files.copies.keep(files.uploads[path])
    files.settle(target)
    files.settle(source)
    if moved is None:
        raise Refused(404, "SourcePathNotFound", "The source was removed at once.")
    return moved


def _move(files: DatabaseFiles, source: str, target: str, expected: Expected, is_folder: bool) -> None:
    try:
        files.published.move(source, target, expected, is_folder=is_folder)
    except Changed:
        raise Refused(409, "PathAlreadyExists", "The path exists already.") from None
    with files.lock:
        files.discard(source)
        files.discard(target)
        for path in files.staged_below(source) if is_folder else ():
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
    if files.published.find(source) is not None:
        files.published.remove_file(source)
        files.settle(source)
    with files.lock:
        files.discard(source)
    files.copies.settle()
    return found
