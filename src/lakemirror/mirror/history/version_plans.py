"""What is particular to the plan of a table of versions (history.md section 3); pure.

sequence ─▶ types of `__START_AT`, `__END_AT`        options, change files ─▶ Versioning: what the row work does
         └▶ statistics of both, before those of other columns
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lakemirror.delta.log import Snapshot
from lakemirror.delta.schema import Column, delta_name
from lakemirror.delta.statistics_columns import COUNT, NAMES, NUMBER
from lakemirror.engines.row_work import Remembered, RowWork, Versioning
from lakemirror.errors import TableError
from lakemirror.landing_zone.metadata import TableMetadata
from lakemirror.landing_zone.reserved_columns import END_AT, START_AT
from lakemirror.landing_zone.table_options import HistoryOptions, TableOptions
from lakemirror.mirror.next_batch import Batch

TRACK_PROPERTY = "lakemirror.track"
SEQUENCE_PROPERTY = "lakemirror.sequence"
SINCE_PROPERTY = "lakemirror.since"
"""With a sequence: where the versions of an earlier table folder end, and those of the present one begin."""
OFF_PROPERTY = "lakemirror.wasOff"
"""It lacks changes: its option was off for a while."""
BEGAN_PROPERTY = "lakemirror.began"
"""When a history table began that began later than its mirrored table."""


def bounds(declared: TableMetadata, columns: Sequence[Column], table: str) -> tuple[Column, ...]:
    """`__START_AT` and `__END_AT`: of the type of the sequence, a struct for several columns; without one timestamps.

    `columns`: those of the source. TableError `sequence-missing`.
    """
    kinds = {column.name: column.type for column in columns}
    names = spelled(declared.options.sequence, columns)
    missing = next((name for name in names if name not in kinds), None)
    if missing is not None:
        message = f"{table}: no applied file has column {missing!r}, the sequence of its versions ({declared.file})"
        hint = "Declare `sequence` first, and `history` once a change file with that column is applied."
        raise TableError("sequence-missing", message, table=table, file=declared.file, column=missing, hint=hint)
    if len(names) < 2:
        kind = kinds[names[0]] if names else "timestamp"
    else:
        fields = [{"name": n, "type": delta_name(kinds[n]), "nullable": True, "metadata": {}} for n in names]
        kind = json.dumps({"type": "struct", "fields": fields})
    return Column(START_AT, kind), Column(END_AT, kind)


def spelled(names: Sequence[str], columns: Sequence[Column]) -> tuple[str, ...]:
    """The names as the table spells them."""
    known = {column.name.lower(): column.name for column in columns}
    return tuple(known.get(name.lower(), name) for name in names)


def configuration_of(
    configuration: Mapping[str, str],
    declared: TableMetadata,
    history: HistoryOptions,
    columns: Sequence[Column],
    table: str,
) -> dict[str, str]:
    """The properties of a table of versions. `columns`: all of them; `configuration`: those that it has anyway.

    TableError `history-track-changed` where other columns are tracked, or are the sequence, than made its versions,
    `metadata-invalid` where one is in no change file: its changes would be no versions.
    """
    known = {column.name.lower() for column in columns}
    track_of, file = history.track, declared.file
    missing = next((name for name in track_of if name.lower() not in known), None)
    if missing is not None:
        message = f"{table}: lakemirror.history.track in {file} names {missing!r}, which no applied file has"
        hint = f"Correct `track`, or take {missing} out of it until a file with this column is applied."
        raise TableError("metadata-invalid", message, table=table, file=file, column=missing, hint=hint)
    track = json.dumps([name.lower() for name in track_of])
    before = configuration.get(TRACK_PROPERTY, track)
    if sorted(json.loads(before)) != sorted(json.loads(track)):
        now, then = (", ".join(json.loads(each)) or "all columns" for each in (track, before))
        message = f"{table}: its versions were made by {then}, and lakemirror.history.track in {file} asks for {now}"
        raise TableError("history-track-changed", message, table=table, file=file)
    sequence = json.dumps([name.lower() for name in declared.options.sequence])
    old = configuration.get(SEQUENCE_PROPERTY, "[]" if TRACK_PROPERTY in configuration else sequence)
    if old != sequence:
        now, then = (", ".join(json.loads(each)) or "none" for each in (sequence, old))
        message = f"{table}: its versions have the sequence {then}, and lakemirror.sequence in {file} asks for {now}"
        back = "Put the old `sequence` back" if json.loads(old) else "Take `sequence` out again"
        hint = f"{back}, or give the history another `name`: then a new table of versions begins."
        raise TableError("history-track-changed", message, table=table, file=file, hint=hint)
    found = {**configuration, TRACK_PROPERTY: before}
    if declared.options.sequence:
        found[SEQUENCE_PROPERTY] = sequence
    leaves = len(columns) - 2 + 2 * max(1, len(declared.options.sequence))  # bounds may be structs
    if leaves > NUMBER and not {NAMES, COUNT} & set(configuration):
        names = [START_AT, END_AT, *spelled(declared.key_columns, columns)]
        rest = [column.name for column in columns if column.name not in names]
        found[NAMES] = ", ".join(f"`{name.replace('`', '``')}`" for name in [*names, *rest][:NUMBER])
    return found


def since_of(configuration: Mapping[str, str]) -> tuple[str, ...]:
    """Where the versions of the present table folder begin, as of `Versioning`."""
    return tuple(json.loads(configuration.get(SINCE_PROPERTY, "[]")))


def with_versioning(
    work: RowWork, snapshot: Snapshot | None, batch: Batch, options: tuple[TableOptions, HistoryOptions],
    memory: Remembered | None = None,
) -> RowWork:  # fmt: skip
    """The row work of a table of versions. `work.history` is set."""
    assert work.history is not None
    table, history = options
    columns, configuration = batch.columns, snapshot.metadata.configuration if snapshot is not None else {}
    modified = tuple((item.file.entry.path, item.file.entry.modified // 1000) for item in batch.files)
    versioning = Versioning(
        spelled(history.track, columns), spelled(table.sequence, columns), table.deletes, modified, memory,
        since_of(configuration), OFF_PROPERTY in configuration,
    )  # fmt: skip
    candidates = tuple(snapshot.files.values()) if snapshot is not None else ()
    return replace(work, candidates=candidates, history=replace(work.history, versioning=versioning))
