"""Makes the `Target` of an apply (`engines/row_work.py`) from the table's metadata. No I/O.

`unsupported_reason` says why the kernels cannot write data files of a table again, with the same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakemirror.delta.log import Snapshot
from lakemirror.delta.protocol import FEED, MAPPING, VECTORS, spark_checks
from lakemirror.delta.schema import MAPPING_ID, PHYSICAL_NAME, fields_of, from_delta
from lakemirror.delta.statistics_columns import statistics_columns
from lakemirror.engines.kernels.nested_types import arrow_type, stored_type
from lakemirror.engines.row_work import Target, TargetColumn
from lakemirror.landing_zone.reserved_columns import ADDED_COLUMNS

_KEPT = frozenset({
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping",
    "identityColumns", "deletionVectors", "timestampNtz", "domainMetadata", "v2Checkpoint", "vacuumProtocolCheck",
    "inCommitTimestamp", "allowColumnDefaults", "typeWidening", "typeWidening-preview", "clustering",
    "checkpointProtection",
})  # fmt: skip
"""Features whose rules a commit without a change of data keeps."""

_ROW_IDS, _MANIFESTS = "delta.enableRowTracking", "delta.compatibility.symlinkFormatManifest.enabled"
_UNTYPED = "__lakemirror_untyped__"  # prefix of the physical name of a key column that no data file has


def target_of(path: str, metadata: Mapping[str, Any], key_columns: Sequence[str] = ()) -> Target:
    """The table at `path` with this `metaData`: its columns, their names in data files, its partition columns.

    `key_columns`: names in upper or lower case. A key column that the table lacks is NULL in every row, and becomes a
    column with `stored` False.
    """
    configuration = metadata.get("configuration") or {}
    mode = configuration.get(MAPPING, "none")
    mapped = mode != "none"
    fields = fields_of(metadata["schemaString"])
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
        constraints=tuple(sorted(spark_checks(configuration).items())),
        statistics=statistics_columns(configuration),
    )


def apply_target(target: Target) -> Target:
    """The table as an apply writes it: columns of types that no change file leads to are `unwritten`, but those that
    lakemirror adds."""
    written = tuple(each for each in target.columns if arrow_type(each.type) is not None or each.name in ADDED_COLUMNS)
    names = {each.name for each in written}
    return replace(target, columns=written, unwritten=tuple(each for each in target.columns if each.name not in names))


def unkept_column(target: Target) -> TargetColumn | None:
    """An unwritten column whose values the kernels cannot read and write again; None if there is none."""
    return next((each for each in target.unwritten if each.by_id or stored_type(each.type) is None), None)


def unsupported_reason(snapshot: Snapshot, *, nested: bool = False, without: Collection[str] = ()) -> str | None:
    """Why lakemirror cannot rewrite files of this table, None where it can.

    `nested`: the caller can rewrite structs, arrays and maps (`kernels/rewrite.py`). `without`: features that the table
    loses before its files are rewritten.
    """
    protocol, configuration = snapshot.protocol, snapshot.metadata.configuration
    if protocol.reader > 3 or protocol.writer > 7:
        return f"the table's protocol is ({protocol.reader}, {protocol.writer})"
    unknown = ((protocol.reader_features or frozenset()) | (protocol.writer_features or frozenset())) - _KEPT
    unknown -= set(without)
    if configuration.get(_ROW_IDS, "").lower() != "true":
        unknown -= {"rowTracking"}  # new files get row numbers (`commit_info.py`); rows need not keep old ones
    if unknown:
        return f"the table has {', '.join(sorted(unknown))}"
    if configuration.get("delta.universalFormat.enabledFormats"):
        return "the table is kept in other formats, too"
    if configuration.get(_MANIFESTS, "").lower() == "true":
        return f"the table keeps manifest files ({_MANIFESTS})"
    for column in target_of(str(snapshot.table), snapshot.metadata.value).columns:
        if (stored_type(column.type) if nested else arrow_type(column.type)) is None:
            kind = column.type if len(column.type) < 80 else f"{column.type[:77]}..."
            return f"column {column.name!r} has the type {kind}"
    return None
