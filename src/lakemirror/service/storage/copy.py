"""Copy Blob: a file of the same database as a new one, complete at the answer."""

from __future__ import annotations

import os

from lakemirror.service.refused import Refused
from lakemirror.service.storage.conditions import Conditions
from lakemirror.service.storage.database_files import DatabaseFiles
from lakemirror.service.storage.publish_file import check_now, publish, sync_file
from lakemirror.storage.served_files import Found


def copy(files: DatabaseFiles, source: str, target: str, conditions: Conditions, of_source: Conditions) -> Found:
    """Publishes a copy of a file. Refused 404 `CannotVerifyCopySource`, 409, 412."""
    with files.publishing(target):
        check_now(files, target, conditions, "BlobAlreadyExists")
        is_created = files.staged(source) is not None
    complete = files.temporary("put")
    try:
        if is_created:
            complete.touch()
        else:
            _copy(files, source, of_source, complete)
        sync_file(complete)
        return publish(files, complete, target, conditions, "BlobAlreadyExists")
    except BaseException:
        complete.unlink(missing_ok=True)
        raise


def missing_source() -> Refused:
    """One answer for a source that is missing and for one outside the database."""
    return Refused(404, "CannotVerifyCopySource", "The source is not a file of this mirrored database.")


def _copy(files: DatabaseFiles, source: str, of_source: Conditions, complete: os.PathLike[str]) -> None:
    try:
        file = files.published.open(source)
    except FileNotFoundError:
        raise missing_source() from None
    try:
        of_source.check_write(file.found, "BlobAlreadyExists")
        target = os.open(complete, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            file.copy_to(target, file.found.length)
        except (EOFError, FileNotFoundError):
            raise missing_source() from None
        finally:
            os.close(target)
    finally:
        file.close()
