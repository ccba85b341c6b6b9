"""What one commit will do, from a view of the table, the footers of its change files and a snapshot.

View + change files + snapshot ─▶ batch ─▶ metadata, protocol ─▶ units, target ─▶ engine ─▶ ApplyPlan

No file is read but the checkpoint of the snapshot, where rows of the table may change.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from sys import maxsize
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from lakemirror.delta.log import Action, Snapshot
from lakemirror.delta.protocol import (
    FEED,
    FEED_COLUMNS,
    MAPPING,
    WIDENING,
    append_only_property,
    unsupported_reason,
)
from lakemirror.delta.schema import Column, from_delta, is_widened, needing_mapping, to_delta, with_mapping
from lakemirror.engines.engine import LOCAL, STARTING, WHILE_STARTING, Choice, Preference, choose
from lakemirror.engines.kernels import add_files
from lakemirror.engines.row_work import ChangeUnit, RowWork, Target
from lakemirror.engines.target import apply_target, target_of, unkept_column
from lakemirror.errors import LakemirrorError, TableError, TryAs
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.reserved_columns import ADDED_COLUMNS, NEEDED_COLUMNS
from lakemirror.landing_zone.row_markers import INSERT, UPSERT
from lakemirror.landing_zone.table_options import LATE, NO_OPTIONS
from lakemirror.mirror.history.history_tables import HistoryTable
from lakemirror.mirror.history.row_options import (
    RECORDS,
    RowOptions,
    another_sequence,
    configuration_with,
)
from lakemirror.mirror.next_batch import CONSTANT, Batch, BatchFile, next_batch
from lakemirror.mirror.observe import View
from lakemirror.mirror.position import DETECTION_PROPERTY, Detection
from lakemirror.mirror.schema_evolution import ColumnRules, key_properties, replaced_columns
from lakemirror.mirror.table_log import IDENTITY_PROPERTY
from lakemirror.mirror.table_rules import TableRules
from lakemirror.storage import Entry

ROWS_A_UNIT = 512 * 1024  # a larger change file is several units, of row groups
_WHOLE = 16 << 20  # bytes of a file of inserts that is one unit: its parts would be small files, which are merged later
FEED_PROPERTY = "lakemirror.changeDataFeed"

HIGHEST_ID = "delta.columnMapping.maxColumnId"
_RETENTION = "delta.deletedFileRetentionDuration"
_LOG_RETENTION = "delta.logRetentionDuration"


@dataclass(frozen=True)
class Base:
    """The Delta table that an apply changes, at the version of the view.

    `path`: its folder; `database`: that of the database. `snapshot`: None where there is no table yet.
    `reshaped_from`: its `metaData` action after our last apply, where another writer has changed the columns since and
    the log still has it. `history`: which history table it is, None for the mirrored table; `follows`: the columns that
    the mirrored table then has.
    """

    path: str
    database: str
    snapshot: Snapshot | None = None
    reshaped_from: Mapping[str, Any] | None = None
    history: HistoryTable | None = None
    follows: tuple[Column, ...] = ()

    @property
    def shown(self) -> str:
        """The folder in messages: relative to the database."""
        return self.path.removeprefix(self.database).strip("/") if self.database else self.path


class AddedFile(NamedTuple):
    """A change file that becomes a data file as it is. `is_own`: lakemirror wrote it, from delimited text."""

    unit: ChangeUnit
    footer: pq.FileMetaData
    is_own: bool


@dataclass(frozen=True)
class ApplyPlan:
    """What one commit will do. Nothing of it is done yet.

    `batch`: change files of the `view`. `base`: the table before. `metadata`: its `metaData` action after, without the
    record of applied paths. `row_work`: what an engine does, None where the files have no rows. `added`: the change
    files where all of them become data files. `choice`: the engine and why. `also`: what the same batch
    does to the history tables, which are committed first (`history/target_plans.py`).
    """

    view: View
    base: Base
    batch: Batch
    metadata: Mapping[str, Any]
    row_work: RowWork | None
    added: tuple[AddedFile, ...]
    choice: Choice
    also: tuple[ApplyPlan, ...] = ()

    @property
    def version(self) -> int:
        """The version that the commit will have."""
        return self.base.snapshot.version + 1 if self.base.snapshot else 0

    @property
    def removed(self) -> tuple[Action, ...]:
        """The `add` actions of a table whose rows are replaced."""
        return tuple(self.base.snapshot.files.values()) if self.base.snapshot and self.replaces else ()

    @property
    def replaces(self) -> bool:
        """True where the rows of a folder that was made again replace those of the table. History stays."""
        return self.view.is_recreated and (self.base.history is None or self.base.history.options.mode == LATE)


def plan(
    view: View,
    files: Sequence[ChangeFile],
    base: Base,
    rules: TableRules,
    uri: Callable[[str], str],
    tried: frozenset[TryAs] = frozenset(),
) -> ApplyPlan:
    """The plan of the next commit, of the longest run of `files` that one commit may take. Raises Bad if the
    first of them cannot be applied.

    `uri` gives the address of a file of the database. `tried`: how the files must be applied, after a rejection.

    TableError where no batch can go into this table: `column-name-invalid`, `table-feature-unsupported`,
    `table-append-only`, `spark-needed`.
    """
    snapshot, exists = base.snapshot, base.snapshot is not None and not view.is_recreated
    before = dict(snapshot.metadata.value) if snapshot else {}
    columns = from_delta(before["schemaString"]) if exists else ()
    configuration, own = configuration_after(before, rules.properties), None
    options, growth = view.files.metadata.options, rules.columns
    upserts = view.files.metadata.upsert_by_default
    if options is not NO_OPTIONS or upserts or not RECORDS.isdisjoint(configuration):
        kept = before.get("configuration", {}) if exists else {}
        configuration = configuration_with(configuration, view.files.metadata, kept, base.shown, view.position)
        own = RowOptions.of(options, snapshot if exists else None, columns)
        growth = replace(growth, added=ADDED_COLUMNS if options.reserves_names else frozenset())
    growth = growth_of(growth, configuration, columns, base)
    limits = rules.limits
    if rules.preference.spark == STARTING:
        limits = limits._replace(decoded=WHILE_STARTING)
    given = columns if own is None else own.given
    batch = next_batch(files, given, view.files.metadata, limits=limits, rules=growth, mixed="mixed" in tried)
    if own is not None:
        batch = own.completed(batch)
        noted = another_sequence(kept, options, batch.files[0].file.entry.path)
        batch = replace(batch, warnings=(*batch.warnings, *noted)) if noted else batch
    if base.reshaped_from is not None and exists:
        file = batch.files[0].file.entry.path
        replaced = replaced_columns(base.reshaped_from, before, batch.columns, file)
        batch = replace(batch, warnings=(*batch.warnings, *replaced))
    if options is not NO_OPTIONS and options.has_versions:
        batch = replace(batch, append_only=False)
    metadata = metadata_after(before, columns, batch, view, configuration)
    check_writable(metadata, base)
    if view.is_recreated:
        check_deletes(metadata, base)
    version = snapshot.version + 1 if snapshot else 0
    target = replace(apply_target(target_of(base.path, metadata, view.files.metadata.key_columns)), version=version)
    work = row_work(view, batch, target, uri, base if exists else None)
    if work is not None and own is not None:
        work = own.ordered(work, base.shown)
    if work is not None and work.partial and rules.null_if_missing:
        work = replace(work, null_if_missing=True)
    may_add = work is not None and work.ordering is None and "rows" not in tried
    added = _added(batch, target, uri, rules.trust_footers) if may_add else ()
    choice = choice_of(rules.preference, work, base) if work and not added else _NO_ROWS
    return ApplyPlan(view, base, batch, metadata, work, added, choice)


_NO_ROWS = Choice(LOCAL, "no row is read")


def metadata_after(
    before: Mapping[str, Any], columns: Sequence[Column], batch: Batch, view: View, configuration: Mapping[str, str]
) -> dict[str, Any]:
    """The table's `metaData` action after the batch. `before` is empty for a new table; `columns`: those before that
    stay. `configuration`: as of `configuration_after`."""
    configuration = dict(configuration)
    if not before:
        before = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "partitionColumns": [],
            "configuration": {},
            "createdTime": int(time.time() * 1000),
        }
    so_far = before.get("schemaString", "") if not view.is_recreated else ""
    partitions = before["partitionColumns"] if so_far else _partition_columns(batch)
    same = bool(so_far) and tuple(columns) == batch.columns
    schema = so_far if same else to_delta(batch.columns, so_far)
    if not same and is_widened(schema):
        configuration[WIDENING] = "true"
    was_mapped = configuration.get(MAPPING, "none") != "none"
    if not same and not was_mapped and needing_mapping(column.name for column in batch.columns):
        configuration[MAPPING] = "name"
    if configuration.get(MAPPING, "none") != "none":
        held = [column.name for column in columns]
        schema, highest = with_mapping(schema, int(configuration.get(HIGHEST_ID, "0")), held, str(before["id"]))
        configuration[HIGHEST_ID] = str(highest)
    configuration[IDENTITY_PROPERTY] = view.identity
    after = {**before, "schemaString": schema, "partitionColumns": partitions, "configuration": configuration}
    options = view.files.metadata.options
    needed = (*options.sequence, *NEEDED_COLUMNS) if options.reserves_names else ()
    configuration.update(key_properties(after, view.files.metadata.key_columns, needed))
    return with_detection(after, view.detection)


def with_detection(metadata: Mapping[str, Any], detection: Detection) -> dict[str, Any]:
    """The `metaData` action with the record of how files are found."""
    configuration = {key: value for key, value in metadata["configuration"].items() if key != DETECTION_PROPERTY}
    if not detection.is_plain:
        configuration[DETECTION_PROPERTY] = detection.to_json()
    return {**metadata, "configuration": configuration}


def check_writable(metadata: Mapping[str, Any], base: Base) -> None:
    """TableError `table-feature-unsupported` for a table that is not written here. `metadata`: after the batch."""
    reason = unsupported_reason(metadata, base.snapshot.protocol if base.snapshot else None)
    if reason is not None:
        raise TableError(reason.code, f"{base.shown}: {reason.reason}", table=base.shown)


def check_deletes(metadata: Mapping[str, Any], base: Base) -> None:
    """TableError `table-append-only` for a table that forbids that its rows are deleted."""
    reason = append_only_property(metadata)
    if reason is not None:
        raise TableError(reason.code, f"{base.shown}: {reason.reason}", table=base.shown)


def units_of(item: BatchFile, uri: Callable[[str], str], most_rows: int) -> Iterator[ChangeUnit]:
    """The units of a change file: the file, or runs of its row groups if it has more than `most_rows` rows."""
    whole, footer = whole_unit(item, uri), item.file.footer
    if footer.num_rows <= most_rows or footer.num_row_groups < 2:
        yield replace(whole, bytes=item.file.decoded)
        return
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    sizes = [max(0, group.total_byte_size) for group in groups]
    begin = 0
    for first, end in _runs([group.num_rows for group in groups], most_rows):
        rows = sum(group.num_rows for group in groups[first:end])
        size = max(1, sum(sizes[first:end]))
        yield replace(whole, rows=rows, bytes=size, row_groups=tuple(range(first, end)), first_row=begin)
        begin += rows


def whole_unit(item: BatchFile, uri: Callable[[str], str]) -> ChangeUnit:
    """A change file as one unit of the bytes that it has."""
    file = item.file
    listed: Entry | None = None if file.read_from else file.entry  # the converted copy of a file is ours
    return ChangeUnit(
        uri(file.path), file.entry.path, file.number, item.columns, file.footer.num_rows, file.entry.size,
        file.constants, listed=listed, known=item.known,
    )  # fmt: skip


def growth_of(
    rules: ColumnRules, configuration: Mapping[str, str], columns: Sequence[Column], base: Base
) -> ColumnRules:
    """How columns may grow, with the names that new columns of this table cannot have.

    `configuration`: after the apply. TableError `column-name-invalid` where the table has such a column already: the
    change data feed was switched on later.
    """
    reserved = rules.reserved | (FEED_COLUMNS if configuration.get(FEED) == "true" else frozenset())
    for column in columns:
        if column.name.lower() in reserved:
            what = f"the change data feed is on, and has a column {column.name!r} of its own, as the table has"
            raise TableError(
                "column-name-invalid",
                f"{base.shown}: {what}",
                table=base.shown,
                column=column.name,
                hint="Switch the change data feed off, or publish the table again without that column.",
            )
    return rules if reserved == rules.reserved else replace(rules, reserved=reserved)


def configuration_after(metadata: Mapping[str, Any], wanted: Mapping[str, str]) -> dict[str, str]:
    """The table's properties with those that the settings ask for. `metadata`: its `metaData` action before, empty for
    a new table.

    A new table gets all of them. Later only the change data feed and the retention follow the settings; the feed is
    switched off only if lakemirror switched it on.
    """
    before = metadata.get("configuration") or {}
    if not before:
        return {**wanted, **({FEED_PROPERTY: "true"} if wanted.get(FEED) == "true" else {})}
    follow = (_RETENTION, *([_LOG_RETENTION] if _LOG_RETENTION in before else []))
    changed = {name: wanted[name] for name in follow if name in wanted and before.get(name) != wanted[name]}
    if wanted.get(FEED) == "true":
        changed.update({FEED: "true", FEED_PROPERTY: "true"})
    elif before.get(FEED_PROPERTY) == "true":
        changed.update({FEED: "false", FEED_PROPERTY: "false"})
    return {**before, **changed}


def _partition_columns(batch: Batch) -> list[str]:
    """The partition columns of a new table: those that the partition folders give and no file holds itself.

    None where no other column would be left, which Delta does not allow.
    """
    held = {column.name.lower() for item in batch.files for column in item.columns if column.encoding != CONSTANT}
    given = dict.fromkeys(name for item in batch.files for name, _ in item.file.constants)
    names = {column.name.lower(): column.name for column in batch.columns}
    chosen = [names[name.lower()] for name in given if name.lower() not in held]
    return chosen if len(chosen) < len(batch.columns) else []


def row_work(view: View, batch: Batch, target: Target, uri: Callable[[str], str], base: Base | None) -> RowWork | None:
    """What an engine does; None where the batch has no rows. `base`: a table whose rows stay."""
    if not batch.rows:
        return None
    most = [maxsize if batch.append_only and item.file.entry.size <= _WHOLE else ROWS_A_UNIT for item in batch.files]
    units = tuple(unit for item, rows in zip(batch.files, most, strict=True) for unit in units_of(item, uri, rows))
    default = UPSERT if view.files.metadata.upsert_by_default else INSERT
    options = view.files.metadata.options
    replaces = options is not NO_OPTIONS and options.has_versions
    work = RowWork(target, units, batch.append_only, default, partial=batch.partial, inserts_replace=replaces)
    if base is None or base.snapshot is None or batch.append_only or not view.files.metadata.key_columns:
        return work
    if target.unwritten:
        _check_kept(target, base)
    return replace(work, candidates=tuple(base.snapshot.files.values()))


def _check_kept(target: Target, base: Base) -> None:
    """TableError `table-feature-unsupported` where an apply that deletes rows would lose values of another writer's
    column: its rows, or their old content, must be written again, and lakemirror cannot write them."""
    column = unkept_column(target)
    if column is None or (target.vectors and not target.feed):
        return
    why = "the change data feed holds deleted rows" if target.vectors else "the table has no deletion vectors"
    what = f"column {column.name!r} has the type {column.type[:80]}, which lakemirror cannot write again"
    raise TableError(
        "table-feature-unsupported",
        f"{base.shown}: {what}, and {why}",
        table=base.shown,
        column=column.name,
        hint="Drop the column, or switch deletion vectors on and the change data feed off.",
    )


def _runs(rows: Sequence[int], most_rows: int) -> Iterator[tuple[int, int]]:
    """Neighbouring row groups with at most `most_rows` rows together (or one group): from and to."""
    first = total = 0
    for index, count in enumerate(rows):
        if total and total + count > most_rows:
            yield first, index
            first, total = index, 0
        total += count
    yield first, len(rows)


def _added(batch: Batch, target: Target, uri: Callable[[str], str], trust_footers: bool) -> tuple[AddedFile, ...]:
    """The files of the batch if, by its footers, every one of them may become a data file; else none."""
    if not batch.append_only or target.constraints:
        return ()
    if not add_files.large_enough([item.file.entry.size for item in batch.files]):
        return ()
    added = tuple(AddedFile(whole_unit(i, uri), i.file.footer, bool(i.file.read_from)) for i in batch.files)
    reasons = (
        add_files.unsupported_reason(file.unit, target, file.footer, trust_footer=trust_footers) for file in added
    )
    return added if all(reason is None for reason in reasons) else ()


def choice_of(preference: Preference, work: RowWork, base: Base) -> Choice:
    """The engine for the rows. LakemirrorError `spark-needed` where the settings forbid the only one that can do it."""
    constraints = work.target.constraints
    needs = f"the table has the constraint {constraints[0][0]}" if constraints else ""
    choice = choose(preference, sum(unit.bytes for unit in work.changes), needs_spark=needs)
    if needs and choice.engine == LOCAL:
        raise LakemirrorError("spark-needed", f"{base.shown}: {needs}, which only Spark can check")
    return choice
