"""kill -9 of a service during uploads and applies: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.object_stores import s3_server

from lakemirror.storage import connections

pytest.importorskip("aiohttp", reason="the extra `service` is not installed")
sys.path.insert(0, str(Path(__file__).parent))

from service_storm import Storm, minutes


def storm(
    root: Path,
    databases: int,
    publishers: int,
    kills: int,
    pause: tuple[float, float],
    lasting: float = 0.0,
    address: str = "",
) -> Storm:
    made = Storm(root, databases, publishers, address=address)
    try:
        made.run(kills, pause, lasting)
        count = made.check(300.0)
    except BaseException:
        made.abandon()
        raise
    assert made.end() == 0
    assert count >= publishers * 2, "hardly anything was published"
    said = (root / "serve.log").read_text()
    assert "Traceback" not in said, said[-3000:]
    print(
        f"{count} acknowledged rows, {kills} kills, memory of a process at most {max(made.memory) >> 20} MiB, "
        f"of the last one {made.memory[-1] >> 20} MiB"
    )
    return made


def test_a_service_that_is_killed_three_times(tmp_path: Path) -> None:
    storm(tmp_path / "root", 2, 4, 3, (1.0, 2.0))


@pytest.mark.full
def test_a_service_that_is_killed_twenty_times(tmp_path: Path) -> None:
    storm(tmp_path / "root", 3, 8, 20, (0.8, 3.0))


@pytest.mark.full
def test_each_of_five_kills_is_followed_by_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server() as server:
        for name, value in server.options.items():
            monkeypatch.setenv(name, value)
        storm(tmp_path / "root", 2, 4, 5, (2.0, 5.0), address=f"{server.bucket()}/lake")
        connections.forget_all()


@pytest.mark.full
def test_soak(tmp_path: Path) -> None:
    """50 publishers, 20 databases, random kills, and as long again without one; LAKEMIRROR_SOAK_MINUTES in all."""
    half = 30 * minutes()
    made = storm(tmp_path / "root", 20, 50, max(1, int(half / 15)), (5.0, 25.0), half)
    assert max(made.memory) < 600 << 20, made.memory
    third = len(made.lasting) // 3
    print(f"memory of the last one, MiB, every 5 s: {[size >> 20 for size in made.lasting]}")
    if third > 6:  # the first third warms up: each table's files and applies that are remembered
        assert max(made.lasting[-third:]) < 1.15 * max(made.lasting[third : 2 * third]), made.lasting
