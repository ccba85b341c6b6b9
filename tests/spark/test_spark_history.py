"""History tables made by Spark's tasks hold what the local engine's do, and what the contract in plain Python says."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests import how_to_pages
from tests.change_tables import expected, expected_versions, held, held_versions, marked, put_at
from tests.history_model import DELETE, INSERT, UPDATE, UPSERT, Change, ChangeFile
from tests.landing import declare, put
from tests.random_histories import Story, play
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase, failpoints
from lakemirror.engines import write_versions
from lakemirror.engines.spark.jobs import Jobs
from lakemirror.maintenance.compaction import merge_when_idle
from lakemirror.mirror import table_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = {"id": pa.int64(), "k": pa.string(), "v": pa.int32(), "w": pa.string(), "n": pa.int64()}
TRACKED: Any = ["changes", {"mode": "scd2", "track": ["v"]}]


def story(options: dict[str, Any], *, partial: bool) -> Story:
    """Four files: keys come, change, go and come back; the second has a column less, the third times of the source."""
    rng = random.Random(7)
    begun = datetime(2020, 1, 1)
    lives: set[tuple[int, str | None]] = set()
    files = []
    for number in range(1, 5):
        columns = tuple(TYPES) if number != 2 else ("id", "k", "v", "n")
        changes = []
        for place in range(70):
            key = rng.randrange(25), rng.choice(["a", "", None])
            marker = rng.choice([UPSERT, UPSERT, UPDATE, INSERT, DELETE])
            names = ("v",) if partial and key in lives and marker in (UPSERT, UPDATE) and place % 3 == 0 else ()
            row = {"id": key[0], "k": key[1], "v": rng.choice([1, 2, None]), "w": rng.choice(["p", "q"])}
            row["n"] = rng.randrange(40)
            at = begun + timedelta(seconds=number * 100 + place) if number == 3 and place % 2 else None
            changes.append(Change(marker, {name: row[name] for name in columns}, names, at))
            (lives.discard if marker == DELETE else lives.add)(key)
        files.append(
            ChangeFile(f"{number:020}.parquet", columns, tuple(changes), begun + timedelta(seconds=number * 100))
        )
    return Story(TYPES, ("id", "k"), options, tuple(files), frozenset({1, 3}), batch_files=1)


@pytest.mark.parametrize(
    ("options", "partial"),
    [
        pytest.param({"history": TRACKED, "deletes": "soft"}, True, marks=pytest.mark.full),
        ({"history": TRACKED, "deletes": "soft", "sequence": "n"}, True),
        pytest.param({"history": ["scd2", "changes"]}, False, marks=pytest.mark.full),
        pytest.param({"history": TRACKED, "deletes": "ignore"}, True, marks=pytest.mark.full),
        pytest.param({"history": "scd2", "deletes": "soft"}, False, marks=pytest.mark.full),
    ],
    ids=str,
)
@pytest.mark.parametrize("few", [1, pytest.param(0, marks=pytest.mark.full)], ids=["tasks", "few"])
def test_as_the_model_and_the_local_engine(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], partial: bool, few: int
) -> None:
    """`few`: 1, so that tasks do all; 0, so that the driver does what is little."""
    jobs = Counter[str]()
    run = Jobs.run

    def counting(self: Jobs, description: str, *rest: Any) -> Any:
        jobs[description.rpartition(": ")[2]] += 1
        return run(self, description, *rest)

    monkeypatch.setattr(Jobs, "run", counting)
    its = story(options, partial=partial)
    play(its, spark=spark, engine="spark", spark_from_bytes=few)
    assert not few or jobs["write versions"] >= 4, jobs
    play(its)


@pytest.mark.parametrize("rising", [True, False], ids=["rising", "not"])
def test_rising_keys_in_row_groups(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rising: bool
) -> None:
    """Parts of change files, or tasks that keep the changes of their keys: the same versions, each once."""
    counts: list[int] = []
    version_buckets = write_versions.version_buckets

    @contextmanager
    def noted(*given: Any) -> Any:
        with version_buckets(*given) as buckets:
            counts.append(len({(each.bucket, each.buckets) for each in buckets}))
            assert len(buckets) > 1
            yield buckets

    monkeypatch.setattr(write_versions, "version_buckets", noted)
    declare(tmp_path, "t", ["id"], lakemirror={"history": "scd2"})
    for number in range(1, 7):
        ids = list(range((number - 1) % 3 * 500, (number - 1) % 3 * 500 + 500))
        ids[-1] += not rising and number % 3  # the first key of the next file
        rows = marked([4] * 500 if number < 4 else [4, 2, 1, 4, 4] * 100, id=ids, v=[number] * 500)
        put_at(tmp_path, "t", number, rows, row_group_size=100)
        if number in (3, 6):
            settings: Any = {"engine": "spark", "spark_from_bytes": 1, "spark": spark}
            assert not MirroredDatabase(tmp_path, **settings).sync().failed
    assert counts == [1 if rising else 2] * 2
    assert held_versions(tmp_path, "t__history") == expected_versions(tmp_path, "t", ["id"], {"history": "scd2"})


def test_options_that_come_later(spark: SparkSession, tmp_path: Path) -> None:
    """Soft deletes and history begin by a session: rows get their columns, and first versions."""
    local, other = tmp_path / "local", tmp_path / "spark"
    settings: Any = {"engine": "spark", "spark_from_bytes": 1, "spark": spark}
    declare(local, "t", ["id"])
    put(local, "t", 1, {"id": list(range(500)), "v": [n % 5 for n in range(500)]})
    shutil.copytree(local, other)
    assert not MirroredDatabase(local).sync().failed and not MirroredDatabase(other, **settings).sync().failed
    declare(local, "t", ["id"], lakemirror={"deletes": "soft", "history": ["scd2", "changes"]})
    moment = pa.array([datetime(2020, 1, 1)] * 100, pa.timestamp("us", "UTC"))
    rows = marked([2, 4] * 50, id=list(range(100)), v=[1] * 100).append_column("__sourceTimestamp__", moment)
    path = put(local, "t", 2, rows)
    shutil.copy2(path, other / path.relative_to(local))
    shutil.copy2(path.parent / "_metadata.json", other / path.parent.relative_to(local))
    assert not MirroredDatabase(local).sync().failed and not MirroredDatabase(other, **settings).sync().failed
    assert held(local, "t__changes") == held(other, "t__changes")
    assert sum(held(local, "t__changes").values()) == 100
    assert table_rows(local, "t") == table_rows(other, "t")
    versions = table_rows(local, "t__history")
    assert versions == table_rows(other, "t__history") and sum(versions.values()) > 500


def test_a_table_of_changes_is_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """Each change once, also updates and deletes, without the change feed, and while files are merged."""
    declare(tmp_path, "t", ["id"], lakemirror={"history": "changes"})
    seen: dict[int, list[tuple[int, str]]] = {}
    frame = spark.readStream.format("delta")

    def keep(rows: Any, batch: int) -> None:
        seen[batch] = [tuple(row) for row in rows.select("id", "__operation").collect()]

    expected = Counter[tuple[int, str]]()
    for number, (marker, name) in enumerate([(4, "upsert"), (1, "update"), (2, "delete")] * 3, start=1):
        put(tmp_path, "t", number, marked([marker], id=[7]))
        expected[7, name] += 1
        assert not MirroredDatabase(tmp_path).sync().failed
        if number == 6:
            assert merge_when_idle(str(tmp_path / "Tables/t__changes"), all_vectors=True)
        if number % 3 == 0:
            query = frame.load(str(tmp_path / "Tables/t__changes")).writeStream.foreachBatch(keep)
            query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
            query.start().awaitTermination()
            assert Counter(row for rows in seen.values() for row in rows) == expected


@pytest.mark.parametrize("first", ["local", pytest.param("spark", marks=pytest.mark.full)])
def test_another_engine_goes_on_between_two_commits(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """One engine ends after the commit of versions; the other brings the tables that are behind to the same files."""
    by_spark: Any = {"engine": "spark", "spark_from_bytes": 1, "spark": spark}
    before, after = ({}, by_spark) if first == "local" else (by_spark, {})
    options = {"sequence": "n", "history": ["scd2", "changes"]}
    declare(tmp_path, "t", ["id"], lakemirror=options)
    put_at(tmp_path, "t", 1, marked([4, 4, 4], id=[1, 2, 3], n=[1, 5, 1], v=["a", "b", "c"]))
    assert not MirroredDatabase(tmp_path, **before).sync().failed
    put_at(tmp_path, "t", 2, marked([4, 2, 4], id=[1, 3, 2], n=[4, 2, 3], v=["A", None, "late"]))
    put_at(tmp_path, "t", 3, marked([2, 4], id=[2, 1], n=[6, 2], v=[None, "late"]))
    monkeypatch.setattr(table_state, "FIRST_PAUSES", (60.0,))
    monkeypatch.setattr(failpoints, "_reached", {})
    monkeypatch.setenv("LAKEMIRROR_FAILPOINT", "history.after-commit:1:error")
    assert MirroredDatabase(tmp_path, batch_files=1, **before).sync().failed
    monkeypatch.undo()
    versions = [len(list(path.glob("*.json"))) for path in sorted(tmp_path.glob("Tables/t*/_delta_log"))]
    assert len(set(versions)) == 2, "one table is ahead"
    assert not MirroredDatabase(tmp_path, **after).sync().failed
    assert held(tmp_path, "t__changes") == expected(tmp_path, "t")
    assert held_versions(tmp_path, "t__history") == expected_versions(tmp_path, "t", ["id"], options)
    assert table_rows(tmp_path, "t") == {(1, 4, "A"): 1}


def test_examples_of_the_page(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks for Spark of the page on history, after the one that publishes."""
    first, *rest = how_to_pages.examples("how-to/keep-history")
    chosen = [each for each in rest if each.note == "spark"]
    assert len(chosen) >= 3
    monkeypatch.chdir(tmp_path)
    exec(first.code, {})
    for each in chosen:
        code = each.code.replace('"shop/', f'"{tmp_path}/shop/')  # the JVM's folder is another one
        exec(code, {"spark": spark})
