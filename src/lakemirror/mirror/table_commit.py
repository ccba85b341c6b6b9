"""What an apply commits beside its rows: columns, properties, position, manifest."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakemirror.delta.log import Action, Snapshot, Transaction
from lakemirror.delta.protocol import (
    FEED,
    FEED_COLUMNS,
    MAPPING,
    WIDENING,
    append_only_property,
    protocol_of,
    unsupported_reason,
)
from lakemirror.delta.schema import (
    Column,
    from_delta,
    is_widened,
    needs_mapping,
    to_delta,
    with_mapping,
)
from lakemirror.engines.row_work import Target
from lakemirror.engines.target import unkept_column
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.metadata import LAST_UPDATE
from lakemirror.mirror.applied_record import DETECTION_PROPERTY, AppliedPaths, Detection
from lakemirror.mirror.apply_plan import ApplyStart, Limits
from lakemirror.mirror.next_batch import CONSTANT, Batch, next_batch
from lakemirror.mirror.position import Manifest, Position, with_notes
from lakemirror.mirror.stored_columns import key_properties
from lakemirror.mirror.table_log import IDENTITY_PROPERTY, TableLog

FEED_PROPERTY = "lakemirror.changeDataFeed"
_HIGHEST_ID = "delta.columnMapping.maxColumnId"
_RETENTION = "delta.deletedFileRetentionDuration"
_LOG_RETENTION = "delta.logRetentionDuration"

_MOST_NOTES = 50


def check_expected(start: ApplyStart, found: Position | None, table: str, *, exists: bool) -> None:
    """LakemirrorError `concurrent-commit` where the table is not where `start` says, TableError `target-foreign`."""
    if found != start.expected:
        raise LakemirrorError("concurrent-commit", f"the table is at {found}, expected at {start.expected}")
    if found is None and exists:
        raise TableError("target-foreign", f"{table} holds a Delta table that lakemirror did not make")


def with_position(snapshot: Snapshot, position: Position | None) -> Snapshot:
    """The snapshot with the position that the newest apply in the log has set.

    Where a table has `delta.setTransactionRetentionDuration`, a checkpoint of another writer may lack the action.
    """
    if position is None or position.app_id in snapshot.transactions:
        return snapshot
    return replace(
        snapshot, transactions={**snapshot.transactions, position.app_id: Transaction(position.number, None)}
    )


def next_of(
    start: ApplyStart, files: Sequence[ChangeFile], before: Sequence[Column], limits: Limits, trust_statistics: bool
) -> tuple[Batch | None, TableError | None]:
    """The longest run of files that one commit may take, on a table with the columns `before`, as `next_batch`."""
    return next_batch(
        files,
        before,
        start.key_columns,
        upsert_by_default=start.upsert_by_default,
        most_files=limits.files,
        most_bytes=limits.bytes,
        trust_statistics=trust_statistics,
        rules=start.rules,
    )


def with_reserved(start: ApplyStart, before: Mapping[str, Any], columns: Sequence[Column], table: str) -> ApplyStart:
    """The start, with the names that new columns of this table cannot have.

    `before`: the table's `metaData` action, empty for a new table; `columns`: its columns. TableError
    `column-name-invalid` where it has such a column already: the change data feed was switched on later.
    """
    configuration = before.get("configuration") or {}
    after = {**configuration, **_changed_properties(configuration, start.properties)}
    reserved = start.rules.reserved | (FEED_COLUMNS if after.get(FEED) == "true" else frozenset())
    for column in columns:
        if column.name.lower() in reserved:
            raise TableError(
                "column-name-invalid",
                f"{table}: the change data feed is on, and has a column {column.name!r} of its own, as the table has",
                table=table,
                column=column.name,
                hint="Switch the change data feed off, or publish the table again without that column.",
            )
    return replace(start, rules=replace(start.rules, reserved=reserved))


def new_position(start: ApplyStart, batch: Batch) -> Position:
    """The table's position after the batch."""
    return Position(start.identity, start.generation, batch.files[-1].file.number)


def recorded(start: ApplyStart, batch: Batch, table: str) -> Detection:
    """The table's record of how files are found, with the batch's; writes the paths of those beside the table."""
    if start.detection.strategy != LAST_UPDATE:
        return start.detection
    applied = AppliedPaths(table, start.detection.segments)
    return replace(start.detection, segments=applied.with_paths(f.file.below for f in batch.files))


def transactions(position: Position, batch: Batch) -> dict[str, int]:
    """The numbers that the commit sets, by application id: the position, and where each partition is."""
    found = {position.app_id: position.number}
    for item in batch.files:
        if item.file.partition and item.file.sequence:
            found[position.partition_app_id(item.file.partition)] = item.file.sequence
    return found


def metadata(before: Mapping[str, Any], start: ApplyStart, batch: Batch, detection: Detection) -> dict[str, Any]:
    """The table's `metaData` action after the batch; `before` is empty for a new table."""
    if not before:
        before = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "partitionColumns": [],
            "configuration": {},
            "createdTime": int(time.time() * 1000),
        }
    configuration = {**before["configuration"], **_changed_properties(before["configuration"], start.properties)}
    so_far = before.get("schemaString", "") if not start.replaces else ""
    partitions = before["partitionColumns"] if so_far else partition_columns(batch)
    same = bool(so_far) and from_delta(so_far) == batch.columns
    schema = so_far if same else to_delta(batch.columns, so_far)
    if is_widened(schema):
        configuration[WIDENING] = "true"
    was_mapped = configuration.get(MAPPING, "none") != "none"
    if not was_mapped and any(needs_mapping(column.name) for column in batch.columns):
        configuration[MAPPING] = "name"
    if configuration.get(MAPPING, "none") != "none":
        held = [column.name for column in from_delta(so_far)] if so_far else []
        schema, highest = with_mapping(schema, int(configuration.get(_HIGHEST_ID, "0")), held, str(before["id"]))
        configuration[_HIGHEST_ID] = str(highest)
    configuration[IDENTITY_PROPERTY] = start.identity
    after = {**before, "schemaString": schema, "partitionColumns": partitions, "configuration": configuration}
    configuration.update(key_properties(after, start.key_columns))
    return with_detection(after, detection)


def with_detection(metadata: Mapping[str, Any], detection: Detection) -> dict[str, Any]:
    """The `metaData` action with the record of how files are found."""
    configuration = {key: value for key, value in metadata["configuration"].items() if key != DETECTION_PROPERTY}
    if not detection.is_plain:
        configuration[DETECTION_PROPERTY] = detection.to_json()
    return {**metadata, "configuration": configuration}


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


def check_writable(metadata: Mapping[str, Any], snapshot: Snapshot | None, table: str, *, deletes: bool) -> None:
    """TableError `table-feature-unsupported` for a table that is not written here, `table-append-only` where rows of
    a table that forbids it are deleted. `metadata`: after the batch."""
    reason = unsupported_reason(metadata, snapshot.protocol if snapshot else None)
    if reason is None and deletes:
        reason = append_only_property(metadata)
    if reason is not None:
        raise TableError(reason.code, f"{table}: {reason.reason}", table=table)


def check_kept(target: Target) -> None:
    """TableError `table-feature-unsupported` where an apply that deletes rows would lose values of another writer's
    column: its rows, or their old content, must be written again, and lakemirror cannot write them."""
    column = unkept_column(target)
    if column is None or (target.vectors and not target.feed):
        return
    why = "the change data feed holds deleted rows" if target.vectors else "the table has no deletion vectors"
    what = f"column {column.name!r} has the type {column.type[:80]}, which lakemirror cannot write again"
    raise TableError(
        "table-feature-unsupported",
        f"{target.path}: {what}, and {why}",
        table=target.path,
        column=column.name,
        hint="Drop the column, or switch deletion vectors on and the change data feed off.",
    )


def check_not_restored(found: TableLog, table: str) -> None:
    """TableError `table-restored` where another writer undid rows that the position covers (section 10)."""
    if found.foreign.restored is not None:
        raise TableError(
            "table-restored",
            f"{table}: {found.foreign.restored} took rows back; nothing is applied on top of them",
            table=table,
        )


def _changed_properties(before: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """The properties to set so that the table has those that the settings ask for.

    All of them for a new table. Later only the change data feed and the retention follow the settings; the feed is
    switched off only if lakemirror switched it on.
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


def manifest(start: ApplyStart, batch: Batch, detection: Detection) -> Manifest:
    last = batch.files[-1].file
    return Manifest(
        identity=start.identity,
        first=batch.files[0].file.number,
        last=last.number,
        file=last.below,
        size=last.entry.size,
        modified=last.entry.modified,
        tag=last.entry.tag,
        key_columns=start.key_columns,
        rows=start.rows_before + batch.rows,
        bytes=start.bytes_before + batch.bytes,
        committed=max(f.file.entry.modified for f in batch.files) / 1e9,
        notes=with_notes(start.notes_before, batch.warnings, _MOST_NOTES),
        detection=detection.to_json(),
    )
