"""A short soak in every run, a long one in the full run: verify and the model agree, whatever happened."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from tests.soak.soak import soak


def test_a_short_soak(tmp_path: Path) -> None:
    outcome = soak(tmp_path / "soak", seed=1, seconds=10, everything=True)
    assert not outcome.findings, outcome.text()


@pytest.mark.full
def test_a_long_soak(tmp_path: Path) -> None:
    """`LAKEMIRROR_SOAK_MINUTES`, `LAKEMIRROR_SOAK_SEED`; the seed is in the failure's text."""
    seed = int(os.environ.get("LAKEMIRROR_SOAK_SEED") or time.time())
    minutes = float(os.environ.get("LAKEMIRROR_SOAK_MINUTES") or 30)
    print(f"soak seed {seed}")
    outcome = soak(tmp_path / "soak", seed, minutes * 60, everything=True)
    assert not outcome.findings, outcome.text()
