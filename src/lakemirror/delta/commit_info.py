"""What a commit holds beside its data: the `commitInfo` action, and what the table's features require of every commit.

    inCommitTimestamp   `commitInfo` is the first action, and its time is later than that of the commit before
    rowTracking         every new file gets the number of its first row; the highest row number is kept in a domain

Source: Delta protocol, "In-Commit Timestamps", "Row Tracking". Other features require nothing of our commits, or
`protocol.unsupported_reason` refuses them.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import Action, Protocol, Snapshot, read_commit
from lakemirror.delta.statistics import record_count
from lakemirror.errors import LakemirrorError

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


ROW_TRACKING = "delta.rowTracking"
IN_COMMIT = "inCommitTimestamp"
_HIGHEST = "rowIdHighWaterMark"


def with_duties(
    actions: Sequence[Action], snapshot: Snapshot | None, before: Mapping[str, Any] | None, now: int
) -> list[Action]:
    """The actions, completed with what the table's features require of the version after `snapshot`.

    `before`: the `commitInfo` of `snapshot`'s version. `now`: milliseconds since the epoch. Error: `table-unreadable`
    if the table has row tracking and a new file does not state its number of rows.
    """
    protocol = snapshot.protocol if snapshot else Protocol(1, 2)
    configuration: Mapping[str, str] = snapshot.metadata.configuration if snapshot else {}
    for action in actions:
        if "protocol" in action:
            protocol = Protocol.from_action(action["protocol"])
        elif "metaData" in action:
            configuration = action["metaData"].get("configuration") or {}
    features = features_of(protocol)
    found = [dict(action) for action in actions]
    if "rowTracking" in features:
        found = _with_row_ids(found, snapshot)
    if configuration.get("delta.enableInCommitTimestamps", "").lower() == "true":
        last = int((before or {}).get(IN_COMMIT) or (before or {}).get("timestamp") or 0)
        found = _with_timestamp(found, max(now, last + 1))
    return found


def _with_timestamp(actions: list[Action], moment: int) -> list[Action]:
    """The actions with `commitInfo` first, and in it the time of the commit."""
    info: Action = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    others = [action for action in actions if "commitInfo" not in action]
    return [{"commitInfo": {**info, IN_COMMIT: moment, "timestamp": moment}}, *others]


def _with_row_ids(actions: list[Action], snapshot: Snapshot | None) -> list[Action]:
    """The actions, with the number of its first row in each new file. A file with a new vector keeps its number."""
    domain = snapshot.domains.get(ROW_TRACKING) if snapshot else None
    highest = int(json.loads(domain["configuration"])[_HIGHEST]) if domain else -1
    first, version = highest, snapshot.version + 1 if snapshot else 0
    found = []
    for action in actions:
        add = action.get("add")
        if add is not None and add.get("baseRowId") is None:
            count = record_count(add)
            if count is None:
                why = f"{add['path']} has no row count in its statistics, and row tracking needs it"
                raise LakemirrorError("table-unreadable", why)
            action = {"add": {**add, "baseRowId": highest + 1, "defaultRowCommitVersion": version}}
            highest += count
        found.append(action)
    if highest != first:
        kept = json.dumps({_HIGHEST: highest}, separators=(",", ":"))
        found.append({"domainMetadata": {"domain": ROW_TRACKING, "configuration": kept, "removed": False}})
    return found
