"""Features are dropped from tables in any state, in any combination, disturbed in any way: `tests/drop_machine.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.drop_machine import Life
from tests.rounds import rounds

from lakemirror.features.drop import POINTS

_ACTS = 10
SEEDS = range(rounds(19, 300))


def test_lives_of_tables(tmp_path: Path) -> None:
    reached = set[str]()
    for seed in SEEDS:
        life = Life.begun(tmp_path, seed)
        life.live(_ACTS)
        reached |= life.reached
    assert reached == set(POINTS), "each point of a drop is met, by kills and by writers"


@pytest.mark.full
def test_lives_are_repeated_by_their_seed(tmp_path: Path) -> None:
    lives = [Life.begun(tmp_path / name, 7) for name in "ab"]
    for life in lives:
        life.live(_ACTS)
    assert lives[0].done == lives[1].done
