"""Rules that a user put on a mirrored table by Spark's own SQL, from the change file to what `sync` says.

NOT NULL of an existing column cannot be set by SQL: `tests/applies/test_users_constraints.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.landing import MARKER, declare, put
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase
from lakemirror.delta.log import read_snapshot


def upserts(ids: list[int], values: list[int | None]) -> dict[str, Any]:
    return {"id": ids, "v": pa.array(values, pa.int64()), MARKER: pa.array([4] * len(ids), pa.int32())}


def test_check_and_append_only(spark: Any, tmp_path: Path) -> None:
    database = MirroredDatabase(tmp_path, spark=spark, maintenance=False)
    table = f"delta.`{tmp_path}/Tables/t`"
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, upserts([1, 2], [10, 20]))
    assert not database.sync().failed

    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT positive CHECK (v > 0)")
    put(tmp_path, "t", 2, upserts([3, 1, 4], [30, 11, -5]))
    error = database.sync().failed["t"]
    assert (error.code, error.row, error.column) == ("constraint-violated", 3, "v"), error
    assert "positive (v > 0)" in error.message and error.file is not None and error.file.endswith("2.parquet")
    before = read_snapshot(tmp_path / "Tables/t")
    assert before is not None and before.version == 1, "no commit of ours since"
    put(tmp_path, "t", 2, upserts([3, 1, 4], [30, 11, 5]))
    alone = MirroredDatabase(tmp_path, engine="local", maintenance=False).sync().failed["t"]
    assert alone.code == "spark-needed" and "positive" in alone.message
    assert not database.sync().failed
    assert next(iter(database.status().tables)).engine == "spark"
    spark.sql(f"ALTER TABLE {table} DROP CONSTRAINT positive")

    put(tmp_path, "t", 3, upserts([5, 6], [50, 60]))
    assert not database.sync().failed

    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    put(tmp_path, "t", 4, upserts([7], [70]))
    assert not database.sync().failed, "a new key takes no row away"
    put(tmp_path, "t", 5, upserts([7], [71]))
    assert database.sync().failed["t"].code == "table-append-only"
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('delta.appendOnly')")
    assert not database.sync().failed
    rows = sorted(tuple(int(value) for value in row) for row in table_rows(tmp_path, "t", ["id", "v"]))
    assert rows == [(1, 11), (2, 20), (3, 30), (4, 5), (5, 50), (6, 60), (7, 71)]
