"""Compares a table before and after a drop: nothing may differ but what the plan names."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from lakemirror.delta.commit_info import ENGINE
from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import Metadata, Snapshot, read_commit
from lakemirror.delta.statistics import record_count
from lakemirror.errors import LakemirrorError
from lakemirror.features.catalogue import BY_NAME
from lakemirror.features.cleaning import RESTING
from lakemirror.features.history import PROTECTED
from lakemirror.features.usage import walk

_MARKS = ("delta.columnMapping.", "parquet.field.", "delta.typeChanges", "__COLLATIONS")
_SPARK_STEPS = {"REMOVE COLUMN MAPPING", "REORG", "DROP FEATURE", "UNSET TBLPROPERTIES", "Empty Commit"}


def check_unchanged(before: Snapshot, after: Snapshot, dropped: Iterable[str]) -> None:
    """Raises `drop-unproven` if more has changed than the features.

    Compares the number of rows (by the statistics), the schema with comments, the partitioning, constraints and
    properties. Nothing is compared if another writer has changed data or metadata in between.
    """
    gone = (features_of(before.protocol) - features_of(after.protocol)) | set(dropped)
    own = {key for name in gone if name in BY_NAME for key in BY_NAME[name].properties} | {RESTING, PROTECTED}
    if _foreign(before, after):
        return
    old, new = (_kept(snapshot.metadata, own) for snapshot in (before, after))
    differences = [f"{what} changed" for what in old if old[what] != new[what]]
    rows = live_rows(before), live_rows(after)
    if None not in rows and rows[0] != rows[1]:
        differences.append(f"{rows[0]} rows became {rows[1]}")
    if differences:
        raise LakemirrorError(
            "drop-unproven",
            f"{before.table} differs after the drop: {'; '.join(differences)} "
            f"(versions {before.version} and {after.version})",
            table=str(before.table),
        )


def live_rows(snapshot: Snapshot) -> int | None:
    """The number of rows in a table, by its statistics; None if a file has none."""
    total = 0
    for add in snapshot.files.values():
        count = record_count(add)
        if count is None:
            return None
        total += count - int((add.get("deletionVector") or {}).get("cardinality", 0))
    return total


def _foreign(before: Snapshot, after: Snapshot) -> bool:
    """True if another writer has changed data or metadata in between, or the log no longer shows whether one has."""
    for version in range(before.version + 1, after.version + 1):
        path = after.log.commits.get(version)
        if path is None:
            return True
        actions = read_commit(path)
        if any(action[kind].get("dataChange") for action in actions for kind in ("add", "remove") if kind in action):
            return True
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        ours = info.get("engineInfo") == ENGINE or info.get("operation") in _SPARK_STEPS
        if not ours and any("metaData" in action for action in actions):
            return True
    return False


def _kept(metadata: Metadata, own: Iterable[str]) -> dict[str, Any]:
    """What a drop must not change: the metadata without what belongs to the dropped features."""
    schema = json.loads(json.dumps(metadata.schema))
    for _, field in walk(schema):
        field["metadata"] = {k: v for k, v in field.get("metadata", {}).items() if not k.startswith(_MARKS)}
    return {
        "the schema": schema,
        "the partitioning": metadata.partition_columns,
        "the properties": {k: v for k, v in metadata.configuration.items() if k not in set(own)},
        "the name or description": (metadata.value.get("name"), metadata.value.get("description")),
    }
