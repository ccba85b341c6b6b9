"""Writes classic checkpoints: one Parquet file that every reader since Delta 0.1 understands.

A checkpoint has no column of V2 checkpoints. It has the columns of newer features only if an action needs them. So it
is valid under the lowest protocol. When one is written and which are kept: `docs/decisions/023-checkpoints.md`.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.log import Action, FileKey, Snapshot
from lakemirror.delta.log_folder import Log, list_log
from lakemirror.storage.durable import put_over, put_table, remove_file, sync_each
from lakemirror.storage.place import Place, capabilities_of

OldestKept = Callable[[], int | None]
"""Gives the oldest version beyond the log's retention that must stay readable; None: there is none."""

_STRINGS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
        "maxRowIndex": pa.int64(),
    }
)
_COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "txn": {"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()},
    "add": {
        "path": pa.string(),
        "partitionValues": _STRINGS,
        "size": pa.int64(),
        "modificationTime": pa.int64(),
        "dataChange": pa.bool_(),
        "tags": _STRINGS,
        "stats": pa.string(),
        "deletionVector": _VECTOR,
        "baseRowId": pa.int64(),
        "defaultRowCommitVersion": pa.int64(),
        "clusteringProvider": pa.string(),
    },
    "remove": {
        "path": pa.string(),
        "deletionTimestamp": pa.int64(),
        "dataChange": pa.bool_(),
        "extendedFileMetadata": pa.bool_(),
        "partitionValues": _STRINGS,
        "size": pa.int64(),
        "tags": _STRINGS,
        "deletionVector": _VECTOR,
        "baseRowId": pa.int64(),
        "defaultRowCommitVersion": pa.int64(),
    },
    "metaData": {
        "id": pa.string(),
        "name": pa.string(),
        "description": pa.string(),
        "format": pa.struct({"provider": pa.string(), "options": _STRINGS}),
        "schemaString": pa.string(),
        "partitionColumns": pa.list_(pa.string()),
        "configuration": _STRINGS,
        "createdTime": pa.int64(),
    },
    "protocol": {
        "minReaderVersion": pa.int32(),
        "minWriterVersion": pa.int32(),
        "readerFeatures": pa.list_(pa.string()),
        "writerFeatures": pa.list_(pa.string()),
    },
    "domainMetadata": {"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()},
}
_ONLY_IF_PRESENT = {
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
    "clusteringProvider",
    "readerFeatures",
    "writerFeatures",
}
_FEWEST, _MOST = 10, 500  # commits from one checkpoint to the next
_NEWEST = 3  # checkpoints that are always kept
_CLEANED_AFTER = 2_000  # commits, in a log of any length
_MOST_CHECKSUMS = 2_500  # that are deleted after one commit
_YOUNG = 300.0  # seconds for which every checkpoint is kept: a client may be reading it
_GROWTH = 1.5  # each age range ends at 1.5 times the age of the range before; one checkpoint is kept in each
_SHORT = 0.01  # of the retention: a file that existed for a shorter time needs no tombstone in a checkpoint

_DAY = 86_400_000
_UNITS = {"second": 1000, "minute": 60_000, "hour": 3_600_000, "day": _DAY, "week": 7 * _DAY, "millisecond": 1}


def write_checkpoint(snapshot: Snapshot, earlier: Place | None = None, *, durable: bool = True) -> Place:
    """Writes the classic checkpoint of a snapshot, updates `_last_checkpoint`, and returns the checkpoint's path.

    An existing checkpoint of this version is replaced. `earlier`: a checkpoint with exactly the same content; it is
    copied instead. `durable`: the content is synced before the file gets its final name, because some readers fail on
    an incomplete checkpoint. Errors: `storage-unavailable`, OSError.
    """
    path = checkpoint_path(snapshot.table, snapshot.version)
    actions = len(snapshot.files) + len(snapshot.tombstones) + len(snapshot.transactions) + len(snapshot.domains) + 2
    if earlier is not None:
        put_over(path, earlier.read_bytes(), durable=durable)
    else:
        table = _table(list(checkpoint_actions(snapshot)))
        actions = table.num_rows
        write = partial(pq.write_table, table, compression="snappy", row_group_size=100_000)
        put_table(path, write, durable=durable)
    _point_to(path, snapshot, actions)
    return path


def checkpoint_path(table: Place, version: int) -> Place:
    """The path of a version's classic checkpoint."""
    return table / "_delta_log" / f"{version:020}.checkpoint.parquet"


def is_due(snapshot: Snapshot, version: int) -> bool:
    """True if `version`, the commit after `snapshot`, gets a checkpoint. Every tenth commit calls `is_worth_it`."""
    last = snapshot.checkpoint
    since = version - (last.version if last else 0)
    if since % _FEWEST:
        return False
    first = last.version + 1 if last else 0
    try:
        grown = sum(snapshot.log.commits[each].stat().st_size for each in range(first, version))
        return is_worth_it(since, grown, sum(file.stat().st_size for file in last.files) if last else 0)
    except OSError:
        return True


def is_worth_it(commits: int, grown: int, size: int) -> bool:
    """Whether a new checkpoint is worth its cost.

    `commits`: the number of commits since the last checkpoint. `grown`: their bytes. `size`: the bytes of the last
    checkpoint. A checkpoint is due when the commits after the last one are as large as it is. So all checkpoints
    together are no larger than all commits, and a reader reads at most as many bytes of commits as of the checkpoint.
    After 500 commits a checkpoint is due in any case.
    """
    return commits >= _MOST or (commits >= _FEWEST and grown >= size)


def superfluous(ages: Mapping[int, float], protected: int = 0) -> list[int]:
    """The versions whose checkpoints may be deleted, given each checkpoint's age in seconds.

    The newest three checkpoints and those of the last five minutes are kept. Of the older ones, one is kept for each
    range of ages, and each range is 1.5 times as long as the one before. So every version can be read from a
    checkpoint that is not much older, and a week has about twenty checkpoints. No checkpoint below version
    `protected` is deleted.
    """
    versions = sorted(ages, reverse=True)
    ranges = [int(math.log(max(ages[version], _YOUNG) / _YOUNG, _GROWTH)) for version in versions]
    last_of_range = [ranges[index] != ranges[index + 1] for index in range(len(ranges) - 1)] + [True]
    return [
        version
        for index, version in enumerate(versions)
        if index >= _NEWEST and ages[version] > _YOUNG and not last_of_range[index] and version >= protected
    ]


def superfluous_checksums(log: Log) -> list[int]:
    """The versions whose checksum files may be deleted: the oldest below the third newest checkpoint, 500 at most.

    A reader takes the checksum of the newest version only, but Delta Spark lists all files of the log for each query.
    """
    checkpoints = sorted({checkpoint.version for checkpoint in log.checkpoints})
    first = checkpoints[-_NEWEST] if len(checkpoints) >= _NEWEST else 0
    return sorted(version for version in log.checksums if version < first)[:_MOST_CHECKSUMS]


def keep_log_short(snapshot: Snapshot, oldest_kept: OldestKept = lambda: None) -> None:
    """Deletes superfluous checkpoints and checksums, and the log files that only versions older than the log's
    retention need. The longer the log, the more rarely: it must be listed. `oldest_kept`: as of `clean_up_log`.
    """
    configuration = snapshot.metadata.configuration
    if configuration.get("delta.enableExpiredLogCleanup", "true").lower() != "true":
        return
    last = snapshot.checkpoint.version if snapshot.checkpoint else 0
    if not is_cleaning_due(snapshot.version, last, snapshot.log.listed):
        return
    log = list_log(snapshot.table)
    if log is None:
        return
    snapshot = replace(snapshot, log=log)
    clean_up_log(snapshot, oldest_kept)
    protected = int(configuration.get("delta.requireCheckpointProtectionBeforeVersion", 0))
    # Delta's log cleanup looks for a protocol in those of protected versions; each deletion may be a request
    if not protected and not capabilities_of(snapshot.log.folder).waits:
        for version in superfluous_checksums(snapshot.log):
            (snapshot.log.folder / f"{version:020}.crc").unlink(missing_ok=True)
    now, ages = time.time(), dict[int, float]()
    standing = [each for each in snapshot.log.checkpoints if each.kind == "classic" and each.files[0].is_file()]
    for each in standing:
        with contextlib.suppress(OSError):
            ages[each.version] = now - each.files[0].stat().st_mtime
    gone = set(superfluous(ages, protected))
    if snapshot.log.commits and min(snapshot.log.commits) > 0:
        gone.discard(min(ages, default=-1))  # the versions after the oldest checkpoint cannot be read without it
    for each in standing:
        if each.version in gone:
            remove_file(each.files[0])


def is_cleaning_due(version: int, last: int, listed: int) -> bool:
    """True once in so many commits that a cleaning lists at most 32 files for each of them; at every checkpoint of a
    log of up to 320 commits, and after 2,000 commits in any case.

    `last`: the version of the checkpoint before. `listed`: the commits of the log.
    """
    every = max(_FEWEST, min(listed // 32, _CLEANED_AFTER))
    return version // every != last // every


def clean_up_log(snapshot: Snapshot, oldest_kept: OldestKept = lambda: None) -> int:
    """Deletes commits, checksums and checkpoints that only versions older than `delta.logRetentionDuration` need.

    Returns the number of deleted commits. `oldest_kept` is asked only if there are some, for a version that must stay
    readable, with all later ones; None: none. The newest checkpoint older than the retention is kept, with everything
    after it. So every version within the retention can still be read.
    """
    configuration, log = snapshot.metadata.configuration, snapshot.log
    if configuration.get("delta.enableExpiredLogCleanup", "true").lower() != "true":
        return 0
    if int(configuration.get("delta.requireCheckpointProtectionBeforeVersion") or 0) > 0:
        return 0  # only a drop with TRUNCATE HISTORY removes what is protected
    horizon = time.time() - interval_ms(configuration.get("delta.logRetentionDuration", ""), 30 * _DAY) / 1000
    expired = [
        checkpoint.version
        for checkpoint in log.checkpoints
        if checkpoint.version in log.commits and log.commits[checkpoint.version].stat().st_mtime < horizon
    ]
    first = max(expired, default=0)
    if first > min(log.commits, default=0) and (kept := oldest_kept()) is not None:
        first = max((version for version in expired if version <= kept), default=0)
    gone = [version for version in sorted(log.commits) if version < first]
    if gone:  # without these commits the checkpoint is needed: it must be on the disk first
        sync_each([*(path for each in log.checkpoints if each.version == first for path in each.files), log.folder])
    for version in gone:
        remove_file(log.commits[version])
        remove_file(log.folder / f"{version:020}.crc")
    for checkpoint in log.checkpoints:
        for path in checkpoint.files if checkpoint.version < first else ():
            remove_file(path)
    return len(gone)


def checkpoint_actions(snapshot: Snapshot) -> Iterator[Action]:
    """The actions of a snapshot's checkpoint, without tombstones that are older than their retention."""
    yield snapshot.protocol.to_action()
    yield {"metaData": dict(snapshot.metadata.value)}
    for app, txn in snapshot.transactions.items():
        yield {"txn": {"appId": app, "version": txn.version, "lastUpdated": txn.last_updated}}
    for domain in snapshot.domains.values():
        yield {"domainMetadata": dict(domain)}
    for add in snapshot.files.values():
        yield {"add": {**add, "dataChange": False}}
    kept = interval_ms(snapshot.metadata.configuration.get("delta.deletedFileRetentionDuration", ""), 7 * _DAY)
    horizon = time.time() * 1000 - kept
    brief = _brief(snapshot, time.time() * 1000, kept * _SHORT)
    for key, remove in snapshot.tombstones.items():
        if (remove.get("deletionTimestamp") or 0) > horizon and key not in brief:
            yield {"remove": {**remove, "dataChange": False}}


def _brief(snapshot: Snapshot, now: float, longest: float) -> set[FileKey]:
    """Files added since the last checkpoint, if that is at most `longest` milliseconds ago; else none.

    When such a file is removed, the checkpoint needs no tombstone for it. A tombstone protects a removed file from
    VACUUM for the retention time, but VACUUM does not delete such a young file in that time anyway. Without this
    rule, the checkpoint of a table that is written every second holds one or two tombstones for each commit of the
    whole retention.
    """
    if not snapshot.commit_infos:
        return set()
    try:
        oldest = min(float(info["timestamp"]) for info in snapshot.commit_infos.values())
    except (KeyError, TypeError, ValueError):
        return set()
    return snapshot.added_since_checkpoint if 0 <= now - oldest <= longest else set()


def interval_ms(text: str, default: int) -> int:
    """The milliseconds of an interval such as `interval 1 day 2 hours`; the default if it is empty or invalid."""
    words = re.findall(r"(\d+(?:\.\d+)?)\s*(millisecond|second|minute|hour|day|week)s?", text.lower())
    if not words:
        return default
    return int(sum(float(number) * _UNITS[unit] for number, unit in words))


def _table(actions: list[Action]) -> pa.Table:
    columns: dict[str, pa.Array] = {}
    for kind, fields in _COLUMNS.items():
        values = [action.get(kind) for action in actions]
        present = {key for value in values if value for key in value if value[key] is not None}
        if not present and kind == "domainMetadata":
            continue
        shape = pa.struct({k: t for k, t in fields.items() if k in present or k not in _ONLY_IF_PRESENT})
        columns[kind] = pa.array([_arrow(value) for value in values], shape)
    return pa.table(columns)


def _arrow(value: Any) -> Any:
    if value is None:
        return None
    return {key: _entries(key, inner) for key, inner in value.items()}


def _entries(key: str, value: Any) -> Any:
    if key in ("partitionValues", "tags", "configuration", "options") and isinstance(value, Mapping):
        return list(value.items())
    if key == "format":
        return {"provider": value.get("provider"), "options": list((value.get("options") or {}).items())}
    return value


def _point_to(path: Place, snapshot: Snapshot, actions: int) -> None:
    """Writes `_last_checkpoint`, a hint for readers, unless it already names a newer checkpoint."""
    pointer = path.parent / "_last_checkpoint"
    try:
        if int(json.loads(pointer.read_bytes())["version"]) > snapshot.version:
            return
    except (OSError, ValueError, KeyError, TypeError):
        pass
    hint = {
        "version": snapshot.version,
        "size": actions,
        "sizeInBytes": path.stat().st_size,
        "numOfAddFiles": len(snapshot.files),
    }
    put_over(pointer, json.dumps(hint, separators=(",", ":")).encode(), durable=False)
