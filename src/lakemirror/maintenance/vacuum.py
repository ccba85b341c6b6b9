"""Removes files that no version names any more, and leftovers of failed attempts, by Delta VACUUM's rules. No JVM.

    files on disk, old enough ─▶ less those of the newest version, of younger versions, of kept tombstones ─▶ removed

Two bounds of age, both by the file's own modified time:

    retention    a file that versions older than the retention name, and no younger one
    a day        a data file, a vector, a temporary file that nothing in the whole log names: its attempt failed

Safe beside an attempt that is still at work: a commit gives the files it names a new time when they are old, and is
not made where one is gone (`delta/commit.py`). Folders and files that begin with `_` or `.` are not entered, but
`_change_data` and folders of partition columns.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import time
from collections.abc import Callable, Collection, Iterator

from lakemirror.delta.deletion_vectors import vector_path
from lakemirror.delta.log import Action, Snapshot, read_commit, read_snapshot
from lakemirror.delta.log_folder import Log
from lakemirror.storage.durable import remove_unchanged
from lakemirror.storage.own_files import SPILLED, entries, remove_work_folder
from lakemirror.storage.place import Place, files_below, local_path, place, relative_to

log = logging.getLogger("lakemirror")

UNNAMED_AFTER = 86_400.0
"""Seconds after which a file that the log does not name at all belongs to no attempt any more."""

_DATA = re.compile(r"(part|cdc)-.*\.parquet|deletion_vector_[0-9a-f-]{36}\.bin")
_TEMPORARY = re.compile(r"\.(\d{20}\..*|_last_checkpoint)\.[0-9a-f]{32}\.tmp")
_AT_ONCE = 1000  # files removed before the log is looked at again


def vacuum(
    table: str | Place,
    retention: float,
    *,
    kept: Collection[int] = (),
    now: float | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> int:
    """Removes files that no version of the last `retention` seconds names. Returns their number; 0 without a Delta
    table. `kept`: older versions that stay readable.

    LakemirrorError `features-unsafe` for a table whose features lakemirror does not know, `table-unreadable`,
    `storage-unavailable`. Nothing is committed.
    """
    from lakemirror.features.log_commit import check_writable  # applies, which import this module, need no features

    root, now = place(table), time.time() if now is None else now
    snapshot = read_snapshot(root)
    if snapshot is None:
        return 0
    check_writable(snapshot)
    old = files_of_table(root, snapshot.metadata.partition_columns, now - min(retention, UNNAMED_AFTER))
    # after the listing: what is committed while we look is in it, or younger than the listing
    snapshot = read_snapshot(root)
    if snapshot is None:
        return 0
    removed = 0
    waiting = sorted(unneeded(snapshot, old, now, retention) - _files_of(root, kept))
    version = snapshot.version
    for begin in range(0, len(waiting), _AT_ONCE):
        newest = read_snapshot(root)
        if is_cancelled() or newest is None or newest.metadata.id != snapshot.metadata.id:
            break
        some = set(waiting[begin : begin + _AT_ONCE])
        for path in sorted(some - _named_by(root, newest.log, lambda number, _: number > version, some)):
            removed += remove_unchanged(root / path, old[path])
    return removed + _remove_temporary(root, now - UNNAMED_AFTER)


def unneeded(snapshot: Snapshot, old: dict[str, float], now: float, retention: float) -> set[str]:
    """Which of these files may be removed. `old`: modified times by path below the table's folder."""
    root = snapshot.table
    kept = {path for add in snapshot.files.values() for path in named_paths(root, add)}
    horizon = now - retention
    for remove in snapshot.tombstones.values():
        if (remove.get("deletionTimestamp") or 0) / 1000 > horizon:
            kept.update(named_paths(root, remove))
    left = {path for path in old if path not in kept}
    left -= _named_by(root, snapshot.log, lambda _, modified: modified > horizon, left)
    past = {path for path in left if old[path] < horizon}
    young = {path for path in left - past if old[path] < now - UNNAMED_AFTER and _is_data_file(path)}
    if young:
        young -= _named_by(root, snapshot.log, lambda *_: True, young)
        young -= {path for remove in snapshot.tombstones.values() for path in named_paths(root, remove)}
    return past | young


def _files_of(root: Place, versions: Collection[int]) -> set[str]:
    """The paths of all files of these versions. LakemirrorError where one cannot be read."""
    snapshots = [snapshot for version in versions if (snapshot := read_snapshot(root, version)) is not None]
    return {path for each in snapshots for add in each.files.values() for path in named_paths(root, add)}


def _named_by(root: Place, found: Log, wanted: Callable[[int, float], bool], among: set[str]) -> set[str]:
    """Which files `among` these the commits name whose version and modified time (seconds) are wanted."""
    named: set[str] = set()
    for version, path in found.commits.items():
        try:
            if not wanted(version, path.stat().st_mtime):
                continue
            actions = read_commit(path)
        except FileNotFoundError:  # cleaned up since the listing: past the log's retention
            continue
        for action in actions:
            for kind in ("add", "remove", "cdc"):
                if value := action.get(kind):
                    named.update(path for path in named_paths(root, value) if path in among)
    return named


def named_paths(root: Place, value: Action) -> Iterator[str]:
    """The paths below the table's folder of the data file and the vector that an action names."""
    yield os.path.normpath(relative_to(root, value["path"]))
    vector = value.get("deletionVector")
    if vector and vector["storageType"] == "u":
        yield vector_path(vector["pathOrInlineDv"])
    elif vector and vector["storageType"] == "p":
        yield relative_to(root, vector["pathOrInlineDv"])


def files_of_table(root: Place, partition_columns: list[str], before: float = math.inf) -> dict[str, float]:
    """Files below a table's folder that VACUUM may look at and that are older, with their modified times."""
    listed = files_below(root, lambda name: _is_entered(name, partition_columns))
    return {
        path: modified for path, modified in listed if modified < before and _is_file_of_table(path.rpartition("/")[2])
    }


def _is_entered(name: str, partition_columns: list[str]) -> bool:
    if name[0] not in "_.":
        return True
    return name == "_change_data" or any(name.startswith(f"{column}=") for column in partition_columns)


def _is_file_of_table(name: str) -> bool:
    """True for folders and files that Delta writers make; others are never touched."""
    return name[0] not in "_." and (name.endswith(".parquet") or _DATA.fullmatch(name) is not None)


def _is_data_file(path: str) -> bool:
    """True for the name of a data file, a vector or a file of the change data feed as lakemirror and Spark give it."""
    return _DATA.fullmatch(path.rpartition("/")[2]) is not None


def _remove_temporary(root: Place, before: float) -> int:
    """Removes files of commits and checkpoints that were never put in place, and what a fold spilled to the disk."""
    folder = local_path(root)
    if folder is None:
        return 0  # objects are there complete or not at all
    removed = 0
    for path in (folder / "_delta_log").glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if _TEMPORARY.fullmatch(path.name) and path.lstat().st_mtime < before:
                path.unlink()
                removed += 1
    return removed + sum(remove_work_folder(path, SPILLED, before) for path in entries(folder))
