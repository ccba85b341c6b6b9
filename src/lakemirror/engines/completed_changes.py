"""The changes to remember of a batch with partial rows: complete, as their keys had it when they came (history.md 2).

changes, versions of their keys, what is remembered of them ─▶ `completed_rows` ─▶ rows to remember

The table of remembered changes is committed before that of versions, so both are made of the same versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakemirror.engines.held_changes import HeldChanges, slices
from lakemirror.engines.kernels.read import read_changes
from lakemirror.engines.kernels.version_rows import Changed, key_values, plain_columns
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.late_deletes import chosen_of, origins_of, remembered_rows
from lakemirror.engines.row_work import Action, RowResult, RowWork
from lakemirror.engines.unit_carrier import UnitCarrier
from lakemirror.engines.unit_kernels import names_of, write_held
from lakemirror.engines.units import Shared
from lakemirror.engines.versions import Look, completed_changes
from lakemirror.engines.write_versions import VersionBucket, buckets_of, look_by, look_here
from lakemirror.keys.key_values import key_bucket, whole_numbers
from lakemirror.landing_zone.reserved_columns import DELETED_AT


def write_completed(
    engine: UnitCarrier, work: RowWork, shared: Shared, held: HeldChanges | None, written: list[Action]
) -> RowResult:
    """Writes the rows to remember. `work`: of the table of remembered changes, with that of the versions."""
    step = "write changes"
    if held is not None:
        changes = _Changes(held.rows(None), held.markers, held.names, origins_of(work.changes))
        units = slices(_completed(work, changes, look_by(engine, shared)))
        return RowResult(adds=tuple(engine.write_units(step, write_held, shared, units, written)))
    buckets = buckets_of(engine, work)
    return RowResult(adds=tuple(engine.write_units(step, write_completed_bucket, shared, buckets, written)))


@dataclass(frozen=True, eq=False)
class _Changes:
    """Changes in the order of arrival. `origin`: the number of the file, and the row in it, of each."""

    rows: pa.Table
    markers: np.ndarray
    names: pa.Array | pa.ChunkedArray | None
    origin: tuple[np.ndarray, np.ndarray]


def write_completed_bucket(shared: Shared, unit: VersionBucket) -> Iterator[list[Action]]:
    """Writes the rows to remember of one bucket of keys. A kernel of all engines."""
    rows, markers, names, files, numbers = (
        [],
        [np.zeros(0, np.int8)],
        [],
        [np.zeros(0, np.int64)],
        [np.zeros(0, np.int64)],
    )
    columns = shared.target.sources.columns
    if shared.ordering is not None and shared.ordering.is_soft:
        columns = (*columns, *(each for each in shared.target.columns if each.name == DELETED_AT))
    reading = shared._replace(target=replace(shared.target, columns=columns))
    for file in unit.work.changes:
        for changes in read_changes(file, reading, waits=True):
            table = pa.Table.from_batches([changes.rows])
            chosen = np.flatnonzero(key_bucket(key_values(table, shared.target), unit.buckets) == unit.bucket)
            if len(chosen):
                rows.append(plain_columns(table.take(whole_numbers(chosen))))
                markers.append(changes.marker[chosen])
                names.append(names_of(changes).take(whole_numbers(chosen)))
                files.append(np.full(len(chosen), file.number))
                numbers.append(changes.first_row + chosen)
            del changes, table  # before the next rows are decoded
    if not rows:
        yield []
        return
    found = _Changes(
        pa.concat_tables(rows), np.concatenate(markers), pa.chunked_array(names, pa.string()),
        (np.concatenate(files), np.concatenate(numbers)),
    )  # fmt: skip
    completed = _completed(unit.work, found, look_here(shared))
    yield write_rows(completed.to_batches(), shared.target, sizes=shared.sizes)


def _completed(work: RowWork, changes: _Changes, look: Look) -> pa.Table:
    """The changes as rows of the table of remembered changes."""
    history = work.history
    assert history is not None and history.versions is not None and history.versions.history is not None
    versions, versioning = history.versions, history.versions.history.versioning
    assert versioning is not None
    its = Changed(changes.rows, changes.markers, changes.names)
    completed = completed_changes(versions.target, versioning, versions.candidates, its, look)
    rows = changes.rows
    for index, name in enumerate(rows.column_names):
        if name in completed.column_names:
            rows = rows.set_column(index, name, completed[name])
    chosen = chosen_of(changes.markers, history)
    files, numbers = changes.origin
    origin = files[chosen], numbers[chosen]
    return remembered_rows(rows.take(whole_numbers(chosen)), changes.markers[chosen], origin, work.target, history)
