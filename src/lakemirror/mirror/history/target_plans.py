"""The plans of one batch for the mirrored table and its history tables (history.md section 4).

    plan of the mirrored table ─▶ the same files for each history table that has not got them ─▶ ApplyPlan.also

A rejection of one is a rejection for all, before any commit: all targets have the same files at their positions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from lakemirror.delta.log import Snapshot
from lakemirror.delta.protocol import VECTORS
from lakemirror.delta.schema import Column, from_delta
from lakemirror.engines.engine import LOCAL, Choice
from lakemirror.engines.late_deletes import may_have_deletes
from lakemirror.engines.row_work import HistoryWork, Remembered, RowWork, Target
from lakemirror.engines.target import apply_target, target_of
from lakemirror.errors import Bad, LakemirrorError, TableError, TryAs
from lakemirror.landing_zone.change_file import ChangeFile
from lakemirror.landing_zone.reserved_columns import (
    ADDED_COLUMNS,
    APPLIED_AT,
    CHANGE_FILE,
    CHANGE_ROW,
    DELETED_AT,
    LEFT_OUT,
    OPERATION,
)
from lakemirror.landing_zone.row_markers import DELETE, INSERT, UPDATE, UPSERT
from lakemirror.landing_zone.table_options import CHANGES, IGNORE, LATE, NO_OPTIONS, SCD2
from lakemirror.mirror.apply import Applied
from lakemirror.mirror.history import version_plans
from lakemirror.mirror.history.history_tables import AWAY, HistoryTable, alike
from lakemirror.mirror.history.row_options import ordered_since, with_options
from lakemirror.mirror.next_batch import Batch, Limits, next_batch
from lakemirror.mirror.observe import View
from lakemirror.mirror.planner import (
    ApplyPlan,
    Base,
    check_writable,
    choice_of,
    configuration_after,
    growth_of,
    metadata_after,
    plan,
    row_work,
)
from lakemirror.mirror.schema_evolution import KEYS_PROPERTY, STORED_PROPERTY, replaced_columns
from lakemirror.mirror.table_log import HISTORY_PROPERTY, LATE_DAYS_PROPERTY, LogCache
from lakemirror.mirror.table_rules import TableRules

_LISTS = json.dumps({"type": "array", "elementType": "string", "containsNull": True})
_CHANGES = (
    Column(OPERATION, "string"),
    Column(CHANGE_FILE, "string"),
    Column(CHANGE_ROW, "bigint"),
    Column(APPLIED_AT, "timestamp"),
    Column(LEFT_OUT, _LISTS),
)

_LATE = (
    Column(OPERATION, "string"),
    Column(CHANGE_FILE, "bigint"),
    Column(CHANGE_ROW, "bigint"),
    Column(APPLIED_AT, "timestamp"),
    Column(DELETED_AT, "timestamp"),
)
"""Of the remembered changes (`engines/late_deletes.py`). The file is its number."""

_EVENTS = (INSERT, UPDATE, UPSERT)

HistoryBases = Callable[[HistoryTable], Base]
"""Gives a history table at the version of the view."""


def plan_targets(
    view: View,
    files: Sequence[ChangeFile],
    bases: tuple[Base, HistoryBases],
    rules: TableRules,
    uri: Callable[[str], str],
    tried: frozenset[TryAs],
) -> ApplyPlan:
    """The plan of a batch for the mirrored table, with those for its history tables as `also`. As `plan`.

    `bases`: the mirrored table, and how a history table is found. A history table that has the files already gets no
    plan.
    """
    files = alike(files, view.history)
    while True:
        planned = plan(view, files, bases[0], rules, uri, tried)
        memory = _memory(view, planned, bases[1])
        planned = _remembering(planned, memory, view)
        taken = [item.file for item in planned.batch.files]
        also: list[ApplyPlan] = []
        versions: RowWork | None = None
        completes = planned.batch.partial and view.files.metadata.options.remembers_all
        for table in view.history:
            is_held = table.holds(taken[0])
            if is_held and not (completes and table.options.mode == SCD2):
                continue
            follows = tuple(column for column in planned.batch.columns if column.name not in ADDED_COLUMNS)
            base = replace(bases[1](table), follows=follows)
            its = plan_history(view_of(view, table), taken, base, rules, uri, (tried, memory))
            if table.options.mode == SCD2 and its.row_work is not None:  # after a resync, all is remembered
                versions = replace(its.row_work, candidates=()) if is_held else its.row_work
            also += [] if is_held else [its]
        if completes and versions is not None:
            also = [completing(its, versions) for its in also]
        shortest = min([len(its.batch.files) for its in also], default=len(taken))
        if shortest == len(taken):
            return replace(planned, also=tuple(also))
        files = taken[:shortest]


def completing(planned: ApplyPlan, versions: RowWork) -> ApplyPlan:
    """The plan of a batch with partial rows: that of the remembered changes takes values from the versions."""
    work = planned.row_work
    if work is None or work.history is None or work.history.mode != LATE:
        return planned
    versions = replace(versions, changes=())
    return replace(planned, row_work=replace(work, history=replace(work.history, versions=versions)))


def _remembering(planned: ApplyPlan, memory: Remembered | None, view: View) -> ApplyPlan:
    """The plan of the mirrored table with the deletes that are remembered for its late changes."""
    work = planned.row_work
    if work is None or work.ordering is None or memory is None or work.ordering.deletes == IGNORE:
        return planned
    before = planned.base.snapshot.metadata.configuration if planned.base.snapshot else {}
    since = ordered_since(before, work.ordering.sequence, view.position)
    files = tuple(add for add in memory.files if may_have_deletes(add, memory.target))
    memory = memory._replace(files=files, since=since)
    if not memory.files:
        return planned
    return replace(planned, row_work=replace(work, ordering=replace(work.ordering, memory=memory)))


def _memory(view: View, planned: ApplyPlan, base_of: HistoryBases) -> Remembered | None:
    """What is remembered for late changes; None: nothing."""
    work, options = planned.row_work, view.files.metadata.options
    if work is None or not options.sequence or view.is_recreated:
        return None
    late = next((each for each in view.history if each.options.mode == LATE and not each.is_of_earlier), None)
    base = base_of(late) if late is not None else None
    if base is None or base.snapshot is None:
        return None
    sequence = version_plans.spelled(options.sequence, planned.batch.columns)
    return remembered(base.path, base.snapshot, work.target, sequence, view.position)


def remembered(
    path: str, snapshot: Snapshot, other: Target, sequence: Sequence[str], position: int
) -> Remembered | None:
    """The table of remembered changes at `path`, up to a position, with the types of the table that takes from it."""
    types = {column.name: column.type for column in other.columns}
    target = target_of(path, snapshot.metadata.value, other.key_columns)
    if not set(sequence) <= {column.name for column in target.columns}:
        return None  # another sequence than the one of the remembered deletes
    columns = tuple(replace(each, type=types.get(each.name, each.type)) for each in target.columns)
    return Remembered(replace(target, columns=columns), tuple(snapshot.files.values()), position)


def view_of(view: View, table: HistoryTable) -> View:
    """The view of a history table alone."""
    return replace(
        view, table=table.table, log=table.log, detection=table.detection, applied=table.applied, history=()
    )  # fmt: skip


def history_after(
    tables: Sequence[HistoryTable], done: Applied, uri: Callable[[str], str], log_of: Callable[[str], LogCache]
) -> tuple[HistoryTable, ...]:
    """The history tables after an apply. `log_of`: gives the log of a table by its folder."""
    commits = {each.manifest.history: each for each in done.also}
    found = []
    for table in tables:
        if (its := commits.get(table.label)) is not None:
            log = None
            with suppress(OSError, LakemirrorError):  # without a log, the next step is a conflict
                log = log_of(table.target).read()
            files = [item.file for item in its.batch.files]
            table = table.after(files, its.logged, uri(table.target), log)
        found.append(table)
    return tuple(found)


def plan_history(
    view: View,
    files: Sequence[ChangeFile],
    base: Base,
    rules: TableRules,
    uri: Callable[[str], str],
    tried: tuple[frozenset[TryAs], Remembered | None],
) -> ApplyPlan:
    """What these files, or the first of them, do to a history table. Raises Bad if the first of them cannot be applied.

    `tried`: with what is remembered for late changes.
    """
    snapshot, table, declared = base.snapshot, base.history, view.files.metadata
    assert table is not None
    before: Mapping[str, Any] = snapshot.metadata.value if snapshot else {}
    is_anew = view.is_recreated and table.options.mode == LATE  # what was remembered goes
    own = from_delta(before["schemaString"]) if before and not is_anew else ()
    configuration = configuration_after(before, rules.properties)
    growth = replace(growth_of(rules.columns, configuration, own, base), added=ADDED_COLUMNS)
    follows = [column for column in base.follows if column.name not in ADDED_COLUMNS]
    sources = _followed([column for column in own if column.name not in ADDED_COLUMNS], follows)
    limits = Limits(files=len(files), bytes=sum(file.entry.size for file in files))
    try:
        batch = next_batch(files, sources, declared, limits=limits, rules=growth, mixed="mixed" in tried[0])
    except Bad as bad:
        why = bad.rejected
        hint = AWAY if table.is_of_earlier and why.code == "type-changed" else why.hint
        raise Bad(replace(why, message=f"{table.target}: {why.message}", hint=hint)) from bad
    if base.reshaped_from is not None:
        replaced = replaced_columns(base.reshaped_from, before, batch.columns, batch.files[0].file.entry.path)
        named = [each._replace(message=f"{table.target}: {each.message}") for each in replaced]
        batch = replace(batch, warnings=(*batch.warnings, *named))
    metadata = history_metadata(view, base, batch, rules)
    target = apply_target(target_of(base.path, metadata, declared.key_columns))
    target = replace(target, version=snapshot.version + 1 if snapshot else 0)
    _check_no_constraint(target, table)
    work = row_work(view, batch, target, uri, None)
    if work is not None:
        history = HistoryWork(table.options.mode, view.files.folder.name.folder, int(time.time() * 1e6))
        if declared.options.has_versions:
            history = replace(history, remembers=_EVENTS if declared.options.deletes == IGNORE else (*_EVENTS, DELETE))
        work = replace(work, history=history)
        if table.options.mode == SCD2:
            work = version_plans.with_versioning(work, snapshot, batch, (declared.options, table.options), tried[1])
    choice = choice_of(rules.preference, work, base) if work else Choice(LOCAL, "no row is read")
    return ApplyPlan(view, base, batch, metadata, work, (), choice)


def history_metadata(view: View, base: Base, batch: Batch, rules: TableRules) -> dict[str, Any]:
    """The `metaData` action of a history table after the batch. TableError where it cannot be written."""
    table, snapshot = base.history, base.snapshot
    assert table is not None
    before: Mapping[str, Any] = snapshot.metadata.value if snapshot else {}
    declared, is_versions, is_late = view.files.metadata, table.options.mode == SCD2, table.options.mode == LATE
    own = from_delta(before["schemaString"]) if before and not (is_late and view.is_recreated) else ()
    given = [column for column in batch.columns if column.name not in ADDED_COLUMNS]
    wanted = rules.properties
    if not is_versions:  # rows are only added, and files of remembered changes written again
        wanted = {name: value for name, value in wanted.items() if name != VECTORS}
    configuration = {**configuration_after(before, wanted), HISTORY_PROPERTY: table.label}
    kept = before.get("configuration", {}) if own else {}
    recorded = declared if is_versions or is_late else replace(declared, options=NO_OPTIONS)
    configuration = with_options(configuration, recorded, kept, view.position)
    added: tuple[Column, ...] = _LATE if is_late else _CHANGES
    if is_versions:
        added = version_plans.bounds(declared, given, table.target)
    if is_late:
        if not declared.options.has_versions:
            needed = {name.lower() for name in (*declared.key_columns, *declared.options.sequence)}
            given = [column for column in given if column.name.lower() in needed]
        configuration[LATE_DAYS_PROPERTY] = str(declared.options.late_days)
        batch = replace(batch, files=())  # its partition folders are no folders of this table
    grown = {column.name: column for column in (*given, *added)}
    columns = _followed([grown.get(column.name, column) for column in own], (*given, *added))
    if is_versions:
        configuration = version_plans.configuration_of(
            configuration, declared, table.options, columns, table.target
        )  # fmt: skip
    never_anew = view if is_late else replace(view, table=None)  # history stays where the folder was made again
    metadata = metadata_after(before, own, replace(batch, columns=columns), never_anew, configuration)
    metadata = _without_keys(metadata) if table.options.mode == CHANGES else metadata
    check_writable(metadata, base)
    return metadata


def _followed(own: Sequence[Column], others: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of a history table, with those that it lacks at the end."""
    names = {column.name.lower() for column in own}
    return (*own, *(column for column in others if column.name.lower() not in names))


def _without_keys(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata without key columns: rows of a table of changes have no key."""
    kept = {
        name: value for name, value in metadata["configuration"].items() if name not in (KEYS_PROPERTY, STORED_PROPERTY)
    }
    return {**metadata, "configuration": kept}


def _check_no_constraint(target: Target, table: HistoryTable) -> None:
    if target.constraints:
        raise TableError(
            "table-feature-unsupported",
            f"{table.target}: a history table has the constraint {target.constraints[0][0]}, which is not checked",
            table=table.target,
            hint=f"Drop the constraint of {table.target}.",
        )
