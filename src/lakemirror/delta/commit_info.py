"""The `commitInfo` action: what the table's history shows of our commits."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from lakemirror.delta.log import Snapshot, read_commit

ENGINE = "lakemirror"
"""The engine's name in the history."""


def commit_info(
    snapshot: Snapshot | None,
    operation: str,
    parameters: Mapping[str, Any],
    *,
    metrics: Mapping[str, int] | None = None,
    blind_append: bool = False,
    isolation: str = "Serializable",
    user_metadata: str | None = None,
) -> dict[str, Any]:
    """The content of `commitInfo` for the commit that follows `snapshot` (None: the table's first commit).

    `metrics`: numbers of the operation, by Delta's names. `user_metadata`: free text. In a table with in-commit
    timestamps, the commit gets a timestamp later than that of the commit before.
    """
    now = int(time.time() * 1000)
    info: dict[str, Any] = {
        "timestamp": now,
        "operation": operation,
        "operationParameters": dict(parameters),
        **({"readVersion": snapshot.version} if snapshot else {}),
        "isolationLevel": isolation,
        "isBlindAppend": blind_append,
        "operationMetrics": {name: str(value) for name, value in (metrics or {}).items()},
        **({"userMetadata": user_metadata} if user_metadata is not None else {}),
        "engineInfo": ENGINE,
        "txnId": str(uuid.uuid4()),
    }
    if snapshot and snapshot.metadata.configuration.get("delta.enableInCommitTimestamps", "").lower() == "true":
        before = int(newest_info(snapshot).get("inCommitTimestamp", 0))
        info = {"inCommitTimestamp": max(now, before + 1), **info}
    return info


def newest_info(snapshot: Snapshot) -> Mapping[str, Any]:
    """The `commitInfo` of the newest commit; empty if it has none. Reads the commit's file if the snapshot came from a
    checkpoint of that version.
    """
    info = snapshot.commit_infos.get(snapshot.version)
    if info is None and (path := snapshot.log.commits.get(snapshot.version)):
        info = next((action["commitInfo"] for action in read_commit(path) if "commitInfo" in action), None)
    return info or {}
