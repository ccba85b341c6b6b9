"""Amounts move between tables while two engines are killed at random: at every cut the tables are that transaction."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from tests import preloaded
from tests.applies.test_vacuum import DAY, age
from tests.rounds import rounds

from lakemirror import MirroredDatabase
from lakemirror.maintenance.compaction import merge_when_idle
from lakemirror.maintenance.vacuum import vacuum
from lakemirror.mirror.cut_versions import Cut, versions_to_keep
from lakemirror.publisher import Landing

TABLES = ("accounts", "bank.branches", "tellers")
BALANCE = 100

State = dict[str, dict[int, int]]


class Bank:
    """Publishes transactions, each of which moves an amount from a row of one table to a row of another."""

    def __init__(self, path: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.landing = Landing(path)
        self.state: State = {name: dict.fromkeys(range(5), BALANCE) for name in TABLES}
        self.at: dict[int, State] = {}
        self.tables = {}
        for name in TABLES:
            schema, _, table = name.rpartition(".")
            self.tables[name] = self.landing.table(table, keys=["id"], schema=schema)
            self.tables[name].load(self._rows(name, range(5)))

    def move(self) -> None:
        for name, sign in zip(self.chance.sample(TABLES, 2), (1, -1), strict=True):
            number = self.chance.randrange(5)
            self.state[name][number] += sign * 7
            self.tables[name].upsert(self._rows(name, [number]))

    def truncate(self) -> None:
        """A table begins again, with the same rows in one file."""
        name = self.chance.choice(TABLES)
        self.tables[name].recreate()
        self.tables[name].load(self._rows(name, range(5)))

    def cut(self) -> None:
        number = self.landing.cut().number
        self.at[number] = {name: dict(rows) for name, rows in self.state.items()}

    def _rows(self, name: str, ids: Any) -> list[dict[str, int]]:
        return [{"id": number, "amount": self.state[name][number]} for number in ids]


def state_at(cut: Cut) -> State:
    """The tables at a cut, as delta-rs reads them."""
    found: State = {}
    for table in cut.tables:
        read = DeltaTable(table.path, version=cut.versions[table.name])
        rows = pa.table(QueryBuilder().register("t", read).execute("SELECT * FROM t").read_all()).to_pylist()
        assert len({row["id"] for row in rows}) == len(rows)
        found[table.name] = {row["id"]: row["amount"] for row in rows}
    return found


def engine(path: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "lakemirror.cli", "sync", str(path), "--engine", "local"]
    return preloaded.Popen(words, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def storm(bank: Bank, path: Path, transactions: int, truncates: float = 0.0) -> None:
    chance, running = bank.chance, list[subprocess.Popen[str]]()
    for _ in range(transactions):
        bank.move()
        if chance.random() < truncates:
            bank.truncate()
        if chance.random() < 0.3:
            bank.cut()
        running = [each for each in running if each.poll() is None]
        if len(running) < 2 and chance.random() < 0.5:
            running.append(engine(path))
        if running and chance.random() < 0.25:
            time.sleep(chance.uniform(0.0, 0.3))
            running.pop(chance.randrange(len(running))).kill()
    bank.cut()
    for each in running:
        each.wait(60)


@pytest.mark.parametrize("seed", range(rounds(1, 5)))
def test_every_cut_is_one_transaction(tmp_path: Path, seed: int) -> None:
    bank = Bank(tmp_path, seed)
    storm(bank, tmp_path, rounds(60, 200))
    database = MirroredDatabase(tmp_path, engine="local")
    assert not database.sync().failed
    cuts = {cut.number: cut for cut in database.cuts()}
    assert sorted(cuts) == sorted(bank.at)
    for number, cut in cuts.items():
        assert cut.is_complete, (number, cut.reasons)
        assert state_at(cut) == bank.at[number], number
        assert sum(sum(rows.values()) for rows in state_at(cut).values()) == len(TABLES) * 5 * BALANCE

    bank.move()
    database.sync()
    targets = [f"Tables/{name.replace('.', '/')}" for name in TABLES]
    for target in targets:
        while merge_when_idle(str(tmp_path / target), all_vectors=True):
            pass
        age(tmp_path / target, 30 * DAY)
    age(tmp_path / "Files/LandingZone", 30 * DAY)
    removed = 0
    for target in targets:
        removed += vacuum(
            tmp_path / target, 7 * DAY, kept=versions_to_keep(database.storage, database.settings, target)
        )
    assert removed
    last = max(bank.at)
    assert state_at(database.cut()) == bank.at[last]
    assert [cut.number for cut in database.cuts()] == [last], "older manifests go with their versions"


@pytest.mark.parametrize("seed", range(rounds(1, 5)))
def test_a_cut_is_one_transaction_or_void_where_tables_begin_again(tmp_path: Path, seed: int) -> None:
    """Files with the numbers of a cut come again, in folders that were made again."""
    bank = Bank(tmp_path, 100 + seed)
    storm(bank, tmp_path, rounds(40, 150), truncates=0.3)
    database = MirroredDatabase(tmp_path, engine="local")
    assert not database.sync().failed
    cuts = list(database.cuts())
    assert [cut.number for cut in cuts] == sorted(bank.at, reverse=True) and cuts[0].is_complete
    for cut in cuts:
        assert cut.is_complete != cut.is_void
        if cut.is_complete:
            assert state_at(cut) == bank.at[cut.number], cut.number
    assert len(cuts) > 1  # how many of them are complete depends on how soon the engine met each
