"""What an apply's commit says beside its rows: columns, properties, position, manifest."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakemirror.delta.log import Action, Snapshot
from lakemirror.delta.protocol import (
    FEED,
    MAPPING,
    VECTORS,
    WIDENING,
    append_only_property,
    protocol_of,
    unsupported_reason,
)
from lakemirror.delta.schema import (
    MAPPING_ID,
    PHYSICAL_NAME,
    Column,
    from_delta,
    is_widened,
    needs_mapping,
    to_delta,
    with_mapping,
)
from lakemirror.engines.row_work import Target, TargetColumn
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.metadata import LAST_UPDATE
from lakemirror.replication.applied_record import DETECTION_PROPERTY, AppliedPaths, Detection
from lakemirror.replication.apply_work import Limits, Work
from lakemirror.replication.batch import CONSTANT, Batch, next_batch
from lakemirror.replication.position import Manifest, Position, as_note
from lakemirror.replication.table_log import KEYS_PROPERTY, TableLog

IDENTITY_PROPERTY = "lakemirror.identity"
FEED_PROPERTY = "lakemirror.changeDataFeed"
_HIGHEST_ID = "delta.columnMapping.maxColumnId"
_RETENTION = "delta.deletedFileRetentionDuration"
_LOG_RETENTION = "delta.logRetentionDuration"

_MOST_NOTES = 50


def check_expected(work: Work, found: Position | None, table: str, *, exists: bool) -> None:
    """LakemirrorError `concurrent-commit` where the table is not where `work` says, TableError `target-foreign`."""
    if found != work.expected:
        raise LakemirrorError("concurrent-commit", f"the table is at {found}, expected at {work.expected}")
    if found is None and exists:
        raise TableError("target-foreign", f"{table} holds a Delta table that lakemirror did not make")


def next_of(
    work: Work, files: Sequence[ChangeFile], before: Sequence[Column], limits: Limits, trust_statistics: bool
) -> tuple[Batch | None, TableError | None]:
    """The longest run of files that one commit may take, on a table with the columns `before`, as `next_batch`."""
    return next_batch(
        files,
        before,
        work.key_columns,
        upsert_by_default=work.upsert_by_default,
        most_files=limits.files,
        most_bytes=limits.bytes,
        trust_statistics=trust_statistics,
        rules=work.rules,
    )


def new_position(work: Work, batch: Batch) -> Position:
    """Where the table is after the batch."""
    return Position(work.identity, work.generation, batch.files[-1].file.number)


def recorded(work: Work, batch: Batch, table: str) -> Detection:
    """The table's record of how files are found, with the batch's; writes the paths of those beside the table."""
    if work.detection.strategy != LAST_UPDATE:
        return work.detection
    applied = AppliedPaths(table, work.detection.segments)
    return replace(work.detection, segments=applied.with_paths(f.file.below for f in batch.files))


def needs_mapping_first(before: Mapping[str, Any], work: Work, batch: Batch) -> bool:
    """True where column mapping has to be on before the batch: Delta does not turn it on together with other columns,
    nor together with rows that the change data feed shows.
    """
    if not any(needs_mapping(column.name) for column in batch.columns):
        return False
    if before:
        return bool(before["configuration"].get(MAPPING, "none") == "none")
    return work.properties.get(FEED) == "true"


def transactions(position: Position, batch: Batch) -> dict[str, int]:
    """The numbers that the commit sets, by application id: the position, and where each partition is."""
    found = {position.app_id: position.number}
    for item in batch.files:
        if item.file.partition and item.file.sequence:
            found[position.partition_app_id(item.file.partition)] = item.file.sequence
    return found


def metadata(
    before: Mapping[str, Any], work: Work, batch: Batch, detection: Detection, *, by_delta: bool = False
) -> dict[str, Any]:
    """The table's `metaData` action after the batch; `before` is empty for a new table.

    `by_delta`: Delta Spark commits it, and gives ids and physical names to mapped columns itself.
    """
    if not before:
        before = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "partitionColumns": [],
            "configuration": {},
            "createdTime": int(time.time() * 1000),
        }
    configuration = {**before["configuration"], **_changed_properties(before["configuration"], work.properties)}
    so_far = before.get("schemaString", "") if not work.replaces else ""
    partitions = before["partitionColumns"] if so_far or by_delta else partition_columns(batch)
    same = bool(so_far) and from_delta(so_far) == batch.columns
    schema = so_far if same else to_delta(batch.columns, so_far)
    if is_widened(schema):
        configuration[WIDENING] = "true"
    was_mapped = configuration.get(MAPPING, "none") != "none"
    if not was_mapped and any(needs_mapping(column.name) for column in batch.columns):
        configuration[MAPPING] = "name"
    if configuration.get(MAPPING, "none") != "none" and not by_delta:
        held = [column.name for column in from_delta(so_far)] if so_far and not was_mapped else []
        schema, highest = with_mapping(schema, int(configuration.get(_HIGHEST_ID, "0")), held, str(before["id"]))
        configuration[_HIGHEST_ID] = str(highest)
    configuration[IDENTITY_PROPERTY] = work.identity
    configuration[KEYS_PROPERTY] = json.dumps(list(work.key_columns))
    configuration.pop(DETECTION_PROPERTY, None)
    if not detection.is_plain:
        configuration[DETECTION_PROPERTY] = detection.to_json()
    return {**before, "schemaString": schema, "partitionColumns": partitions, "configuration": configuration}


def partition_columns(batch: Batch) -> list[str]:
    """The partition columns of a new table: those that the partition folders give and no file holds itself.

    None where no other column would be left, which Delta does not allow.
    """
    held = {column.name.lower() for item in batch.files for column in item.columns if column.encoding != CONSTANT}
    given = dict.fromkeys(name for item in batch.files for name, _ in item.file.constants)
    names = {column.name.lower(): column.name for column in batch.columns}
    found = [names[name.lower()] for name in given if name.lower() not in held]
    return found if len(found) < len(batch.columns) else []


def state_actions(snapshot: Snapshot | None, metadata: Mapping[str, Any]) -> list[Action]:
    """The `protocol` and `metaData` actions that bring a table to this metadata; none where nothing changes."""
    before = snapshot.protocol if snapshot else None
    protocol = protocol_of(metadata, before)
    actions = [] if protocol == before else [protocol.to_action()]
    if snapshot is None or dict(snapshot.metadata.value) != dict(metadata):
        actions.append({"metaData": dict(metadata)})
    return actions


def target_of(metadata: Mapping[str, Any], key_columns: Sequence[str], path: str) -> Target:
    """The table with this `metaData` in the folder `path`, as the kernels take it. Key columns that the table lacks
    are left out."""
    configuration = metadata.get("configuration") or {}
    mapped = configuration.get(MAPPING, "none") != "none"
    columns = []
    for column, each in zip(
        from_delta(metadata["schemaString"]), json.loads(metadata["schemaString"])["fields"], strict=True
    ):
        known = each["metadata"] if mapped else {}
        physical, number = known.get(PHYSICAL_NAME, column.name), known.get(MAPPING_ID)
        columns.append(TargetColumn(column.name, physical, column.type, number, each.get("nullable", True)))
    names = {column.name.lower(): column.name for column in columns}
    return Target(
        path,
        tuple(columns),
        tuple(metadata.get("partitionColumns") or ()),
        tuple(names[key.lower()] for key in key_columns if key.lower() in names),
        vectors=configuration.get(VECTORS, "").lower() == "true",
        feed=configuration.get(FEED, "").lower() == "true",
    )


def check_writable(metadata: Mapping[str, Any], snapshot: Snapshot | None, batch: Batch, table: str) -> None:
    """TableError `table-feature-unsupported` for a table that is not written here, and what `check_appends` raises.
    `metadata`: after the batch."""
    reason = unsupported_reason(metadata, snapshot.protocol if snapshot else None)
    if reason is not None:
        raise TableError(reason.code, f"{table}: {reason.reason}", table=table)
    check_appends(metadata, batch, table)


def check_appends(metadata: Mapping[str, Any], batch: Batch, table: str) -> None:
    """TableError `table-append-only` where the batch may delete rows of a table whose properties forbid it."""
    reason = None if batch.append_only else append_only_property(metadata)
    if reason is not None:
        raise TableError(reason.code, f"{table}: {reason.reason}", table=table)


def check_not_restored(found: TableLog, table: str) -> None:
    """TableError `table-restored` where another writer took back rows that the position counts (section 10)."""
    if found.foreign.restored is not None:
        raise TableError(
            "table-restored",
            f"{table}: {found.foreign.restored} took rows back; nothing is applied on top of them",
            table=table,
        )


def _changed_properties(before: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """What has to be set so that the table has the properties that the settings want.

    All of a new table's. Later the change data feed and the retention follow the settings; the feed is switched off
    only where lakemirror has switched it on.
    """
    if not before:
        return {**wanted, **({FEED_PROPERTY: "true"} if wanted.get(FEED) == "true" else {})}
    follow = (_RETENTION, *([_LOG_RETENTION] if _LOG_RETENTION in before else []))
    changed = {name: wanted[name] for name in follow if name in wanted and before.get(name) != wanted[name]}
    if wanted.get(FEED) == "true":
        changed.update({FEED: "true", FEED_PROPERTY: "true"})
    elif before.get(FEED_PROPERTY) == "true":
        changed.update({FEED: "false", FEED_PROPERTY: "false"})
    return changed


def manifest(work: Work, batch: Batch, detection: Detection) -> Manifest:
    last = batch.files[-1].file
    return Manifest(
        identity=work.identity,
        first=batch.files[0].file.number,
        last=last.number,
        file=last.below,
        size=last.entry.size,
        modified=last.entry.modified,
        key_columns=work.key_columns,
        rows=work.rows_before + batch.rows,
        bytes=work.bytes_before + batch.bytes,
        committed=max(f.file.entry.modified for f in batch.files) / 1e9,
        notes=tuple(dict.fromkeys([*work.notes_before, *(as_note(w) for w in batch.warnings)]))[:_MOST_NOTES],
        detection=detection.to_json(),
    )
