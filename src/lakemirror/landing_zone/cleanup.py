"""What becomes of applied files (contract section 8): moved aside, the newest stays, purged after the retention."""

from __future__ import annotations

from lakemirror.landing_zone.metadata import TableMetadata
from lakemirror.landing_zone.zone import TableFolder
from lakemirror.storage import Storage


def retire(storage: Storage, folder: TableFolder, metadata: TableMetadata, position: int) -> list[str]:
    """Moves the applied files (numbers up to `position`) but the newest to `_ProcessedFiles`; returns what was moved.

    The moved file's modified time is set to the time of the move. A file that is gone is no error; one that cannot
    be moved stays for a later pass. A number that was applied and appears again is moved like the others but never
    over a file that rests there already (it gets the name `<name>.<n>` there, which no publisher counts).
    """
    raise NotImplementedError


def purge(storage: Storage, folder: TableFolder, retention_days: float, now: float) -> int:
    """Deletes files in `_ProcessedFiles` whose modified time is older than the retention; returns how many."""
    raise NotImplementedError
