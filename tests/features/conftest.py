"""Small hand-made tables, and copies of the public ones where they are at hand."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "clients"))


@pytest.fixture
def public_table(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a public Delta table; skips where they are not at hand."""

    def copy(name: str) -> Path:
        named = os.environ.get("LAKEMIRROR_DELTA_TABLES")
        folder = Path(named) if named else ROOT.parent / "shared" / "delta-tables"
        if not folder.is_dir():
            pytest.skip("the public Delta tables are not here: set LAKEMIRROR_DELTA_TABLES")
        shutil.copytree(folder / name, tmp_path / name)
        return tmp_path / name

    return copy
