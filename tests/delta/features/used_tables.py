"""Tables that really use the features somebody asks for, as many of them as can be had in one table."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from delta.tables import DeltaTable, DeltaTableBuilder, IdentityGenerator
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StructField, StructType

from lakemirror.delta.feature_names import features_of
from lakemirror.delta.log import Snapshot, read_commit, read_snapshot
from lakemirror.features.drop import drop
from lakemirror.features.plan import Wish
from lakemirror.features.usage import walk

Do = str | Callable[[SparkSession, Path], None]


@dataclass(frozen=True)
class Ingredient:
    """What makes a table use one feature.

    `used`: is it really in use? `properties`: set at creation. `first`: a column of the table that
    stood in this place before.
    `then`: what happens to the first rows. `stop`: what a person does before the feature can go. `works`: what only a
    table that still has the feature does. `owns`, `marks`: properties and keys of the schema that come by themselves
    and go with it. `needs`: other ingredients. `brings`: features that come along.
    """

    used: Callable[[Snapshot], bool]
    properties: tuple[str, ...] = ()
    first: Callable[[DeltaTableBuilder], DeltaTableBuilder] | None = None
    then: tuple[Do, ...] = ()
    stop: tuple[str, ...] = ()
    works: tuple[Do, ...] = ()
    owns: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    brings: tuple[str, ...] = ()


QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""Queries of a few rows are quicker uncompiled."""


@contextmanager
def quickly(spark: SparkSession) -> Iterator[None]:
    """A session shaped for a few rows, for the time being."""
    old = {key: spark.conf.get(key, None) for key in QUICK}
    for key, value in QUICK.items():
        spark.conf.set(key, value)
    yield
    for key, before in old.items():
        spark.conf.unset(key) if before is None else spark.conf.set(key, before)


def snapshot(table: Path) -> Snapshot:
    found = read_snapshot(table)
    assert found is not None
    return found


def rows(spark: SparkSession, table: Path, version: int | None = None) -> Counter[str]:
    source = f"delta.`{table}`" + ("" if version is None else f" VERSION AS OF {version}")
    return Counter(row[0] for row in spark.sql(f"SELECT CAST(struct(*) AS STRING) FROM {source}").collect())


def run(spark: SparkSession, table: Path, steps: Iterable[Do]) -> None:
    for step in steps:
        if callable(step):
            step(spark, table)
        else:
            spark.sql(step.format(t=f"delta.`{table}`")).collect()


def fails_with(statement: str, error: str) -> Do:
    """A step that Delta must refuse."""

    def act(spark: SparkSession, table: Path) -> None:
        try:
            run(spark, table, [statement])
        except Exception as refusal:
            assert error in str(refusal), refusal
        else:
            raise AssertionError(f"not refused: {statement}")

    return act


def then_true(statement: str, true: Callable[[Snapshot], bool]) -> Do:
    """A statement, after which something is true of the table."""

    def act(spark: SparkSession, table: Path) -> None:
        run(spark, table, [statement])
        assert true(snapshot(table)), statement

    return act


def domain_of_its_own(_: SparkSession, table: Path) -> None:
    """A commit with a domain of somebody's, as no SQL statement makes it."""
    now = snapshot(table)
    info: dict[str, Any] = {"timestamp": int(time.time() * 1000), "operation": "MINE", "operationParameters": {}}
    if now.metadata.configuration.get("delta.enableInCommitTimestamps") == "true":
        info["inCommitTimestamp"] = int(time.time() * 1000) + 1000
    actions = [{"commitInfo": info}, {"domainMetadata": {"domain": "mine", "configuration": "{}", "removed": False}}]
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (table / "_delta_log" / f"{now.version + 1:020}.json").write_text(text)


def invariant_column(new: DeltaTableBuilder) -> DeltaTableBuilder:
    rule = json.dumps({"expression": {"expression": "k > 0"}})
    return new.addColumns(StructType([StructField("k", IntegerType(), True, {"delta.invariants": rule})]))


def generated_column(new: DeltaTableBuilder) -> DeltaTableBuilder:
    return new.addColumn("g", "BIGINT", generatedAlwaysAs="a + 1")


def identity_column(new: DeltaTableBuilder) -> DeltaTableBuilder:
    return new.addColumn("i", "BIGINT", generatedAlwaysAs=IdentityGenerator())


def protected(_: SparkSession, table: Path) -> None:
    """An earlier drop that has kept its history."""
    drop(table, Wish(("vacuumProtocolCheck",)))


def schema_has(key: str) -> Callable[[Snapshot], bool]:
    return lambda s: any(key in field.get("metadata", {}) for _, field in walk(s.metadata.schema))


def on(key: str, value: str = "true") -> Callable[[Snapshot], bool]:
    return lambda s: s.metadata.configuration.get(key) == value


def renamed(s: Snapshot) -> bool:
    key = "delta.columnMapping.physicalName"
    return any(field["metadata"].get(key, field["name"]) != field["name"] for _, field in walk(s.metadata.schema))


def has_vectors(s: Snapshot) -> bool:
    return any(add.get("deletionVector") for add in s.files.values())


def newest_has(kind: str) -> Callable[[Snapshot], bool]:
    return lambda s: any(kind in action for action in read_commit(s.log.commits[s.version]))


def newest_has_its_time(s: Snapshot) -> bool:
    return any("inCommitTimestamp" in a.get("commitInfo", {}) for a in read_commit(s.log.commits[s.version]))


def holds_partitions(s: Snapshot) -> bool:
    mapped = {
        field["metadata"].get("delta.columnMapping.physicalName", field["name"])
        for field in s.metadata.schema["fields"]
        if field["name"] == "p"
    }
    return all(mapped & set(pq.read_schema(s.table / add["path"]).names) for add in s.files.values())


def iceberg(version: int) -> Ingredient:
    key = f"delta.enableIcebergCompatV{version}"
    return Ingredient(on(key), properties=(f"{key}=true",), needs=("columnMapping",))


WIDENED = Ingredient(
    schema_has("delta.typeChanges"),
    properties=("delta.enableTypeWidening=true",),
    then=(
        "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
        "ALTER TABLE {t} ALTER COLUMN p TYPE BIGINT",
        "ALTER TABLE {t} ALTER COLUMN x.a TYPE INT",
        "INSERT INTO {t} (id, x, p) SELECT id + 5000000000, named_struct('a', 70000, 'b', 'w'), "
        "id % 2 + 3000000000 FROM range(0, 3, 1, 1)",
    ),
    works=("ALTER TABLE {t} ALTER COLUMN x.a TYPE BIGINT",),
    marks=("delta.typeChanges",),
)

CHECKPOINTED = (
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval'='1')",
    "INSERT INTO {t} (id, p) VALUES (70, 1)",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval'='1000')",
)

INGREDIENTS: dict[str, Ingredient] = {
    "appendOnly": Ingredient(
        on("delta.appendOnly"),
        then=("ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly'='true')",),
        stop=("ALTER TABLE {t} UNSET TBLPROPERTIES ('delta.appendOnly')",),
        works=(fails_with("DELETE FROM {t} WHERE id = 2", "DELTA_CANNOT_MODIFY_APPEND_ONLY"),),
        owns=("delta.appendOnly",),
    ),
    "invariants": Ingredient(lambda s: True, first=invariant_column),
    "generatedColumns": Ingredient(lambda s: True, first=generated_column),
    "identityColumns": Ingredient(lambda s: True, first=identity_column),
    "vacuumProtocolCheck": Ingredient(lambda s: True, properties=("delta.feature.vacuumProtocolCheck=supported",)),
    "icebergCompatV1": iceberg(1),
    "icebergCompatV2": iceberg(2),
    "icebergCompatV3": Ingredient(
        on("delta.enableIcebergCompatV3"),
        properties=("delta.enableIcebergCompatV3=true",),
        needs=("columnMapping", "rowTracking"),
    ),
    "v2Checkpoint": Ingredient(
        lambda s: any(c.kind == "v2" for c in s.log.checkpoints),
        properties=("delta.checkpointPolicy=v2",),
        then=CHECKPOINTED,
        works=(*CHECKPOINTED[:1], then_true(CHECKPOINTED[1], lambda s: s.log.checkpoints[-1].kind == "v2")),
    ),
    "materializePartitionColumns": Ingredient(
        holds_partitions,
        properties=("delta.enableMaterializePartitionColumnsFeature=true",),
        works=(then_true("INSERT INTO {t} (id, p) VALUES (100, 1)", holds_partitions),),
    ),
    "domainMetadata": Ingredient(
        lambda s: "mine" in s.domains,
        properties=("delta.feature.domainMetadata=supported",),
        then=(domain_of_its_own,),
    ),
    "rowTracking": Ingredient(
        lambda s: all("baseRowId" in add for add in s.files.values()),
        properties=("delta.enableRowTracking=true",),
        then=("UPDATE {t} SET n = 500 WHERE id = 5",),
        works=(
            then_true(
                "INSERT INTO {t} (id, p) VALUES (100, 1)", lambda s: all("baseRowId" in a for a in s.files.values())
            ),
        ),
        owns=(
            "delta.rowTracking.materializedRowIdColumnName",
            "delta.rowTracking.materializedRowCommitVersionColumnName",
        ),
        brings=("domainMetadata",),
    ),
    "changeDataFeed": Ingredient(
        on("delta.enableChangeDataFeed"),
        properties=("delta.enableChangeDataFeed=true",),
        then=("UPDATE {t} SET n = 600 WHERE id = 6",),
        stop=("ALTER TABLE {t} UNSET TBLPROPERTIES ('delta.enableChangeDataFeed')",),
        works=(then_true("UPDATE {t} SET n = 700 WHERE id = 7", newest_has("cdc")),),
    ),
    "clustering": Ingredient(
        lambda s: "delta.clustering" in s.domains and any("clusteringProvider" in add for add in s.files.values()),
        then=("INSERT INTO {t} (id, p) VALUES (50, 0)", "OPTIMIZE {t}"),
        works=("OPTIMIZE {t} FULL",),
        brings=("domainMetadata",),
    ),
    "inCommitTimestamp": Ingredient(
        on("delta.enableInCommitTimestamps"),
        then=("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps'='true')",),
        works=(then_true("INSERT INTO {t} (id, p) VALUES (100, 1)", newest_has_its_time),),
        owns=(
            "delta.enableInCommitTimestamps",
            "delta.inCommitTimestampEnablementVersion",
            "delta.inCommitTimestampEnablementTimestamp",
        ),
    ),
    "typeWidening": WIDENED,
    "typeWidening-preview": WIDENED,
    "columnMapping": Ingredient(
        renamed,
        properties=("delta.columnMapping.mode=name",),
        then=(
            "ALTER TABLE {t} RENAME COLUMN s TO renamed",
            "ALTER TABLE {t} RENAME COLUMN x.b TO bb",
            "ALTER TABLE {t} DROP COLUMN gone",
            "INSERT INTO {t} (id, renamed, p) VALUES (60, 'after', 1)",
        ),
        works=("ALTER TABLE {t} RENAME COLUMN renamed TO again", "INSERT INTO {t} (id, again, p) VALUES (100, 'x', 1)"),
        owns=("delta.columnMapping.maxColumnId",),
        marks=("delta.columnMapping.id", "delta.columnMapping.physicalName", "delta.columnMapping.nested.ids"),
    ),
    "deletionVectors": Ingredient(
        has_vectors,
        properties=("delta.enableDeletionVectors=true",),
        then=("DELETE FROM {t} WHERE id IN (3, 4)",),
        works=(then_true("DELETE FROM {t} WHERE id = 8", has_vectors),),
    ),
    "checkConstraints": Ingredient(
        on("delta.constraints.positive", "id >= 0"),
        then=("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id >= 0)",),
        stop=("ALTER TABLE {t} DROP CONSTRAINT positive",),
        works=(fails_with("INSERT INTO {t} (id, p) VALUES (-1, 0)", "DELTA_VIOLATE_CONSTRAINT"),),
        owns=("delta.constraints.positive",),
    ),
    "allowColumnDefaults": Ingredient(
        schema_has("CURRENT_DEFAULT"),
        properties=("delta.feature.allowColumnDefaults=supported",),
        then=("ALTER TABLE {t} ALTER COLUMN n SET DEFAULT 5",),
        stop=("ALTER TABLE {t} ALTER COLUMN n DROP DEFAULT",),
        works=("INSERT INTO {t} (id, p) VALUES (100, 1)", "SELECT assert_true(n = 5) FROM {t} WHERE id = 100"),
        marks=("CURRENT_DEFAULT",),
    ),
    "checkpointProtection": Ingredient(
        lambda s: "delta.requireCheckpointProtectionBeforeVersion" in s.metadata.configuration,
        then=("ALTER TABLE {t} SET TBLPROPERTIES ('delta.feature.vacuumProtocolCheck'='supported')", protected),
        owns=("delta.requireCheckpointProtectionBeforeVersion",),
    ),
}
"""In the order in which their statements run, but for those that come last."""

LAST = ("v2Checkpoint", "appendOnly")
ORDER = [*(name for name in INGREDIENTS if name not in LAST), *LAST]


def all_needed(names: Iterable[str]) -> list[str]:
    """The ingredients of these features with those that they stand on, in the order of their statements."""
    wanted = set(names)
    while more := {need for name in wanted for need in INGREDIENTS[name].needs} - wanted:
        wanted |= more
    return [name for name in ORDER if name in wanted]


def build(spark: SparkSession, table: Path, features: Iterable[str], **more: str) -> Snapshot:
    """A table that uses all of these features, checked to do so; `more`: other properties."""
    names = all_needed(features)
    firsts = [first for name in names if (first := INGREDIENTS[name].first)]
    if firsts:
        new = DeltaTable.create(spark).tableName("was").location(str(table)).addColumn("a", "BIGINT")
        for first in firsts:
            new = first(new)
        new.execute()
        marks = {"delta.invariants", "delta.generationExpression", "delta.identity.start"}
        used = {mark for mark in marks if schema_has(mark)(snapshot(table))}
        assert len(used) == len(firsts)
    properties = {"mine": "kept", "delta.checkpointInterval": "1000", **more}
    for name in names:
        properties |= dict(text.split("=") for text in INGREDIENTS[name].properties)
        if name.startswith("typeWidening"):
            properties[f"delta.feature.{name}"] = "supported"
    listed = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
    layout = "CLUSTER BY (id, s)" if "clustering" in names else "PARTITIONED BY (p)"
    if {"clustering", "materializePartitionColumns"} <= set(names):
        layout = "PARTITIONED BY (p) CLUSTER BY (id, s)"
    array, value = (", l ARRAY<INT>", ", array(n)") if "icebergCompatV1" not in names else ("", "")
    run(
        spark,
        table,
        [
            f"CREATE {'OR REPLACE TABLE was' if firsts else 'TABLE {t}'} (id INT COMMENT 'the key', "
            f"s STRING COMMENT 'a text', n INT, x STRUCT<a: SMALLINT COMMENT 'inside', b: STRING>{array}, "
            f"gone INT, p INT COMMENT 'a part') USING delta {layout} COMMENT 'a table' TBLPROPERTIES ({listed})"
            + (f" LOCATION '{table}'" if firsts else ""),
            *(["DROP TABLE was"] if firsts else []),
            f"INSERT INTO {{t}} SELECT n, 's' || n, n, named_struct('a', cast(n AS SMALLINT), 'b', 'b' || n){value}, "
            "n, n % 2 FROM (SELECT cast(id AS INT) AS n FROM range(0, 20, 1, 2))",
            *(step for name in names for step in INGREDIENTS[name].then),
        ],
    )
    if {"checkpointProtection", "vacuumProtocolCheck"} <= set(names):  # the one was made by dropping the other
        run(spark, table, ["ALTER TABLE {t} SET TBLPROPERTIES ('delta.feature.vacuumProtocolCheck'='supported')"])
    made = snapshot(table)
    assert set(names) <= features_of(made.protocol)
    for name in names:
        assert INGREDIENTS[name].used(made), f"{name} is not in use"
    return made
