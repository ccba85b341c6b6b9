"""Every two droppable features in one table that uses both: one dropped alone, both at once, history cut or kept."""

from __future__ import annotations

import copy
import shutil
from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable, IdentityGenerator
from pyspark.sql import SparkSession
from used_tables import INGREDIENTS, all_needed, build, rows, run, snapshot

from lakemirror.delta_log import Snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.table_features.cleaning import clustering_columns
from lakemirror.table_features.drop import Dropped, drop
from lakemirror.table_features.plan import Wish
from lakemirror.table_features.protocol import features_of
from lakemirror.table_features.usage import walk

deltalake = pytest.importorskip("deltalake")

READERS = {"columnMapping", "deletionVectors", "typeWidening", "typeWidening-preview", "v2Checkpoint"}
READERS |= {"vacuumProtocolCheck"}
PROTECTION = "delta.requireCheckpointProtectionBeforeVersion"

APART: dict[frozenset[str], tuple[str, str]] = {}
"""Pairs that no table can use at once: why, and Delta's own refusal."""

PAIRS = [pair for pair in combinations(INGREDIENTS, 2) if frozenset(pair) not in APART]
CAREFUL = [
    ("columnMapping", "deletionVectors"),
    ("clustering", "columnMapping"),
    ("typeWidening", "deletionVectors"),
    ("v2Checkpoint", "deletionVectors"),
]
FULL = [pair if pair in CAREFUL else pytest.param(pair, marks=pytest.mark.full, id="-".join(pair)) for pair in PAIRS]


def do(table: Path, spark: SparkSession, features: Iterable[str], **more: Any) -> Dropped:
    return drop(table, Wish(tuple(features), **more), session=lambda: spark, confirmed=True)


def copied(table: Path, name: str) -> Path:
    return Path(shutil.copytree(table, table.with_name(name)))


def stop(spark: SparkSession, table: Path, features: Iterable[str]) -> Snapshot:
    """What a person does before these features can go; without it the drop is refused."""
    for name in features:
        if statements := INGREDIENTS[name].stop:
            with pytest.raises(LakemirrorError) as refused:
                do(table, spark, [name])
            assert refused.value.code == "feature-in-use"
            run(spark, table, statements)
    return snapshot(table)


def expected_features(old: Snapshot, dropped: Iterable[str], truncate: bool) -> set[str]:
    """What is left of the features: domainMetadata goes with clustering where nothing else has a domain."""
    left = features_of(old.protocol) - set(dropped)
    if "clustering" in dropped and "rowTracking" not in left and "mine" not in old.domains:
        left -= {"domainMetadata"}
    return set(left) | ({"checkpointProtection"} if READERS & set(dropped) and not truncate else set())


def kept(now: Snapshot, gone: Iterable[str]) -> dict[str, Any]:
    """All that a drop of these features must leave as it is."""
    owned, marks = {PROTECTION}, set[str]()
    for name in gone:
        own = INGREDIENTS[name]
        owned |= {text.split("=")[0] for text in own.properties} | set(own.owns)
        marks |= set(own.marks)
    schema = copy.deepcopy(now.metadata.schema)
    for _, field in walk(schema):
        field["metadata"] = {key: value for key, value in field["metadata"].items() if key not in marks}
    return {
        "schema": schema,
        "partitioning": now.metadata.partition_columns,
        "properties": {key: value for key, value in now.metadata.configuration.items() if key not in owned},
        "description": now.metadata.value.get("description"),
        "id": now.metadata.id,
        "clustering": [] if "clustering" in gone else clustering_columns(now),
        "domains": [] if "domainMetadata" in gone else [name for name in now.domains if name == "mine"],
        "transactions": now.transactions,
    }


def check(old: Snapshot, new: Snapshot, gone: list[str], truncate: bool = False) -> None:
    assert features_of(new.protocol) == expected_features(old, gone, truncate)
    assert kept(new, gone) == kept(old, gone)
    assert new.checkpoint is not None and (new.checkpoint.version, new.checkpoint.kind) == (new.version, "classic")
    if READERS & set(gone) and not truncate:
        assert int(new.metadata.configuration[PROTECTION]) <= new.version
    if "clustering" not in gone and "clustering" in features_of(old.protocol):
        assert clustering_columns(new)


def row_ids(spark: SparkSession, table: Path) -> Counter[tuple[Any, ...]]:
    return Counter(map(tuple, spark.sql(f"SELECT id, p, _metadata.row_id FROM delta.`{table}`").collect()))


def others_read(table: Path, before: Counter[str]) -> None:
    """Where the protocol lets everybody read, somebody else finds as many rows and the same keys."""
    now = snapshot(table)
    if now.protocol.reader == 1:
        found = deltalake.DeltaTable(str(table)).to_pyarrow_table().column("id").to_pylist()
        assert Counter(map(str, found)) == Counter(text[1:].split(",")[0] for text in before.elements())


def one_alone(spark: SparkSession, table: Path, first: str, second: str) -> None:
    """The first feature goes; what the second means to the table is all still there, and works."""
    old = stop(spark, table, [first])
    before = rows(spark, table)
    ids = row_ids(spark, table) if second == "rowTracking" else None
    done = do(table, spark, [first])
    new = snapshot(table)
    assert first not in features_of(new.protocol), done
    check(old, new, [first])
    assert INGREDIENTS[second].used(new), f"{second} is no longer in use"
    assert rows(spark, table) == before
    assert ids is None or row_ids(spark, table) == ids
    run(spark, table, INGREDIENTS[second].works)


def both(spark: SparkSession, table: Path, pair: tuple[str, str]) -> None:
    old = stop(spark, table, pair)
    before = rows(spark, table)
    do(table, spark, pair)
    check(old, snapshot(table), list(pair))
    assert rows(spark, table) == before
    others_read(table, before)
    assert do(table, spark, pair).commits == 0
    spark.sql(f"INSERT INTO delta.`{table}` (id, p) VALUES (7000, 1)")
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 9")
    assert sum(rows(spark, table).values()) == sum(before.values())


def both_and_history(spark: SparkSession, table: Path, pair: tuple[str, str]) -> None:
    old = stop(spark, table, pair)
    before = rows(spark, table)
    first = do(table, spark, pair, truncate=True)
    if first.waiting is not None:
        again = do(table, spark, pair, truncate=True)
        assert (again.commits, again.waiting) == (0, first.waiting)
        moment = first.waiting
        last = drop(table, Wish(pair, truncate=True), confirmed=True, now=lambda: moment)
        assert last.waiting is None
        assert min(snapshot(table).log.commits) > 0
    new = snapshot(table)
    check(old, new, list(pair), truncate=True)
    assert "checkpointProtection" not in features_of(new.protocol) - features_of(old.protocol)
    assert rows(spark, table) == before
    others_read(table, before)


def stands_on(name: str, other: str) -> bool:
    return other in all_needed([name]) or other in INGREDIENTS[name].brings


@pytest.mark.parametrize("pair", FULL, ids="-".join)
def test_two_features(spark: SparkSession, tmp_path: Path, pair: tuple[str, str]) -> None:
    table = tmp_path / "t"
    build(spark, table, pair)
    alone = []
    for first, second in (pair, pair[::-1]):
        if first == "checkpointProtection" or stands_on(second, first):
            with pytest.raises(LakemirrorError) as refused:
                do(table, spark, [first])
            assert refused.value.code == ("feature-history" if first == "checkpointProtection" else "feature-needed")
        else:
            alone.append((first, second))
    for first, second in [(f, s) for f, s in alone if f in READERS] or alone[:1]:
        one_alone(spark, copied(table, f"without {first}"), first, second)
    if "checkpointProtection" not in pair:
        both(spark, copied(table, "without both"), pair)
    if {*READERS, "checkpointProtection"} & set(pair):
        both_and_history(spark, copied(table, "without history"), pair)


@pytest.mark.full
@pytest.mark.parametrize("feature", sorted(READERS))
def test_rules_of_columns_stay(spark: SparkSession, tmp_path: Path, feature: str) -> None:
    table = tmp_path / "t"
    new = DeltaTable.create(spark).location(str(table)).addColumn("id", "BIGINT", comment="the key")
    new = new.addColumn("g", "BIGINT", generatedAlwaysAs="id + 1").addColumn("n", "INT").addColumn("gone", "INT")
    new = new.addColumn("i", "BIGINT", generatedAlwaysAs=IdentityGenerator())
    for text in (*INGREDIENTS[feature].properties, "delta.feature.allowColumnDefaults=supported"):
        new = new.property(*text.split("="))
    new.execute()
    changes = {
        "columnMapping": ["ALTER TABLE {t} RENAME COLUMN gone TO here"],
        "deletionVectors": ["DELETE FROM {t} WHERE id = 3"],
    }
    run(
        spark,
        table,
        [
            "INSERT INTO {t} (id, n) SELECT id, cast(id AS INT) FROM range(0, 10, 1, 1)",
            *changes.get(feature, ["ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT"] if "type" in feature else []),
            "ALTER TABLE {t} ALTER COLUMN n SET DEFAULT 5",
            "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id >= 0)",
        ],
    )
    before, old = rows(spark, table), snapshot(table)
    for rule in ("generatedColumns", "identityColumns", "checkConstraints", "allowColumnDefaults"):
        with pytest.raises(LakemirrorError) as refused:
            do(table, spark, [rule, feature])
        assert refused.value.code == "feature-in-use"
    do(table, spark, [feature])
    check(old, snapshot(table), [feature])
    assert rows(spark, table) == before
    with pytest.raises(Exception, match="DELTA_VIOLATE_CONSTRAINT"):
        spark.sql(f"INSERT INTO delta.`{table}` (id) VALUES (-1)")
    last = spark.sql(f"SELECT max(i) FROM delta.`{table}`").collect()[0][0]
    spark.sql(f"INSERT INTO delta.`{table}` (id) VALUES (100)")
    g, n, i = spark.sql(f"SELECT g, n, i FROM delta.`{table}` WHERE id = 100").collect()[0]
    assert (g, n) == (101, 5) and i > last


@pytest.mark.full
@pytest.mark.parametrize("pair", sorted(map(sorted, APART)), ids="-".join)
def test_what_no_table_can_use_at_once(spark: SparkSession, tmp_path: Path, pair: list[str]) -> None:
    reason, error = APART[frozenset(pair)]
    with pytest.raises(Exception, match=error):
        build(spark, tmp_path / "t", pair)
    assert reason
