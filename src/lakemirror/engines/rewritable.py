"""Whether data files of a table can be written again by the kernels, with the same rows; pure."""

from __future__ import annotations

from lakemirror.delta.log import Snapshot
from lakemirror.engines.kernels.add_files import arrow_type
from lakemirror.engines.target import target_of

_KEPT = frozenset({
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping",
    "identityColumns", "deletionVectors", "timestampNtz", "domainMetadata", "v2Checkpoint", "vacuumProtocolCheck",
    "inCommitTimestamp", "allowColumnDefaults", "typeWidening", "typeWidening-preview", "clustering",
    "checkpointProtection",
})  # fmt: skip
"""Features whose rules a commit without a change of data keeps."""


def unsupported_reason(snapshot: Snapshot) -> str | None:
    """Why lakemirror cannot rewrite files of this table, None where it can."""
    protocol = snapshot.protocol
    if protocol.reader > 3 or protocol.writer > 7:
        return f"the table's protocol is ({protocol.reader}, {protocol.writer})"
    unknown = ((protocol.reader_features or frozenset()) | (protocol.writer_features or frozenset())) - _KEPT
    if unknown:
        return f"the table has {', '.join(sorted(unknown))}"
    if snapshot.metadata.configuration.get("delta.universalFormat.enabledFormats"):
        return "the table is kept in other formats, too"
    for column in target_of(str(snapshot.table), snapshot.metadata.value).columns:
        if arrow_type(column.type) is None:
            return f"column {column.name!r} has the type {column.type}"
    return None


__all__ = ["unsupported_reason"]
