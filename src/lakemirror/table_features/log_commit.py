"""The few commits that are made here and not by Delta Spark: written whole or not at all, at a version still free.

    build(snapshot) ─▶ actions ─▶ 000…42.json.tmp ─▶ fsync ─▶ link to 000…42.json ─▶ checksum ─▶ is it still ours?
         ▲                                                        │ taken: somebody was faster       │ no
         └────────────── replay the log anew ◀────────────────────┴──────────────────────────────────┘

Instead of judging whether a commit that came first conflicts, everything is computed again from the state that
includes it: `build` sees each new state and refuses it, or finds nothing left to do, as it would have at first.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakemirror.delta.commit_file import is_still, lines, put_whole
from lakemirror.delta.log import Action, Metadata, Snapshot, read_commit, read_snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.table_features.features import BY_NAME
from lakemirror.table_features.protocol import features_of

ATTEMPTS = 100
ENGINE = "lakemirror"
"""How our commits sign in the history."""
_NOT_OURS = ("catalogManaged", "adaptiveMetadata-preview")
_COORDINATOR = "delta.coordinatedCommits.commitCoordinator-preview"


@dataclass(frozen=True)
class Commit:
    """What a log commit is to do: its actions, and how the table's history names it."""

    operation: str
    parameters: Mapping[str, Any]
    actions: tuple[Action, ...]


Build = Callable[[Snapshot], Commit | None]
"""From a state to the commit that follows it, or None where nothing is left to do."""


def commit(table: Path, build: Build, attempts: int = ATTEMPTS) -> Snapshot:
    """Commits what `build` makes of the newest state; gives back the state after it (or as it is, for None).

    Raises `features-unsafe` for a table that nobody here may write, `concurrent-commit` where others were faster
    every time.
    """
    winner = -1
    for attempt in range(attempts):
        snapshot = existing(table)
        wanted = build(snapshot)
        if wanted is None:
            return snapshot
        check_writable(snapshot)
        after = _put(snapshot, wanted)
        if after is not None:
            return after
        winner = snapshot.version + 1
        time.sleep(random.uniform(0, 0.002 * min(attempt + 1, 50)))
    raise LakemirrorError(
        "concurrent-commit",
        f"others commit to {table} all the time: commit {winner} was the last of {attempts} that came first",
        table=str(table),
    )


def existing(table: Path, version: int | None = None) -> Snapshot:
    """The table's state. Raises `table-unreadable` where no Delta table is."""
    snapshot = read_snapshot(table, version)
    if snapshot is None:
        raise LakemirrorError("table-unreadable", f"there is no Delta table in {table}", table=str(table))
    return snapshot


def check_writable(snapshot: Snapshot) -> None:
    """Raises `features-unsafe` where a commit of our own could break a rule of the table's features."""
    names = features_of(snapshot.protocol)
    unknown = sorted(name for name in names if name not in BY_NAME)
    if unknown:
        raise LakemirrorError(
            "features-unsafe",
            f"{snapshot.table} has features nobody here knows: {', '.join(unknown)}; it is left untouched",
            table=str(snapshot.table),
        )
    managed = sorted(names & set(_NOT_OURS))
    if managed or snapshot.metadata.configuration.get(_COORDINATOR):
        raise LakemirrorError(
            "features-unsafe",
            f"the commits of {snapshot.table} are decided elsewhere "
            f"({', '.join(managed) or 'coordinatedCommits-preview'}); it is left untouched",
            table=str(snapshot.table),
        )


def newest_commit(snapshot: Snapshot) -> str:
    """The newest commit as a person looks for it: `commit 12 (WRITE by Apache-Spark/4.2.0 Delta-Lake/4.4.0)`."""
    info = _newest_info(snapshot)
    return f"commit {snapshot.version} ({info.get('operation', 'unknown')} by {info.get('engineInfo', 'unknown')})"


def metadata_action(metadata: Metadata, *, configuration: Mapping[str, str], schema: Mapping[str, Any]) -> Action:
    """The `metaData` action with another configuration and schema, everything else as it is."""
    text = metadata.value.get("schemaString")
    if schema != metadata.schema:
        text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
    return {"metaData": {**metadata.value, "configuration": dict(configuration), "schemaString": text}}


def _put(snapshot: Snapshot, wanted: Commit) -> Snapshot | None:
    """The state after the commit, its checksum written; None where another commit is at that version."""
    version = snapshot.version + 1
    now = int(time.time() * 1000)
    info: dict[str, Any] = {
        "timestamp": now,
        "operation": wanted.operation,
        "operationParameters": dict(wanted.parameters),
        "readVersion": snapshot.version,
        "isolationLevel": "Serializable",
        "isBlindAppend": False,
        "operationMetrics": {},
        "engineInfo": ENGINE,
        "txnId": str(uuid.uuid4()),
    }
    if _on(snapshot, "delta.enableInCommitTimestamps"):
        info = {"inCommitTimestamp": max(now, _last_time(snapshot) + 1), **info}
    path = snapshot.log.folder / f"{version:020}.json"
    ours = put_whole(path, lines([{"commitInfo": info}, *wanted.actions]))
    if ours is None:
        return None
    after = existing(snapshot.table, version)
    checksum_file = _write_checksum(snapshot, after) if is_still(path, ours) else None
    if is_still(path, ours):
        return after
    if checksum_file is not None:
        checksum_file.unlink(missing_ok=True)
    return None


def _on(snapshot: Snapshot, key: str) -> bool:
    return snapshot.metadata.configuration.get(key, "false").lower() == "true"


def _last_time(snapshot: Snapshot) -> int:
    """The in-commit timestamp of the newest commit."""
    return int(_newest_info(snapshot).get("inCommitTimestamp", 0))


def _newest_info(snapshot: Snapshot) -> Mapping[str, Any]:
    """The `commitInfo` of the newest commit, out of its file where a checkpoint covers it."""
    info = snapshot.commit_infos.get(snapshot.version)
    if info is None and (path := snapshot.log.commits.get(snapshot.version)):
        info = next((a["commitInfo"] for a in read_commit(path) if "commitInfo" in a), None)
    return info or {}


def _write_checksum(before: Snapshot, after: Snapshot) -> Path | None:
    """Writes the version's checksum file where the version before has one, from the replayed state alone."""
    folder = after.log.folder
    if not (folder / f"{before.version:020}.crc").exists():
        return None
    path = folder / f"{after.version:020}.crc"
    return path if put_whole(path, json.dumps(checksum(after), separators=(",", ":")).encode()) else None


def checksum(snapshot: Snapshot) -> dict[str, Any]:
    """The content of a version checksum file."""
    vectors = [add["deletionVector"] for add in snapshot.files.values() if add.get("deletionVector")]
    value: dict[str, Any] = {
        "tableSizeBytes": sum(int(add["size"]) for add in snapshot.files.values()),
        "numFiles": len(snapshot.files),
        "numDeletedRecordsOpt": sum(int(vector.get("cardinality", 0)) for vector in vectors),
        "numDeletionVectorsOpt": len(vectors),
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [
            {"appId": app, "version": txn.version, **({"lastUpdated": txn.last_updated} if txn.last_updated else {})}
            for app, txn in snapshot.transactions.items()
        ],
        "domainMetadata": [dict(domain) for domain in snapshot.domains.values()],
        "metadata": dict(snapshot.metadata.value),
        **snapshot.protocol.to_action(),
    }
    info = snapshot.commit_infos.get(snapshot.version, {})
    if "inCommitTimestamp" in info:
        value["inCommitTimestampOpt"] = info["inCommitTimestamp"]
    if "txnId" in info:
        value["txnId"] = info["txnId"]
    return value


def checksum_lies(snapshot: Snapshot) -> str | None:
    """What a version's checksum file says wrongly, or None where it agrees or is not there."""
    path = snapshot.log.folder / f"{snapshot.version:020}.crc"
    try:
        said = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    truth = checksum(snapshot)
    wrong = [
        f"{key} {said[key]} for {truth[key]}"
        for key in ("numFiles", "tableSizeBytes")
        if said.get(key, truth[key]) != truth[key]
    ]
    domains = sorted(d["domain"] for d in said.get("domainMetadata") or [] if not d.get("removed"))
    if "domainMetadata" in said and domains != sorted(snapshot.domains):
        wrong.append(f"domains {', '.join(domains)} for {', '.join(sorted(snapshot.domains)) or 'none'}")
    return f"{path.name} says {'; '.join(wrong)}" if wrong else None
