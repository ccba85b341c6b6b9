"""The public Delta tables, where they are at hand."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.clients.real_tables import public_tables


@pytest.fixture
def public_table(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a public Delta table; skips where they are not at hand."""

    def copy(name: str) -> Path:
        folder = public_tables()
        if folder is None:
            pytest.skip("the public Delta tables are not here: set LAKEMIRROR_DELTA_TABLES")
        target = tmp_path / name
        shutil.copytree(folder / name, target)
        return target

    return copy
