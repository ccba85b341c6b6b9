"""No apply of one table while an act changes what its folder has.

    `_paused.json` ─▶ an empty commit: an apply that began before loses its version ─▶ positions stay ─▶ the act

Without it, an apply that has looked before a quarantined file comes back goes past its number, and the file is lost.
A table's first apply makes the table's folder, or a file in it in a store, before it looks for the pause, and the act
looks for the folder after it has made the pause: so at least one of them gives way.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence

from lakemirror.delta.commit import commit
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.data_files import new_name
from lakemirror.delta.log import read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import PAUSED, TableFolder, TableName
from lakemirror.storage import Storage
from lakemirror.storage.durable import completed, created, remove_empty_folders
from lakemirror.storage.place import place

_ROUNDS = 20  # commits of others that may come first
_MOST_BYTES = 64 << 10
AGAIN = "Let an engine look at the table once, then do it again."


@contextlib.contextmanager
def paused_for(act: str, storage: Storage, name: TableName) -> Iterator[Callable[[], None]]:
    """The table is paused while the block runs, and afterwards if somebody else has paused it. A later act of this name
    takes the pause over, also from a killed process.

    The function that the block gets raises `concurrent-commit` once this pause has ended: call it before each change.
    """
    path = f"{name.folder}/{PAUSED}"
    ours = json.dumps({"since": int(time.time()), "for": act, "id": uuid.uuid4().hex}).encode() + b"\n"
    pause: bytes | None = ours
    if not storage.write_new(path, ours) and not take_over(act, storage, path, ours):
        pause = _content(storage, path)

    def check() -> None:
        if pause is None or _content(storage, path) != pause:
            raise LakemirrorError("concurrent-commit", f"{name}: the pause for this {act} was ended", hint=AGAIN)

    try:
        yield check
    finally:
        if _content(storage, path) == ours:
            storage.delete(path)


def take_over(act: str, storage: Storage, path: str, pause: bytes) -> bool:
    """Puts another pause in the place of one for such an act, which then stops; False if there is none."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(_content(storage, path) or b"")
        if isinstance(found, dict) and found.get("for") == act:
            storage.write(path, pause)
            return True
    return False


def _content(storage: Storage, path: str) -> bytes | None:
    with contextlib.suppress(FileNotFoundError):
        return storage.read(path, _MOST_BYTES)
    return None


def beat_applies(act: str, storage: Storage, target: str) -> None:
    """Makes an empty commit, if the Delta table exists: an apply that began before has to look again.
    Errors: `concurrent-commit` if others were always first, or the table is being made; `table-unreadable`,
    `storage-unavailable`."""
    table = storage.uri(target)
    for _ in range(_ROUNDS):
        try:
            snapshot = read_snapshot(table)
        except ValueError as error:
            raise LakemirrorError("table-unreadable", f"{table}: {error}") from error
        if snapshot is None:
            remove_empty_folders(place(table))
            if storage.exists(target):
                message = f"{target} has files and no version: an apply is making it, or was killed"
                raise LakemirrorError("concurrent-commit", message, hint=AGAIN)
            return
        info = commit_info(snapshot, act.upper(), {})
        try:
            commit(table, snapshot, [{"commitInfo": info}], keep_log=False)
            return
        except LakemirrorError as error:
            if error.code != "concurrent-commit":
                raise
    raise LakemirrorError("concurrent-commit", f"{table}: other commits always came first")


def check_none_came_back(storage: Storage, folder: TableFolder, targets: Sequence[str]) -> None:
    """For the first apply of tables, right before its commit: `concurrent-commit` if the table folder is paused, or a
    file is not in quarantine any more. `targets`: these tables."""
    for target in targets:
        if storage.capabilities.waits and not storage.exists(target):
            # a store has no folder that an act could see; the file goes as what a killed apply leaves
            completed(created(place(storage.uri(target)) / new_name({}, version=0)))
    paused = storage.stat(f"{folder.name.folder}/{PAUSED}")  # first: a pause ends after its files came back
    if paused is not None or not all(storage.stat(entry.path) for entry in folder.quarantined):
        raise LakemirrorError("concurrent-commit", f"{folder.name} was paused, or files came back from quarantine")
