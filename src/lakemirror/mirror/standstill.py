"""No apply of one table while an act changes what its folder has.

    `_paused.json` ─▶ an empty commit: an apply that began before loses its version ─▶ positions stay ─▶ the act

Without it, an apply that has looked before a quarantined file comes back goes past its number, and the file is lost.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator

from lakemirror.delta.commit import commit
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.log import read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.zone import PAUSED, TableName
from lakemirror.storage import Storage

_ROUNDS = 20  # commits of others that may come first
_MOST_BYTES = 64 << 10


@contextlib.contextmanager
def paused_for(act: str, storage: Storage, name: TableName) -> Iterator[None]:
    """The table is paused while the block runs, and afterwards if it was before. A pause that a killed process has left
    for the same act ends, too."""
    path = f"{name.folder}/{PAUSED}"
    is_ours = storage.write_new(path, json.dumps({"since": int(time.time()), "for": act}).encode() + b"\n")
    try:
        with contextlib.suppress(FileNotFoundError, ValueError, LakemirrorError):
            before = json.loads(storage.read(path, _MOST_BYTES))
            is_ours = is_ours or (isinstance(before, dict) and before.get("for") == act)
        yield
    finally:
        if is_ours:
            storage.delete(path)


def beat_applies(act: str, table: str) -> None:
    """Makes an empty commit, if the Delta table exists: an apply that began before has to look again.
    Errors: `concurrent-commit` if others were always first; `table-unreadable`, `storage-unavailable`."""
    for _ in range(_ROUNDS):
        try:
            snapshot = read_snapshot(table)
        except ValueError as error:
            raise LakemirrorError("table-unreadable", f"{table}: {error}") from error
        if snapshot is None:
            return
        info = commit_info(snapshot, act.upper(), {})
        try:
            commit(table, snapshot, [{"commitInfo": info}], keep_log=False)
            return
        except LakemirrorError as error:
            if error.code != "concurrent-commit":
                raise
    raise LakemirrorError("concurrent-commit", f"{table}: other commits always came first")
