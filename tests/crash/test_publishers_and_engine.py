"""Two publishers and the engine work on ten tables at once, and any of them is killed: the tables equal the files."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests import preloaded
from tests.landing import MARKER, folder
from tests.model import ModelTable
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase

TABLES = [f"t{n}" for n in range(10)]

PUBLISHER = """
import random, sys, time
from lakemirror.publisher import Landing

database, seed = sys.argv[1], int(sys.argv[2])
chance = random.Random(seed)
tables = [Landing(database).table(f"t{n}", keys=["id"]) for n in range(10)]
while True:
    rows = [{"id": chance.randrange(20), "v": chance.randrange(10**6)} for _ in range(chance.randrange(1, 9))]
    table = chance.choice(tables)
    getattr(table, chance.choice(["insert", "update", "upsert", "upsert", "delete"]))(rows)
    time.sleep(chance.uniform(0.0, 0.1))
"""


def published(database: Path, table: str) -> ModelTable:
    """What the files say that were ever published, applied or not: every number once, none left out."""
    place = folder(database, table)
    files = {int(path.stem): path for where in (place, place / "_ProcessedFiles") for path in where.glob("*.parquet")}
    assert sorted(files) == list(range(1, len(files) + 1)), table
    model = ModelTable(["id"])
    for number in sorted(files):
        rows = pq.read_table(files[number], partitioning=None).to_pylist()
        columns = [name for name in pq.read_schema(files[number]).names if name != MARKER]
        model.apply(columns, [(row.pop(MARKER, None), row) for row in rows])
    return model


def storm(database: Path, seconds: float, seed: int, pause: tuple[float, float] = (2.0, 6.0)) -> None:
    (database / "Files/LandingZone").mkdir(parents=True)
    chance = random.Random(seed)
    environment = {**os.environ, "LAKEMIRROR_MASTER": "local[2]", "LAKEMIRROR_POLL": "0.1"}
    commands = {
        "engine": [sys.executable, "-m", "lakemirror.cli", "run", str(database)],
        "first": [sys.executable, "-c", PUBLISHER, str(database), str(seed)],
        "second": [sys.executable, "-c", PUBLISHER, str(database), str(seed + 1)],
    }
    running: dict[str, subprocess.Popen[bytes]] = {}
    log = (database / "log").open("wb")

    def start(name: str) -> None:
        running[name] = preloaded.Popen(commands[name], env=environment, stdout=subprocess.DEVNULL, stderr=log)

    kills = 0
    try:
        for name in commands:
            start(name)
        until = time.monotonic() + seconds
        while time.monotonic() < until or not all(any(folder(database, table).glob("*.parquet")) for table in TABLES):
            assert time.monotonic() < until + 120, "a table has no file after two minutes"
            time.sleep(chance.uniform(*pause))
            assert all(process.poll() is None for process in running.values()), "one has ended by itself"
            victim = chance.choice(list(commands))
            running[victim].kill()
            running[victim].wait()
            kills += 1
            start(victim)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
        log.close()
    assert kills >= seconds // 10 + 1
    result = MirroredDatabase(database).sync()
    assert not result.failed, result.failed
    files = 0
    for table in TABLES:
        model = published(database, table)
        assert table_rows(database, table, ["id", "v"]) == model.bag(), table
        files += len(list((folder(database, table) / "_ProcessedFiles").glob("*.parquet")))
    assert files, "no applied file was set aside"


def test_publishers_and_engine_are_killed_for_a_while(tmp_path: Path) -> None:
    storm(tmp_path / "db", 5.0, 1, (0.5, 1.5))


@pytest.mark.full
def test_publishers_and_engine_are_killed_for_two_minutes(tmp_path: Path) -> None:
    storm(tmp_path / "db", 120.0, 2)
