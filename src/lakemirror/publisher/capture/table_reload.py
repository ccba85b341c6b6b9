"""A captured table that is loaded again: only what differs from its change files is published, in one file.

    change files ─▶ the last row of each key ─┐
    a load in a new snapshot ─▶ its rows ─────┴▶ compared ─▶ one file, whose footer says the snapshot's position

A crash before that file is there has changed nothing, and one behind it finds no difference. Tables whose files are
gone in part, that have no key, or whose columns have other types by now are made again instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.landing_zone.column_types import table_type
from lakemirror.publisher.capture.capture_position import FilePosition
from lakemirror.publisher.capture.captured_tables import CapturedTable
from lakemirror.publisher.capture.loaded_rows import Publish
from lakemirror.publisher.change_writer import DELETE, MARKER_COLUMN, UPSERT
from lakemirror.publisher.declaration import read_declaration
from lakemirror.publisher.disk_rows import DiskRows
from lakemirror.publisher.published_rows import published_rows
from lakemirror.publisher.sequence import Sequence
from lakemirror.publisher.snapshot import difference_of
from lakemirror.publisher.snapshot_state import state_of


@dataclass(frozen=True)
class Reloaded:
    """`rows`: of the table. `changes`: how many of them differed, or were gone."""

    rows: int
    changes: int


def publish_differences(table: CapturedTable, at: FilePosition, load: Callable[[Publish], int]) -> Reloaded | None:
    """Publishes what `load` gives, as far as it differs from what the table's files hold; None: it must be made again.

    `at`: the position of the load. The file is also written where nothing differs: it tells the position. Errors: as of
    the load.
    """
    landing, keys = table.landing, table.shape.key
    if not keys or table.state is None or not table.state.is_complete:
        return None
    declared = read_declaration(landing.place)
    if declared.keys != keys or declared.options.sequence:  # a row that is gone has no sequence
        return None
    columns = table.source.arrow_schema
    with landing.room(), ExitStack() as stack:
        newest = Sequence(landing.place).newest()
        types = {name.lower(): table_type(kind) for name, kind in landing.types_before().items()}
        if any(types.get(each.name.lower(), table_type(each.type)) != table_type(each.type) for each in columns):
            return None
        schema = landing.take(columns.empty_table()).schema
        before = published_rows(landing.place, keys, schema)
        if before is None:
            return None
        gathered = stack.enter_context(DiskRows(schema, landing.place.staged("arrow")))
        rows = load(_gathering(landing.take, gathered))
        state = state_of(before.rows, newest)
        found = difference_of(state, gathered.table(), before.unknown, keys, landing.place)
        if found.repeated:  # as keys that become the same NULL: the engine must say so, as of a first load
            return None
        changes = found.changes
        place = changes.schema.get_field_index(MARKER_COLUMN)
        is_gone = pc.equal(changes[MARKER_COLUMN], DELETE)
        markers = pc.if_else(is_gone, pa.scalar(DELETE, pa.int32()), pa.scalar(UPSERT, pa.int32()))
        changes = changes.set_column(place, changes.schema.field(place), markers)
        landing.publish(changes.to_reader(), newest + 1, empty=True, footer=at.footer())
        return Reloaded(rows, changes.num_rows)


def _gathering(take: Callable[[pa.RecordBatchReader], pa.RecordBatchReader], gathered: DiskRows) -> Publish:
    """Keeps the rows of a load, from any thread, in the types of the table."""
    lock = threading.Lock()

    def gather(rows: pa.RecordBatchReader) -> int:
        count = 0
        for batch in take(rows):
            with lock:
                gathered.add(batch)
            count += batch.num_rows
        return count

    return gather


__all__ = ["Reloaded", "publish_differences"]
