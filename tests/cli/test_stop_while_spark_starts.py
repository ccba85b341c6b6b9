"""Ctrl-C is answered at once while Spark starts: the Java here is a program that never answers."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.landing import declare, put

pytestmark = pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="PySpark is not installed")
JAVA = '#!/bin/sh\necho $$ > "$(dirname "$0")/../asked"\nexec sleep 120\n'


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a command that needs Spark, and returns once it waits for Java."""
    (tmp_path / "java/bin").mkdir(parents=True)
    (tmp_path / "java/release").write_text('JAVA_VERSION="17.0.9"\n')
    (tmp_path / "java/bin/java").write_text(JAVA)
    (tmp_path / "java/bin/java").chmod(0o755)
    declare(tmp_path / "shop", "orders", ["id"])
    put(tmp_path / "shop", "orders", 1, {"id": pa.array([1, 2])})
    variables = {name: text for name, text in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    variables |= {"JAVA_HOME": str(tmp_path / "java"), "LAKEMIRROR_CACHE_DIR": str(tmp_path / "cache")}
    begun: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "lakemirror.cli", *words, str(tmp_path / "shop"), "--engine", "spark"],
            env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        begun.append(process)
        deadline = time.monotonic() + 60
        asked = tmp_path / "java/asked"
        while not (asked.exists() and asked.read_text().strip()):
            assert process.poll() is None and time.monotonic() < deadline, process.communicate(timeout=5)
            time.sleep(0.02)
        return process

    yield start
    for process in begun:
        process.kill()
        process.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.kill(int((tmp_path / "java/asked").read_text()), signal.SIGKILL)  # Spark's own Java ends with its parent


@pytest.mark.parametrize("command", ["run", "sync"])
def test_ctrl_c_is_answered_and_a_second_one_ends_it(
    command: str, starting: Callable[..., subprocess.Popen[str]]
) -> None:
    process = starting(command)
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    said = next((line for line in process.stderr if "stopping" in line), "")
    assert "stopping; again to stop at once" in said
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130


def test_one_ctrl_c_is_enough(starting: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    process = starting("run")
    process.send_signal(signal.SIGINT)
    assert process.wait(40) == 0
    assert not list((tmp_path / "shop/Tables").rglob("*.parquet")), "nothing is half done"
