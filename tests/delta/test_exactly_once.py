"""Two engines from one position: whatever the order, a file is applied once (contract section 9)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.landing import MARKER, declare, folder, put
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.landing_zone.zone import TableName, scan
from lakemirror.mirror.step import Conflict, Replicator
from lakemirror.settings.settings import Settings
from lakemirror.storage import LocalStorage

WAYS = ("local-local", "local-spark", "spark-local", "spark-spark")


@pytest.fixture(params=WAYS)
def ways(request: Any) -> tuple[str, str]:
    """The engine of this process, and that of the one that comes in between."""
    ours, others = request.param.split("-")
    return ours, others


def pairs() -> list[Any]:
    """Every way in every place with every kind of batch; by default each engine once beside the other and itself."""
    places, kinds = ("apply.before-write", "apply.before-commit"), ("append", "mixed")
    chosen = {
        ("local-spark", places[0], "mixed"),
        ("spark-local", places[1], "append"),
        ("spark-spark", places[1], "mixed"),
    }
    return [
        pytest.param(
            way, place, kind, marks=() if way == "local-local" or (way, place, kind) in chosen else pytest.mark.full
        )
        for way in WAYS
        for place in places
        for kind in kinds
    ]


@pytest.mark.parametrize(("ways", "place", "kind"), pairs(), indirect=["ways"])
def test_another_engine_commits_in_between_with_one_file_less(
    spark: Any, tmp_path: Path, meanwhile: Any, ways: tuple[str, str], kind: str, place: str
) -> None:
    """The other engine has applied file 2 when ours, which saw 2 and 3, commits: 2 is not applied again."""
    declare(tmp_path, "t", ["id"])
    put(tmp_path, "t", 1, {"id": [1]})
    MirroredDatabase(tmp_path, spark=spark, engine=ways[0]).sync()
    marker = {} if kind == "append" else {MARKER: pa.array([0, 4], pa.int32())}
    put(tmp_path, "t", 2, {"id": [2, 3], **marker})
    put(tmp_path, "t", 3, {"id": [4, 5], **marker})
    other = MirroredDatabase(tmp_path, spark=spark.newSession(), engine=ways[1], batch_files=1)
    third = folder(tmp_path, "t") / f"{3:020}.parquet"
    aside = tmp_path / "aside"

    def one_file_only() -> None:
        third.rename(aside)
        assert not other.sync().failed
        aside.rename(third)

    done = meanwhile(place, one_file_only)
    result = MirroredDatabase(tmp_path, spark=spark, engine=ways[0]).sync()
    assert done
    assert not result.failed, result.failed
    assert table_rows(tmp_path, "t") == {(n,): 1 for n in range(1, 6)}


def test_another_engine_makes_the_table_in_between(
    spark: Any, tmp_path: Path, meanwhile: Any, ways: tuple[str, str]
) -> None:
    put(tmp_path, "t", 1, {"id": [1]})
    put(tmp_path, "t", 2, {"id": [2]})
    other = MirroredDatabase(tmp_path, spark=spark.newSession(), engine=ways[1], batch_files=1)
    others: list[Any] = []
    done = meanwhile("apply.before-commit", lambda: others.append(other.sync()))
    result = MirroredDatabase(tmp_path, spark=spark, engine=ways[0]).sync()
    assert done and not others[0].failed, others
    assert not result.failed, result.failed
    assert table_rows(tmp_path, "t") == {(1,): 1, (2,): 1}


def test_a_table_that_moved_on_is_refused(spark: Any, tmp_path: Path) -> None:
    put(tmp_path, "t", 1, {"id": [1]})
    storage = LocalStorage(tmp_path)
    replicator = Replicator(storage, TableName("", "t"), Settings())
    stale = replicator.observe(scan(storage).tables[TableName("", "t")])
    MirroredDatabase(tmp_path, spark=spark).sync()
    _, done = replicator.step(stale, lambda _: LocalEngine())
    assert isinstance(done, Conflict)
    assert table_rows(tmp_path, "t") == {(1,): 1}


def test_a_folder_made_again_while_its_old_files_are_applied(
    spark: Any, tmp_path: Path, meanwhile: Any, ways: tuple[str, str]
) -> None:
    """The other engine replaces the table while ours still writes rows of the folder that is gone."""
    put(tmp_path, "t", 1, {"id": [1]})
    MirroredDatabase(tmp_path, spark=spark, engine=ways[0]).sync()
    put(tmp_path, "t", 2, {"id": [2]})

    def made_again() -> None:
        shutil.rmtree(folder(tmp_path, "t"))
        put(tmp_path, "t", 1, {"id": [100]})
        assert not MirroredDatabase(tmp_path, spark=spark.newSession(), engine=ways[1]).sync().failed

    done = meanwhile("apply.before-commit", made_again)
    MirroredDatabase(tmp_path, spark=spark, engine=ways[0]).sync()
    assert done
    assert table_rows(tmp_path, "t") == {(100,): 1}


def test_somebody_compacts_in_between(spark: Any, tmp_path: Path, meanwhile: Any, ways: tuple[str, str]) -> None:
    declare(tmp_path, "t", ["id"])
    for number in (1, 2):
        put(tmp_path, "t", number, {"id": [number, number + 10]})
        MirroredDatabase(tmp_path, spark=spark, engine=ways[0]).sync()
    put(tmp_path, "t", 3, {"id": [1, 2], MARKER: pa.array([2, 1], pa.int32())})
    done = meanwhile("apply.before-commit", lambda: spark.sql(f"optimize delta.`{tmp_path}/Tables/t`").collect())
    result = MirroredDatabase(tmp_path, spark=spark, engine=ways[0]).sync()
    assert done
    assert not result.failed, result.failed
    assert table_rows(tmp_path, "t") == {(2,): 1, (11,): 1, (12,): 1}


def test_a_retire_never_moves_a_file_of_a_folder_made_again(spark: Any, tmp_path: Path, meanwhile: Any) -> None:
    for number in (1, 2, 3):
        put(tmp_path, "t", number, {"id": [number]})

    def made_again() -> None:
        shutil.rmtree(folder(tmp_path, "t"))
        put(tmp_path, "t", 1, {"id": [100]})

    assert meanwhile("archive.before-move", made_again) == []
    MirroredDatabase(tmp_path, spark=spark).sync()
    assert (folder(tmp_path, "t") / f"{1:020}.parquet").exists()
    MirroredDatabase(tmp_path, spark=spark).sync()
    assert table_rows(tmp_path, "t") == {(100,): 1}
