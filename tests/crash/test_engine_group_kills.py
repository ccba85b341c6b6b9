"""Three engines share 300 tables, two are killed and others come: each change is applied once, soon after a death."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.table_rows import table_rows

from lakemirror.mirror.engine_group import FOLDER
from lakemirror.publisher import Landing

TABLES = [f"t{number:03}" for number in range(300)]
ROUNDS = 6


def start(path: Path) -> subprocess.Popen[bytes]:
    words = [
        str(Path(sys.executable).with_name("lakemirror")),
        "run",
        str(path),
        "--engine",
        "local",
        "--share",
        "--parallel",
        "2",
    ]
    return subprocess.Popen(words, stderr=subprocess.DEVNULL)


def behind(path: Path, number: int) -> list[str]:
    """The tables that have not the change of this round."""
    commit = f"_delta_log/{number - 1:020}.json"
    return [name for name in TABLES if not (path / "Tables" / name / commit).exists()]


@pytest.mark.full
@pytest.mark.timeout(900)
def test_three_engines_three_hundred_tables_and_kills(tmp_path: Path) -> None:
    engines = [start(tmp_path)]
    tables = {name: Landing(tmp_path).table(name, keys=["id"]) for name in TABLES}
    waited = []
    try:
        engines += [start(tmp_path), start(tmp_path)]
        for number in range(1, ROUNDS + 1):
            for name, table in tables.items():
                table.upsert([{"id": number, "v": name}, {"id": 0, "v": str(number)}])
            if number in (3, 4):
                engines.pop(0).send_signal(signal.SIGKILL)
            begun = time.monotonic()
            while behind(tmp_path, number):
                assert time.monotonic() - begun < 90, behind(tmp_path, number)[:5]
                time.sleep(0.5)
            waited.append(time.monotonic() - begun)
            if number in (3, 4):
                engines.append(start(tmp_path))
        print("seconds until all 300 tables had a round:", [round(each, 1) for each in waited])
        time.sleep(25)
        assert len(list((tmp_path / FOLDER).glob("*.tables.json"))) >= 3
    finally:
        for each in engines:
            each.terminate()
        for each in engines:
            each.wait(60)
    for name in TABLES:
        expected = {0: str(ROUNDS), **dict.fromkeys(range(1, ROUNDS + 1), name)}
        rows = table_rows(tmp_path, name, ["id", "v"])
        assert len(rows) == rows.total() == ROUNDS + 1 and {row[0]: row[1] for row in rows} == expected
