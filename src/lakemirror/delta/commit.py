"""Makes a new version of a Delta table. Applies, compaction and feature drops all commit through this module.

    sync the files of the actions ─▶ create commit N + 1, if it is free ─▶ is it still ours? ─▶ write the checksum
                                      │ taken: `concurrent-commit`          ─▶ write a checkpoint, clean up the log
                                      └ the files that only these actions name are removed

Conflicts are never resolved. If version N + 1 is taken, the caller plans again from the newest state. Why the commit
is checked again after it is written: `docs/decisions/024-commits-without-a-jvm.md`, "Delta beside us".
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from lakemirror import failpoints
from lakemirror.delta.checkpoint import OldestKept, checkpoint_path, is_due, keep_log_short, write_checkpoint
from lakemirror.delta.checksum import write_checksum
from lakemirror.delta.commit_info import newest_info, with_duties
from lakemirror.delta.deletion_vectors import vector_path
from lakemirror.delta.log import Action, Snapshot, read_commit, read_snapshot
from lakemirror.delta.log_folder import list_log
from lakemirror.errors import LakemirrorError
from lakemirror.storage.durable import (
    POWER,
    Put,
    is_same,
    keep_young,
    make_folders,
    put_new,
    sync,
    sync_each,
    sync_files,
)
from lakemirror.storage.place import Place, end_of, etag_of, place, storage_unavailable
from lakemirror.storage.storage import MOVING

log = logging.getLogger("lakemirror")

_OLD = 3600.0  # seconds
_NONE_KEPT: OldestKept = lambda: None  # noqa: E731
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


class Overwritten(LakemirrorError):
    """`concurrent-commit`: another engine replaced our commit with its own. Readers may have seen ours before."""


def commit(
    table: str | Place,
    snapshot: Snapshot | None,
    actions: Sequence[Action],
    *,
    durability: str = POWER,
    keep_log: bool | OldestKept = True,
    recount: bool = False,
    keep_written: bool = False,
) -> int:
    """Commits these actions as the version after `snapshot`. Returns that version. The first action is `commitInfo`.

    `snapshot` None: the table's first version. `durability` `power`: the files that the actions name are synced before
    the commit is written, and the commit is synced when this returns. `keep_log`: also writes a checkpoint if one is
    due, and deletes old log files; as a function it gives the version from which on all stay readable. `recount`: the
    checksum is computed from the complete state (`delta/checksum.py`).
    `keep_written`: the files of a commit that was not made stay, because the caller names them in another commit.

    Errors: `concurrent-commit` if another commit has that version, or the table does not exist any more;
    `storage-unavailable`. If the commit was certainly not made, the files that only these actions name are removed.
    """
    root = place(table)
    folder = root / "_delta_log"
    version = snapshot.version + 1 if snapshot else 0
    actions = with_duties(actions, snapshot, newest_info(snapshot) if snapshot else None, int(time.time() * 1000))
    path = folder / f"{version:020}.json"
    try:
        ours = _put(root, folder, snapshot, path, actions, durable=durability == POWER)
    except LakemirrorError:
        if not keep_written and not _may_be_ours(path, actions):
            remove_written(root, snapshot, actions)
        raise
    failpoints.reach("commit.before-checksum")
    crc = folder / f"{version:020}.crc"
    due = keep_log is not False and snapshot is not None and is_due(snapshot, version)
    checksum = write_checksum(snapshot, actions, crc, recount=recount)
    if checksum is None and due:  # another writer's version had none: each needs the one before
        checksum = write_checksum(snapshot, actions, crc, recount=True)
    checkpoint = None
    try:
        _check_ours(path, ours)
        if due:
            oldest_kept = keep_log if callable(keep_log) else _NONE_KEPT
            checkpoint = _write_checkpoint(root, version, durability, snapshot, oldest_kept)
            _check_ours(path, ours)
    except Overwritten:
        if checksum is not None:
            checksum.unlink(missing_ok=True)
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)
            _write_checkpoint(root, version, durability, snapshot, lambda: 0)  # of the other engine's commit
        raise
    return version


def written_files(root: Place, actions: Iterable[Action]) -> set[Place]:
    """The files in the table's folder that these actions add: data files, deletion vectors, change data files."""
    added: set[str] = set()
    old: set[str] = set()
    for action in actions:
        for kind in ("add", "cdc", "remove"):
            if value := action.get(kind):
                (old if kind == "remove" else added).update(_names(value))
    return {root / name for name in added - old}


def named_files(root: Place, value: Mapping[str, Any]) -> list[Place]:
    """The files in the table's folder that an `add`, `remove` or `cdc` names."""
    return [root / name for name in _names(value)]


def _names(value: Mapping[str, Any]) -> list[str]:
    """The paths of `named_files`, relative to the table's folder."""
    path, vector = unquote(value["path"]), value.get("deletionVector")
    found = [] if ":" in path.partition("/")[0] or path.startswith("/") else [path]
    if vector and vector["storageType"] == "u":
        found.append(vector_path(vector["pathOrInlineDv"]))
    return found


def remove_written(root: Place, snapshot: Snapshot | None, actions: Iterable[Action]) -> None:
    """Removes the files of a commit that was not made, except those that `snapshot` also names.

    A file that cannot be removed now is removed by a later vacuum.
    """
    with contextlib.suppress(OSError, LakemirrorError, KeyError, ValueError):
        live = snapshot.files.values() if snapshot else ()
        kept = {path for add in live for path in named_files(root, add)}
        for path in written_files(root, actions) - kept:
            path.unlink(missing_ok=True)


def make_durable(table: str | Place, within: float = 120.0) -> None:
    """Syncs the commits of the last `within` seconds, and the files they name. The newest commit is always synced.

    It is for commits that another process made: that process may have stopped before its last sync. The operating
    system has written older files by itself. Error: `storage-unavailable`.
    """
    root = place(table)
    found = list_log(root)
    oldest = time.time() - within
    for version in sorted(found.commits if found else (), reverse=True):
        path = root / f"_delta_log/{version:020}.json"
        with contextlib.suppress(FileNotFoundError):  # a newer version replaced a file, or the log was cleaned up
            young = path.stat().st_mtime >= oldest
            for each in sorted(written_files(root, read_commit(path))):
                with contextlib.suppress(FileNotFoundError):
                    sync_files([each], root)
            sync(path)
            if not young:
                break
    with contextlib.suppress(FileNotFoundError):
        sync_each([root / "_delta_log", root, *_above(root)])


def lines(actions: Iterable[Action]) -> bytes:
    """The bytes of a commit file: one action per line, as JSON."""
    return "".join(f"{_ENCODER.encode(action)}\n" for action in actions).encode()


def _put(
    root: Place, folder: Place, snapshot: Snapshot | None, path: Place, actions: Sequence[Action], *, durable: bool
) -> Put:
    try:
        if snapshot is None:
            make_folders(folder, root)
        else:
            _check_end(folder, snapshot)
        written = written_files(root, actions)
        keep_young(written, time.time() - _OLD)
        if durable:
            sync_files(written, root)
            if snapshot is None:
                sync_each(_above(root))
        ours = put_new(path, lines(actions), durable=durable)
    except FileNotFoundError as error:
        raise LakemirrorError("concurrent-commit", f"{error.filename or root} does not exist any more") from error
    except (NotADirectoryError, FileExistsError):
        raise
    except OSError as error:
        raise storage_unavailable(folder, error) from error
    if ours is None:
        raise LakemirrorError(
            "concurrent-commit", f"another program committed first: version {path.name[:20]} is taken"
        )
    return ours


def _check_end(folder: Place, snapshot: Snapshot) -> None:
    """`concurrent-commit` if the log is known not to end with the snapshot's version any more. One request.

    The snapshot may be older than the last listing, and the table may have been moved, or made again, since.
    """
    name = f"{snapshot.version:020}.json"
    end = end_of(folder, name)
    if MOVING in end:
        raise LakemirrorError("concurrent-commit", f"{folder.parent} is being moved", table=str(folder.parent))
    listed = snapshot.log.commits.get(snapshot.version)
    before = etag_of(listed) if listed is not None else ""
    if name not in end or (before and etag_of(end[name]) != before):
        raise LakemirrorError("concurrent-commit", f"{folder.parent} is not the same table as before")
    if f"{snapshot.version + 1:020}.json" in end:
        raise LakemirrorError(
            "concurrent-commit", f"another program committed first: version {snapshot.version + 1} is taken"
        )


def _above(root: Place) -> list[Place]:
    """The folders above a table up to the database."""
    return [root.parent, root.parent.parent, root.parent.parent.parent]


def _may_be_ours(path: Place, actions: Sequence[Action]) -> bool:
    """False if that version is certainly not our commit. Then nothing refers to the files written for it."""
    txn = next((action["commitInfo"].get("txnId") for action in actions if "commitInfo" in action), None)
    try:
        return not txn or str(txn) in path.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return False
    except (OSError, LakemirrorError):
        return True


def _check_ours(path: Place, ours: Put) -> None:
    if not is_same(path, ours):
        raise Overwritten("concurrent-commit", f"another engine replaced {path.name} with its own commit")


def _write_checkpoint(
    root: Place, version: int, durability: str, before: Snapshot | None, oldest_kept: OldestKept
) -> Place | None:
    """Writes the checkpoint of the version after `before`, and cleans up the log. Returns None if that failed: then
    readers only read more commits."""
    try:
        after = before.log.with_commits_to(version) if before is not None else None
        snapshot = read_snapshot(root, version, after)
        if snapshot is not None:
            write_checkpoint(snapshot, durable=durability == POWER)
            keep_log_short(snapshot, oldest_kept)
    except (LakemirrorError, pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s: no checkpoint %d: %s", root, version, error)
        return None
    return checkpoint_path(root, version)
