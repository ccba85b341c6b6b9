"""The Delta table that rows go into, from its metadata (`engines/row_work.py`); pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lakemirror.delta.protocol import FEED, MAPPING, VECTORS
from lakemirror.delta.schema import MAPPING_ID, PHYSICAL_NAME, from_delta
from lakemirror.engines.row_work import Target, TargetColumn


def target_of(path: str, metadata: Mapping[str, Any], key_columns: Sequence[str] = ()) -> Target:
    """The table at `path` with this `metaData` content: its columns, their names in data files, its partitions.

    `key_columns` in any case; those that the table lacks are left out.
    """
    configuration = metadata.get("configuration") or {}
    mapped = configuration.get(MAPPING, "none") != "none"
    fields = json.loads(metadata["schemaString"])["fields"]
    columns = []
    for field, column in zip(fields, from_delta(metadata["schemaString"]), strict=True):
        details = field.get("metadata") or {}
        columns.append(
            TargetColumn(
                column.name,
                details.get(PHYSICAL_NAME, column.name) if mapped else column.name,
                column.type,
                details.get(MAPPING_ID) if mapped else None,
                field.get("nullable", True),
            )
        )
    spelled = {column.name.lower(): column.name for column in columns}
    return Target(
        path,
        tuple(columns),
        tuple(metadata.get("partitionColumns") or ()),
        tuple(spelled[key.lower()] for key in key_columns if key.lower() in spelled),
        configuration.get(VECTORS, "").lower() == "true",
        configuration.get(FEED, "").lower() == "true",
    )
