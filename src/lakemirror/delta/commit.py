"""A commit of our own to a mirrored table: the next version, if it is still free, with checksum and checkpoint.

    snapshot ─▶ version + 1 ─▶ is it still ours? ─▶ checksum ─▶ still? ─▶ checkpoint ─▶ still?

Why the question: `docs/decisions/024-commits-without-a-jvm.md`, "Delta beside us".
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakemirror import failpoints
from lakemirror.delta.checkpoint import CHECKPOINT_EVERY, clean_up_log, write_checkpoint
from lakemirror.delta.commit_duties import with_duties
from lakemirror.delta.commit_file import is_still, lines, next_checksum, put_whole
from lakemirror.delta.delta_at_work import without_delta
from lakemirror.delta.log import Action, Protocol, Snapshot, read_commit, read_snapshot
from lakemirror.errors import LakemirrorError

log = logging.getLogger("lakemirror")

_CLEAN_UP_EVERY = 100  # commits
_KEPT = ("path", "partitionValues", "size", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion")
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK}


class Overwritten(LakemirrorError):
    """`concurrent-commit`: a commit was ours until another engine put its own over it. Somebody may have read it."""


def put_commit(table: str, snapshot: Snapshot | None, actions: Sequence[Action]) -> int | None:
    """Makes these actions the version after `snapshot`'s, with checksum and checkpoint; that version.

    None where the store cannot make a file whole or not at all, or Delta in this process is at the table.
    LakemirrorError `concurrent-commit` where another commit is at that version, or the table has left its place.
    """
    version = snapshot.version + 1 if snapshot else 0
    actions = with_duties(actions, snapshot, _info_of(snapshot), int(time.time() * 1000))
    folder = Path(table) / "_delta_log"
    if snapshot is None:
        folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{version:020}.json"
    with without_delta(table) as alone:
        if not alone:
            return None
        if snapshot is not None and not (folder / f"{snapshot.version:020}.json").exists():
            raise LakemirrorError("concurrent-commit", f"{table} is another table than it was")
        try:
            ours = put_whole(path, lines(actions))
        except FileNotFoundError as error:
            raise LakemirrorError("concurrent-commit", f"{table} has left its place") from error
        except OSError as error:
            if error.errno in _NO_LINKS:
                return None
            raise
    if ours is None:
        raise LakemirrorError("concurrent-commit", f"another commit was faster: version {version} is taken")
    failpoints.reach("commit.before-checksum")
    _check_ours(path, ours)
    checksum = _write_checksum(folder, snapshot, version, actions)
    try:
        _check_ours(path, ours)
        if version and version % CHECKPOINT_EVERY == 0:
            _write_checkpoint(table, version)
            _check_ours(path, ours)
    except LakemirrorError:
        if checksum is not None:
            checksum.unlink(missing_ok=True)
        if version and version % CHECKPOINT_EVERY == 0:
            (folder / f"{version:020}.checkpoint.parquet").unlink(missing_ok=True)
            _write_checkpoint(table, version)  # of what is there now
        raise
    return version


def removed(add: Mapping[str, Any], now: int, *, data_change: bool) -> dict[str, Any]:
    """The `remove` action of a data file, at `now` in milliseconds since the epoch."""
    kept = {key: add[key] for key in _KEPT if key in add}
    return {**kept, "deletionTimestamp": now, "dataChange": data_change, "extendedFileMetadata": True}


def _check_ours(path: Path, ours: os.stat_result) -> None:
    if not is_still(path, ours):
        raise Overwritten("concurrent-commit", f"another engine has put its commit over {path.name}")


def _write_checksum(folder: Path, snapshot: Snapshot | None, version: int, actions: Sequence[Action]) -> Path | None:
    """Where the version before has none that belongs to it, there is none here: it is optional."""
    path = folder / f"{version:020}.crc"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        before: dict[str, Any] = {}
        if snapshot is not None:
            before = json.loads((folder / f"{snapshot.version:020}.crc").read_bytes())
            if not _belongs(before, snapshot):
                return None
        content = json.dumps(next_checksum(before, actions), separators=(",", ":"))
        return path if put_whole(path, content.encode()) else None
    return None


def _belongs(checksum: Mapping[str, Any], snapshot: Snapshot) -> bool:
    info = _info_of(snapshot)
    return (
        checksum.get("txnId") == info.get("txnId")
        and checksum["metadata"] == snapshot.metadata.value
        and Protocol.from_action(checksum["protocol"]) == snapshot.protocol
    )


def _info_of(snapshot: Snapshot | None) -> Mapping[str, Any]:
    """The `commitInfo` of the snapshot's version; empty where its commit has none, or is gone."""
    if snapshot is None:
        return {}
    info = snapshot.commit_infos.get(snapshot.version)
    if info is not None or snapshot.version not in snapshot.log.commits:
        return info or {}
    commit = read_commit(snapshot.log.commits[snapshot.version])
    return next((action["commitInfo"] for action in commit if "commitInfo" in action), {})


def _write_checkpoint(table: str, version: int) -> None:
    """Without it the log is only longer."""
    try:
        snapshot = read_snapshot(table, version)
        if snapshot is not None:
            write_checkpoint(snapshot)
            if version % _CLEAN_UP_EVERY == 0:
                clean_up_log(snapshot)
    except (LakemirrorError, pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s: no checkpoint %d: %s", table, version, error)
