"""The features of the Delta protocol as rows of data.

One row says everything the planner, the drop and the reference page need to know about one feature. The only other
place that knows single features by name is `usage.py`, which looks for their traces in a table.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakemirror.errors import LakemirrorError


@dataclass(frozen=True)
class Feature:
    """One table feature.

    `reads`: readers must know it. `requires`: features it needs. `properties`: table properties that belong to it
    and are removed with it. `domains`: domain metadata that is removed with it. `traces`: where else it can be found.
    `drop`: `log` if a commit of lakemirror is enough, `rewrite` if data files may have to be rewritten (`route.py` says
    by whom), `history` if cutting the history is the drop, `unused` if a commit is enough while no column uses the
    feature, `no` if it cannot be dropped (`way_out` says what helps then).
    `confirm`: what a person loses and must agree to. `leftover`: what stays behind, harmless.
    """

    name: str
    summary: str
    reads: bool = False
    requires: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()
    drop: str = "no"
    confirm: str = ""
    leftover: str = ""
    way_out: str = ""


_REBUILD = "Copy the rows into a new table without it: CREATE TABLE new USING delta AS SELECT … FROM old."
_TYPE = "Cast or drop the columns of this type in a copy: CREATE TABLE new USING delta AS SELECT … FROM old."
_ICEBERG = "Iceberg readers of this table lose it"
_BINARY = "comparisons of the collated columns become binary: 'a' = 'A' is no longer true in any of them"

FEATURES: tuple[Feature, ...] = (
    Feature(
        "appendOnly",
        "Rows can only be added while delta.appendOnly is on.",
        properties=("delta.appendOnly",),
        traces=("properties",),
        drop="log",
    ),
    Feature(
        "invariants",
        "Conditions on single columns, kept in the schema.",
        traces=("schema: delta.invariants",),
        drop="log",
    ),
    Feature(
        "checkConstraints",
        "Named conditions that every row meets.",
        traces=("properties: delta.constraints.*",),
        drop="log",
    ),
    Feature(
        "changeDataFeed",
        "Writers record what changed beside the data.",
        properties=("delta.enableChangeDataFeed",),
        traces=("properties", "commits: cdc", "files: _change_data"),
        drop="log",
        leftover="change files of old versions under _change_data, until VACUUM",
    ),
    Feature(
        "generatedColumns",
        "Columns whose values follow from others.",
        traces=("schema: delta.generationExpression",),
        drop="log",
    ),
    Feature(
        "columnMapping",
        "Columns are found by id or physical name, so that they can be renamed and dropped.",
        reads=True,
        properties=("delta.columnMapping.mode", "delta.columnMapping.maxColumnId"),
        traces=("properties", "schema: ids and physical names", "data files", "statistics", "partition values"),
        drop="rewrite",
        leftover="directories with random prefixes, until VACUUM",
    ),
    Feature(
        "identityColumns",
        "Columns that number new rows.",
        traces=("schema: delta.identity.*",),
        drop="log",
    ),
    Feature(
        "allowColumnDefaults",
        "Default values of columns.",
        traces=("schema: CURRENT_DEFAULT",),
        drop="log",
    ),
    Feature(
        "deletionVectors",
        "Deleted rows are marked beside a file instead of rewriting it.",
        reads=True,
        properties=("delta.enableDeletionVectors",),
        traces=("properties", "commits: deletionVector", "files: *.bin"),
        drop="rewrite",
        leftover="vector files of old versions, until VACUUM",
    ),
    Feature(
        "timestampNtz",
        "Timestamps without time zone.",
        reads=True,
        traces=("schema: type", "data files"),
        drop="unused",
        way_out=_TYPE,
    ),
    Feature(
        "typeWidening",
        "Column types can be widened without rewriting files.",
        reads=True,
        properties=("delta.enableTypeWidening",),
        traces=("properties", "schema: delta.typeChanges", "data files"),
        drop="rewrite",
    ),
    Feature(
        "typeWidening-preview",
        "Column types can be widened without rewriting files (first form).",
        reads=True,
        properties=("delta.enableTypeWidening",),
        traces=("properties", "schema: delta.typeChanges", "data files"),
        drop="rewrite",
    ),
    Feature(
        "v2Checkpoint",
        "Checkpoints with unique names and side files.",
        reads=True,
        properties=("delta.checkpointPolicy",),
        traces=("properties", "checkpoints"),
        drop="log",
        leftover="old checkpoints and their side files, until the log is cleaned up",
    ),
    Feature(
        "vacuumProtocolCheck",
        "VACUUM looks at the writers' protocol before it deletes.",
        reads=True,
        drop="log",
    ),
    Feature(
        "variantType",
        "Columns of type variant.",
        reads=True,
        traces=("schema: type", "data files"),
        drop="unused",
        way_out=_TYPE,
    ),
    Feature(
        "variantType-preview",
        "Columns of type variant (first form).",
        reads=True,
        traces=("schema: type", "data files"),
        drop="unused",
        way_out=_TYPE,
    ),
    Feature(
        "variantShredding",
        "Parts of variants stored as columns of their own.",
        reads=True,
        requires=("variantType",),
        properties=("delta.enableVariantShredding",),
        traces=("properties", "data files"),
        drop="unused",
        way_out=_TYPE,
    ),
    Feature(
        "variantShredding-preview",
        "Parts of variants stored as columns of their own (first form).",
        reads=True,
        properties=("delta.enableVariantShredding",),
        traces=("properties", "data files"),
        drop="unused",
        way_out=_TYPE,
    ),
    Feature(
        "geospatial",
        "Columns of type geometry or geography.",
        reads=True,
        traces=("schema: type", "data files", "statistics"),
        drop="log",
    ),
    Feature(
        "geospatial-dev",
        "Columns of type geometry or geography (first form).",
        reads=True,
        traces=("schema: type", "data files", "statistics"),
        drop="log",
    ),
    Feature(
        "domainMetadata",
        "Named configurations in the log, kept by every writer.",
        traces=("commits: domainMetadata",),
        drop="log",
    ),
    Feature(
        "rowTracking",
        "Every row has an id that survives updates.",
        requires=("domainMetadata",),
        properties=(
            "delta.enableRowTracking",
            "delta.rowTrackingSuspended",
            "delta.rowTracking.materializedRowIdColumnName",
            "delta.rowTracking.materializedRowCommitVersionColumnName",
        ),
        domains=("delta.rowTracking",),
        traces=("properties", "commits: baseRowId", "domains", "data files: hidden columns"),
        drop="log",
        leftover="hidden row id columns inside data files already written",
    ),
    Feature(
        "clustering",
        "Rows are kept together by columns.",
        requires=("domainMetadata",),
        domains=("delta.clustering",),
        traces=("domains", "commits: clusteringProvider"),
        drop="log",
        leftover="files stay clustered, and marked so",
    ),
    Feature(
        "inCommitTimestamp",
        "Every commit holds its own time.",
        properties=(
            "delta.enableInCommitTimestamps",
            "delta.inCommitTimestampEnablementVersion",
            "delta.inCommitTimestampEnablementTimestamp",
        ),
        traces=("properties", "commits: inCommitTimestamp"),
        drop="log",
        leftover="times in old commits; time travel by timestamp follows the files' modified times again",
    ),
    Feature(
        "icebergCompatV1",
        "Files and metadata that convert to Iceberg, version 1.",
        requires=("columnMapping",),
        properties=("delta.enableIcebergCompatV1",),
        traces=("properties",),
        drop="log",
        confirm=_ICEBERG,
        leftover="Iceberg metadata under metadata/, no longer kept up",
    ),
    Feature(
        "icebergCompatV2",
        "Files and metadata that convert to Iceberg, version 2.",
        requires=("columnMapping",),
        properties=("delta.enableIcebergCompatV2",),
        traces=("properties",),
        drop="log",
        confirm=_ICEBERG,
        leftover="Iceberg metadata under metadata/, no longer kept up",
    ),
    Feature(
        "icebergCompatV3",
        "Files and metadata that convert to Iceberg, version 3.",
        requires=("columnMapping", "rowTracking"),
        properties=("delta.enableIcebergCompatV3",),
        traces=("properties",),
        drop="log",
        confirm=_ICEBERG,
        leftover="Iceberg metadata under metadata/, no longer kept up",
    ),
    Feature(
        "materializePartitionColumns",
        "Partition columns are stored in the data files too.",
        properties=("delta.enableMaterializePartitionColumnsFeature",),
        traces=("properties", "data files: extra columns"),
        drop="log",
        leftover="partition columns inside data files already written",
    ),
    Feature(
        "collations",
        "Strings compare by the rules of a language.",
        requires=("domainMetadata",),
        traces=("schema: __COLLATIONS", "statistics", "domains"),
        drop="log",
        confirm=_BINARY,
        leftover="statistics by collation, which others pass over",
    ),
    Feature(
        "collations-preview",
        "Strings compare by the rules of a language (first form).",
        requires=("domainMetadata",),
        traces=("schema: __COLLATIONS", "statistics", "domains"),
        drop="log",
        confirm=_BINARY,
        leftover="statistics by collation, which others pass over",
    ),
    Feature(
        "checkpointProtection",
        "Checkpoints before a version stay until all of that history is removed.",
        properties=("delta.requireCheckpointProtectionBeforeVersion",),
        traces=("properties", "checkpoints"),
        drop="history",
    ),
    Feature(
        "coordinatedCommits-preview",
        "A service decides which commit counts (given up for catalogManaged).",
        requires=("inCommitTimestamp", "vacuumProtocolCheck"),
        properties=(
            "delta.coordinatedCommits.commitCoordinator-preview",
            "delta.coordinatedCommits.commitCoordinatorConf-preview",
            "delta.coordinatedCommits.tableConf-preview",
        ),
        traces=("properties", "commits outside the log"),
        drop="log",
    ),
    Feature(
        "catalogManaged",
        "A catalog decides which commit counts.",
        reads=True,
        requires=("inCommitTimestamp", "vacuumProtocolCheck"),
        traces=("commits outside the log",),
        way_out="Only the catalog can remove it from the table. " + _REBUILD,
    ),
    Feature(
        "adaptiveMetadata-preview",
        "Metadata in the layout of Iceberg version 4.",
        reads=True,
        requires=("catalogManaged", "rowTracking", "domainMetadata", "deletionVectors", "columnMapping"),
        way_out=_REBUILD,
    ),
    Feature(
        "icebergWriterCompatV1",
        "Column ids and names as Iceberg writers expect them, version 1.",
        requires=("icebergCompatV2",),
        properties=("delta.enableIcebergWriterCompatV1",),
        traces=("properties",),
        way_out=_REBUILD,
    ),
    Feature(
        "icebergWriterCompatV3",
        "Column ids and names as Iceberg writers expect them, version 3.",
        requires=("icebergCompatV3",),
        properties=("delta.enableIcebergWriterCompatV3",),
        traces=("properties",),
        way_out=_REBUILD,
    ),
)

BY_NAME: dict[str, Feature] = {feature.name: feature for feature in FEATURES}
READER_FEATURES: frozenset[str] = frozenset(feature.name for feature in FEATURES if feature.reads)
_FOLDED = {name.lower(): feature for name, feature in BY_NAME.items()}


def find(name: str) -> Feature:
    """The feature of a name, without regard to case or back-quotes. Raises `feature-unknown`."""
    folded = name.strip().strip("`").lower()
    if folded.startswith("delta."):
        raise LakemirrorError(
            "feature-unknown",
            f"{name} is a table property, not a feature",
            hint=f"Change it with ALTER TABLE … UNSET TBLPROPERTIES ('{name}').",
        )
    if folded not in _FOLDED:
        raise LakemirrorError("feature-unknown", f"there is no table feature {name}")
    return _FOLDED[folded]


def dependents(name: str, among: frozenset[str]) -> list[str]:
    """The features among these that need the named one, directly or through others, in order of name."""
    found: set[str] = set()
    pending = [name]
    while pending:
        below = pending.pop()
        for feature in FEATURES:
            if feature.name in among and feature.name not in found and below in feature.requires:
                found.add(feature.name)
                pending.append(feature.name)
    return sorted(found)
