"""Makes the `Target` of an apply (`engines/row_work.py`) from the table's metadata. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakemirror.delta.protocol import FEED, MAPPING, VECTORS, spark_checks
from lakemirror.delta.schema import MAPPING_ID, PHYSICAL_NAME, from_delta
from lakemirror.delta.statistics_columns import statistics_columns
from lakemirror.engines.kernels.nested_types import arrow_type, stored_type
from lakemirror.engines.row_work import Target, TargetColumn

_UNTYPED = "__lakemirror_untyped__"  # prefix of the physical name of a key column that no data file has


def target_of(path: str, metadata: Mapping[str, Any], key_columns: Sequence[str] = ()) -> Target:
    """The table at `path` with this `metaData`: its columns, their names in data files, its partition columns.

    `key_columns`: names in upper or lower case. A key column that the table lacks is NULL in every row, and becomes a
    column with `stored` False.
    """
    configuration = metadata.get("configuration") or {}
    mode = configuration.get(MAPPING, "none")
    mapped = mode != "none"
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
                by_id=mode == "id",
                zone=column.zone or "UTC",
            )
        )
    checks = spark_checks(metadata)
    spelled = {column.name.lower(): column.name for column in columns}
    for key in key_columns:
        if spelled.setdefault(key.lower(), key) == key and not any(column.name == key for column in columns):
            columns.append(TargetColumn(key, _UNTYPED + key, "int", stored=False))
    return Target(
        path,
        tuple(columns),
        tuple(metadata.get("partitionColumns") or ()),
        tuple(spelled[key.lower()] for key in key_columns),
        configuration.get(VECTORS, "").lower() == "true",
        configuration.get(FEED, "").lower() == "true",
        constraints=tuple(sorted(checks.expressions.items())) if checks is not None else (),
        statistics=statistics_columns(configuration),
    )


def apply_target(target: Target) -> Target:
    """The table as an apply writes it: columns of types that no change file leads to are `unwritten`."""
    written = tuple(column for column in target.columns if arrow_type(column.type) is not None)
    return replace(target, columns=written, unwritten=tuple(each for each in target.columns if each not in written))


def unkept_column(target: Target) -> TargetColumn | None:
    """An unwritten column whose values the kernels cannot read and write again; None if there is none."""
    return next((each for each in target.unwritten if each.by_id or stored_type(each.type) is None), None)
