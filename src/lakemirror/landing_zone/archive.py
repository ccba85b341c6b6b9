"""What happens to files (contract sections 5 and 8): applied ones except the newest are moved to `_ProcessedFiles` and
deleted after the retention; bad ones are moved to `_QuarantinedFiles` if the settings say so."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Sequence
from itertools import takewhile

from lakemirror import failpoints
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.change_file import AppliedFiles, TableFiles
from lakemirror.landing_zone.zone import PROCESSED, QUARANTINED, TableFolder
from lakemirror.storage import Entry, Storage, place
from lakemirror.storage.durable import sync_each

REASON_SUFFIX = ".error.json"

# errors in the file's own content: without the file the table can go on
QUARANTINABLE = frozenset(
    {
        "column-name-invalid",
        "column-name-reserved",
        "column-undeclared",
        "columns-ambiguous",
        "file-unreadable",
        "file-too-large",
        "row-marker-misspelt",
        "partial-row-invalid",
        "partial-row-missing",
        "key-column-absent",
        "row-marker-invalid",
        "sequence-missing",
        "sequence-null",
        "type-changed",
        "type-unsupported",
        "value-invalid",
    }
)


def to_archive(files: TableFiles, applied: AppliedFiles) -> list[Entry]:
    """The applied files that are still in the table folder, in their order, without the newest.

    The newest stays so that a publisher can find the next number: of the folder, or of each partition.
    """
    held = [file for file in files.changes if applied.holds(file)]
    if applied.paths is None:
        earlier = [file for file in held if file.number < applied.position(file.partition)]
        earlier.sort(key=lambda file: (file.partition, file.number, file.entry.path))
        return [file.entry for file in earlier]
    held.sort(key=lambda file: (file.entry.modified, file.entry.path))
    newest = [file.entry for file in held if file.below == applied.last] or [file.entry for file in held[-1:]]
    return [file.entry for file in held if file.entry not in newest]


def archive(
    storage: Storage, files: TableFiles, applied: AppliedFiles, goes_on: Callable[[], bool] = lambda: True
) -> list[tuple[str, str]]:
    """Moves the applied files except the newest to `_ProcessedFiles`; returns old and new paths.

    The moved file's modified time is set to the time of the move. A file that is gone is no error; one that cannot
    be moved stays for a later pass. A file that was applied and appears again is moved like the others, but never
    over an existing one: it gets the name `<name>.<n>` there, which no publisher counts.

    `goes_on` is asked before each move: after False, no other file is moved.
    """
    moved: list[tuple[str, str]] = []
    left = to_archive(files, applied)
    if not left:
        return moved
    with storage.holding_folders():
        still_left = takewhile(lambda _: goes_on(), left)
        moves = ((entry, _free_path(storage, files.folder, entry, PROCESSED)) for entry in still_left)
        for entry, target in storage.move_all_listed(moves):
            moved.append((entry.path, target))
            failpoints.reach("archive.between-moves")
    return moved


def sync_moves(storage: Storage, folder: TableFolder, moved: Sequence[tuple[str, str]]) -> None:
    """Syncs the folders that received files, then those that lost them: after a power cut each file is in at least one.

    `moved`: as from `archive`.
    """
    home = folder.name.folder
    into = {target.rpartition("/")[0] for _, target in moved}
    for inner in sorted(into):
        while (inner := inner.rpartition("/")[0]) != home:
            into.add(inner)
    left = {source.rpartition("/")[0] for source, _ in moved} | ({home} if moved else set())
    for paths in (into, left):
        sync_each(place(storage.uri(path)) for path in sorted(paths, reverse=True))


def quarantine(storage: Storage, folder: TableFolder, entry: Entry, error: LakemirrorError) -> str | None:
    """Moves a bad file to `_QuarantinedFiles` and returns its new path, None if the file is gone.

    Beside it is `<name>.error.json` with code, message and hint. Both are made only in a folder that exists: one
    that its publisher is deleting must not be made again.
    """
    try:
        target = _free_path(storage, folder, entry, QUARANTINED)
    except LakemirrorError:  # a link in the place of `_QuarantinedFiles`
        return None
    if not _move(storage, entry, target):
        return None
    failpoints.reach("quarantine.after-move")
    content = {"code": error.code, "message": error.message, "hint": error.hint, "file": entry.path}
    with contextlib.suppress(OSError, LakemirrorError):
        text = json.dumps(content, ensure_ascii=False, indent=1)
        storage.write_new(target + REASON_SUFFIX, text.encode("utf-8", "backslashreplace"))
    return target


def quarantine_reason(storage: Storage, path: str) -> str:
    """Why the file at `path` in `_QuarantinedFiles` was set aside: code and message, as far as known."""
    try:
        content = json.loads(storage.read(path + REASON_SUFFIX, 1024 * 1024))
        return f"{content['code']}: {content['message']}"
    except (OSError, LakemirrorError, ValueError, RecursionError, KeyError, TypeError):
        return "why is not recorded"


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


def _free_path(storage: Storage, folder: TableFolder, entry: Entry, aside: str) -> str:
    home = folder.name.folder
    listed = {each.path for each in (*folder.processed, *folder.quarantined)}
    return storage.free_name(f"{home}/{aside}{entry.path[len(home) :]}", listed)


def _move(storage: Storage, entry: Entry, target: str) -> bool:
    """True once the applied file has been moved and given the time of its move (`Storage.move_listed`)."""
    try:
        return storage.move_listed(entry, target)
    except (OSError, LakemirrorError):
        return False
