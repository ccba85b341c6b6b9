"""Delta Spark reads what random drops have left: `tests/drop_machine.py`, all tables in one job."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from pyspark.sql import SparkSession
from tests.drop_machine import Life
from tests.rounds import rounds
from used_tables import INGREDIENTS, quickly

from lakemirror.delta.feature_names import features_of

SEEDS = range(1000, rounds(1009, 1060))


def test_every_row_is_there(spark: SparkSession, tmp_path: Path) -> None:
    lives = [Life.begun(tmp_path, seed) for seed in SEEDS]
    for life in lives:
        life.live(8)
    read = {life.table.name: life for life in lives if features_of(life.now.protocol) <= INGREDIENTS.keys()}
    assert len(read) > len(SEEDS) // 3
    each = (f"SELECT '{name}', id FROM delta.`{life.table}`" for name, life in read.items())
    found = defaultdict[str, list[int]](list)
    with quickly(spark):
        for name, number in spark.sql(" UNION ALL ".join(each)).collect():
            found[name].append(number)
    assert {name: sorted(found[name]) for name in read} == {name: sorted(life.ids) for name, life in read.items()}
