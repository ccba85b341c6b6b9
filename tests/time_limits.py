"""No test waits for ever: how long each has, and what is printed when that is over.

pytest-timeout fails a test after `timeout` seconds (pyproject.toml; `@pytest.mark.timeout(600)` for one that takes
longer) and prints what every thread does. That needs the main thread to come back to Python. Where it does not, and
where a test or the run does not end after all, the process prints the same and exits; pytest-xdist then names the test.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.one_spark import OWN_SPARK

WITH_A_JVM = 600
"""Seconds for a test that uses Spark, if it does not say otherwise: one start takes many."""
FULL = 3600
"""The same for a slow matrix, which `make test-full` alone runs."""
TO_FAIL = 60
"""Seconds that a test has to fail after its limit."""
TO_END = 120
"""Seconds from the last test to the end of the process."""

_stderr = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_stderr] = os.dup(2)  # a test's own is captured


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout") is None:
            if item.get_closest_marker("full"):
                item.add_marker(pytest.mark.timeout(FULL))
            elif item.nodeid.startswith(OWN_SPARK) or "spark" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.timeout(WITH_A_JVM))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Set-up, test and clean-up have one limit together, as pytest-timeout has it."""
    marker = item.get_closest_marker("timeout")
    seconds = float(marker.args[0] if marker and marker.args else item.config.getini("timeout"))
    faulthandler.dump_traceback_later(seconds + TO_FAIL, exit=True, file=item.config.stash[_stderr])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Names a test that was stopped at once, not only at the end of the run."""
    if call.excinfo and call.excinfo.errisinstance(pytest.fail.Exception) and "Timeout (>" in str(call.excinfo.value):
        os.write(item.config.stash[_stderr], f"\n{item.nodeid} was stopped: {call.excinfo.value}\n".encode())
    return (yield)


def pytest_runtest_logfinish() -> None:
    """Between two tests a process may wait for as long as the other processes of the run take."""
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    faulthandler.dump_traceback_later(TO_END, exit=True, file=session.config.stash[_stderr])
