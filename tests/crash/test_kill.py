"""The process dies at every named place, and at random ones; two engines work at once: the tables equal the model."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import preloaded
from tests.landing import MARKER, declare, folder, put, put_broken
from tests.model import ModelTable
from tests.table_rows import table_rows

from lakemirror import MirroredDatabase, failpoints
from lakemirror.maintenance.idle_work import commits_since_compaction

TABLES = ("orders", "sales.customers", "events", "regions")
"""Two sequences, one found by time, one in partitions."""

DECLARED: dict[str, dict[str, Any]] = {
    "events": {"fileDetectionStrategy": "LastUpdateTimeFileDetection"},
    "regions": {"isPartitionEnabled": True},
}


class Publisher:
    """Writes random changes into four tables and keeps their models."""

    def __init__(self, database: Path, seed: int) -> None:
        self.database = database
        self.random = random.Random(seed)
        self.models: dict[str, ModelTable] = {}
        self.numbers: dict[str, int] = {}
        for table in TABLES:
            self.begin(table)

    def begin(self, table: str) -> None:
        """A new folder, or the old one made anew."""
        shutil.rmtree(folder(self.database, table), ignore_errors=True)
        declare(self.database, table, ["id"], **DECLARED.get(table, {}))
        self.models[table] = ModelTable(["id"])
        self.numbers[table] = 0
        self.publish(table, initial=True)

    def publish(self, table: str, *, initial: bool = False) -> None:
        self.numbers[table] += 1
        count = 12
        ids = [self.random.randrange(30) for _ in range(count)]
        markers = [0 if initial else self.random.choice([0, 1, 2, 4]) for _ in range(count)]
        values = [self.random.randrange(1000) for _ in range(count)]
        rows = {"id": ids, "v": values}
        if not initial:
            rows[MARKER] = pa.array(markers, pa.int32())
        self._put(table, self.numbers[table], rows)
        changes = [(m, {"id": i, "v": v}) for m, i, v in zip(markers, rows["id"], values, strict=True)]
        self.models[table].apply(["id", "v"], changes)

    def _put(self, table: str, number: int, rows: dict[str, Any]) -> None:
        """Keys of the partitions differ: which of them comes first does not matter."""
        if table == "events":
            place = folder(self.database, table)
            pq.write_table(pa.table(rows), place / "_writing")
            os.utime(place / "_writing", ns=(number * 10**6, number * 10**6))
            (place / "_writing").replace(place / f"{self.random.randrange(10**9)}-{number}.parquet")
        elif table == "regions":
            part = number % 2
            rows["id"] = [each * 2 + part for each in rows["id"]]
            put(self.database, f"{table}/part={part}", (number + 1) // 2, rows)
        else:
            put(self.database, table, number, rows)

    def set_aside(self, table: str) -> None:
        """A file that is no Parquet file, which the engine is told to put aside."""
        self.numbers[table] += 1
        put_broken(self.database, table, self.numbers[table])

    def check(self) -> None:
        for table, model in self.models.items():
            assert table_rows(self.database, table, ["id", "v"]) == model.bag(), table


def command(database: Path, *words: str, failpoint: str = "") -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "LAKEMIRROR_FAILPOINT": failpoint,
        "LAKEMIRROR_POLL": "0.1",
        "LAKEMIRROR_MASTER": "local[2]",
        "LAKEMIRROR_ON_BAD_FILE": "quarantine",
        "LAKEMIRROR_DROP_AFTER": "0",
    }
    return preloaded.Popen(
        [sys.executable, "-m", "lakemirror.cli", *words, str(database)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def lose_everything_else(database: Path) -> None:
    """Deletes every file that the engine keeps outside `Tables/`, the applied files among them."""
    shutil.rmtree(database / "Files/Monitoring", ignore_errors=True)
    shutil.rmtree(database / "Files/_DroppedTables", ignore_errors=True)
    for name in ("_mirror.json", "_ProcessedFiles"):
        for path in (database / "Files/LandingZone").rglob(name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize("by", ["local", pytest.param("spark", marks=pytest.mark.full)])
def test_dying_at_every_named_place_does_no_harm(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """By either engine; with Spark the places of an apply alone are tried."""
    monkeypatch.setenv("LAKEMIRROR_ENGINE", by)
    monkeypatch.setenv("LAKEMIRROR_DROP_AFTER", "0")
    monkeypatch.setenv("LAKEMIRROR_SPARK_FROM_BYTES", "1")
    if by == "spark":
        request.getfixturevalue("spark")  # the session that this process uses
    publisher = Publisher(tmp_path, seed=1)
    MirroredDatabase(tmp_path).sync()
    publisher.check()
    prepare: dict[str, Callable[[], None]] = {
        "identity.before-marker": lambda: publisher.begin("orders"),
        "quarantine.after-move": lambda: publisher.set_aside("orders"),
        "move.before-move": lambda: _default_schema(tmp_path, "dbo"),
        "drop.before-move": lambda: _vanish(publisher, "sales.customers"),
        "drop.after-move": lambda: _vanish(publisher, "sales.customers"),
        "merge.before-commit": lambda: [publisher.publish("orders", initial=True) for _ in range(40)],
    }
    names = [name for name in failpoints.NAMES if name != "soft-deletes.before-commit"]  # in `test_failpoints.py`
    for turn, name in enumerate(n for n in names if by == "local" or n.startswith("apply.")):
        monkeypatch.setenv("LAKEMIRROR_BATCH_FILES", "1" if name == "merge.before-commit" else "1000")
        if name.startswith(("apply.", "commit.", "archive.")):
            for table in (TABLES[turn % 4], TABLES[(turn + 1) % 4]):
                publisher.publish(table)
                publisher.publish(table)
        prepare.get(name, lambda: None)()
        died = command(tmp_path, "sync", failpoint=name)
        out, err = died.communicate(timeout=120)
        assert died.returncode == -signal.SIGKILL, (name, died.returncode, out, err)
        (tmp_path / "mirroring.json").unlink(missing_ok=True)
        result = MirroredDatabase(tmp_path).sync()
        assert not result.failed, (name, result.failed)
        publisher.check()
        if "sales.customers" not in publisher.models:
            MirroredDatabase(tmp_path).sync()
            assert not (tmp_path / "Tables/sales/customers").exists(), name
            publisher.begin("sales.customers")
    lose_everything_else(tmp_path)
    for table in publisher.models:
        publisher.publish(table)
    result = MirroredDatabase(tmp_path).sync()
    assert not result.failed, result.failed
    publisher.check()


def test_dying_while_an_idle_table_is_compacted_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run`, no apply at work: killed before the commit, and the next engine compacts the table."""
    publisher = Publisher(tmp_path, seed=3)
    for _ in range(110):
        publisher.publish("orders")
    monkeypatch.setenv("LAKEMIRROR_BATCH_FILES", "1")
    monkeypatch.setenv("LAKEMIRROR_MAINTENANCE", "false")
    assert not MirroredDatabase(tmp_path).sync().failed
    monkeypatch.setenv("LAKEMIRROR_MAINTENANCE", "true")
    died = command(tmp_path, "run", failpoint="merge.before-commit")
    out, err = died.communicate(timeout=120)
    assert died.returncode == -signal.SIGKILL, (died.returncode, out, err)
    publisher.check()
    assert commits_since_compaction(str(tmp_path / "Tables/orders")) >= 100, "nothing was committed"
    engine = command(tmp_path, "run")
    try:
        until = time.monotonic() + 60
        while commits_since_compaction(str(tmp_path / "Tables/orders")) and time.monotonic() < until:
            time.sleep(0.2)
    finally:
        engine.terminate()
        engine.communicate(timeout=60)
    assert commits_since_compaction(str(tmp_path / "Tables/orders")) == 0
    publisher.check()


def _default_schema(database: Path, schema: str) -> None:
    definition = {"properties": {"target": {"typeProperties": {"defaultSchema": schema}}}}
    (database / "mirroring.json").write_text(json.dumps(definition))


def _vanish(publisher: Publisher, table: str) -> None:
    """The folder goes, and one pass has missed it: the next one drops the table."""
    MirroredDatabase(publisher.database).sync()
    shutil.rmtree(folder(publisher.database, table))
    del publisher.models[table]
    MirroredDatabase(publisher.database).sync()


def _storm(
    database: Path, kills: int, seed: int, pause: tuple[float, float] = (4, 9),
    between: tuple[float, float] = (0.05, 0.4),
) -> None:  # fmt: skip
    """`pause`: seconds from kill to kill; `between`: from file to file. Each file is a race of the two engines."""
    publisher = Publisher(database, seed)
    chance = random.Random(seed)
    engines = [command(database, "run"), command(database, "run")]
    try:
        for kill in range(kills + 1):
            until = time.monotonic() + chance.uniform(*pause)
            while time.monotonic() < until:
                publisher.publish(chance.choice(TABLES))
                time.sleep(chance.uniform(*between))
            if kill < kills:
                victim = chance.randrange(2)
                engines[victim].kill()
                engines[victim].communicate()
                engines[victim] = command(database, "run")
            if kill == kills // 2:
                publisher.begin("orders")
        for engine in engines:
            engine.terminate()
        for engine in engines:
            out, err = engine.communicate(timeout=120)
            # a busy machine may not have come to its signal handler yet
            assert engine.returncode in (0, -signal.SIGTERM), (engine.returncode, out, err)
    finally:
        for engine in engines:
            engine.kill()
            engine.wait()
    result = MirroredDatabase(database).sync()
    assert not result.failed, result.failed
    publisher.check()
    lose_everything_else(database)
    MirroredDatabase(database).sync()
    publisher.check()


def test_two_engines_one_killed_again_and_again(tmp_path: Path) -> None:
    _storm(tmp_path, kills=3, seed=5, pause=(1, 2), between=(0.02, 0.15))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(4))
def test_two_engines_killed_twenty_times(tmp_path: Path, seed: int) -> None:
    _storm(tmp_path, kills=5, seed=seed + 100)
