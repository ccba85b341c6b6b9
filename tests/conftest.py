"""One Spark session for the whole run, started by the first test that asks for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from lakemirror.settings import Settings
from tests.raised_codes import pytest_configure, pytest_sessionfinish, pytest_testnodedown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["pytest_configure", "pytest_sessionfinish", "pytest_testnodedown"]

SMALL = Settings(
    master="local[2]",
    spark=(("spark.sql.shuffle.partitions", "2"), ("spark.databricks.delta.snapshotPartitions", "2")),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of two processes that run the tests, one runs all that share the Spark session, the dearest, so they come first;
    tests of one file stay together."""
    if not config.pluginmanager.hasplugin("dsession") and not hasattr(config, "workerinput"):
        return
    for item in items:
        group = "spark" if _needs_spark(item) else str(item.path.relative_to(config.rootpath))
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: not _needs_spark(item))


def _needs_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from lakemirror.spark_session import session as lakemirror_spark

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's own Python workers
    session = lakemirror_spark.start(SMALL.with_environment(), delta=True, short=True)
    yield session
    lakemirror_spark.stop(session)
