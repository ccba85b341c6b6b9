"""Every two droppable features in one table that uses both: one dropped alone, both at once, history cut or kept."""

from __future__ import annotations

import copy
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable, IdentityGenerator
from pyspark.sql import SparkSession
from used_tables import INGREDIENTS, ORDER, all_needed, build, quickly, rows, run, snapshot

from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import Snapshot
from lakemirror.errors import LakemirrorError
from lakemirror.features.cleaning import clustering_columns
from lakemirror.features.drop import Dropped, drop
from lakemirror.features.plan import Wish
from lakemirror.features.read_back import live_rows
from lakemirror.features.usage import walk

deltalake = pytest.importorskip("deltalake")

WIDENING = {"typeWidening", "typeWidening-preview"}
READERS = {"columnMapping", "deletionVectors", *WIDENING, "v2Checkpoint", "vacuumProtocolCheck"}
PROTECTION = "delta.requireCheckpointProtectionBeforeVersion"

_ONE_VERSION = "one version of compatibility with Iceberg at a time", "VERSION_MUTUAL_EXCLUSIVE"
_NO_VECTORS = "Iceberg's first two table formats have no deletion vectors", "DELETION_VECTORS_SHOULD_BE_DISABLED"
APART: dict[frozenset[str], tuple[str, str]] = {
    frozenset({"icebergCompatV1", "icebergCompatV2"}): _ONE_VERSION,
    frozenset({"icebergCompatV1", "icebergCompatV3"}): _ONE_VERSION,
    frozenset({"icebergCompatV2", "icebergCompatV3"}): _ONE_VERSION,
    frozenset({"icebergCompatV1", "deletionVectors"}): _NO_VECTORS,
    frozenset({"icebergCompatV2", "deletionVectors"}): _NO_VECTORS,
    frozenset({"clustering", "materializePartitionColumns"}): ("a clustered table has no partitions", "(?i)cluster"),
}
"""Pairs that no table can use at once: why, and Delta's own refusal."""

PAIRS = [pair for pair in combinations(INGREDIENTS, 2) if frozenset(pair) not in APART]
ICEBERG = {"icebergCompatV1", "icebergCompatV2", "icebergCompatV3"}
HOUSES = [
    tuple(name for name in INGREDIENTS if name not in left_out)
    for left_out in (
        {*ICEBERG, "clustering", "typeWidening-preview", "checkpointProtection"},
        {*ICEBERG, "materializePartitionColumns", "typeWidening"},
        {*ICEBERG - {"icebergCompatV1"}, "clustering", "deletionVectors", "typeWidening-preview"},
        {*ICEBERG - {"icebergCompatV2"}, "materializePartitionColumns", "deletionVectors", "typeWidening"},
        {*ICEBERG - {"icebergCompatV3"}, "clustering", "typeWidening-preview"},
    )
]
"""Tables with as many features as go together, from which pairs are dropped; pairs found in none have their own."""
CLOSE = [pair for pair in PAIRS if set(pair) <= {*READERS - {"typeWidening-preview"}, "clustering", "rowTracking"}]
"""Pairs that also have a table with nothing else in use."""

Base = Callable[[tuple[str, ...]], tuple[Path, Counter[str]]]


def house_of(*features: str) -> tuple[str, ...]:
    return next((house for house in HOUSES if set(features) <= set(house)), features)


def cases(pairs: Iterable[tuple[str, str]]) -> list[Any]:
    """Every pair, in the full run; `tests/features/test_drops.py` has one every time, on a table made without Spark."""
    return [pytest.param(pair, marks=pytest.mark.full, id="-".join(pair)) for pair in pairs]


@pytest.fixture(scope="module")
def base(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Base]:
    """A table for a set of features and its rows, made once."""
    made: dict[tuple[str, ...], tuple[Path, Counter[str]]] = {}

    def get(features: tuple[str, ...]) -> tuple[Path, Counter[str]]:
        if features not in made:
            table = tmp_path_factory.mktemp("made") / "t"
            build(spark, table, features)
            made[features] = table, rows(spark, table)
        return made[features]

    with quickly(spark):
        yield get


def do(table: Path, spark: SparkSession, features: Iterable[str], **more: Any) -> Dropped:
    return drop(table, Wish(tuple(features), **more), session=lambda: spark, confirmed=True)


def copied(table: Path, to: Path) -> Path:
    return Path(shutil.copytree(table, to / "t"))


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


def stands_on(name: str, other: str) -> bool:
    below = all_needed([name])
    return other in {*below, *(more for need in below for more in INGREDIENTS[need].brings)} - {name}


def goes_with(feature: str, house: tuple[str, ...]) -> list[str]:
    """The features of a table that must go together with one, or before it."""
    return [other for other in house if other != feature and stands_on(other, feature)]


def both(spark: SparkSession, table: Path, pair: Iterable[str], before: Counter[str]) -> None:
    old = stop(spark, table, pair)
    do(table, spark, pair)
    check(old, snapshot(table), list(pair))
    others_read(table, before)
    if PROTECTION in snapshot(table).metadata.configuration:
        assert rows(spark, table, old.version) == before, "older versions stay readable"
    assert do(table, spark, pair).commits == 0
    if snapshot(table).metadata.configuration.get("delta.appendOnly"):
        run(spark, table, INGREDIENTS["appendOnly"].stop)
    spark.sql(f"INSERT INTO delta.`{table}` (id, p) VALUES (7000, 7)")
    after = rows(spark, table)
    assert not before - after and [row[:5] for row in after - before] == ["{7000"]
    spark.sql(f"DELETE FROM delta.`{table}` WHERE p = 7")
    assert live_rows(snapshot(table)) == sum(before.values())


def both_and_history(spark: SparkSession, table: Path, pair: Iterable[str], before: Counter[str]) -> None:
    old = stop(spark, table, pair)
    first = do(table, spark, pair, truncate=True)
    if (moment := first.waiting) is not None:
        again = do(table, spark, pair, truncate=True)
        assert (again.commits, again.waiting) == (0, first.waiting)
        last = drop(table, Wish(tuple(pair), truncate=True), confirmed=True, now=lambda: moment)
        assert last.waiting is None
        assert min(snapshot(table).log.commits) > 0
    check(old, snapshot(table), list(pair), truncate=True)
    assert rows(spark, table) == before
    others_read(table, before)


@pytest.mark.parametrize("pair", cases(CLOSE))
def test_two_features_alone_in_a_table(spark: SparkSession, base: Base, tmp_path: Path, pair: tuple[str, str]) -> None:
    table, before = base(pair)
    both(spark, copied(table, tmp_path), pair, before)


@pytest.mark.full
@pytest.mark.parametrize("pair", cases(pair for pair in CLOSE if READERS & set(pair)))
def test_two_features_alone_in_a_table_and_its_history(
    spark: SparkSession, base: Base, tmp_path: Path, pair: tuple[str, str]
) -> None:
    table, before = base(pair)
    both_and_history(spark, copied(table, tmp_path), pair, before)


@pytest.mark.parametrize("pair", cases(PAIRS))
def test_two_features_among_others(spark: SparkSession, base: Base, tmp_path: Path, pair: tuple[str, str]) -> None:
    house = house_of(*pair)
    table, before = base(house)
    gone = sorted({*pair, *(other for name in pair for other in goes_with(name, house))}, key=ORDER.index)
    if "checkpointProtection" in gone:
        with pytest.raises(LakemirrorError, match="only with the history"):
            do(table, spark, gone)
    else:
        both(spark, copied(table, tmp_path), gone, before)


@pytest.mark.parametrize("pair", cases(pair for pair in PAIRS if {*READERS, "checkpointProtection"} & set(pair)))
def test_two_features_among_others_and_the_history(
    spark: SparkSession, base: Base, tmp_path: Path, pair: tuple[str, str]
) -> None:
    house = house_of(*pair)
    table, before = base(house)
    gone = sorted({*pair, *(other for name in pair for other in goes_with(name, house))}, key=ORDER.index)
    both_and_history(spark, copied(table, tmp_path), gone, before)


ALONE = [(feature, number) for number, house in enumerate(HOUSES) for feature in house]


@pytest.mark.full
@pytest.mark.parametrize(("feature", "number"), ALONE)
def test_one_goes_and_all_others_work(
    spark: SparkSession, base: Base, tmp_path: Path, feature: str, number: int
) -> None:
    house = HOUSES[number]
    made, before = base(house)
    if goes_with(feature, house) or feature == "checkpointProtection":
        with pytest.raises(LakemirrorError) as refused:
            do(made, spark, [feature])
        assert refused.value.code == ("feature-history" if feature == "checkpointProtection" else "feature-needed")
        return
    table = copied(made, tmp_path)
    old = stop(spark, table, [feature])
    ids = row_ids(spark, table) if "rowTracking" in house else None
    do(table, spark, [feature])
    check(old, snapshot(table), [feature])
    assert rows(spark, table) == before
    assert ids is None or feature == "rowTracking" or row_ids(spark, table) == ids
    others = [name for name in house if name != feature]
    if not {feature} & {*READERS, "rowTracking", *ICEBERG}:  # a commit that touches no file and no mapping
        others = [name for name in others if name in ("clustering", "inCommitTimestamp", "changeDataFeed")]
    if "appendOnly" in house:
        run(spark, table, INGREDIENTS["appendOnly"].works if feature != "appendOnly" else ())
        run(spark, table, INGREDIENTS["appendOnly"].stop)
    run(spark, table, (step for name in others if name != "appendOnly" for step in INGREDIENTS[name].works))


@pytest.mark.full
@pytest.mark.parametrize("feature", sorted(READERS))
def test_rules_of_columns_stay(spark: SparkSession, tmp_path: Path, feature: str) -> None:
    table = tmp_path / "t"
    new = DeltaTable.create(spark).location(str(table)).addColumn("id", "BIGINT", comment="the key")
    new = new.addColumn("g", "BIGINT", generatedAlwaysAs="id + 1").addColumn("n", "INT").addColumn("gone", "INT")
    new = new.addColumn("i", "BIGINT", generatedAlwaysAs=IdentityGenerator())
    for text in INGREDIENTS[feature].properties:
        new = new.property(*text.split("="))
    for name in (feature, "allowColumnDefaults"):
        new = new.property(f"delta.feature.{name}", "supported")
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
