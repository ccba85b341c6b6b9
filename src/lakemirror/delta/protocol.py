"""Which protocol a table's metadata needs, and which tables lakemirror cannot write. No I/O.

    protocol_of(metadata, before)              the lowest protocol that the metadata needs, never lower than before
    unsupported_reason(metadata, protocol)     why lakemirror may not commit to the table
    spark_checks(configuration)                conditions on rows that only Spark can evaluate
    append_only_property(metadata)             the property that forbids deleting rows

Source: Delta protocol, "Table Features", "Feature Names", "Valid Feature Names in Table Features".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from lakemirror.delta.feature_names import features_of, implied, lowest
from lakemirror.delta.log import Protocol
from lakemirror.delta.schema import TYPE_CHANGES, fields_of

APPEND_ONLY = "delta.appendOnly"
VECTORS = "delta.enableDeletionVectors"
FEED = "delta.enableChangeDataFeed"
FEED_COLUMNS = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})  # that readers of the feed add
MAPPING = "delta.columnMapping.mode"
WIDENING = "delta.enableTypeWidening"
_DEFAULT = "CURRENT_DEFAULT"
_CONSTRAINT = "delta.constraints."

_READER_FEATURES = {
    "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint",
    "vacuumProtocolCheck", "variantType", "variantType-preview", "variantShredding-preview", "catalogManaged",
    "catalogOwned-preview", "variantShredding",
}  # fmt: skip
_SWITCHES = {
    APPEND_ONLY: "appendOnly", VECTORS: "deletionVectors", FEED: "changeDataFeed", WIDENING: "typeWidening",
    "delta.enableRowTracking": "rowTracking", "delta.enableInCommitTimestamps": "inCommitTimestamp",
}  # fmt: skip
_WRITTEN = {
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping",
    "identityColumns", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "domainMetadata",
    "rowTracking", "v2Checkpoint", "vacuumProtocolCheck", "inCommitTimestamp", "inCommitTimestamp-preview",
    "clustering", "checkpointProtection", "allowColumnDefaults", "variantType", "variantType-preview",
    "variantShredding", "variantShredding-preview",
}  # fmt: skip
"""Features whose writer rules lakemirror follows, or whose use it finds in the metadata and refuses."""

_NEEDS = {"rowTracking": ("domainMetadata",), "clustering": ("domainMetadata",)}
_OTHER_FORMATS = "delta.universalFormat.enabledFormats"
_MANIFESTS = "delta.compatibility.symlinkFormatManifest.enabled"
_RULES = {
    "delta.invariants": "column invariants", "delta.generationExpression": "generated columns",
    "delta.identity.": "identity columns", "__CHAR_VARCHAR_TYPE_STRING": "CHAR or VARCHAR columns",
    "__COLLATIONS": "collations",
}  # fmt: skip
_TYPES = {
    "byte", "short", "integer", "long", "float", "double", "boolean", "string", "binary", "date", "timestamp",
    "timestamp_ntz",
}  # fmt: skip


class Unsupported(NamedTuple):
    """Why a commit cannot be made. `feature`: the feature that prevents it, or ''. `code`: from `error_codes.CODES`."""

    reason: str
    feature: str = ""
    code: str = "table-feature-unsupported"


def protocol_of(metadata: Mapping[str, Any], before: Protocol | None = None) -> Protocol:
    """The lowest protocol that a table with this `metaData` needs and that has every feature of `before`.

    `before`: the table's current protocol, None for a new table. Returns `before` if nothing has to be added.
    """
    had = features_of(before) if before else implied(1, 2)
    wanted = _needed(metadata)
    if before is not None and wanted <= had:
        return before
    features = had | wanted
    if before is not None and before.reader >= 3:
        return Protocol(3, 7, features & _READER_FEATURES, features)
    found = lowest(features, _READER_FEATURES)
    if before is None:
        return found
    reader = max(found.reader, before.reader)
    if before.writer <= found.writer < 7 and implied(reader, found.writer) == features:
        return replace(found, reader=reader)
    return Protocol(reader, 7, found.reader_features, features)


def unsupported_reason(metadata: Mapping[str, Any], protocol: Protocol | None) -> Unsupported | None:
    """Why lakemirror may not change rows of a table with this `metaData` and protocol; None if it may.

    `protocol`: None for a table that does not exist yet.
    """
    if protocol is not None:
        if protocol.reader > 3 or protocol.writer > 7:
            return Unsupported(f"the table's protocol is ({protocol.reader}, {protocol.writer})")
        for feature in sorted(features_of(protocol) - _WRITTEN):
            return Unsupported(f"the table has the feature {feature}, which lakemirror cannot write", feature)
    configuration = metadata.get("configuration") or {}
    if configuration.get(_OTHER_FORMATS):
        return Unsupported(f"the table is also kept in other formats ({_OTHER_FORMATS})")
    if configuration.get(_MANIFESTS, "").lower() == "true":
        return Unsupported(f"the table keeps manifest files ({_MANIFESTS})")
    schema = metadata["schemaString"]
    for mark, what in _RULES.items():
        if mark in schema:
            return Unsupported(f"the table has {what}")
    for each in fields_of(schema):
        if isinstance(each["type"], str) and (each["type"] in _TYPES or each["type"].startswith("decimal(")):
            continue
        if _DEFAULT in (each.get("metadata") or {}):
            return Unsupported(f"column {each['name']!r} has a default value and a type that lakemirror cannot write")
        if not each.get("nullable", True):
            return Unsupported(f"column {each['name']!r} is NOT NULL and has a type that lakemirror cannot write")
    return None


def spark_checks(configuration: Mapping[str, str]) -> dict[str, str]:
    """The CHECK constraints in a table's properties: conditions that only Spark can evaluate, in its SQL, by name."""
    return {key[len(_CONSTRAINT) :]: value for key, value in configuration.items() if key.startswith(_CONSTRAINT)}


def append_only_property(metadata: Mapping[str, Any]) -> Unsupported | None:
    """Why no row of the table may be deleted (`table-append-only`); None if rows may be deleted."""
    if (metadata.get("configuration") or {}).get(APPEND_ONLY, "").lower() != "true":
        return None
    return Unsupported(f"the property {APPEND_ONLY} forbids deleting rows", "appendOnly", "table-append-only")


def _needed(metadata: Mapping[str, Any]) -> frozenset[str]:
    """The features that a table's properties and columns need."""
    configuration = metadata.get("configuration") or {}
    schema = metadata["schemaString"]
    named = {feature for key, feature in _SWITCHES.items() if configuration.get(key, "").lower() == "true"}
    marks = {
        "columnMapping": configuration.get(MAPPING, "none") != "none",
        "checkConstraints": any(key.startswith(_CONSTRAINT) for key in configuration),
        "invariants": "delta.invariants" in schema,
        "generatedColumns": "delta.generationExpression" in schema,
        "identityColumns": "delta.identity." in schema,
        "typeWidening": TYPE_CHANGES in schema,
        "timestampNtz": '"timestamp_ntz"' in schema,
        "v2Checkpoint": configuration.get("delta.checkpointPolicy") == "v2",
    }
    needed = named | {feature for feature, is_there in marks.items() if is_there}
    return frozenset(needed).union(*(_NEEDS.get(feature, ()) for feature in needed))
