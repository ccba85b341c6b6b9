"""What tests of every folder use: one Spark session for the whole run, started by the first test that asks for it."""

from __future__ import annotations

import gc
import logging
import os
import sys
import tracemalloc  # noqa: F401 - pytest imports it at a warning, which fails where two threads warn at once
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from lakemirror import failpoints
from lakemirror.mirror import table_state
from lakemirror.settings.settings import Settings
from tests import compiled_once, mariadb, one_spark, own_cache, postgres, raised_codes, rounds, time_limits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

own_cache.use()
os.fsync = os.fstat  # type: ignore[assignment] # no test cuts the power (those of tests/power.py record what is synced)

table_state.FIRST_PAUSES = (0.001, 0.001, 0.001)  # a pass tries again at once what failed by a transient error

SMALL = Settings(
    master="local[2]",
    spark=(
        # queries of a few rows are quicker uncompiled
        ("spark.sql.codegen.wholeStage", "false"),
        ("spark.sql.codegen.factoryMode", "NO_CODEGEN"),
        ("spark.sql.adaptive.enabled", "false"),
        ("spark.sql.shuffle.partitions", "2"),
        ("spark.databricks.delta.snapshotPartitions", "1"),
        ("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2"),  # of a VACUUM: 10,000 by default
    ),
)


def pytest_configure(config: pytest.Config) -> None:
    for plugin in (compiled_once, mariadb, one_spark, postgres, raised_codes, rounds, time_limits):
        config.pluginmanager.register(plugin)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected lives as long as the process: garbage collections need not look at it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """A command that runs in the test's own process says where its log goes: the next test starts without that."""
    logger = logging.getLogger("lakemirror")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], Any]], list[str]]:
    """Does something else the first time that a place in the code is reached. Returns a list, which then names it."""

    def arrange(place: str, act: Callable[[], Any]) -> list[str]:
        done: list[str] = []

        def reach(name: str) -> None:
            if name == place and not done:
                done.append(name)
                act()

        monkeypatch.setattr(failpoints, "reach", reach)
        return done

    return arrange


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from lakemirror.spark_session import session as lakemirror_spark

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's own Python workers
    session = lakemirror_spark.start(SMALL.with_environment(), delta=True, short=True)
    yield session
    lakemirror_spark.stop(session)
