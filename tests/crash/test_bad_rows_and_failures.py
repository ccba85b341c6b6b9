"""Attempts that fail at any failpoint, among bad files and corrections: a good file is applied once to each table."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests import bad_rows

from lakemirror import MirroredDatabase, failpoints


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(100, 250), marks=pytest.mark.full)], ids=["few", "many"]
)
def test_an_attempt_that_fails_anywhere_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: range
) -> None:
    failed: Counter[str] = Counter()

    def failing(left: int) -> Any:
        def reach(name: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                failed[name] += 1
                raise RuntimeError(name)

        return reach

    class Failing:
        """A database of which attempts fail, several times, before one does not."""

        def __init__(self, *given: Any, **settings: Any) -> None:
            self._given, self._settings = given, settings

        def sync(self) -> Any:
            while chance.random() < 0.7:
                with monkeypatch.context() as until:
                    until.setattr(failpoints, "reach", failing(chance.randint(1, 12)))
                    try:
                        MirroredDatabase(*self._given, **self._settings).sync()
                    except RuntimeError as error:
                        assert str(error) in failed
            return MirroredDatabase(*self._given, **self._settings).sync()

    monkeypatch.setattr(bad_rows, "MirroredDatabase", Failing)
    for seed in seeds:
        chance = random.Random(seed)
        made = bad_rows.zone(tmp_path / str(seed), chance)
        try:
            bad_rows.play(made, quarantine=chance.random() < 0.3, batch_files=chance.choice([1, 2, 1000]))
        except BaseException as error:
            error.add_note(f"seed {seed}: {made.keys}, {made.options}, text {made.is_text}, {failed}")
            raise
    assert sum(failed.values()) > len(seeds) and "apply.before-write" in failed, failed
