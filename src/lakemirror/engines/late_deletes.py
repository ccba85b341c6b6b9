"""What late changes need: deletes are remembered in a table of their own, and looked up by key (history.md, section 2).

changes of a batch ─▶ its deletes: key, sequence, time ─▶ data files of the table of remembered changes
        └─▶ where versions have a sequence: all of them, complete (`completed_changes.py`) ─▶ `versions.py`
keys of a batch ─▶ the deletes of these keys that came before it ─▶ `kernels/ordered_fold.py`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.delta.statistics import parse_statistics
from lakemirror.engines.held_changes import HeldChanges
from lakemirror.engines.kernels.change_rows import operations_of
from lakemirror.engines.kernels.data_rows import stored_arrow_type, work_schema
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.kernels.read import read_changes
from lakemirror.engines.kernels.sequence_order import sequence_of
from lakemirror.engines.kernels.version_rows import key_values, plain_columns
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.row_work import SEQUENCE, Action, ChangeUnit, HistoryWork, Ordering, Remembered, RowWork, Target
from lakemirror.engines.sequence_bounds import Span, files_of_keys, files_reached, least_of
from lakemirror.engines.units import ChangeFiles, DataFiles, Shared
from lakemirror.keys.key_values import combined, each_once, whole_numbers
from lakemirror.landing_zone.reserved_columns import APPLIED_AT, CHANGE_FILE, CHANGE_ROW, DELETED_AT, OPERATION
from lakemirror.landing_zone.row_markers import DELETE

_TIME = pa.timestamp("us", "UTC")
_DELETE = "delete"

Look: TypeAlias = Callable[[Target, Sequence[Action], pa.Table], "list[tuple[int, np.ndarray, pa.Table]]"]
"""As of `versions.py`."""


def held_deletes(work: RowWork, held: HeldChanges) -> Iterator[pa.Table]:
    """The rows to remember of changes in memory: deletes, which the mirrored table looks up, apart from others."""
    assert work.history is not None
    chosen = chosen_of(held.markers, work.history)
    are_deletes = held.markers[chosen] == DELETE
    for which in (are_deletes, ~are_deletes):
        yield _held(work, held, chosen[which])


def may_have_deletes(add: Action, target: Target) -> bool:
    """False if the statistics of a file of remembered changes say that it has no delete."""
    name = next((column.physical_name for column in target.columns if column.name == OPERATION), None)
    least = (parse_statistics(add).get("minValues") or {}).get(name)
    return not isinstance(least, str) or least <= _DELETE  # the first of the operations by its letters


def _held(work: RowWork, held: HeldChanges, chosen: np.ndarray) -> pa.Table:
    assert work.history is not None
    files, numbers = origins_of(work.changes)
    origin = files[chosen], numbers[chosen]
    return remembered_rows(held.rows(chosen), held.markers[chosen], origin, work.target, work.history)


def origins_of(units: Sequence[ChangeUnit]) -> tuple[np.ndarray, np.ndarray]:
    """The number of the file, and the row in it, of each change of some units."""
    files = np.repeat([unit.number for unit in units], [unit.rows for unit in units])
    return files, np.concatenate([np.zeros(0, np.int64), *(unit.first_row + np.arange(unit.rows) for unit in units)])


def write_deletes(shared: Shared, unit: ChangeFiles) -> Iterator[list[Action]]:
    """Writes the rows to remember of change files. A kernel of all engines."""
    yield write_rows(_deletes_of(shared, unit.files), shared.target, sizes=shared.sizes)


def earlier_deletes(ordering: Ordering, changes: pa.Table, look: Look) -> pa.Table | None:
    """The remembered deletes of the keys of these changes, as `fold_ordered` takes both; None if there are none.

    A delete with a lower sequence than all changes of its key acts on none of them.
    """
    memory = ordering.memory
    if memory is None or not changes.num_rows:
        return None
    if not files_reached(memory.files, memory.target, ordering.sequence, least_of(changes[SEQUENCE])):
        return None
    keys, column, span = changes.select(list(memory.target.key_columns)), None, None
    if len(ordering.sequence) == 1:
        column = next((each for each in memory.target.columns if each.name == ordering.sequence[0]), None)
        span = Span(combined(pc.struct_field(changes[SEQUENCE], [0])))
    target, found = _read_of(memory, ordering), dict[int, pa.Table]()
    for numbers, places in files_of_keys(memory.files, column, span, keys.num_rows):
        once = each_once(keys.take(whole_numbers(places)))
        for place, _, rows in look(target, [memory.files[number] for number in numbers], once):
            found[numbers[place]] = _known(rows, target, memory, ordering)
    tables = [found[number] for number in sorted(found) if found[number].num_rows]
    return pa.concat_tables(tables) if tables else None


def read_deletes(shared: Shared, unit: DataFiles) -> Iterator[pa.Table]:
    """All remembered deletes in data files of the table of remembered changes. A kernel of Spark's tasks."""
    ordering = shared.ordering
    assert ordering is not None and ordering.memory is not None
    target = _read_of(ordering.memory, ordering)
    for file in unit.files:
        for rows in live_rows(file.add, target):
            found = _known(rows, target, ordering.memory, ordering)
            if found.num_rows:
                yield found


def _deletes_of(shared: Shared, files: Iterable[ChangeUnit]) -> Iterator[pa.RecordBatch]:
    history, target = shared.history, shared.target
    assert history is not None
    columns = target.sources.columns
    if shared.ordering is not None and shared.ordering.is_soft:
        columns = (*columns, *(each for each in target.columns if each.name == DELETED_AT))
    reading = shared._replace(target=replace(target, columns=columns), partial=False)
    for file in files:
        for changes in read_changes(file, reading, waits=True):
            chosen = chosen_of(changes.marker, history)
            rows = pa.Table.from_batches([changes.rows]).take(whole_numbers(chosen))
            origin = np.full(len(chosen), file.number), changes.first_row + chosen
            yield from remembered_rows(rows, changes.marker[chosen], origin, target, history).to_batches()
            del changes, rows  # before the next rows are decoded


def chosen_of(markers: np.ndarray, history: HistoryWork) -> np.ndarray:
    """The places of the changes to remember."""
    return np.flatnonzero(np.isin(markers, history.remembers))


def remembered_rows(
    rows: pa.Table, markers: np.ndarray, origin: tuple[np.ndarray, np.ndarray], target: Target, history: HistoryWork
) -> pa.Table:
    """Changes as rows of the table of remembered changes. `origin`: the number of the file, and the row in it, of each.
    `rows`: with soft deletes, with the time of each; NULL in columns that only the remembered changes still have."""
    count, (files, numbers) = rows.num_rows, origin
    own = {each.name: each for each in target.sources.columns if each.stored}
    there = set(rows.column_names)
    values = {name: rows[name] if name in there else pa.nulls(count, stored_arrow_type(own[name])) for name in own}
    times = rows[DELETED_AT] if DELETED_AT in rows.column_names else pa.nulls(count, _TIME)
    ours = {
        OPERATION: operations_of(markers),
        CHANGE_FILE: whole_numbers(files),
        CHANGE_ROW: whole_numbers(numbers),
        APPLIED_AT: pa.repeat(pa.scalar(history.applied_at, _TIME), count),
        DELETED_AT: times,
    }
    return pa.table({**values, **ours})


def _read_of(memory: Remembered, ordering: Ordering) -> Target:
    """The table of remembered changes with the columns that are read."""
    needed = {*memory.target.key_columns, *ordering.sequence, OPERATION, CHANGE_FILE, DELETED_AT}
    return replace(memory.target, columns=tuple(each for each in memory.target.columns if each.name in needed))


def _known(rows: pa.Table, target: Target, memory: Remembered, ordering: Ordering) -> pa.Table:
    """Keys, SEQUENCE, DELETED_AT of the deletes among these rows, without those of the batch itself."""
    rows = plain_columns(rows)
    is_earlier = pc.and_(pc.less_equal(rows[CHANGE_FILE], memory.position), pc.greater(rows[CHANGE_FILE], memory.since))
    rows = rows.filter(pc.and_(is_earlier, pc.equal(rows[OPERATION], _DELETE)))
    keys = key_values(rows, target).cast(work_schema(target, target.keys))
    return keys.append_column(SEQUENCE, sequence_of(rows, ordering.sequence)).append_column(
        DELETED_AT, rows[DELETED_AT].cast(_TIME)
    )
