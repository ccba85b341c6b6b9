"""What becomes of applied files (contract section 8): moved aside, the newest stays, purged after the retention."""

from __future__ import annotations

import contextlib

from lakemirror import failpoints
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.change_file import change_files
from lakemirror.landing_zone.metadata import TableMetadata
from lakemirror.landing_zone.zone import PROCESSED, TableFolder
from lakemirror.storage import Entry, Storage


def retire(storage: Storage, folder: TableFolder, metadata: TableMetadata, position: int) -> list[str]:
    """Moves the applied files (numbers up to `position`) but the newest to `_ProcessedFiles`; returns what was moved.

    The moved file's modified time is set to the time of the move. A file that is gone is no error; one that cannot
    be moved stays for a later pass. A number that was applied and appears again is moved like the others but never
    over a file that rests there already (it gets the name `<name>.<n>` there, which no publisher counts).
    """
    moved = []
    for number, entry in sorted(change_files(folder, metadata), key=lambda each: each[0]):
        if number < position:
            target = _free_place(storage, folder, entry)
            if _move(storage, entry, target):
                moved.append(entry.path)
                failpoints.reach("retire.between-moves")
    return moved


def purge(storage: Storage, folder: TableFolder, retention_days: float, now: float) -> int:
    """Deletes files in `_ProcessedFiles` whose modified time is older than the retention; returns how many."""
    oldest = (now - retention_days * 86400) * 1e9
    purged = 0
    for entry in folder.processed:
        if entry.modified < oldest and not entry.name.startswith("_"):
            try:
                storage.delete(entry.path)
            except (OSError, LakemirrorError):
                continue  # a later pass tries again
            purged += 1
    return purged


def _free_place(storage: Storage, folder: TableFolder, entry: Entry) -> str:
    home = folder.name.folder
    target = place = f"{home}/{PROCESSED}{entry.path[len(home) :]}"
    n = 0
    while storage.exists(place):
        n += 1
        place = f"{target}.{n}"
    return place


def _move(storage: Storage, entry: Entry, target: str) -> bool:
    """True once the applied file has been moved and given the time of its move.

    The folder may have been deleted and made again since it was listed, with another file under the same name, which
    nobody has applied. So what was moved is looked at again, and goes back if it is not the one that was listed.
    """
    try:
        now = storage.stat(entry.path)
        if now is None or now.etag != entry.etag:
            return False
        storage.move(entry.path, target)
        moved = storage.stat(target)
        if moved is not None and moved.etag != entry.etag:
            storage.move(target, entry.path)
            return False
        with contextlib.suppress(PermissionError):  # a file of another owner keeps its own time
            storage.touch(target)
    except (OSError, LakemirrorError):
        return False
    return True
