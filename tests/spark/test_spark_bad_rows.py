"""Bad files among good ones by Spark tasks: the same files and rows are told as by the local engine."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.bad_rows import play, zone


@pytest.mark.parametrize(
    "seeds", [range(2, 5), pytest.param(range(100, 130), marks=pytest.mark.full)], ids=["few", "many"]
)
def test_the_first_bad_file_is_told_and_what_is_before_it_applied_once(
    spark: SparkSession, tmp_path: Path, seeds: range
) -> None:
    told = 0
    for seed in seeds:
        chance = random.Random(seed)
        made = zone(tmp_path / str(seed), chance)
        settings = {"batch_files": chance.choice([2, 1000]), "deletion_vectors": chance.choice([True, False])}
        try:
            told += play(made, spark=spark, engine="spark", spark_from_bytes=1, **settings)
        except BaseException as error:
            error.add_note(f"seed {seed}: {made.keys}, {made.options}, text {made.is_text}, {settings}")
            raise
    assert told > len(seeds) // 2
