"""A captured table that is loaded again: only differences are published, through kills, from either database."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests import captured as postgresql
from tests import mariadb
from tests.capture import test_capture_mariadb as of_mariadb
from tests.capture_process import CaptureProcess
from tests.postgres import execute

pytest.importorskip("pydbzengine")
pytestmark = pytest.mark.full

Execute = Any


@pytest.fixture(params=["postgresql", "mariadb"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[CaptureProcess, Execute]]:
    if request.param == "postgresql":
        url, kind = request.getfixturevalue("postgres_server").database(), postgresql.Captured
    else:
        url, kind = request.getfixturevalue("mariadb_servers")("mariadb").database(), of_mariadb.Captured
    made = kind(url, tmp_path / "shop", tmp_path / "log")
    yield made, lambda *said: (execute if request.param == "postgresql" else mariadb.execute)(url, *said)
    made.close()


def newest(captured: CaptureProcess, table: str) -> Path:
    """The newest change file of a table, applied or not."""
    return max(captured.folder(table).rglob("0*.parquet"), key=lambda file: int(file.stem))


def test_only_differences(source: tuple[CaptureProcess, Execute]) -> None:
    """Of a table with a key; one without is made again. The positions go on behind it."""
    captured, run = source
    values = ", ".join(f"({number}, 'same')" for number in range(1, 1001))
    run(f"insert into one (id, v) values {values}", "insert into log (id, v) values (1, 'first')")
    captured.finish()
    run(
        "update one set v = 'other' where id < 4", "delete from one where id = 10", "insert into one (id) values (2000)"
    )
    captured.finish()
    before = newest(captured, "one")
    captured.finish("--reload", "all")
    captured.assert_equal()
    assert "one: 1,000 rows loaded, 0 changes published" in captured.said()
    assert int(newest(captured, "one").stem) == int(before.stem) + 1
    assert pq.read_metadata(newest(captured, "one")).num_rows == 0
    assert "log: 1 rows loaded\n" in captured.said() and int(newest(captured, "log").stem) == 1
    log = captured.db / "Tables" / captured.schema / "one/_delta_log"
    versions = len(list(log.glob("0*.json")))
    run("update one set v = 'third' where id < 4", "insert into log (id, v) values (2, 'second')")
    captured.finish()
    captured.assert_equal()
    run("delete from one where id in (20, 21)", "update one set id = 3000 where id = 30")
    captured.finish("--reload", f"{captured.schema}.one", "--tables", "*.one")
    assert "one: 998 rows loaded, 4 changes published" in captured.said()
    captured.assert_equal()
    assert len(list(log.glob("0*.json"))) > versions, "the same Delta table goes on"


POINTS = (
    "publish.file-written",
    "publish.before-link",
    "publish.after-link",
    "publish.done",
    "publish.metadata-written",
)


@pytest.mark.parametrize("point", POINTS)
def test_kills_while_differences_are_published(source: tuple[CaptureProcess, Execute], point: str) -> None:
    captured, run = source
    values = ", ".join(f"({number}, 'same')" for number in range(1, 301))
    run(f"insert into one (id, v) values {values}", "insert into two (id, v) values (1, 'a'), (2, 'b')")
    captured.finish()
    for times in (1, 2, 3):
        run(f"update one set v = 'changed {times}' where id % 7 = {times}", f"delete from one where id = {100 + times}",
            f"insert into two (id, v) values ({times + 10}, 'new')")  # fmt: skip
        captured.start("--once", "--reload", "all", LAKEMIRROR_FAILPOINT=f"{point}:{times}")
        assert captured.process is not None
        assert captured.process.wait(120) in (0, -signal.SIGKILL), captured.said()
        run(f"update one set v = 'behind' where id = {200 + times}", "delete from two where id = 1")
        captured.finish()
        captured.assert_equal()
    assert "changes published" in captured.said()


def test_kills_at_random(source: tuple[CaptureProcess, Execute]) -> None:
    captured, run = source
    rng = random.Random(seed := random.randrange(10**6))
    print(f"seed {seed}")
    for begin in range(1, 100_001, 20_000):
        run(f"insert into one (id, v) values {', '.join(f'({each}, 1)' for each in range(begin, begin + 20_000))}")
    captured.finish()
    for number in range(6):
        captured.start("--reload", "all")
        run(f"update one set v = 'k{number}' where id % 1000 = {number}", f"delete from one where id % 777 = {number}")
        time.sleep(rng.uniform(1, 8))
        captured.end()
    captured.finish()
    captured.assert_equal()
