"""The three passes, once for all cases."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from world import World


@pytest.fixture(scope="session")
def world(spark: Any) -> Iterator[World]:
    place = Path(tempfile.mkdtemp(prefix="lakemirror-conformance-"))
    (place / "Files/LandingZone").mkdir(parents=True)
    yield World(place, spark).play()
    shutil.rmtree(place)
