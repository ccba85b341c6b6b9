"""Removes the files of attempts that were killed or beaten, as soon as another commit has their version. No JVM.

    files whose name says their version ─▶ less those that the newest version names
                                        ─▶ that version is there, and its commit does not name the file ─▶ removed

Proof, for two engines, slow attempts and stores: `docs/decisions/032-leftovers.md`. A vacuum removes all others after a
day (`maintenance/vacuum.py`).
"""

from __future__ import annotations

import contextlib
import logging
import re

from lakemirror.delta.data_files import version_in
from lakemirror.delta.log import Snapshot, read_commit, read_snapshot
from lakemirror.delta.log_folder import Log
from lakemirror.errors import LakemirrorError
from lakemirror.maintenance.vacuum import files_of_table, named_paths
from lakemirror.storage.durable import remove_unchanged
from lakemirror.storage.own_files import SPILLED, remove_work_folder
from lakemirror.storage.place import Place, local_path, place

log = logging.getLogger("lakemirror")

_MOST_COMMITS = 256  # that are read, the newest ones; a vacuum finds what belongs to others
_UNPUT = re.compile(r"\.(\d{20})\.json\.[0-9a-f]{32}\.tmp")  # a commit that was not put in place


_SLOW = 32  # versions that may come while an attempt still writes files
_looked_at: set[str] = set()  # tables, by this process
_seen: dict[str, int] = {}  # the first version that is looked at the next time, by table


def is_first_look(table: str) -> bool:
    """True once in this process for each table: only a process that was killed leaves files to the next one."""
    is_first = table not in _looked_at
    _looked_at.add(table)
    return is_first


def remove_leftovers(table: str | Place, listed: Log | None = None) -> int:
    """Removes files that no version names or ever will. Returns their number. Never raises: a vacuum tries again.

    Where this process has looked before, attempts of versions that were old then are not looked at again. `listed`:
    the log, or its end, as it was listed before.
    """
    root, removed = place(table), 0
    with contextlib.suppress(OSError, LakemirrorError, ValueError, KeyError, TypeError):
        snapshot = read_snapshot(root, listed=listed)
        if snapshot is None:
            return 0
        since = _seen.get(str(table), 0)
        for version, names in _unnamed(root, snapshot, since if since <= snapshot.version else 0):
            removed += _remove(root, version, names)
        _seen[str(table)] = max(0, snapshot.version - _SLOW)
        if removed:
            log.info("%s: %d files of attempts that were not committed are removed", table, removed)
    return removed


def _unnamed(root: Place, snapshot: Snapshot, since: int) -> list[tuple[int, dict[str, float]]]:
    """Files of attempts that the newest version does not name, with their times, by the version that may name them."""
    named = {path for add in snapshot.files.values() for path in named_paths(root, add)}
    found: dict[int, dict[str, float]] = {}
    listed = files_of_table(root, snapshot.metadata.partition_columns)
    for path, modified in {**listed, **_scratch(root)}.items():
        name = path.rpartition("/")[2]
        unput = _UNPUT.fullmatch(name)
        version = int(unput[1]) if unput else version_in(name)
        if version is not None and since <= version <= snapshot.version and path not in named:
            found.setdefault(version, {})[path] = modified
    return sorted(found.items(), reverse=True)[:_MOST_COMMITS]


def _scratch(root: Place) -> dict[str, float]:
    """Commits that were not put in place and folders of spilled keys, with their times. None in a store."""
    found = {}
    folder = local_path(root)
    if folder is not None:
        for path in [*(folder / "_delta_log").glob(".*.json.*.tmp"), *folder.glob(f"{SPILLED}*")]:
            with contextlib.suppress(FileNotFoundError):
                found[path.relative_to(folder).as_posix()] = path.lstat().st_mtime
    return found


def _remove(root: Place, version: int, names: dict[str, float]) -> int:
    """Removes those files that are older than the commit of this version, which does not name them."""
    path = root / "_delta_log" / f"{version:020}.json"
    try:
        put = path.stat().st_mtime
        actions = read_commit(path)
    except FileNotFoundError:
        return 0  # cleaned up: past the log's retention
    if not any("commitInfo" in action for action in actions):
        return 0  # cut short: what it named is not known
    values = (action[kind] for action in actions for kind in ("add", "remove", "cdc") if action.get(kind))
    named = {each for value in values for each in named_paths(root, value)}
    removed = 0
    for name, modified in names.items():
        if name in named or modified >= put:
            continue
        path = root / name
        folder = local_path(path)
        if folder is not None and folder.is_dir():
            removed += remove_work_folder(folder, SPILLED, put)
        else:
            removed += remove_unchanged(path, modified)
    return removed
