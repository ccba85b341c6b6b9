"""A database full of broken files: each table says what is wrong with it, nothing is lost, and the others go on."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.test_engine import lakemirror, states
from tests.fuzz import parquet_file, run
from tests.landing import declare, folder, put, table_bag

from lakemirror.error_codes import CODES

GOOD = [f"good{n}" for n in range(5)]


def flood(spark: Any, database: Path, count: int, seed: int) -> None:
    run(count, seed, database)  # leaves one table a file
    chance = random.Random(seed)
    for n in range(count // 10):  # bad files behind a good one
        table = f"behind{n}"
        declare(database, table, ["id"])
        put(database, table, 1, {"id": [n], "v": ["first"]})
        (folder(database, table) / f"{2:020}.parquet").write_bytes(parquet_file(chance))
    for table in GOOD:
        declare(database, table, ["id"])
        put(database, table, 1, {"id": [1, 2]})
    before = {p.relative_to(database / "Files/LandingZone") for p in (database / "Files/LandingZone").rglob("0*")}
    for _ in range(2):
        done = lakemirror("sync", database, "--driver-memory", "1g")
        assert "Traceback" not in done.stderr, done.stderr[-3000:]
        assert done.returncode == 3, done.stderr[-3000:]
    found = states(database)
    failed = {name: table["errorCode"] for name, table in found.items() if table["errorCode"]}
    assert set(failed.values()) <= set(CODES) - {"internal"}, failed
    assert len(failed) > count // 4
    for table in GOOD:
        assert table_bag(spark, database, table) == {(1,): 1, (2,): 1}
    for n in range(count // 10):
        assert table_bag(spark, database, f"behind{n}", ["id", "v"])[(n, "first")] == 1
    zone = database / "Files/LandingZone"
    for path in before:
        aside = zone / path.parts[0] / "_ProcessedFiles" / Path(*path.parts[1:])
        assert (zone / path).exists() or aside.exists(), path


@pytest.mark.full
def test_a_database_full_of_broken_files(spark: Any, tmp_path: Path) -> None:
    flood(spark, tmp_path, 24, 5)


@pytest.mark.full
@pytest.mark.parametrize("seed", [6, 7])
def test_databases_full_of_broken_files(spark: Any, tmp_path: Path, seed: int) -> None:
    flood(spark, tmp_path, 150, seed)
