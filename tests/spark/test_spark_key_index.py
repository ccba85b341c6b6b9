"""The key index helps Spark's tasks: the driver asks it first, and tasks open no data file that it answers for."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.landing import MARKER, declare, put, table_bag

from lakemirror.database import MirroredDatabase
from lakemirror.engines.key_index import FEWEST_ROWS, KeyIndex
from lakemirror.engines.spark.jobs import Jobs, Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES = 2


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Data files whose keys tasks were told to read, in order: path, and row groups of all its tasks together."""
    seen: list[tuple[str, int]] = []
    run = Jobs.run

    def noted(self: Jobs, description: str, stage: Stage) -> list[list[Any]]:
        if stage.function == "find_rows":
            seen.extend(row_groups(stage))
        return run(self, description, stage)

    monkeypatch.setattr(Jobs, "run", noted)
    return seen


def row_groups(stage: Stage) -> Sequence[tuple[str, int]]:
    """Each data file of a look-up, with the row groups that its tasks open."""
    found: dict[str, int] = {}
    for unit in stage.units:
        for _, add, _, _ in unit.files:
            count = pq.read_metadata(Path(stage.shared[0].path) / add["path"]).num_row_groups
            found[add["path"]] = found.get(add["path"], 0) + len(range(unit.part, count, unit.parts))
    return list(found.items())


def test_tasks_open_only_files_that_have_no_index(
    spark: SparkSession, tmp_path: Path, read: list[tuple[str, int]]
) -> None:
    random = Random(5)
    keys = [str(uuid.UUID(int=random.getrandbits(128), version=4)) for _ in range(FILES * FEWEST_ROWS)]
    rows = {key: number for number, key in enumerate(keys)}
    declare(tmp_path, "orders", ["id"])
    put_rows(tmp_path, 1, rows, row_group_size=FEWEST_ROWS // 4)
    options = {"spark": spark, "cache_dir": str(tmp_path / "cache")}
    assert MirroredDatabase(tmp_path, engine="local", **options).sync().failed == {}
    large = {path.name for path in (tmp_path / "Tables/orders").glob("*.parquet")}
    database = MirroredDatabase(tmp_path, engine="spark", key_index=False, **options)

    def applied(number: int) -> list[tuple[str, int]]:
        """Changes a hundred rows of all files, and returns what tasks were told to read for that."""
        read.clear()
        changed = dict.fromkeys(random.sample(keys, 100), -number)
        rows.update(changed)
        put_rows(tmp_path, number, changed, MARKER=4)
        assert database.sync().failed == {}
        return [(path, groups) for path, groups in read if path in large]

    without = applied(2)
    assert {path for path, _ in without} == large and sum(groups for _, groups in without) == 4 * FILES

    database = MirroredDatabase(tmp_path, engine="spark", **options)
    assert applied(3) == without, "the first look-up finds no index, and asks for one"
    KeyIndex.shared(tmp_path / "cache/keys", 1 << 40).wait()
    assert len(list((tmp_path / "cache/keys").rglob("*.keys"))) == len(large)
    assert applied(4) == [], "tasks read none of the files that have an index"
    for index in (tmp_path / "cache/keys").rglob("*.keys"):
        index.write_bytes(index.read_bytes()[:-1000])
    from lakemirror.engines.kernels import look_up

    look_up.LATELY_READ.clear()
    assert applied(5) == without, "a damaged index is not believed: tasks read the keys"

    assert table_bag(spark, tmp_path, "orders", ["id", "n"]) == dict.fromkeys(rows.items(), 1)


def put_rows(database: Path, number: int, rows: dict[str, int], **options: Any) -> None:
    """Writes a change file of these keys and values, with a marker if `MARKER` says one."""
    columns: dict[str, Any] = {"id": list(rows), "n": pa.array(rows.values(), pa.int64())}
    marker = options.pop("MARKER", None)
    if marker is not None:
        columns[MARKER] = pa.array([marker] * len(rows), pa.int32())
    put(database, "orders", number, columns, **options)
