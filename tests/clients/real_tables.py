"""Tables that really use their features, made by Delta Spark, the public ones beside them, and twins after a drop.

    python tests/clients/real_tables.py FOLDER

`expected.json` beside the tables holds what Delta Spark reads of each: the plain columns and their sorted rows.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakemirror.delta.log import read_snapshot
from lakemirror.delta.log_folder import list_log
from lakemirror.errors import LakemirrorError
from lakemirror.features.drop import drop
from lakemirror.features.plan import Wish
from lakemirror.features.usage import traits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DROPPED = "--dropped"
"""How the name of a twin ends, from which features have been dropped."""

SETUPS: dict[str, list[str]] = {
    "deletionVectors": [
        "CREATE TABLE {t} (id INT, s STRING COMMENT 'a comment', p INT) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.enableDeletionVectors'='true', 'mine'='kept')",
        "INSERT INTO {t} SELECT id, 's' || id, id % 2 FROM range(0, 40, 1, 2)",
        "INSERT INTO {t} SELECT id, 's' || id, id % 2 FROM range(40, 60, 1, 1)",
        "DELETE FROM {t} WHERE id IN (3, 4)",
    ],
    "columnMapping": [
        "CREATE TABLE {t} (id INT, s STRING COMMENT 'a comment', p INT, x STRUCT<a: INT, b: ARRAY<STRUCT<c: INT>>>) "
        "USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.columnMapping.mode'='name', 'mine'='kept')",
        "INSERT INTO {t} SELECT id, 's' || id, id % 2, struct(id, array(struct(id))) FROM range(0, 10, 1, 1)",
        "ALTER TABLE {t} RENAME COLUMN s TO renamed",
        "ALTER TABLE {t} ADD COLUMN more INT",
        "INSERT INTO {t} SELECT id, 's' || id, id % 2, null, 7 FROM range(10, 20, 1, 1)",
        "ALTER TABLE {t} DROP COLUMN more",
        "ALTER TABLE {t} RENAME COLUMN x.a TO aa",
    ],
    "typeWidening": [
        "CREATE TABLE {t} (id INT, x STRUCT<a: SMALLINT>, l ARRAY<INT>, p INT) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.enableTypeWidening'='true', 'mine'='kept')",
        "INSERT INTO {t} SELECT id, named_struct('a', cast(id as smallint)), array(cast(id as int)), id % 2 "
        "FROM range(0, 10, 1, 1)",
        "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
        "ALTER TABLE {t} ALTER COLUMN x.a TYPE INT",
        "ALTER TABLE {t} ALTER COLUMN l.element TYPE BIGINT",
        "ALTER TABLE {t} ALTER COLUMN p TYPE BIGINT",
        "INSERT INTO {t} SELECT id + 5000000000, named_struct('a', 70000), array(id), id % 2 FROM range(0, 10, 1, 1)",
    ],
    "typeWidening-preview": [
        "CREATE TABLE {t} (id INT) USING delta TBLPROPERTIES ('delta.feature.typeWidening-preview'='supported', "
        "'delta.enableTypeWidening'='true')",
        "INSERT INTO {t} SELECT id FROM range(0, 10, 1, 1)",
        "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
    ],
    "v2Checkpoint": [
        "CREATE TABLE {t} (id INT) USING delta TBLPROPERTIES ('delta.checkpointPolicy'='v2', "
        "'delta.checkpointInterval'='2', 'mine'='kept')",
        *[f"INSERT INTO {{t}} VALUES ({n})" for n in range(5)],
    ],
    "vacuumProtocolCheck": [
        "CREATE TABLE {t} (id INT) USING delta TBLPROPERTIES ('delta.feature.vacuumProtocolCheck'='supported')",
        "INSERT INTO {t} VALUES (1), (2)",
    ],
    "checkConstraints": [
        "CREATE TABLE {t} (id INT) USING delta",
        "INSERT INTO {t} VALUES (1), (2)",
        "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)",
        "ALTER TABLE {t} DROP CONSTRAINT positive",
    ],
    "inCommitTimestamp": [
        "CREATE TABLE {t} (id INT) USING delta",
        "INSERT INTO {t} VALUES (1), (2)",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps'='true')",
        "INSERT INTO {t} VALUES (3)",
    ],
    "rowTracking": [
        "CREATE TABLE {t} (id INT, s STRING) USING delta TBLPROPERTIES ('delta.enableRowTracking'='true')",
        "INSERT INTO {t} SELECT id, 's' || id FROM range(0, 10, 1, 1)",
        "UPDATE {t} SET s = 'x' WHERE id = 3",
    ],
    "clustering": [
        "CREATE TABLE {t} (id INT, s STRING) USING delta CLUSTER BY (id)",
        "INSERT INTO {t} SELECT id, 's' || id FROM range(0, 10, 1, 1)",
        "OPTIMIZE {t}",
    ],
    "domainMetadata": [
        "CREATE TABLE {t} (id INT) USING delta TBLPROPERTIES ('delta.feature.domainMetadata'='supported')",
        "INSERT INTO {t} VALUES (1), (2)",
    ],
    "materializePartitionColumns": [
        "CREATE TABLE {t} (id INT, p INT) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.enableMaterializePartitionColumnsFeature'='true')",
        "INSERT INTO {t} VALUES (1, 2), (2, 3)",
    ],
    "icebergCompatV2": [
        "CREATE TABLE {t} (id INT) USING delta TBLPROPERTIES ('delta.columnMapping.mode'='name', "
        "'delta.enableIcebergCompatV2'='true')",
        "INSERT INTO {t} VALUES (1), (2)",
    ],
    "icebergCompatV1": [
        "CREATE TABLE {t} (id INT) USING delta TBLPROPERTIES ('delta.columnMapping.mode'='name', "
        "'delta.enableIcebergCompatV1'='true')",
        "INSERT INTO {t} VALUES (1), (2)",
    ],
    "changeDataFeed": [
        "CREATE TABLE {t} (id INT) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed'='true')",
        "INSERT INTO {t} VALUES (1), (2)",
        "UPDATE {t} SET id = 3 WHERE id = 2",
        "ALTER TABLE {t} UNSET TBLPROPERTIES ('delta.enableChangeDataFeed')",
    ],
    "allowColumnDefaults": [
        "CREATE TABLE {t} (id INT, d INT) USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults'='supported')",
        "ALTER TABLE {t} ALTER COLUMN d SET DEFAULT 5",
        "INSERT INTO {t} (id) VALUES (1), (2)",
        "ALTER TABLE {t} ALTER COLUMN d DROP DEFAULT",
    ],
}
"""One table for each feature that can be dropped, named after it."""

_HUNDRED = "INSERT INTO {t} SELECT cast(id as int), 's' || id, cast(id % 3 as int) FROM range(0, 100, 1, 4)"
_MORE = "INSERT INTO {t} SELECT cast(id as int), 's' || id, cast(id % 3 as int) FROM range(100, 130, 1, 2)"
_SINGLE = [f"INSERT INTO {{t}} VALUES ({n}, 's{n}', {n % 2})" for n in range(7)]
_TABLE = "CREATE TABLE {t} (id INT, s STRING, p INT) USING delta"

IN_USE: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "plain-partitions": (
        [
            "CREATE TABLE {t} (id INT, s STRING, p STRING, d DATE) USING delta PARTITIONED BY (p, d)",
            "INSERT INTO {t} VALUES (1, 'a', 'x y', DATE'2020-01-01'), (2, 'ü', 'a/b%20=:', DATE'2021-05-06'), "
            "(3, NULL, NULL, NULL), (4, '', 'ünï', NULL), (-5, 'quote \"', 'x', DATE'1969-12-31')",
        ],
        (),
    ),
    "plain-changed": (
        [
            f"{_TABLE} PARTITIONED BY (p)",
            _HUNDRED,
            _MORE,
            "UPDATE {t} SET s = 'changed' WHERE id % 10 = 4",
            "DELETE FROM {t} WHERE id > 120 OR p = 1 AND id < 20",
            "OPTIMIZE {t}",
        ],
        (),
    ),
    "plain-types": (
        [
            "CREATE TABLE {t} (id BIGINT, s STRING, m DECIMAL(12,3), b BINARY, d DATE, z TIMESTAMP, l ARRAY<INT>, "
            "k MAP<STRING, INT>, x STRUCT<a: INT, b: STRING>, t TINYINT, f FLOAT) USING delta",
            "INSERT INTO {t} SELECT id, 's' || id, id / 8, cast('b' as binary), DATE'2020-02-29', "
            "TIMESTAMP'1900-01-01 00:00:00.123456', array(1, null), map('k', 1), struct(id, 'x'), 1, 0.5 FROM range(9)",
        ],
        (),
    ),
    "vectors-many": (
        [
            f"{_TABLE} TBLPROPERTIES ('delta.enableDeletionVectors'='true')",
            _HUNDRED,
            _MORE,
            "DELETE FROM {t} WHERE id % 7 = 0",
            "UPDATE {t} SET s = 'changed' WHERE id % 10 = 4",
            "DELETE FROM {t} WHERE id BETWEEN 30 AND 60",
            "MERGE INTO {t} USING (SELECT 1 AS k UNION ALL SELECT 5000) ON id = k "
            "WHEN MATCHED THEN UPDATE SET s = 'merged' WHEN NOT MATCHED THEN INSERT (id, s, p) VALUES (k, 'new', 0)",
        ],
        ("deletionVectors",),
    ),
    "vectors-unused": (
        [f"{_TABLE} TBLPROPERTIES ('delta.enableDeletionVectors'='true')", _HUNDRED],
        ("deletionVectors",),
    ),
    "vectors-gone": (
        [
            f"{_TABLE} TBLPROPERTIES ('delta.enableDeletionVectors'='true')",
            _HUNDRED,
            "DELETE FROM {t} WHERE id % 7 = 0",
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors'='false')",
            "REORG TABLE {t} APPLY (PURGE)",
        ],
        ("deletionVectors",),
    ),
    "mapping-by-id": (
        [
            f"{_TABLE} PARTITIONED BY (p) TBLPROPERTIES ('delta.columnMapping.mode'='id')",
            _HUNDRED,
            "ALTER TABLE {t} RENAME COLUMN s TO renamed",
            "ALTER TABLE {t} ADD COLUMN s STRING",
            "INSERT INTO {t} VALUES (1000, 'r', 1, 'second')",
            "ALTER TABLE {t} DROP COLUMN renamed",
        ],
        ("columnMapping",),
    ),
    "mapping-upgraded": (
        [
            f"{_TABLE} PARTITIONED BY (p)",
            _HUNDRED,
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode'='name')",
            "ALTER TABLE {t} RENAME COLUMN s TO renamed",
            "ALTER TABLE {t} ADD COLUMN s STRING",
            "INSERT INTO {t} VALUES (1000, 'r', 1, 'second')",
        ],
        ("columnMapping",),
    ),
    "mapping-idle": (
        [_TABLE, _HUNDRED, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode'='name')", _MORE],
        ("columnMapping",),
    ),
    "mapping-of-odd-names": (
        [
            "CREATE TABLE {t} (id INT, `a b` STRING, `c,;{{}}()=` INT) USING delta "
            "TBLPROPERTIES ('delta.columnMapping.mode'='name')",
            _HUNDRED,
        ],
        (),
    ),
    "mapping-vectors-widened": (
        [
            f"{_TABLE} TBLPROPERTIES ('delta.columnMapping.mode'='name', 'delta.enableDeletionVectors'='true', "
            "'delta.enableTypeWidening'='true')",
            _HUNDRED,
            "DELETE FROM {t} WHERE id % 7 = 0",
            "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
            "ALTER TABLE {t} RENAME COLUMN s TO renamed",
            "INSERT INTO {t} VALUES (5000000000, 's', 1)",
        ],
        ("columnMapping", "deletionVectors", "typeWidening"),
    ),
    "widened-many": (
        [
            "CREATE TABLE {t} (id TINYINT, a SMALLINT, f FLOAT, m DECIMAL(6,2), d DATE, n INT) USING delta "
            "TBLPROPERTIES ('delta.enableTypeWidening'='true')",
            "INSERT INTO {t} SELECT id, id, id / 4, id / 4, DATE'2020-01-01', id FROM range(0, 20, 1, 1)",
            "ALTER TABLE {t} ALTER COLUMN id TYPE INT",
            "ALTER TABLE {t} ALTER COLUMN a TYPE BIGINT",
            "ALTER TABLE {t} ALTER COLUMN f TYPE DOUBLE",
            "ALTER TABLE {t} ALTER COLUMN m TYPE DECIMAL(12,4)",
            "ALTER TABLE {t} ALTER COLUMN n TYPE DOUBLE",
            "INSERT INTO {t} VALUES (100000, 5000000000, 0.1, 12345678.1234, DATE'2020-01-01', 0.25)",
        ],
        ("typeWidening",),
    ),
    "widened-not-yet": (
        [f"{_TABLE} TBLPROPERTIES ('delta.enableTypeWidening'='true')", _HUNDRED],
        ("typeWidening",),
    ),
    "checkpoint-classic": ([f"{_TABLE} TBLPROPERTIES ('delta.checkpointInterval'='3')", *_SINGLE], ()),
    "checkpoint-in-parts": (
        [
            "SET spark.databricks.delta.checkpoint.partSize=2",
            f"{_TABLE} TBLPROPERTIES ('delta.checkpointInterval'='3')",
            *_SINGLE,
        ],
        (),
    ),
    "checkpoint-of-struct-statistics": (
        [
            f"{_TABLE} PARTITIONED BY (p) TBLPROPERTIES ('delta.checkpointInterval'='3', "
            "'delta.checkpoint.writeStatsAsStruct'='true', 'delta.checkpoint.writeStatsAsJson'='false')",
            *_SINGLE,
        ],
        (),
    ),
    **{
        f"checkpoint-v2-{kind}": (
            [
                f"SET spark.databricks.delta.checkpointV2.topLevelFileFormat={kind}",
                "SET spark.databricks.delta.checkpoint.partSize=2",
                f"{_TABLE} TBLPROPERTIES ('delta.checkpointPolicy'='v2', 'delta.checkpointInterval'='3')",
                *_SINGLE,
            ],
            ("v2Checkpoint",),
        )
        for kind in ("json", "parquet")
    },
    "checkpoint-v2-with-vectors": (
        [
            f"{_TABLE} TBLPROPERTIES ('delta.checkpointPolicy'='v2', 'delta.checkpointInterval'='2', "
            "'delta.enableDeletionVectors'='true')",
            _HUNDRED,
            "DELETE FROM {t} WHERE id % 7 = 0",
            _MORE,
        ],
        ("v2Checkpoint", "deletionVectors"),
    ),
    "changes": (
        [
            f"{_TABLE} TBLPROPERTIES ('delta.enableChangeDataFeed'='true')",
            _HUNDRED,
            "UPDATE {t} SET s = 'changed' WHERE id % 10 = 4",
            "DELETE FROM {t} WHERE id % 7 = 0",
        ],
        (),
    ),
    "constraints": (
        [_TABLE, _HUNDRED, "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id >= 0 AND s IS NOT NULL)", _MORE],
        (),
    ),
    "not-null": ([_TABLE.replace("id INT", "id INT NOT NULL"), _HUNDRED], ()),
    "append-only": ([f"{_TABLE} TBLPROPERTIES ('delta.appendOnly'='true')", _HUNDRED], ()),
    "defaults": (
        [
            "CREATE TABLE {t} (id INT, s STRING DEFAULT 'none') USING delta "
            "TBLPROPERTIES ('delta.feature.allowColumnDefaults'='supported')",
            "INSERT INTO {t} (id) VALUES (1), (2)",
        ],
        (),
    ),
    "ntz": (
        [
            "CREATE TABLE {t} (id INT, s STRING, z TIMESTAMP_NTZ) USING delta",
            "INSERT INTO {t} SELECT id, 's' || id, TIMESTAMP_NTZ'2020-01-01 00:00:00.123456' FROM range(9)",
        ],
        (),
    ),
    "ntz-partitions": (
        [
            "CREATE TABLE {t} (id INT, z TIMESTAMP_NTZ) USING delta PARTITIONED BY (z)",
            "INSERT INTO {t} VALUES (1, TIMESTAMP_NTZ'2020-01-01 00:00:00.123456'), (2, NULL), "
            "(3, TIMESTAMP_NTZ'1969-12-31 23:59:59')",
        ],
        (),
    ),
    "variants": (
        [
            "CREATE TABLE {t} (id INT, v VARIANT) USING delta TBLPROPERTIES ('delta.enableVariantShredding'='false')",
            "INSERT INTO {t} SELECT id, parse_json('{{\"a\": ' || id || '}}') FROM range(9)",
        ],
        (),
    ),
    "variants-shredded": (
        [
            "SET spark.sql.variant.inferShreddingSchema=true",
            "CREATE TABLE {t} (id INT, v VARIANT) USING delta TBLPROPERTIES ('delta.enableVariantShredding'='true')",
            "INSERT INTO {t} SELECT id, parse_json('{{\"a\": ' || id || '}}') FROM range(900)",
        ],
        (),
    ),
    "iceberg-3": (
        [
            f"{_TABLE} TBLPROPERTIES ('delta.columnMapping.mode'='name', 'delta.enableRowTracking'='true', "
            "'delta.enableIcebergCompatV3'='true')",
            _HUNDRED,
        ],
        ("icebergCompatV3", "rowTracking", "columnMapping"),
    ),
    "row-ids-moved": (
        [
            f"{_TABLE} TBLPROPERTIES ('delta.enableRowTracking'='true', 'delta.enableDeletionVectors'='true')",
            _HUNDRED,
            "UPDATE {t} SET s = 'changed' WHERE id % 10 = 4",
            "OPTIMIZE {t}",
        ],
        ("rowTracking", "deletionVectors"),
    ),
    "clustered-and-mapped": (
        [
            "CREATE TABLE {t} (id INT, s STRING, p INT) USING delta CLUSTER BY (id, s) "
            "TBLPROPERTIES ('delta.columnMapping.mode'='name')",
            _HUNDRED,
            "ALTER TABLE {t} RENAME COLUMN s TO renamed",
            "OPTIMIZE {t}",
        ],
        ("columnMapping", "clustering"),
    ),
    "times-in-commits": (
        [f"{_TABLE} TBLPROPERTIES ('delta.enableInCommitTimestamps'='true')", _HUNDRED, _MORE],
        ("inCommitTimestamp",),
    ),
    "everything": (
        [
            "CREATE TABLE {t} (id INT, s STRING, p INT) USING delta CLUSTER BY (id) TBLPROPERTIES ("
            "'delta.columnMapping.mode'='name', 'delta.enableRowTracking'='true', 'delta.checkpointPolicy'='v2', "
            "'delta.enableDeletionVectors'='true', 'delta.enableTypeWidening'='true', "
            "'delta.enableInCommitTimestamps'='true', 'delta.checkpointInterval'='3')",
            _HUNDRED,
            "DELETE FROM {t} WHERE id % 7 = 0",
            "ALTER TABLE {t} RENAME COLUMN s TO renamed",
            "ALTER TABLE {t} ALTER COLUMN p TYPE BIGINT",
            "UPDATE {t} SET renamed = 'changed' WHERE id % 10 = 4",
            _MORE,
            "OPTIMIZE {t}",
        ],
        (
            "columnMapping",
            "rowTracking",
            "v2Checkpoint",
            "deletionVectors",
            "typeWidening",
            "inCommitTimestamp",
            "clustering",
        ),
    ),
}
"""More tables: how each is made, and what is dropped from its twin (nothing: no twin)."""

CUT = {"checkpoint-classic", "checkpoint-in-parts", "checkpoint-of-struct-statistics"}
CUT |= {"checkpoint-v2-json", "checkpoint-v2-parquet"}
"""Tables whose log begins with their newest checkpoint, so that nobody gets around reading it."""

PUBLIC = [
    ("basic-dv-with-checkpoint", "deletionVectors"),
    ("basic-with-vacuum-protocol-check-feature", "vacuumProtocolCheck"),
    ("collations-preview-table", "collations-preview"),
    ("crc-full", "clustering,rowTracking,domainMetadata,deletionVectors"),
    ("data-reader-timestamp_ntz-id-mode", "columnMapping"),
    ("dv-with-columnmapping", "columnMapping,deletionVectors"),
    ("table-with-columnmapping-mode-name", "columnMapping"),
    ("table-with-icebegCompatV2Enabled", "icebergCompatV2,columnMapping"),
    ("type-widening", "typeWidening-preview"),
    ("v2-checkpoint-json", "v2Checkpoint"),
]
"""The public tables, and what is dropped from each."""


def make_real(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """All these tables with their twins below a folder, and `expected.json` with the rows of each."""
    drops: dict[str, tuple[str, ...]] = {}
    for name, statements in SETUPS.items():
        drops[f"used-{name}"] = (name,)
        make_one(spark, folder / f"used-{name}", statements)
    for name, (statements, dropped) in IN_USE.items():
        drops[name] = dropped
        make_one(spark, folder / name, statements, cut=name in CUT)
    _make_with_builder(spark, folder)
    if public := public_tables():
        for name, features in PUBLIC:
            drops[f"public-{name}"] = tuple(features.split(","))
            shutil.copytree(public / name, folder / f"public-{name}")
    for name, dropped in drops.items():
        if dropped and (folder / name).is_dir():
            make_twin(spark, folder / name, dropped)
    expected = {path.name: rows_of(spark, path) for path in sorted(folder.iterdir()) if path.is_dir()}
    (folder / "expected.json").write_text(json.dumps(expected))
    return expected


def make_one(spark: SparkSession, table: Path, statements: list[str], *, cut: bool = False) -> bool:
    """One table by its statements, `{t}` in each being the table; False where this Delta Spark refuses one of them."""
    settings = [s.removeprefix("SET ").partition("=")[0] for s in statements if s.startswith("SET ")]
    try:
        for statement in statements:
            spark.sql(statement.format(t=f"delta.`{table}`"))
    except Exception as error:
        print(f"{table.name} not made: {str(error).splitlines()[0][:200]}", file=sys.stderr)
        shutil.rmtree(table, ignore_errors=True)
        return False
    finally:
        for key in settings:
            spark.conf.unset(key)
    if cut:
        cut_log(table)
    return True


def _make_with_builder(spark: SparkSession, folder: Path) -> None:
    """The tables that no SQL of Spark makes: columns generated from others, and columns that number rows."""
    from delta.tables import DeltaTable, IdentityGenerator

    table = folder / "generated"
    builder = DeltaTable.create(spark).location(str(table)).addColumn("id", "INT").addColumn("s", "STRING")
    builder.addColumn("twice", "INT", generatedAlwaysAs="id * 2").partitionedBy("twice").execute()
    spark.sql(f"INSERT INTO delta.`{table}` (id, s) VALUES (1, 'a'), (2, 'b'), (3, NULL)")
    table = folder / "numbered"
    builder = DeltaTable.create(spark).location(str(table)).addColumn("s", "STRING")
    builder.addColumn("id", "BIGINT", generatedByDefaultAs=IdentityGenerator(10, 10)).execute()
    spark.sql(f"INSERT INTO delta.`{table}` (s) VALUES ('a'), ('b'), (NULL)")


def cut_log(table: Path) -> None:
    """Takes away all commits and checkpoints before the newest checkpoint, as the clean-up of old logs does."""
    log = list_log(table)
    assert log is not None
    newest = max(checkpoint.version for checkpoint in log.checkpoints)
    gone = [path for version, path in log.commits.items() if version <= newest]
    gone += [path for checkpoint in log.checkpoints if checkpoint.version < newest for path in checkpoint.files]
    gone += [path for path in log.folder.glob("[0-9]*.crc") if int(path.name.partition(".")[0]) <= newest]
    for path in gone:
        path.unlink()


def make_twin(spark: SparkSession, table: Path, features: tuple[str, ...]) -> Path | None:
    """A copy from which these features have been dropped; None where that cannot be done."""
    twin = table.with_name(table.name + DROPPED)
    shutil.copytree(table, twin)
    try:
        drop(twin, Wish(features), session=lambda: spark, confirmed=True)
    except LakemirrorError as error:
        print(f"{table.name} not dropped: {error}", file=sys.stderr)
        shutil.rmtree(twin)
        return None
    return twin


def rows_of(spark: SparkSession, table: Path) -> dict[str, Any]:
    """What Delta Spark reads of a table: whole numbers first, strings, days; the rows sorted."""
    frame = spark.read.format("delta").load(str(table))
    kinds = dict(frame.dtypes)
    numbers = [name for name, kind in kinds.items() if kind in ("tinyint", "smallint", "int", "bigint")]
    strings = [name for name, kind in kinds.items() if kind == "string"]
    days = [name for name, kind in kinds.items() if kind in ("date", "timestamp_ntz")]
    columns = sorted(numbers, key=lambda name: name != "id") + strings + days
    quoted = ", ".join(f"string(`{name}`)" if name in days else f"`{name}`" for name in columns)
    rows = spark.sql(f"SELECT {quoted} FROM delta.`{table}`").collect()
    return {"columns": columns, "days": days, "rows": sorted((list(row) for row in rows), key=str)}


def public_tables() -> Path | None:
    """Where the public Delta tables lie, or None."""
    named = os.environ.get("LAKEMIRROR_DELTA_TABLES")
    beside = Path(__file__).resolve().parents[3] / "shared" / "delta-tables"
    return next((folder for folder in (Path(named) if named else None, beside) if folder and folder.is_dir()), None)


def facts(table: Path) -> dict[str, Any]:
    """All of a table that a prediction is made from; it is all in the log."""
    snapshot = read_snapshot(table)
    assert snapshot is not None
    protocol = snapshot.protocol.to_action()["protocol"]
    return {"protocol": protocol, "in_use": sorted(traits(snapshot)), "domains": bool(snapshot.domains)}


def main(folder: str) -> None:
    from lakemirror.settings.settings import Settings
    from lakemirror.spark_session import session as lakemirror_spark

    target = Path(folder).absolute()
    target.mkdir(parents=True)
    few = (("spark.sql.shuffle.partitions", "2"), ("spark.databricks.delta.snapshotPartitions", "2"))
    session = lakemirror_spark.start(Settings(master="local[2]", spark=few).with_environment(), delta=True, short=True)
    try:
        print(f"{len(make_real(session, target))} tables")
    finally:
        lakemirror_spark.stop(session)


if __name__ == "__main__":
    main(sys.argv[1])
