"""Deleting files and folders: gone from their place by one rename or unlink, and durably so, before the answer."""

from __future__ import annotations

import errno
import os

from lakemirror.failpoints import reach
from lakemirror.service.refused import Refused
from lakemirror.service.storage.conditions import Conditions
from lakemirror.service.storage.database_files import DatabaseFiles
from lakemirror.service.storage.storage_answers import Codes
from lakemirror.storage import LocalStorage


def remove(files: DatabaseFiles, path: str, conditions: Conditions, codes: Codes, *, recursive: bool) -> None:
    """Removes a file, or a folder with all that is in it where `recursive`.

    Refused 404, 409 for a folder that holds something, 412.
    """
    doomed = None
    with files.lock:
        found = files.find(path)
        if found is None:
            raise Refused(404, codes.missing, "The path does not exist.")
        conditions.check_write(found, "PathAlreadyExists")
        if found.is_folder:
            if not recursive and not files.is_empty(path):
                raise Refused(409, codes.filled, "The folder holds something.")
            for each in files.staged_below(path):
                files.discard(each)
            doomed = files.temporary("trash")
            _take_folder(files, path, doomed)
            files.forget_durable_folders()
        else:
            if files.on_disk(path) is not None:
                with files.parent(path, make=False) as (folder, name):
                    os.unlink(name, dir_fd=folder)
            files.discard(path)
    reach("remove.done")
    files.sync_folder_of(path)
    if doomed is not None:
        files.trash(doomed)


def _take_folder(files: DatabaseFiles, path: str, doomed: os.PathLike[str]) -> None:
    try:
        with files.parent(path, make=False) as (folder, name):
            os.rename(name, doomed, src_dir_fd=folder)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        LocalStorage(files.folder).delete(path)  # the database is on another file system than the staging folder
