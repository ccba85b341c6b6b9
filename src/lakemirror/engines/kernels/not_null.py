"""Rows that have NULL where the table says NOT NULL (contract section 5): a value that names file, row and column."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.engines.row_work import FILE, ROW, BadRow, Target


def null_violation(rows: pa.RecordBatch | pa.Table, target: Target, names: Mapping[int, str]) -> BadRow | None:
    """The first row of `rows` that lacks a value it must have, as `constraint-violated`; None where none does.

    `rows`: those that go into the table, by logical column names; FILE and ROW beside them say where they are from,
    where they are known. A column that `rows` lacks is NULL. `names`: of the change files by their numbers.
    """
    for column in target.columns:
        if column.nullable or not rows.num_rows:
            continue
        place = 0
        if column.name in rows.schema.names:
            values = rows.column(column.name)
            if not values.null_count:
                continue
            place = pc.index(values.is_null(), True).as_py()
        file = names.get(rows.column(FILE)[place].as_py(), "") if FILE in rows.schema.names else ""
        row = rows.column(ROW)[place].as_py() + 1 if ROW in rows.schema.names else None
        message = f"{file}: " if file else ""
        message += (
            f"column {column.name!r} is NULL" + (f" in row {row}" if row else "") + "; the table has NOT NULL there"
        )
        return BadRow("constraint-violated", file, message, row, column.name)
    return None
