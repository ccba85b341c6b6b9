"""The public Delta tables, where they are at hand, and a Spark session that forgets the tables of tests gone by."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.clients.real_tables import public_tables


@pytest.fixture(autouse=True)
def forgotten_tables() -> Iterator[None]:
    """Delta Spark keeps what it knows of a table for an hour; a few hundred tables fill the memory of its process."""
    yield
    if session := SparkSession.getActiveSession():
        session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]


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
