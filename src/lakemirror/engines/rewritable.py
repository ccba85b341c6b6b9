"""Whether data files of a table can be written again by the kernels, with the same rows; pure."""

from __future__ import annotations

from collections.abc import Collection

from lakemirror.delta.log import Snapshot
from lakemirror.engines.kernels.nested_types import arrow_type, stored_type
from lakemirror.engines.target import target_of

_KEPT = frozenset({
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping",
    "identityColumns", "deletionVectors", "timestampNtz", "domainMetadata", "v2Checkpoint", "vacuumProtocolCheck",
    "inCommitTimestamp", "allowColumnDefaults", "typeWidening", "typeWidening-preview", "clustering",
    "checkpointProtection",
})  # fmt: skip
"""Features whose rules a commit without a change of data keeps."""

_ROW_IDS, _MANIFESTS = "delta.enableRowTracking", "delta.compatibility.symlinkFormatManifest.enabled"


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
        unknown -= {"rowTracking"}  # new files get row numbers (`commit_duties.py`); rows need not keep old ones
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


__all__ = ["unsupported_reason"]
