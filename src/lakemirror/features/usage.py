"""Finds where a table uses its features: in its metadata, its actions and its files (by their footers).

`metadata_traces` and `action_trace` answer for one action of the log, `usage` for the table's current state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import Action, Metadata, Protocol, Snapshot, read_commit
from lakemirror.features.catalogue import BY_NAME, dependents
from lakemirror.storage.place import opened, place

_INVALID_IN_NAMES = set(" ,;{}()\n\t=")


@dataclass(frozen=True)
class Use:
    """One feature of one table.

    `listed`: the protocol names it; else its version numbers imply it. `evidence`: where it is used; empty if nowhere.
    `needed_by`: features of this table that require it. `since` and `by`: the commit that added it, if the log still
    has that commit.
    """

    feature: str
    listed: bool
    evidence: tuple[str, ...]
    needed_by: tuple[str, ...]
    since: int | None = None
    by: str | None = None

    @property
    def in_use(self) -> bool:
        return bool(self.evidence)


def usage(snapshot: Snapshot) -> list[Use]:
    """Every feature of the table in order of name, including unknown ones."""
    names = features_of(snapshot.protocol)
    listed = (snapshot.protocol.reader_features or frozenset()) | (snapshot.protocol.writer_features or frozenset())
    return [
        Use(name, name in listed, tuple(evidence(name, snapshot)), tuple(dependents(name, names)))
        for name in sorted(names)
    ]


def usage_with_origin(snapshot: Snapshot) -> list[Use]:
    """The same, with the commit that added each feature, if the log still has an older commit without it."""
    origins: dict[str, tuple[int, str]] = {}
    known: frozenset[str] | None = None
    for version in sorted(v for v in snapshot.log.commits if v <= snapshot.version):
        actions = read_commit(snapshot.log.commits[version])
        info: dict[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
        for action in actions:
            if "protocol" not in action:
                continue
            names = features_of(Protocol.from_action(action["protocol"]))
            for name in names - (known or frozenset()) if known is not None or version == 0 else ():
                by = f"{info.get('operation', 'unknown')} by {info.get('engineInfo', 'unknown')}"
                origins[name] = (version, by)
            known = names
    none: tuple[None, None] = (None, None)
    found = [(use, origins.get(use.feature, none)) for use in usage(snapshot)]
    return [replace(use, since=since, by=by) for use, (since, by) in found]


def evidence(name: str, snapshot: Snapshot) -> Iterator[str]:
    """What uses a feature in the table's current state: one short phrase each."""
    yield from metadata_traces(name, snapshot.metadata)
    if name == "deletionVectors":
        vectors = [add for add in snapshot.files.values() if add.get("deletionVector")]
        if vectors:
            yield f"{len(vectors)} of {len(snapshot.files)} files have deletion vectors"
    elif name == "rowTracking":
        if any("baseRowId" in add or "defaultRowCommitVersion" in add for add in snapshot.files.values()):
            yield "files carry row ids"
    elif name == "domainMetadata":
        if snapshot.domains:
            yield "domains " + ", ".join(sorted(snapshot.domains))
    elif name == "v2Checkpoint" and snapshot.checkpoint and snapshot.checkpoint.kind == "v2":
        yield f"checkpoint {snapshot.checkpoint.version} is a V2 checkpoint"
    for domain in BY_NAME[name].domains if name in BY_NAME else ():
        if domain in snapshot.domains:
            yield f"domain {domain}"


_FIELD_KEYS = {
    "invariants": "delta.invariants",
    "generatedColumns": "delta.generationExpression",
    "identityColumns": "delta.identity.start",
    "allowColumnDefaults": "CURRENT_DEFAULT",
    "typeWidening": "delta.typeChanges",
    "typeWidening-preview": "delta.typeChanges",
    "collations": "__COLLATIONS",
    "collations-preview": "__COLLATIONS",
}
"""The key in a field's metadata that is a use of the feature."""

_TYPES = {
    "timestampNtz": ("timestamp_ntz",),
    "variantType": ("variant",),
    "variantType-preview": ("variant",),
    "geospatial": ("geometry", "geography"),
    "geospatial-dev": ("geometry", "geography"),
}
"""What the name of a type that is a use of the feature begins with."""

_SWITCHED_BY_VALUE = {
    "columnMapping": ("mode", "delta.columnMapping.mode", "none"),
    "v2Checkpoint": ("property delta.checkpointPolicy is", "delta.checkpointPolicy", "classic"),
}
"""A property that is a use of the feature with any value but this one; and the words for it."""

_SWITCHES = {"rowTracking": ("delta.enableRowTracking",)}
"""The properties that are a use of the feature if they are true; of others all that belong to it."""


def metadata_traces(name: str, metadata: Metadata) -> list[str]:
    """Where the metadata uses a feature: properties and the schema."""
    properties = metadata.configuration
    own = BY_NAME[name].properties if name in BY_NAME else ()
    if name == "checkConstraints":
        return [f"constraint {constraint}" for constraint in constraints(metadata)]
    if name == "checkpointProtection":
        return [f"property {key} is {properties[key]}" for key in own if key in properties]
    if name == "coordinatedCommits-preview":
        return [f"property {key}" for key in own if key in properties]
    if name in _SWITCHED_BY_VALUE:
        words, key, default = _SWITCHED_BY_VALUE[name]
        value = properties.get(key, default)
        return [f"{words} {value}"] if value != default else []
    switched_on = [key for key in _SWITCHES.get(name, own) if properties.get(key, "").strip().lower() == "true"]
    return [
        *(f"property {key} is true" for key in switched_on),
        *(f"column {path}" for path, field in walk(metadata.schema) if _is_use(name, field)),
    ]


def _is_use(name: str, field: Mapping[str, Any]) -> bool:
    """True for a field whose metadata or type uses a feature."""
    if name in _FIELD_KEYS:
        return _FIELD_KEYS[name] in field.get("metadata", {})
    return name in _TYPES and any(kind.startswith(_TYPES[name]) for kind in _type_names(field["type"]))


def action_trace(name: str, action: Action) -> bool:
    """True if an action of a commit or checkpoint requires a reader to know the feature (readers' features only)."""
    if metadata := action.get("metaData"):
        traces = metadata_traces(name, Metadata(metadata))
        if name.startswith("typeWidening"):  # the property alone changes nothing for a reader
            return any(trace.startswith("column") for trace in traces)
        return bool(traces)
    if name == "deletionVectors":
        return any(bool((action.get(kind) or {}).get("deletionVector")) for kind in ("add", "remove", "cdc"))
    if name == "v2Checkpoint":
        return "checkpointMetadata" in action or "sidecar" in action
    return False


def traits(snapshot: Snapshot) -> frozenset[str]:
    """What single clients trip over: the features in use, and finer things as `feature: what` or `thing: what`.

    `deletionVectors: in files` and `typeWidening: widened` are uses beyond a property that is on. Of column mapping:
    `renamed` (a physical name is not the logical one), `upgraded` (mapping came later: names are still the same),
    `dropped` (a column before a standing one is gone), `nested`, `partitions` (a partition column after others).
    """
    found = {use.feature for use in usage(snapshot) if use.in_use}
    schema, files = snapshot.metadata.schema, snapshot.files.values()
    fields = [field for _, field in walk(schema)]
    if any(add.get("deletionVector") for add in files):
        found.add("deletionVectors: in files")
    if any("delta.typeChanges" in field.get("metadata", {}) for field in fields):
        found |= {f"{name}: widened" for name in ("typeWidening", "typeWidening-preview") if name in found}
    if "columnMapping" in found:
        found |= {f"columnMapping: {what}" for what in _mapping_traits(snapshot.metadata, fields)}
        found |= {"clustering: mapped"} & {f"{name}: mapped" for name in found}
    if len(files) > 1:
        found.add("files: several")
    if not all(unquote(add["path"]).isascii() for add in files):
        found.add("paths: not ASCII")
    if any(_map_of_maps(field["type"]) for field in fields):
        found.add("types: map of maps")
    return frozenset(found)


def _mapping_traits(metadata: Metadata, fields: list[dict[str, Any]]) -> Iterator[str]:
    same = [field.get("metadata", {}).get("delta.columnMapping.physicalName") == field["name"] for field in fields]
    if not all(same):
        yield "renamed"
    if any(same):
        yield "upgraded"
    top = metadata.schema["fields"]
    if len(fields) > len(top):
        yield "nested"
    ids = [field.get("metadata", {}).get("delta.columnMapping.id", 0) for field in fields]
    nested = sum(len(field.get("metadata", {}).get("delta.columnMapping.nested.ids", {})) for field in fields)
    if ids and max(ids) > len(ids) + nested:
        yield "dropped"
    partitions = metadata.partition_columns
    if {field["name"] for field in top[: len(partitions)]} != set(partitions):
        yield "partitions"


def _map_of_maps(kind: Any) -> bool:
    if not isinstance(kind, dict) or kind["type"] == "struct":
        return False
    if kind["type"] == "array":
        return _map_of_maps(kind["elementType"])
    inner = kind["valueType"]
    return (isinstance(inner, dict) and inner["type"] == "map") or _map_of_maps(inner)


def constraints(metadata: Metadata) -> dict[str, str]:
    """The check constraints by name."""
    prefix = "delta.constraints."
    return {k[len(prefix) :]: v for k, v in sorted(metadata.configuration.items()) if k.startswith(prefix)}


def names_without_mapping(metadata: Metadata) -> list[str]:
    """The columns whose names a table cannot hold without column mapping."""
    return [path for path, field in walk(metadata.schema) if _INVALID_IN_NAMES & set(field["name"])]


def mapping_is_idle(metadata: Metadata) -> bool:
    """True if every physical name is the logical one, so that column mapping can be dropped without a rewrite.

    Old files still hold the data of dropped columns, and a new column of that name must not show it. So no id may be
    missing. Under mode `id`, files are not read by name, and the answer is False.
    """
    if metadata.configuration.get("delta.columnMapping.mode", "none") == "id":
        return False
    ids = 0
    for _, field in walk(metadata.schema):
        more = field.get("metadata", {})
        if more.get("delta.columnMapping.physicalName", field["name"]) != field["name"]:
            return False
        ids += ("delta.columnMapping.id" in more) + len(more.get("delta.columnMapping.nested.ids", {}))
    return metadata.configuration.get("delta.columnMapping.maxColumnId", str(ids)) == str(ids)


def walk(schema: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field of a schema with its path, including fields of structs in arrays and maps."""
    for field in schema["fields"]:
        path = f"{prefix}{field['name']}"
        yield path, field
        for inner, step in _structs(field["type"], path):
            yield from walk(inner, f"{step}.")


def _structs(kind: Any, path: str) -> Iterator[tuple[dict[str, Any], str]]:
    if not isinstance(kind, dict):
        return
    if kind["type"] == "struct":
        yield kind, path
    elif kind["type"] == "array":
        yield from _structs(kind["elementType"], f"{path}.element")
    elif kind["type"] == "map":
        yield from _structs(kind["keyType"], f"{path}.key")
        yield from _structs(kind["valueType"], f"{path}.value")


def _type_names(kind: Any) -> Iterator[str]:
    if isinstance(kind, str):
        yield kind
    elif kind["type"] == "array":
        yield from _type_names(kind["elementType"])
    elif kind["type"] == "map":
        yield from _type_names(kind["keyType"])
        yield from _type_names(kind["valueType"])


def files_with_old_types(snapshot: Snapshot) -> list[Action]:
    """The `add` actions whose files still hold a type that a column has been widened from (their footers are read)."""
    targets = _widened(snapshot.metadata.schema)
    if not targets:
        return []
    return [add for add in snapshot.files.values() if _holds_old_types(snapshot, add, targets)]


def _widened(schema: Mapping[str, Any]) -> list[tuple[tuple[str, ...], str]]:
    """The physical path of every widened column or field, with its current type."""
    found: list[tuple[tuple[str, ...], str]] = []

    def kinds(kind: Any, physical: tuple[str, ...]) -> None:
        if isinstance(kind, str):
            found.append((physical, kind))
        elif kind["type"] == "array":
            kinds(kind["elementType"], (*physical, "element"))
        elif kind["type"] == "map":
            kinds(kind["keyType"], (*physical, "key"))
            kinds(kind["valueType"], (*physical, "value"))

    def fields(struct: Mapping[str, Any], physical: tuple[str, ...]) -> None:
        for field in struct["fields"]:
            more = field.get("metadata", {})
            here = (*physical, more.get("delta.columnMapping.physicalName", field["name"]))
            if "delta.typeChanges" in more:
                kinds(field["type"], here)
            nested(field["type"], here)

    def nested(kind: Any, here: tuple[str, ...]) -> None:
        if isinstance(kind, dict):
            if kind["type"] == "struct":
                fields(kind, here)
            elif kind["type"] == "array":
                nested(kind["elementType"], (*here, "element"))
            elif kind["type"] == "map":
                nested(kind["keyType"], (*here, "key"))
                nested(kind["valueType"], (*here, "value"))

    fields(schema, ())
    return found


def _holds_old_types(snapshot: Snapshot, add: Action, targets: list[tuple[tuple[str, ...], str]]) -> bool:
    path = place(add["path"]) if add["path"].startswith("file:") else snapshot.table / unquote(add["path"])
    try:
        schema = pq.read_schema(opened(path))
    except (OSError, pa.ArrowException):
        return True  # `route.py` says what is wrong with the file
    return any((kind := _at(schema, physical)) is not None and not _same(kind, now) for physical, now in targets)


def _at(schema: pa.Schema, physical: tuple[str, ...]) -> pa.DataType | None:
    """The type at a path inside a file; None if the file does not have it."""
    kind: Any = pa.struct(list(schema))
    for step in physical:
        if pa.types.is_struct(kind):
            index = kind.get_field_index(step)
            if index < 0:
                return None
            kind = kind.field(index).type
        elif pa.types.is_map(kind):
            kind = kind.key_type if step == "key" else kind.item_type
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            kind = kind.value_type
        else:
            return None
    return kind


def _same(kind: pa.DataType, name: str) -> bool:
    plain = {
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "date": pa.date32(),
    }
    if name in plain:
        return bool(kind == plain[name])
    if name.startswith("timestamp"):
        return bool(pa.types.is_timestamp(kind))
    if name.startswith("decimal"):
        return bool(pa.types.is_decimal(kind)) and name == f"decimal({kind.precision},{kind.scale})"
    return True  # other types are never widened
