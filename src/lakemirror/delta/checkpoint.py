"""Classic checkpoints of our own: one Parquet file that every reader since Delta 0.1 understands.

A checkpoint holds no trace of V2 checkpoints, and the columns of newer features only where an action needs them, so
that it can stand under the lowest protocol.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.log import Action, Snapshot

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
CHECKPOINT_EVERY = 10
"""Commits of a mirrored table from one checkpoint to the next."""

_DAY = 86_400_000
_UNITS = {"second": 1000, "minute": 60_000, "hour": 3_600_000, "day": _DAY, "week": 7 * _DAY, "millisecond": 1}


def write_checkpoint(snapshot: Snapshot, earlier: Path | None = None) -> Path:
    """Writes the classic checkpoint of a snapshot (over one of the same name) and points `_last_checkpoint` to it.

    `earlier`: a checkpoint whose content is exactly the same, of which a copy is enough.
    """
    path = snapshot.log.folder / f"{snapshot.version:020}.checkpoint.parquet"
    actions = len(snapshot.files) + len(snapshot.tombstones) + len(snapshot.transactions) + len(snapshot.domains) + 2
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        if earlier is not None:
            temporary.write_bytes(earlier.read_bytes())
        else:
            table = _table(list(checkpoint_actions(snapshot)))
            actions = table.num_rows
            pq.write_table(table, temporary, compression="snappy", row_group_size=100_000)
        _put_in_place(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _point_to(path, snapshot, actions)
    return path


def clean_up_log(snapshot: Snapshot) -> int:
    """Deletes commits, checksums and checkpoints that only versions older than `delta.logRetentionDuration` need; how
    many commits. The newest checkpoint that is as old stays, with all that follows: every younger version can be read.
    """
    configuration, log = snapshot.metadata.configuration, snapshot.log
    if configuration.get("delta.enableExpiredLogCleanup", "true").lower() != "true":
        return 0
    if int(configuration.get("delta.requireCheckpointProtectionBeforeVersion") or 0) > 0:
        return 0  # feature checkpointProtection: who cleans has to know every protocol that was ever there
    horizon = time.time() - interval_ms(configuration.get("delta.logRetentionDuration", ""), 30 * _DAY) / 1000
    expired = [
        checkpoint.version
        for checkpoint in log.checkpoints
        if checkpoint.version in log.commits and log.commits[checkpoint.version].stat().st_mtime < horizon
    ]
    first = max(expired, default=0)
    gone = [version for version in sorted(log.commits) if version < first]
    for version in gone:
        log.commits[version].unlink(missing_ok=True)
        (log.folder / f"{version:020}.crc").unlink(missing_ok=True)
        for name in (f".{version:020}.json.crc", f".{version:020}.crc.crc"):
            (log.folder / name).unlink(missing_ok=True)
    for checkpoint in log.checkpoints:
        for path in checkpoint.files if checkpoint.version < first else ():
            path.unlink(missing_ok=True)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return len(gone)


def checkpoint_actions(snapshot: Snapshot) -> Iterator[Action]:
    """What a checkpoint of a snapshot holds, tombstones past their retention left out."""
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
    for remove in snapshot.tombstones.values():
        if (remove.get("deletionTimestamp") or 0) > horizon:
            yield {"remove": {**remove, "dataChange": False}}


def interval_ms(text: str, default: int) -> int:
    """Milliseconds of Delta's `interval 1 day 2 hours`; the default for what is empty or cannot be read."""
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


def _point_to(path: Path, snapshot: Snapshot, actions: int) -> None:
    """Writes `_last_checkpoint`, a hint for readers, unless it already names a newer one."""
    pointer = path.with_name("_last_checkpoint")
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
    temporary = path.with_name(f"._last_checkpoint.{uuid.uuid4().hex}.tmp")
    temporary.write_text(json.dumps(hint, separators=(",", ":")))
    _put_in_place(temporary, pointer)


def _put_in_place(temporary: Path, path: Path) -> None:
    """Also takes away the checksum that Hadoop keeps of a file it wrote: with a wrong one it can read neither."""
    _sync(temporary)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    temporary.replace(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
