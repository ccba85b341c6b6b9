"""The session as a user meets it: in processes of its own, with all they print."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests import own_cache

from lakemirror.settings.settings import Settings
from lakemirror.spark_session import jars, java
from lakemirror.spark_session import session as lakemirror_spark
from lakemirror.spark_session.archive_path import archive_path


def run(script: str, cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What a script printed; its cache is its own but for the jars."""
    delta_jars = ",".join(map(str, jars.ensure(Settings().with_environment())))
    source = str(Path(lakemirror_spark.__file__).parents[2])  # the code under test, wherever the script runs
    environment = {
        **os.environ,
        "PYTHONPATH": source,
        "LAKEMIRROR_CACHE_DIR": str(cache),
        "LAKEMIRROR_JARS": delta_jars,
    }
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=1800, start_new_session=True, cwd=cache
    )


PRELUDE = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us with it ignored
from lakemirror.spark_session import session as spark
from lakemirror.settings.settings import Settings
settings = Settings(master="local[2]", spark=(("spark.sql.shuffle.partitions", "2"),)).with_environment()
"""


@pytest.mark.parametrize("form", ["parquet", pytest.param("delta", marks=pytest.mark.full)])
def test_quiet_whatever_happens_and_ctrl_c_is_python_s_alone(tmp_path: Path, form: str) -> None:
    """An archive that does not fit, errors of each kind, Ctrl-C, the end: not one word of Spark's, nor of Delta's."""
    settings = Settings(cache_dir=str(tmp_path))
    delta_jars = jars.ensure(Settings().with_environment())
    archive = archive_path(settings, java.find(), delta_jars if form == "delta" else ())
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"no archive at all" * 100_000)
    script = (
        PRELUDE
        + """
form = sys.argv[1]
session = spark.start(settings, delta=form == "delta", short=True)
session.range(10).write.format(form).save("table")
for fail in (
    lambda: session.range(1).select("absent"),
    lambda: session.sql("SELECT raise_error('told')").collect(),
    lambda: session.range(1).write.format(form).save("table"),
):
    try:
        fail()
    except Exception as error:
        print(type(error).__name__)
try:
    os.killpg(0, signal.SIGINT)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
print(session.read.format(form).load("table").count())
spark.stop()
print("ended")
"""
    )
    done = run(script, tmp_path, form)
    assert done.stderr == ""
    errors = ["AnalysisException", "SparkRuntimeException", "AnalysisException"]
    assert done.stdout.splitlines() == [*errors, "interrupted", "10", "ended"]
    assert "told" in "".join(path.read_text() for path in (tmp_path / "logs").glob("spark-*.log"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archives", "logs", "table"]


def test_a_jvm_that_died_is_followed_by_another(tmp_path: Path) -> None:
    """Also: a caller's own handler of SIGINT stays, and Python's end alone ends the JVM.

    Mostly a dead JVM answers with nothing. Where its end cuts an answer, py4j logs a traceback: here always.
    """
    script = (
        PRELUDE
        + """
from py4j.clientserver import ClientServerConnection
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
handler = lambda *_: print("own handler")
signal.signal(signal.SIGINT, handler)
session = spark.start(settings, short=True)
assert signal.getsignal(signal.SIGINT) is handler
SparkContext._gateway.proc.kill()
SparkContext._gateway.proc.wait()
send = ClientServerConnection.send_command
def cut(*_):
    raise Py4JNetworkError("cut", ConnectionResetError(), "on_receive")
ClientServerConnection.send_command = cut
try:
    session.range(3).count()
except Exception as error:
    print(type(error).__name__)
spark.stop()
ClientServerConnection.send_command = send
session = spark.start(settings, short=True)
print(session.range(3).count())
print(SparkContext._gateway.proc.pid)
"""
    )
    own_cache.share_archives(tmp_path)
    done = run(script, tmp_path)
    assert done.stderr == ""
    error, count, pid = done.stdout.split()
    assert (error, count) == ("Py4JError", "3")
    assert _ends(int(pid))


def _ends(pid: int, *, seconds: float = 30.0) -> bool:
    import time

    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.1)
    return False


def test_options_that_java_does_not_take_are_said(tmp_path: Path) -> None:
    script = (
        PRELUDE
        + """
import dataclasses
from lakemirror.errors import SetupError
try:
    spark.start(dataclasses.replace(settings, driver_memory="1k"))
except SetupError as error:
    print(error)
    print(error.hint)
"""
    )
    done = run(script, tmp_path)
    assert done.stderr == ""
    message, hint = done.stdout.splitlines()
    assert message.startswith("spark-failed: Spark did not start with the Java in ")
    assert "heap" in message
    assert "driver_memory" in hint


@pytest.mark.full
def test_the_archive_is_made_and_used(tmp_path: Path) -> None:
    """Full: making it takes half a minute and 200 MB."""
    script = (
        PRELUDE
        + """
from lakemirror.spark_session import class_archive
from pyspark import SparkContext
path = class_archive.make(settings, delta=True)
assert class_archive.make(settings, delta=True) == path
print(path.name)
for short in (True, False):
    spark.start(settings, delta=True, short=short)
    print(str(path) in open(f"/proc/{SparkContext._gateway.proc.pid}/maps").read())
    spark.stop()
"""
    )
    done = run(script, tmp_path)
    name, *used = done.stdout.split()
    assert (used, done.stderr) == (["True", "True"], "")
    assert sorted(path.name for path in (tmp_path / "archives").iterdir()) == [".lock", name]
