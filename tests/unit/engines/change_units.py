"""Change files and their units for tests of kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.engines.kernels.decode import DEFAULT, MemoryBudget
from lakemirror.engines.kernels.read import read_changes
from lakemirror.engines.kernels.row_reader import Changes
from lakemirror.engines.row_work import ChangeUnit, Target, TargetColumn
from lakemirror.engines.units import Shared
from lakemirror.errors import Bad, Rejected
from lakemirror.landing_zone.column_types import file_columns

MARKER = "__rowMarker__"


def unit_of(path: Path, **more: Any) -> ChangeUnit:
    """The unit of a whole file, as its footer describes it."""
    footer = pq.read_metadata(path)
    described = {"columns": tuple(file_columns(footer)), "rows": footer.num_rows, "bytes": path.stat().st_size}
    return ChangeUnit(str(path), path.name, 1, **{**described, **more})


def written(path: Path, rows: pa.Table | dict[str, Any], **options: Any) -> ChangeUnit:
    """Writes a change file; its unit."""
    file = path / "00000000000000000001.parquet"
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.table(rows), file, **options)
    return unit_of(file)


def target(keys: tuple[str, ...] = ("id",), **types: str) -> Target:
    """A table with these columns."""
    return Target("table", tuple(TargetColumn(name, name, type_) for name, type_ in types.items()), key_columns=keys)


def like(unit: ChangeUnit, keys: tuple[str, ...] = ()) -> Target:
    """The table that a unit's file makes."""
    named = {c.name: c.table_type for c in unit.columns if c.table_type and c.name != MARKER}
    return target(keys, **named)


def items(unit: ChangeUnit, table: Target, **options: Any) -> list[Changes | Rejected]:
    """What `read_changes` gives, and at last why it ends. `options`: of it, or of `Shared`."""
    of_reader = {name: options.pop(name) for name in ("columns", "encoded", "waits") if name in options}
    shared = Shared(**{"target": table, "budget": MemoryBudget(DEFAULT), **options})
    found: list[Changes | Rejected] = []
    try:
        found += read_changes(unit, shared, **of_reader)
    except Bad as bad:
        found.append(bad.rejected)
    return found


def rows_of(unit: ChangeUnit, table: Target, **options: Any) -> pa.Table:
    """All rows of a unit that has no bad one."""
    found = items(unit, table, **options)
    batches = [each.rows for each in found if isinstance(each, Changes)]
    assert len(batches) == len(found), found
    return pa.Table.from_batches(batches)


def bad_row(unit: ChangeUnit, table: Target, **options: Any) -> Rejected:
    """The first bad row of a unit, which is its last item."""
    found = items(unit, table, **options)
    last = found[-1]
    assert isinstance(last, Rejected), found
    assert not any(isinstance(each, Rejected) for each in found[:-1])
    return last
