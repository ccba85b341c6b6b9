"""NOT NULL that somebody added to a mirrored table."""

from __future__ import annotations

import pyarrow as pa

from lakemirror.engines.kernels.not_null import null_violation
from lakemirror.engines.row_work import FILE, ROW, Target, TargetColumn

TARGET = Target("/t", (TargetColumn("a", "a", "bigint", nullable=False), TargetColumn("b", "b", "string")))


def test_the_row_that_lacks_a_value() -> None:
    rows = pa.table({"a": [1, None, None], "b": [None, "x", "y"], FILE: [1, 2, 2], ROW: [0, 6, 7]})
    found = null_violation(rows, TARGET, {1: "t/1.parquet", 2: "t/2.parquet"})
    assert found is not None
    assert (found.code, found.file, found.row, found.column) == ("constraint-violated", "t/2.parquet", 7, "a")
    assert found.message == "t/2.parquet: column 'a' is NULL in row 7; the table has NOT NULL there"
    assert null_violation(rows.slice(0, 1), TARGET, {}) is None
    absent = null_violation(pa.table({"b": ["x"]}), TARGET, {})
    assert absent is not None and absent.row is None and absent.file == ""
    assert null_violation(pa.table({"b": pa.array([], pa.string())}), TARGET, {}) is None
