"""The kernels and Delta Spark rewrite the same tables with the same result, over all types and features they share."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from used_tables import quickly, rows, run, snapshot

from lakemirror.delta.feature_names import features_of
from lakemirror.errors import LakemirrorError
from lakemirror.features import plan, spark_route
from lakemirror.features.drop import Dropped, drop
from lakemirror.features.plan import Wish
from lakemirror.features.route import Route

deltalake = pytest.importorskip("deltalake")

TYPES = {
    "BOOLEAN": "id % 2 = 0", "TINYINT": "cast(id % 100 AS TINYINT)", "SMALLINT": "cast(id * 7 AS SMALLINT)",
    "INT": "cast(id * 70001 AS INT)", "BIGINT": "id * 5000000001", "FLOAT": "cast(id / 7 AS FLOAT)",
    "DOUBLE": "CASE id % 4 WHEN 0 THEN double('NaN') WHEN 1 THEN -0.0D WHEN 2 THEN double('-Infinity') ELSE id / 3 END",
    "DECIMAL(9,2)": "cast(id / 4 AS DECIMAL(9,2))", "DECIMAL(38,10)": "cast(id AS DECIMAL(38,10)) * 12345678901234567",
    "STRING": "concat('ü\\u0000 \"', id, repeat('x', cast(id AS INT)))", "BINARY": "unhex(hex(id * 255))",
    "DATE": "date_add(DATE'0001-01-01', cast(id * 20000 AS INT))",
    "TIMESTAMP": "timestamp_micros(id * 1234567890123457 - 11676096000000000)",
    "TIMESTAMP_NTZ": "cast(timestamp_micros(id * 7000000001) AS TIMESTAMP_NTZ)",
    "ARRAY<INT>": "CASE id % 3 WHEN 0 THEN array() WHEN 1 THEN array(1, NULL, cast(id AS INT)) END",
    "ARRAY<ARRAY<STRING>>": "array(array('a', NULL), NULL, array(string(id)))",
    "MAP<STRING,INT>": "CASE id % 3 WHEN 0 THEN map() WHEN 1 THEN map('k', cast(id AS INT), 'n', NULL) END",
    "MAP<INT,STRUCT<a:STRING,b:ARRAY<DATE>>>":
        "map(cast(id AS INT), named_struct('a', string(id), 'b', array(DATE'2020-01-01', NULL)))",
    "STRUCT<a:INT,b:STRUCT<c:STRING,d:ARRAY<STRUCT<e:DOUBLE>>>>":
        "CASE id % 3 WHEN 0 THEN named_struct('a', cast(id AS INT), 'b', NULL) WHEN 1 THEN named_struct('a', NULL, "
        "'b', named_struct('c', string(id), 'd', array(named_struct('e', id / 8), NULL))) END",
}  # fmt: skip
"""Every type that both write, with an expression of `id` for its values; every fifth value is NULL."""

WIDENED = [
    ("TINYINT", "INT"), ("SMALLINT", "BIGINT"), ("INT", "DOUBLE"), ("FLOAT", "DOUBLE"), ("INT", "DECIMAL(12,2)"),
    ("BIGINT", "DECIMAL(21,1)"), ("DECIMAL(9,2)", "DECIMAL(14,4)"), ("DATE", "TIMESTAMP_NTZ"), ("INT", "BIGINT"),
]  # fmt: skip
PARTITIONS = {
    "STRING": "CASE id % 4 WHEN 0 THEN 'a/b%20=:\"' WHEN 1 THEN 'ünï {}' WHEN 2 THEN '' END",
    "DATE": "date_add(DATE'1969-12-30', cast(id % 3 AS INT))",
    "TIMESTAMP": "timestamp_micros((id % 3) * 1000001)",
    "DECIMAL(9,2)": "cast((id % 3) / 4 AS DECIMAL(9,2))",
    "DOUBLE": "(id % 3) / 8D",
    "BOOLEAN": "id % 2 = 0",
}


@pytest.fixture(scope="module", autouse=True)
def quick(spark: SparkSession) -> Iterator[None]:
    with quickly(spark):
        yield


def by_spark(monkeypatch: pytest.MonkeyPatch, table: Path, wish: Wish, spark: SparkSession) -> Dropped:
    with monkeypatch.context() as forced:
        forced.setattr(plan, "route_of", lambda *_: Route("Delta Spark", "this test forces it"))
        return drop(table, wish, session=lambda: spark)


def by_kernels(monkeypatch: pytest.MonkeyPatch, table: Path, wish: Wish) -> Dropped:
    with monkeypatch.context() as forced:
        forced.setattr(spark_route, "rewrite", None)
        return drop(table, wish)


def agree(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, table: Path, features: tuple[str, ...], kept: set[str]
) -> None:
    """Drops the features from two copies by the two routes, and compares all that readers and the log show of them."""
    before = rows(spark, table)
    mine, theirs = (shutil.copytree(table, table.with_name(name)) for name in ("mine", "theirs"))
    done = by_kernels(monkeypatch, mine, Wish(features))
    other = by_spark(monkeypatch, theirs, Wish(features), spark)
    assert done.after == other.after and any(step.startswith("rewrite") for step in done.steps)
    new, reference = snapshot(mine), snapshot(theirs)
    assert new.metadata.schema == reference.metadata.schema
    assert new.metadata.partition_columns == reference.metadata.partition_columns
    assert features_of(new.protocol) >= kept and not set(features) & features_of(new.protocol)
    assert rows(spark, mine) == rows(spark, theirs) == before
    assert rows(spark, mine, snapshot(table).version) == before, "older versions stay readable"
    names = [field["name"] for field in new.metadata.schema["fields"]]
    assert spark.read.format("delta").load(str(mine)).columns == names
    check_statistics(spark, mine)
    if new.protocol.reader == 1:
        read = deltalake.DeltaTable(str(mine)).to_pyarrow_table()
        assert read.num_rows == sum(before.values()) and read.column_names == names


def check_statistics(spark: SparkSession, table: Path) -> None:
    """Row and NULL counts of each file are exact, and a filter by each bound finds the rows that a scan finds."""
    now = snapshot(table)
    for add in now.files.values():
        stats = json.loads(add["stats"])
        file = pq.read_table(table / unquote(add["path"]), partitioning=None)
        assert stats["numRecords"] == file.num_rows
        for name, count in stats["nullCount"].items():
            assert isinstance(count, dict) or count == file.column(name).null_count, name
    frame = spark.read.format("delta").load(str(table))
    kinds = {name: kind for name, kind in frame.dtypes if "<" not in kind and kind != "binary"}
    held = frame.selectExpr(*(f"CAST(`{name}` AS STRING)" for name in kinds)).collect()
    wanted, counted = {}, []
    for name, kind in kinds.items():
        texts = Counter(row[name] for row in held if row[name] not in (None, "0.0", "-0.0"))
        for text, count in sorted(texts.items())[-1:]:
            wanted[name] = count
            value = text.replace("\\", "\\\\").replace("'", "\\'")
            filtered = frame.where(f"`{name}` = CAST('{value}' AS {kind})")
            counted.append(filtered.selectExpr(f"'{name}' AS name", "count(*) AS count"))
    in_one_job = reduce(DataFrame.unionAll, counted)
    assert dict(map(tuple, in_one_job.collect())) == wanted


@pytest.mark.parametrize("mode", ["name", pytest.param("id", marks=pytest.mark.full)])
def test_mapped_columns_of_all_types(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Renamed, dropped, added and reordered columns and fields, in files from before and after each change."""
    table = tmp_path / "t"
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(TYPES))
    values = ", ".join(f"IF(id % 5 = {number % 5}, NULL, {text})" for number, text in enumerate(TYPES.values()))
    last = len(TYPES) - 1
    run(spark, table, [
        f"CREATE TABLE {{t}} (id BIGINT, {columns}, p STRING) USING delta PARTITIONED BY (p) "
        f"TBLPROPERTIES ('delta.columnMapping.mode'='{mode}')",
        f"INSERT INTO {{t}} SELECT id, {values}, {PARTITIONS['STRING']} FROM range(0, 40, 1, 2)".replace("{}", "{{}}"),
        "ALTER TABLE {t} RENAME COLUMN c3 TO C9999",
        f"ALTER TABLE {{t}} RENAME COLUMN c{last}.b.c TO renamed",
        f"ALTER TABLE {{t}} DROP COLUMN c{last}.a",
        "ALTER TABLE {t} DROP COLUMN c4",
        f"ALTER TABLE {{t}} ADD COLUMNS (c4 STRING, c{last}.a DATE FIRST, early INT FIRST)",
        "ALTER TABLE {t} RENAME COLUMN p TO part",
        f"INSERT INTO {{t}} (id, c4, c{last}, part) VALUES (100, 'new', named_struct('a', DATE'2021-01-01', 'b', "
        "named_struct('renamed', 'r', 'd', NULL)), 'x y')",
    ])  # fmt: skip
    agree(monkeypatch, spark, table, ("columnMapping",), {"checkpointProtection"})


@pytest.mark.full
@pytest.mark.parametrize("kind", PARTITIONS)
@pytest.mark.parametrize("mapped", [False, True])
def test_deleted_rows_of_partitioned_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, mapped: bool
) -> None:
    """Partition values stay as the log spells them, also under column mapping, and beside a change data feed."""
    table = tmp_path / "t"
    more = "'delta.columnMapping.mode'='name', " if mapped else ""
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(TYPES))
    run(spark, table, [
        f"CREATE TABLE {{t}} (p {kind}, id BIGINT, {columns}) USING delta PARTITIONED BY (p) TBLPROPERTIES ({more}"
        "'delta.enableDeletionVectors'='true', 'delta.enableChangeDataFeed'='true', "
        "'delta.enableInCommitTimestamps'='true')",
        f"INSERT INTO {{t}} SELECT {PARTITIONS[kind]}, id, {', '.join(TYPES.values())} FROM range(0, 40, 1, 2)"
        .replace("{}", "{{}}"),
        "DELETE FROM {t} WHERE id % 7 = 3",
        *(["ALTER TABLE {t} RENAME COLUMN c1 TO one"] if mapped else []),
        "DELETE FROM {t} WHERE id % 11 = 3 OR id >= 38",
    ])  # fmt: skip
    agree(monkeypatch, spark, table, ("deletionVectors",), {"changeDataFeed", "inCommitTimestamp"})
    now = snapshot(tmp_path / "mine")
    assert {tuple(a["partitionValues"].items()) for a in now.files.values()} == {
        tuple(a["partitionValues"].items()) for a in snapshot(table).files.values()
    }
    first = snapshot(table).version + 1
    changes = spark.sql(f"SELECT count(*) FROM table_changes('delta.`{tmp_path / 'mine'}`', {first})")
    assert changes.collect()[0][0] == 0


@pytest.mark.full
def test_widened_columns_and_fields(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "t"
    columns = ", ".join(f"c{number} {kind}" for number, (kind, _) in enumerate(WIDENED))
    values = ", ".join(f"IF(id % 5 = 1, NULL, {TYPES[kind]})" for kind, _ in WIDENED)
    nested = [("x.a", "INT"), ("l.element", "BIGINT"), ("m.key", "INT"), ("m.value.v", "DOUBLE")]
    run(spark, table, [
        f"CREATE TABLE {{t}} (id BIGINT, {columns}, x STRUCT<a: SMALLINT, b: STRING>, l ARRAY<INT>, "
        "m MAP<TINYINT, STRUCT<v: FLOAT>>) USING delta TBLPROPERTIES ('delta.enableTypeWidening'='true', "
        "'delta.feature.timestampNtz'='supported', "
        "'delta.enableDeletionVectors'='true')",
        f"INSERT INTO {{t}} SELECT id, {values}, named_struct('a', cast(id AS SMALLINT), 'b', 'b'), "
        "array(cast(id AS INT), NULL), map(cast(id AS TINYINT), named_struct('v', 0.1F)) FROM range(0, 40, 1, 2)",
        *(f"ALTER TABLE {{t}} ALTER COLUMN c{number} TYPE {kind}" for number, (_, kind) in enumerate(WIDENED)),
        *(f"ALTER TABLE {{t}} ALTER COLUMN {name} TYPE {kind}" for name, kind in nested),
        "INSERT INTO {t} (id, c0, x) VALUES (1000, 70000, named_struct('a', 70000, 'b', NULL))",
        "DELETE FROM {t} WHERE id = 7",
    ])  # fmt: skip
    agree(monkeypatch, spark, table, ("typeWidening",), {"deletionVectors"})


@pytest.mark.full
@pytest.mark.parametrize("seed", range(12))
def test_tables_of_random_columns(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Random types in random order, random changes of the schema and of rows; all three features go at once."""
    table, dice = tmp_path / "t", random.Random(seed)
    kinds = dice.sample(sorted(TYPES), dice.randint(3, 9))
    part = dice.choice([None, *PARTITIONS])
    columns = [f"c{number} {kind}" for number, kind in enumerate(kinds)] + ([f"p {part}"] if part else [])
    values = [TYPES[kind] for kind in kinds] + ([PARTITIONS[part]] if part else [])
    run(spark, table, [
        f"CREATE TABLE {{t}} (id BIGINT, {', '.join(columns)}) USING delta {'PARTITIONED BY (p)' if part else ''} "
        f"TBLPROPERTIES ('delta.columnMapping.mode'='{dice.choice(['name', 'id'])}', "
        "'delta.enableDeletionVectors'='true', 'delta.enableTypeWidening'='true', "
        "'delta.feature.timestampNtz'='supported')",
        f"INSERT INTO {{t}} SELECT id, {', '.join(values)} FROM range(0, 30, 1, {dice.randint(1, 3)})"
        .replace("{}", "{{}}"),
        "ALTER TABLE {t} RENAME COLUMN c0 TO other",
    ])  # fmt: skip
    wider = dict(WIDENED)
    for number, kind in enumerate(kinds):
        name = f"c{number}" if number else "other"
        if kind in wider and dice.random() < 0.7:
            run(spark, table, [f"ALTER TABLE {{t}} ALTER COLUMN {name} TYPE {wider[kind]}"])
        elif number > 1 and dice.random() < 0.3:
            run(spark, table, [f"ALTER TABLE {{t}} DROP COLUMN {name}", f"ALTER TABLE {{t}} ADD COLUMN {name} INT"])
    run(spark, table, ["INSERT INTO {t} (id) VALUES (99)", f"DELETE FROM {{t}} WHERE id % {dice.randint(2, 9)} = 1"])
    features = ("columnMapping", "deletionVectors", "typeWidening")
    agree(monkeypatch, spark, table, features, {"checkpointProtection"})


def test_the_reason_for_a_jvm_is_said_before(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "t"
    run(spark, table, [
        "CREATE TABLE {t} (id INT) USING delta TBLPROPERTIES ('delta.enableRowTracking'='true', "
        "'delta.enableDeletionVectors'='true')",
        "INSERT INTO {t} SELECT cast(id AS INT) FROM range(0, 10, 1, 1)",
        "DELETE FROM {t} WHERE id = 3",
    ])  # fmt: skip
    (step,) = (step for step in plan.make_plan(snapshot(table), Wish(("deletionVectors",))).steps if step.route)
    assert step.route is not None and step.route.shown == "by Delta Spark, because the table has rowTracking"
    before = snapshot(table).version
    with pytest.raises(LakemirrorError, match="because the table has rowTracking"):
        drop(table, Wish(("deletionVectors",)))
    assert snapshot(table).version == before
    drop(table, Wish(("deletionVectors",)), session=lambda: spark)
    assert "deletionVectors" not in features_of(snapshot(table).protocol)
