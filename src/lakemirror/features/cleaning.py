"""Builds the commits of a drop from the state of the table. Reads footers of data files, and nothing else.

without_writer_features    features that only writers must know: everything in one commit
prepared                   readers' features: switched off, and traces in the metadata alone are removed
lowered                    readers' features: removed from the protocol, once nothing uses them
clustered_again            clustering, switched on again after files were rewritten
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from lakemirror.delta.deletion_vectors import vector_path
from lakemirror.delta.feature_names import features_of, pure, without
from lakemirror.delta.log import Action, Metadata, Protocol, Snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.features.catalogue import BY_NAME, READER_FEATURES, dependents
from lakemirror.features.history import PROTECTED, clean_checkpoints, clean_since, is_met_by_readers
from lakemirror.features.log_commit import Commit, metadata_action, newest_commit
from lakemirror.features.usage import (
    files_with_old_types,
    mapping_is_idle,
    metadata_traces,
    walk,
)

BARRIER = 3
"""The number of checkpoints before a drop that keeps the history, as in Delta Spark. A reader that cannot use a
checkpoint tries an older one; it must give up before it reaches commits that it would misread."""

CLUSTERING = "delta.clustering"
RESTING = "lakemirror.clusteringColumns"
"""Helper property: the logical clustering columns, while the table is not clustered. A drop removes it at its end."""

_MAPPING_KEYS = (
    "delta.columnMapping.id",
    "delta.columnMapping.physicalName",
    "delta.columnMapping.nested.ids",
    "parquet.field.id",
    "parquet.field.nested.ids",
)


def without_writer_features(snapshot: Snapshot, names: Iterable[str], as_numbers: bool = False) -> Commit | None:
    """The commit that drops features which only writers must know; None if the table has none of them.

    Error: `feature-in-use` if the schema or the data still use one.
    """
    present = sorted(set(names) & features_of(snapshot.protocol))
    if not present:
        return None
    configuration, schema = snapshot.metadata.configuration, copy.deepcopy(snapshot.metadata.schema)
    actions: list[Action] = []
    for name in present:
        check_unused(name, snapshot)
        for key in BY_NAME[name].properties:
            configuration.pop(key, None)
    if _last_collations(present, snapshot):
        _strip(schema, ("__COLLATIONS",))
    if "rowTracking" in present:
        for add in snapshot.files.values():
            if "baseRowId" in add or "defaultRowCommitVersion" in add:
                kept = {k: v for k, v in add.items() if k not in ("baseRowId", "defaultRowCommitVersion")}
                actions.append({"add": {**kept, "dataChange": False}})
    for domain, value in sorted(snapshot.domains.items()):
        if domain in _domains_of(present, snapshot):
            actions.append({"domainMetadata": {**value, "removed": True}})
    protocol = _lowest(snapshot.protocol, present, as_numbers)
    return _drop(snapshot, present, configuration, schema, protocol, actions, truncate=False)


def prepared(snapshot: Snapshot, names: Iterable[str]) -> Commit | None:
    """The commit that switches readers' features off and cleans the metadata; None if nothing changes."""
    present = set(names) & features_of(snapshot.protocol)
    configuration, schema = snapshot.metadata.configuration, copy.deepcopy(snapshot.metadata.schema)
    actions: list[Action] = []
    rewritten = False
    if "deletionVectors" in present:
        configuration.pop("delta.enableDeletionVectors", None)
        if any(add.get("deletionVector") for add in snapshot.files.values()):
            rewritten = True
        else:
            actions += vector_tombstones(snapshot)
    if "v2Checkpoint" in present:
        configuration.pop("delta.checkpointPolicy", None)
    if present & {"typeWidening", "typeWidening-preview"}:
        configuration.pop("delta.enableTypeWidening", None)
        if files_with_old_types(snapshot):
            rewritten = True
        else:
            _strip(schema, ("delta.typeChanges",))
    if "columnMapping" in present:
        if not metadata_traces("columnMapping", snapshot.metadata) or mapping_is_idle(snapshot.metadata):
            _strip(schema, _MAPPING_KEYS)
            for key in BY_NAME["columnMapping"].properties:
                configuration.pop(key, None)
        else:
            rewritten = True
    if rewritten and (columns := clustering_columns(snapshot)):
        configuration[RESTING] = json.dumps(columns, separators=(",", ":"))
        actions.append(_clustered_by([]))
    if configuration != snapshot.metadata.configuration or schema != snapshot.metadata.schema:
        actions.insert(0, metadata_action(snapshot.metadata, configuration=configuration, schema=schema))
    if not actions:
        return None
    return Commit("PREPARE DROP FEATURE", {"featureName": ", ".join(sorted(present))}, tuple(actions))


def without_mapping(metadata: Metadata) -> Action:
    """The `metaData` action of a table whose files have the columns' own names."""
    configuration, schema = metadata.configuration, copy.deepcopy(metadata.schema)
    _strip(schema, _MAPPING_KEYS)
    for key in BY_NAME["columnMapping"].properties:
        configuration.pop(key, None)
    return metadata_action(metadata, configuration=configuration, schema=schema)


def lowered(snapshot: Snapshot, names: Iterable[str], *, truncate: bool, as_numbers: bool = False) -> Commit | None:
    """The commit that removes unused features from the protocol; None if the table has none of them.

    With `truncate`, no commit or checkpoint in the log may use them. Without it, the protected checkpoints must exist,
    and the protocol gains `checkpointProtection`. Error: `concurrent-commit` if another writer uses them again.
    """
    present = sorted(set(names) & features_of(snapshot.protocol))
    if not present:
        return None
    configuration = snapshot.metadata.configuration
    readers = [name for name in present if name != "checkpointProtection"]
    for name in readers:
        check_unused(name, snapshot)
        if is_dirty(name, snapshot):
            raise _brought_back(snapshot, name)
    since = clean_since(snapshot, readers)
    protocol = _lowest(snapshot.protocol, present, as_numbers)
    if not truncate:
        if len(clean_checkpoints(snapshot, since)) < BARRIER:
            raise _brought_back(snapshot, readers[0])
        left = (features_of(snapshot.protocol) - set(present)) | {"checkpointProtection"}
        protocol = without(Protocol(3, 7, frozenset(), left), (), READER_FEATURES)
        configuration[PROTECTED] = str(snapshot.version + 1)
    else:
        if "checkpointProtection" in present:
            since = max(since, int(configuration.pop(PROTECTED, 0)))
        if min(snapshot.log.commits, default=since) < since:
            raise _brought_back(snapshot, present[0])
    if "columnMapping" in present:
        for key in BY_NAME["columnMapping"].properties:
            configuration.pop(key, None)
    return _drop(snapshot, present, configuration, snapshot.metadata.schema, protocol, [], truncate=truncate)


def clustered_again(snapshot: Snapshot) -> Commit | None:
    """The commit that switches clustering on again after files were rewritten; None if it was not switched off."""
    configuration = snapshot.metadata.configuration
    columns = configuration.pop(RESTING, None)
    if columns is None:
        return None
    schema = snapshot.metadata.schema
    actions = [metadata_action(snapshot.metadata, configuration=configuration, schema=schema)]
    if "clustering" in features_of(snapshot.protocol) and not clustering_columns(snapshot):
        physical = [_physical(path, schema) for path in json.loads(columns)]
        actions.append(_clustered_by([path for path in physical if path]))
    return Commit("CLUSTER BY", {"newClusteringColumns": columns}, tuple(actions))


def empty_commit(_: Snapshot) -> Commit:
    """A commit without actions, so that a checkpoint gets a version of its own."""
    return Commit("EMPTY COMMIT", {}, ())


def is_dirty(name: str, snapshot: Snapshot) -> bool:
    """True if the table uses a reader's feature now."""
    return is_met_by_readers(name, snapshot) or (
        name.startswith("typeWidening") and bool(metadata_traces(name, snapshot.metadata))
    )


def check_unused(name: str, snapshot: Snapshot) -> None:
    """Raises `feature-in-use` for a feature that only the user may switch off, with the SQL statements for it."""
    statements = statements_to_stop_using(name, snapshot)
    if statements is None:
        return
    traces = ", ".join(metadata_traces(name, snapshot.metadata))
    raise LakemirrorError(
        "feature-in-use",
        f"{name} is in use in {snapshot.table}: {traces}",
        hint=" ".join(statements) or "Copy the rows into a new table without it: CREATE TABLE … AS SELECT.",
        table=str(snapshot.table),
    )


def statements_to_stop_using(name: str, snapshot: Snapshot) -> list[str] | None:
    """The SQL statements after which a feature is no longer in use; None if lakemirror can switch it off itself."""
    traces = metadata_traces(name, snapshot.metadata)
    table = f"delta.`{snapshot.table}`"
    if not traces or name not in _STOPPED_BY_PEOPLE:
        return None
    columns = [trace.removeprefix("column ") for trace in traces if trace.startswith("column ")]
    if name == "checkConstraints":
        return [f"ALTER TABLE {table} DROP CONSTRAINT {trace.removeprefix('constraint ')};" for trace in traces]
    if name in ("appendOnly", "changeDataFeed"):
        return [f"ALTER TABLE {table} UNSET TBLPROPERTIES ('{BY_NAME[name].properties[0]}');"]
    if name == "allowColumnDefaults":
        return [f"ALTER TABLE {table} ALTER COLUMN {column} DROP DEFAULT;" for column in columns]
    if name.startswith("geospatial"):
        return [f"ALTER TABLE {table} DROP COLUMN {column};" for column in columns]
    return []


_STOPPED_BY_PEOPLE = {
    "checkConstraints",
    "appendOnly",
    "changeDataFeed",
    "allowColumnDefaults",
    "geospatial",
    "geospatial-dev",
    "invariants",
    "generatedColumns",
    "identityColumns",
    "coordinatedCommits-preview",
}


def goes_along(names: Iterable[str], snapshot: Snapshot) -> set[str]:
    """`domainMetadata`, if clustering or collations are dropped and nothing else in the table needs it; else empty."""
    features = features_of(snapshot.protocol)
    gone = set(names) & features
    if not gone & {"clustering", "collations", "collations-preview"} or "domainMetadata" not in features:
        return set()
    others = set(dependents("domainMetadata", features)) - gone
    left = set(snapshot.domains) - _domains_of(gone, snapshot)
    return set() if others or left else {"domainMetadata"}


def clustering_columns(snapshot: Snapshot) -> list[list[str]]:
    """The columns a table is clustered by, as logical paths."""
    domain = snapshot.domains.get(CLUSTERING)
    physical = json.loads(domain["configuration"]).get("clusteringColumns", []) if domain else []
    return [_logical(path, snapshot.metadata.schema) for path in physical]


def vector_tombstones(snapshot: Snapshot) -> list[Action]:
    """A `remove` for every vector file that tombstones still name.

    Old versions need these files, and a VACUUM that does not know vectors deletes files that no action names.
    """
    named = {remove["path"] for remove in snapshot.tombstones.values() if not remove.get("deletionVector")}
    paths = {_vector_path(remove.get("deletionVector")) for remove in snapshot.tombstones.values()}
    now = int(time.time() * 1000)
    return [
        {"remove": {"path": path, "deletionTimestamp": now, "dataChange": False}}
        for path in sorted(paths - named - {""})
    ]


def _vector_path(vector: Mapping[str, Any] | None) -> str:
    """The path of a vector's file as the log spells it; empty for inline vectors and for files outside the table."""
    return quote(vector_path(vector["pathOrInlineDv"])) if vector and vector["storageType"] == "u" else ""


def _clustered_by(physical: list[list[str]]) -> Action:
    value = json.dumps({"clusteringColumns": physical, "domainName": CLUSTERING}, separators=(",", ":"))
    return {"domainMetadata": {"domain": CLUSTERING, "configuration": value, "removed": False}}


def _physical(logical: list[str], schema: Mapping[str, Any]) -> list[str]:
    """The physical path of a column; empty if the column no longer exists."""
    found: list[str] = []
    kind: Any = schema
    for step in logical:
        fields = kind["fields"] if isinstance(kind, dict) and kind.get("type") == "struct" else []
        field = next((field for field in fields if field["name"] == step), None)
        if field is None:
            return []
        found.append(field.get("metadata", {}).get("delta.columnMapping.physicalName", step))
        kind = field["type"]
    return found


def _logical(physical: list[str], schema: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    kind: Any = schema
    for step in physical:
        fields = kind["fields"] if isinstance(kind, dict) and kind.get("type") == "struct" else []
        for field in fields:
            if field.get("metadata", {}).get("delta.columnMapping.physicalName", field["name"]) == step:
                found.append(field["name"])
                kind = field["type"]
                break
        else:
            return physical
    return found


def _domains_of(names: Iterable[str], snapshot: Snapshot) -> set[str]:
    """The domains that are removed with these features; all domains if `domainMetadata` itself is dropped."""
    gone = set(names)
    if "domainMetadata" in gone:
        return set(snapshot.domains)
    found = {domain for name in gone for domain in BY_NAME[name].domains}
    if _last_collations(gone, snapshot):
        found |= {
            domain for domain in snapshot.domains if "collation" in domain.lower() and domain.startswith("delta.")
        }
    return found


def _last_collations(names: Iterable[str], snapshot: Snapshot) -> bool:
    """True if the table loses its collations: it keeps no other collation feature."""
    gone = {name for name in names if name.startswith("collations")}
    return bool(gone) and not {"collations", "collations-preview"} & features_of(snapshot.protocol) - gone


def _strip(schema: dict[str, Any], keys: tuple[str, ...]) -> None:
    for _, field in walk(schema):
        for key in keys:
            field.get("metadata", {}).pop(key, None)


def _lowest(protocol: Protocol, gone: Iterable[str], as_numbers: bool) -> Protocol:
    left = features_of(protocol) - set(gone)
    numbers = pure(left, gone) if as_numbers else None
    return numbers or without(protocol, gone, READER_FEATURES)


def _drop(
    snapshot: Snapshot,
    names: list[str],
    configuration: Mapping[str, str],
    schema: Mapping[str, Any],
    protocol: Protocol,
    actions: list[Action],
    *,
    truncate: bool,
) -> Commit:
    first: list[Action] = [protocol.to_action()]
    if configuration != snapshot.metadata.configuration or schema != snapshot.metadata.schema:
        first.append(metadata_action(snapshot.metadata, configuration=configuration, schema=schema))
    parameters = {"featureName": ", ".join(names), "truncateHistory": truncate}
    return Commit("DROP FEATURE", parameters, (*first, *actions))


def _brought_back(snapshot: Snapshot, name: str) -> LakemirrorError:
    return LakemirrorError(
        "concurrent-commit",
        f"{newest_commit(snapshot)} of {snapshot.table} came between the steps of dropping {name}",
        table=str(snapshot.table),
    )
