"""What a table's features ask of every commit, beside its own actions; pure.

    inCommitTimestamp   `commitInfo` is the first action and has a time later than the commit before
    rowTracking         every new file gets the number of its first row, and the highest one is kept in a domain

Delta protocol, "In-Commit Timestamps", "Row Tracking". The other features that other writers turn on ask nothing of a
commit of ours, or ask it of `protocol.unsupported_reason`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lakemirror.delta.log import Action, Protocol, Snapshot
from lakemirror.delta.protocol import features_of
from lakemirror.delta.statistics import record_count
from lakemirror.errors import LakemirrorError

ROW_TRACKING = "delta.rowTracking"
IN_COMMIT = "inCommitTimestamp"
_HIGHEST = "rowIdHighWaterMark"


def with_duties(
    actions: Sequence[Action], snapshot: Snapshot | None, before: Mapping[str, Any] | None, now: int
) -> list[Action]:
    """The actions of the version after `snapshot`'s with what the table's features ask of them.

    `before`: the `commitInfo` of `snapshot`'s version. `now`: milliseconds since the epoch. LakemirrorError
    `table-unreadable` where rows of a new file are not counted although row ids are.
    """
    features, configuration = _after(actions, snapshot)
    found = [dict(action) for action in actions]
    if "rowTracking" in features:
        found = _with_row_ids(found, snapshot)
    if configuration.get("delta.enableInCommitTimestamps", "").lower() == "true":
        last = int((before or {}).get(IN_COMMIT) or (before or {}).get("timestamp") or 0)
        found = _with_timestamp(found, max(now, last + 1))
    return found


def _after(actions: Sequence[Action], snapshot: Snapshot | None) -> tuple[frozenset[str], Mapping[str, str]]:
    """The features and properties that are true once the actions are committed."""
    protocol = snapshot.protocol if snapshot else Protocol(1, 2)
    configuration: Mapping[str, str] = snapshot.metadata.configuration if snapshot else {}
    for action in actions:
        if "protocol" in action:
            protocol = Protocol.from_action(action["protocol"])
        elif "metaData" in action:
            configuration = action["metaData"].get("configuration") or {}
    return features_of(protocol), configuration


def _with_timestamp(actions: list[Action], moment: int) -> list[Action]:
    """`commitInfo` first, with the time of the commit."""
    info: Action = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    others = [action for action in actions if "commitInfo" not in action]
    return [{"commitInfo": {**info, IN_COMMIT: moment, "timestamp": moment}}, *others]


def _with_row_ids(actions: list[Action], snapshot: Snapshot | None) -> list[Action]:
    """New files with the number of their first row. A file that only gets another vector keeps its own."""
    domain = snapshot.domains.get(ROW_TRACKING) if snapshot else None
    highest = int(json.loads(domain["configuration"])[_HIGHEST]) if domain else -1
    first, version = highest, snapshot.version + 1 if snapshot else 0
    found = []
    for action in actions:
        add = action.get("add")
        if add is not None and add.get("baseRowId") is None:
            count = record_count(add)
            if count is None:
                raise LakemirrorError("table-unreadable", f"{add['path']} has no number of rows, row tracking needs it")
            action = {"add": {**add, "baseRowId": highest + 1, "defaultRowCommitVersion": version}}
            highest += count
        found.append(action)
    if highest != first:
        kept = json.dumps({_HIGHEST: highest}, separators=(",", ":"))
        found.append({"domainMetadata": {"domain": ROW_TRACKING, "configuration": kept, "removed": False}})
    return found
