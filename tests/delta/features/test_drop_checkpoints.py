"""Drops from tables whose checkpoints have many parts, or are V2 checkpoints with side files, in either form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from used_tables import build, rows, run, snapshot

from lakemirror.delta.feature_names import features_of
from lakemirror.features.drop import Dropped, drop
from lakemirror.features.plan import Wish

pytestmark = pytest.mark.full
deltalake = pytest.importorskip("deltalake")

PART = "spark.databricks.delta.checkpoint.partSize"
FORM = "spark.databricks.delta.checkpointV2.topLevelFileFormat"


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in values:
            spark.conf.unset(key)


def do(table: Path, spark: SparkSession, features: tuple[str, ...], truncate: bool) -> Dropped:
    """A drop, and its second half when the time has come."""
    wish = Wish(features, truncate=truncate)
    done = drop(table, wish, session=lambda: spark, confirmed=True)
    if (moment := done.waiting) is None:
        return done
    return drop(table, wish, confirmed=True, now=lambda: moment)


def check(spark: SparkSession, table: Path, features: tuple[str, ...], truncate: bool) -> None:
    before, old = rows(spark, table), snapshot(table)
    done = do(table, spark, features, truncate)
    new = snapshot(table)
    assert done.waiting is None
    left = features_of(old.protocol) - set(features)
    assert features_of(new.protocol) == left | (set() if truncate else {"checkpointProtection"})
    assert rows(spark, table) == before
    assert new.checkpoint is not None and (new.checkpoint.version, new.checkpoint.kind) == (new.version, "classic")
    if truncate:
        first = min(new.log.commits)
        if set(features) != {"vacuumProtocolCheck"}:  # of which a history holds nothing
            assert first > old.version and all(c.version >= first and c.kind == "classic" for c in new.log.checkpoints)
        assert not [f for f in new.log.folder.glob("*.checkpoint.*") if int(f.name.lstrip(".")[:20]) < first]
    else:
        assert rows(spark, table, old.version) == before
    ids = deltalake.DeltaTable(str(table)).to_pyarrow_table().column("id").to_pylist() if not left - BASE else []
    assert len(ids) == (sum(before.values()) if not left - BASE else 0)
    run(spark, table, ["INSERT INTO {t} (id, p) VALUES (7000, 1)", "DELETE FROM {t} WHERE id = 7000", "OPTIMIZE {t}"])
    assert rows(spark, table) == before


BASE = {"appendOnly", "invariants"}


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize(
    "features", [("deletionVectors", "typeWidening"), ("columnMapping",), ("vacuumProtocolCheck",)], ids="-".join
)
def test_checkpoints_of_many_parts(
    spark: SparkSession, tmp_path: Path, features: tuple[str, ...], truncate: bool
) -> None:
    table = tmp_path / "t"
    with settings(spark, **{PART: "3"}):
        build(spark, table, features, **{"delta.checkpointInterval": "2"})
        run(spark, table, ["INSERT INTO {t} (id, p) VALUES (71, 1)", "INSERT INTO {t} (id, p) VALUES (72, 1)"])
        kinds = [(c.kind, len(c.files) > 1) for c in snapshot(table).log.checkpoints]
        assert ("multi-part", True) in kinds
        check(spark, table, features, truncate)


@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("form", ["json", "parquet"])
@pytest.mark.parametrize("more", [(), ("deletionVectors",), ("columnMapping", "typeWidening")], ids="-".join)
def test_v2_checkpoints_with_side_files(
    spark: SparkSession, tmp_path: Path, more: tuple[str, ...], form: str, truncate: bool
) -> None:
    table = tmp_path / "t"
    with settings(spark, **{PART: "3", FORM: form}):
        build(spark, table, ("v2Checkpoint", *more))
        newest = [c for c in snapshot(table).log.checkpoints if c.kind == "v2"][-1]
        assert newest.files[0].suffix == f".{form}"
        assert len(list((table / "_delta_log" / "_sidecars").iterdir())) > 1
        check(spark, table, ("v2Checkpoint", *more), truncate)
