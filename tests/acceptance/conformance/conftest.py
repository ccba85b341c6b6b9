"""The three passes, once for all cases; with every test, by Spark, too."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from world import World


@pytest.fixture(
    scope="session",
    params=[("auto", "duckdb"), pytest.param(("spark", "spark"), marks=pytest.mark.full)],
    ids=["local", "spark"],
)
def world(request: pytest.FixtureRequest, spark: Any) -> Iterator[World]:
    """By an engine, read by a reader. Small files go to the local engine, which `auto` chooses."""
    place = Path(tempfile.mkdtemp(prefix="lakemirror-conformance-"))
    (place / "Files/LandingZone").mkdir(parents=True)
    yield World(place, spark, *request.param).play()
    shutil.rmtree(place)
