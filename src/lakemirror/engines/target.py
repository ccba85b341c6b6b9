"""The Delta table that rows go into, from its metadata (`engines/row_work.py`); pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lakemirror.delta.schema import from_delta
from lakemirror.engines.row_work import Target, TargetColumn


def target_of(path: str, metadata: Mapping[str, Any], key_columns: Sequence[str] = ()) -> Target:
    """The table at `path` with this `metaData` content: its columns, their names in data files, its partitions."""
    configuration = metadata.get("configuration") or {}
    mapped = configuration.get("delta.columnMapping.mode", "none") != "none"
    fields = json.loads(metadata["schemaString"])["fields"]
    columns = []
    for field, column in zip(fields, from_delta(metadata["schemaString"]), strict=True):
        details = field.get("metadata") or {}
        columns.append(
            TargetColumn(
                column.name,
                details.get("delta.columnMapping.physicalName", column.name) if mapped else column.name,
                column.type,
                details.get("delta.columnMapping.id") if mapped else None,
                field.get("nullable", True),
            )
        )
    return Target(
        path,
        tuple(columns),
        tuple(metadata.get("partitionColumns") or ()),
        tuple(key_columns),
        configuration.get("delta.enableDeletionVectors", "").lower() == "true",
        configuration.get("delta.enableChangeDataFeed", "").lower() == "true",
    )
