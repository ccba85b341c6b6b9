"""A test that never ends fails, is named, and takes no other test with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

CONFTEST = f"""
import sys
from pathlib import Path

sys.path.insert(0, {str(ROOT)!r})
from tests import one_spark, time_limits

one_spark.ROOT = Path(__file__).parent
time_limits.TO_FAIL = 1


def pytest_configure(config):
    config.pluginmanager.register(one_spark)
    config.pluginmanager.register(time_limits)
"""
TESTS = """
import time


def test_that_waits():
    time.sleep(60)


def test_that_goes_on_waiting():
    try:
        time.sleep(60)
    finally:
        time.sleep(60)


def test_that_comes_after():
    pass
"""


def test_every_test_has_a_limit(pytestconfig: pytest.Config) -> None:
    assert float(pytestconfig.getini("timeout")) > 0
    assert pytestconfig.pluginmanager.has_plugin("timeout")
    assert pytestconfig.pluginmanager.has_plugin("tests.time_limits")


@pytest.mark.full
def test_a_test_that_waits_is_stopped_and_named(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 1\n")
    (tmp_path / "test_waiting.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "test_waiting.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "test_that_waits was stopped: Timeout" in ran.stderr
    assert "crashed while running 'test_waiting.py::test_that_goes_on_waiting'" in ran.stdout
    assert "in test_that_goes_on_waiting" in ran.stderr  # where it waited
    assert "2 failed, 1 passed" in ran.stdout
