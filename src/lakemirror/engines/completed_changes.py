"""The changes to remember of a batch with partial rows: complete, as their keys had it when they came (history.md 2).

changes, versions of their keys, what is remembered of them ─▶ `completed_rows` ─▶ rows to remember

The table of remembered changes is committed before that of versions, so both are made of the same versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lakemirror.engines.held_changes import HeldChanges, slices
from lakemirror.engines.kernels.version_rows import Changed, plain_columns
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.late_deletes import chosen_of, origins_of, remembered_rows
from lakemirror.engines.row_work import Action, RowResult, RowWork
from lakemirror.engines.unit_carrier import UnitCarrier
from lakemirror.engines.unit_kernels import write_held
from lakemirror.engines.units import Shared
from lakemirror.engines.version_buckets import VersionBucket, changes_of_bucket, in_memory, version_buckets
from lakemirror.engines.versions import Look, completed_changes
from lakemirror.engines.write_versions import look_by, look_here
from lakemirror.keys.key_values import whole_numbers
from lakemirror.landing_zone.reserved_columns import DELETED_AT


def write_completed(
    engine: UnitCarrier, work: RowWork, shared: Shared, held: HeldChanges | None, written: list[Action]
) -> RowResult:
    """Writes the rows to remember. `work`: of the table of remembered changes, with that of the versions."""
    step = "write changes"
    if held is not None:
        changes = Changed(held.rows(None), held.markers, held.names)
        units = slices(_completed(work, changes, origins_of(work.changes), look_by(engine, shared)))
        return RowResult(adds=tuple(engine.write_units(step, write_held, shared, units, written)))
    with version_buckets(engine, work, _reading(shared), shared.target) as buckets:
        return RowResult(adds=tuple(engine.write_units(step, write_completed_bucket, shared, buckets, written)))


@in_memory
def write_completed_bucket(shared: Shared, unit: VersionBucket) -> Iterator[list[Action]]:
    """Writes the rows to remember of one bucket of keys. A kernel of all engines."""
    parts: list[Changed] = []
    files, numbers = [], []
    for file, its, rows in changes_of_bucket(_reading(shared), unit, shared.target):
        parts.append(its._replace(rows=plain_columns(its.rows)))
        files.append(np.full(len(rows), file.number))
        numbers.append(rows)
    if not parts:
        yield []
        return
    found = Changed(
        pa.concat_tables([each.rows for each in parts]), np.concatenate([each.markers for each in parts]),
        pa.chunked_array([each.names for each in parts], pa.string()),
    )  # fmt: skip
    origin = np.concatenate(files), np.concatenate(numbers)
    completed = _completed(unit.work, found, origin, look_here(shared, unit))
    yield write_rows(completed.to_batches(), shared.target, sizes=shared.sizes)


def _reading(shared: Shared) -> Shared:
    """To read change files, with the time of a delete where deleted rows stay."""
    columns = shared.target.sources.columns
    if shared.ordering is not None and shared.ordering.is_soft:
        columns = (*columns, *(each for each in shared.target.columns if each.name == DELETED_AT))
    return shared._replace(target=replace(shared.target, columns=columns))


def _completed(work: RowWork, changes: Changed, origin: tuple[np.ndarray, np.ndarray], look: Look) -> pa.Table:
    """The changes as rows of the table of remembered changes. `origin`: the number of the file of each, and the row."""
    history = work.history
    assert history is not None and history.versions is not None and history.versions.history is not None
    versions, versioning = history.versions, history.versions.history.versioning
    assert versioning is not None
    completed = completed_changes(versions.target, versioning, versions.candidates, changes, look)
    own = {name: changes.rows[name] for name in changes.rows.column_names}
    rows = pa.table({**own, **{name: completed[name] for name in completed.column_names if name in own}})
    chosen = chosen_of(changes.markers, history)
    origin = origin[0][chosen], origin[1][chosen]
    return remembered_rows(rows.take(whole_numbers(chosen)), changes.markers[chosen], origin, work.target, history)
