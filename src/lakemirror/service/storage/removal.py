"""Deleting files and folders: gone from their place by one rename or unlink, and durably so, before the answer.

In a store a folder's objects are deleted one after the other: whoever lists it meanwhile sees some of them.
"""

from __future__ import annotations

from lakemirror.failpoints import reach
from lakemirror.service.refused import Refused
from lakemirror.service.storage.conditions import Conditions
from lakemirror.service.storage.database_files import DatabaseFiles
from lakemirror.service.storage.storage_answers import Codes


def remove(files: DatabaseFiles, path: str, conditions: Conditions, codes: Codes, *, recursive: bool) -> None:
    """Removes a file, or a folder with all that is in it where `recursive`.

    Refused 404, 409 for a folder that holds something, 412.
    """
    doomed = None
    with files.publishing(path):
        found = files.find(path)
        if found is None:
            raise Refused(404, codes.missing, "The path does not exist.")
        conditions.check_write(found, "PathAlreadyExists")
        if found.is_folder:
            if not recursive and not files.is_empty(path):
                raise Refused(409, codes.filled, "The folder holds something.")
            with files.lock:
                for each in files.staged_below(path):
                    files.discard(each)
                doomed = files.temporary("trash")
            files.published.take_folder(path, doomed)
        else:
            if files.published.find(path) is not None:
                files.published.remove_file(path)
            with files.lock:
                files.discard(path)
    reach("remove.done")
    files.settle(path)
    if doomed is not None:
        files.trash(doomed)
