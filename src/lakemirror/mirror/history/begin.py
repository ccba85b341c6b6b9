"""A history table begins at the position of the mirrored table (history.md section 4, "Switching history on later").

    no table yet, or one that was off for a while ─▶ one commit without change files: the mirrored table's position

From then on both have the same files. What a table lacks because its option was off is a note in its manifest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lakemirror import failpoints
from lakemirror.delta import commit as delta
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.data_files import removed
from lakemirror.delta.log import Action
from lakemirror.delta.schema import Column, from_delta
from lakemirror.errors import TableError
from lakemirror.landing_zone.column_types import fits, widens
from lakemirror.landing_zone.findings import Warned
from lakemirror.landing_zone.table_options import LATE, SCD2
from lakemirror.mirror.apply import make_table_folder, state_actions, transactions
from lakemirror.mirror.history.first_versions import begins_at, first_versions
from lakemirror.mirror.history.history_tables import AWAY, GAP, HistoryTable
from lakemirror.mirror.history.open_versions import RowsBehind, changed_moment, end_dropped, end_open, open_versions_as
from lakemirror.mirror.history.row_options import check_none_added, options_kept
from lakemirror.mirror.history.target_plans import history_metadata, view_of
from lakemirror.mirror.history.version_plans import BEGAN_PROPERTY, OFF_PROPERTY
from lakemirror.mirror.next_batch import Batch
from lakemirror.mirror.observe import View
from lakemirror.mirror.planner import Base
from lakemirror.mirror.position import Manifest, Position, position_after, with_notes
from lakemirror.mirror.table_rules import TableRules
from lakemirror.status.status import format_time
from lakemirror.storage import Storage, place


def prepare(
    view: View, current: Base, base_of: Callable[[HistoryTable], Base], rules: TableRules, storage: Storage, target: str
) -> bool:
    """Makes the commits that history tables need before changes are applied; False if they need none.

    Tables begin; or open versions end, of a folder that was there before: also where the new one has no versions.
    `base_of` reads a history table. `target`: the mirrored table. Errors as in `begin`."""
    if view.pending.files and view.is_recreated and current.snapshot is not None:
        kept = options_kept(current.snapshot.metadata.value["configuration"]).get("history", ())
        if any(each["mode"] == SCD2 for each in kept) and not view.files.metadata.options.has_versions:
            end_dropped(storage, target, begins_at(view))
    for table in view.to_begin:
        begin(view, current, base_of(table), rules)
    if view.to_begin:
        return True
    earlier = [each for each in view.history if each.is_of_earlier and each.options.mode == SCD2]
    return bool(view.pending.files) and any(end_open(view, base_of(each), rules.durability) for each in earlier)


def begin(view: View, current: Base, base: Base, rules: TableRules) -> None:
    """Commits the mirrored table's position to a history table, which then goes on with it.

    `current`: the mirrored table; `base`: the history table, whose columns become those of the mirrored table too. A
    table of versions gets the rows that the mirrored table has as its first versions; one that was off for a while as
    its open versions, which end where their rows are gone. What was remembered for late changes is forgotten. With a
    sequence, all open versions end first, in a commit of their own, where they are of an earlier folder, or a row is
    older than a version of its key: the next look begins the table.
    LakemirrorError `concurrent-commit`; TableError where the table cannot be written.
    """
    table, at = base.history, view.at
    assert table is not None and at is not None and current.snapshot is not None
    rows: list[Action] = []
    declared, is_late, began = view.files.metadata, table.options.mode == LATE, 0
    metadata = metadata_to_begin(view, current, base, rules)
    if base.snapshot is None:
        if not is_late:
            began = begins_at(view) if at.number else 0
            metadata = _of_new(metadata, current.snapshot.metadata.value, began)
        make_table_folder(base)
        if table.options.mode == SCD2:
            rows = first_versions(view, current, base.path, metadata, began or begins_at(view))
    elif is_late:
        now = int(time.time() * 1000)
        rows = [{"remove": removed(add, now, data_change=True)} for add in base.snapshot.files.values()]
    elif table.options.mode == SCD2:
        if table.is_of_earlier and declared.options.sequence and end_open(view, base, rules.durability):
            return
        metadata = {**metadata, "configuration": {**metadata["configuration"], OFF_PROPERTY: "true"}}
        try:
            rows = open_versions_as(base, metadata, declared.key_columns, changed_moment(view, table), current)
        except RowsBehind:
            if not end_open(view, base, rules.durability):
                raise
            return
    position = position_after(table.at, view.identity, at.number)
    info = commit_info(
        base.snapshot, "WRITE", {"mode": "Append"}, metrics={}, blind_append=base.snapshot is not None and not rows,
        user_metadata=_manifest(view, table, position, began / 1e6).to_json(),
    )  # fmt: skip
    actions = [
        {"commitInfo": info},
        *state_actions(base.snapshot, metadata),
        *transactions(position, (), view.applied.sequences),
        *rows,
    ]
    try:
        failpoints.reach("history.before-begin")
    except BaseException:
        delta.remove_written(place(base.path), base.snapshot, rows)
        raise
    delta.commit(base.path, base.snapshot, actions, durability=rules.durability)
    failpoints.reach("history.after-begin")


def metadata_to_begin(view: View, current: Base, base: Base, rules: TableRules) -> dict[str, Any]:
    """The `metaData` action of a history table that begins, with the columns of the mirrored table. Parameters, errors:
    as of `begin`."""
    table = base.history
    assert table is not None and current.snapshot is not None
    if not view.is_recreated:
        check_none_added(current.snapshot.metadata.value, current.shown)
    columns = from_delta(current.snapshot.metadata.value["schemaString"])
    if base.snapshot is not None:
        own = {each.name.lower(): each for each in from_delta(base.snapshot.metadata.value["schemaString"])}
        columns = tuple(_wider(each, own.get(each.name.lower()), table.target) for each in columns)
    return history_metadata(view_of(view, table), base, Batch((), columns, append_only=True), rules)


def _of_new(metadata: dict[str, Any], current: Mapping[str, Any], began: int) -> dict[str, Any]:
    """The metadata of a new history table. `current`: that of the mirrored table; `began`: when, if that is later."""
    properties = {BEGAN_PROPERTY: format_time(began / 1e6)} if began else {}
    partitions = list(current["partitionColumns"])
    return {**metadata, "configuration": {**metadata["configuration"], **properties}, "partitionColumns": partitions}


def _wider(column: Column, own: Column | None, table: str) -> Column:
    """A column of the mirrored table as the history table can have it: what it has stays readable. TableError
    `type-changed`."""
    if own is None or own.type == column.type or widens(own.type, column.type):
        return column
    if fits(column.type, own.type):
        return column._replace(type=own.type)
    raise TableError(
        "type-changed", f"{table}: column {column.name!r} is {column.type} in the mirrored table and {own.type} here",
        table=table, column=column.name, hint=AWAY,
    )  # fmt: skip


def _manifest(view: View, table: HistoryTable, position: Position, began: float) -> Manifest:
    before = table.table.manifest if table.table is not None else None
    first = Manifest(
        position.identity, position.number, position.number, "", 0, 0, view.files.metadata.key_columns,
        detection=table.detection.to_json(), history=table.label, began=began,
    )  # fmt: skip
    if before is not None:
        first = replace(first, rows=before.rows, bytes=before.bytes, committed=before.committed, began=before.began)
    if (
        table.options.mode == LATE
        or table.at is None
        or (table.at.identity == position.identity and not table.at.number)
    ):
        return first  # new, or of a table that was dropped and is back: it lacks nothing
    since = f"after number {table.at.number} " if table.at.identity == position.identity else ""
    message = f"{table.target} lacks changes {since}up to number {position.number}: its option was off"
    notes = with_notes(before.notes if before else (), [Warned(GAP, message, table.target)])
    return replace(first, notes=notes)
