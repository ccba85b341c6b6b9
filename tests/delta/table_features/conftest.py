"""The public Delta tables, where they are at hand."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def tables_folder() -> Path | None:
    """Where the public Delta tables lie, or None."""
    named = os.environ.get("LAKEMIRROR_DELTA_TABLES")
    root = Path(__file__).resolve().parents[3]
    for folder in (Path(named) if named else None, root.parent / "shared" / "delta-tables"):
        if folder and folder.is_dir():
            return folder
    return None


@pytest.fixture
def public_table(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a public Delta table; skips where they are not at hand."""

    def copy(name: str) -> Path:
        folder = tables_folder()
        if folder is None:
            pytest.skip("the public Delta tables are not here: set LAKEMIRROR_DELTA_TABLES")
        target = tmp_path / name
        shutil.copytree(folder / name, target)
        return target

    return copy
