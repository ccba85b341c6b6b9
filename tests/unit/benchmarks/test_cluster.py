"""What the benchmark on a cluster does without one: copies that share data files, figures of a side, memory apart."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import data
from benchmarks.cluster import Side, _check_same, _copied, _first_load, _linked
from benchmarks.process import Peak

from lakemirror import MirroredDatabase


def test_a_copy_shares_data_files_and_goes_its_own_way(tmp_path: Path) -> None:
    load = data.load(tmp_path / "load", 3_000, as_uuids=True)
    data.upserts(tmp_path / "changes", 3_000, 1, 300, data.uniform, as_uuids=True)
    changes = sorted((tmp_path / "changes").iterdir())
    _first_load(tmp_path / "one", load)
    _copied(tmp_path / "one", tmp_path / "other")
    both = [tmp_path / name / "Tables" / "orders" for name in ("one", "other")]
    files = [{file.name: file.stat().st_ino for file in table.rglob("*.parquet")} for table in both]
    assert files[0] and files[0] == files[1]
    _check_same(both, load, [])
    for name in ("one", "other"):
        _linked(changes[0], tmp_path / name / "Files/LandingZone/orders" / f"{5:020}.parquet")
    assert MirroredDatabase(tmp_path / "one", engine="local").sync().failed == {}
    _check_same(both[:1], load, changes)
    _check_same(both[1:], load, [])


def test_the_first_apply_does_not_count_as_typical() -> None:
    side = Side("one MERGE", lambda file: None, seconds=[9.0, 2.0, 4.0, 3.0])
    assert side.typical == 3.0
    assert Side("x", lambda file: None, seconds=[5.0]).typical == 5.0


def test_memory_of_processes_apart_does_not_count() -> None:
    held = "x = bytearray(200 << 20)\nprint('ready', flush=True)\nimport time\ntime.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", held], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        with Peak(os.getpid(), 0.01) as everything, Peak(os.getpid(), 0.01, apart=[child.pid]) as without:
            while not (everything.bytes and without.bytes):
                time.sleep(0.01)
        assert everything.bytes - without.bytes > 150 << 20
    finally:
        child.kill()
        child.wait()
