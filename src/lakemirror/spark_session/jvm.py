"""Starts and ends the JVM of pyspark, without output on the terminal.

It runs in a separate process session and ignores SIGINT, so Ctrl-C reaches only Python. It ends when its standard input
is closed, also when Python is killed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from lakemirror.errors import SetupError
from lakemirror.spark_session.java import Java


def launch(options: Mapping[str, str], java: Java, *, verbose: bool = False) -> Any:
    """A Py4J gateway to a new JVM with these spark.* options. The JVM's output is dropped unless `verbose`.

    SetupError `spark-failed`, with the last lines of its output, if it ends before it accepts a connection.
    """
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if logging.getLogger("py4j").level == logging.NOTSET:
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # its caller gets an exception for everything it logs
    conf = SparkConf(loadDefaults=False)
    for key, value in options.items():
        conf.set(key, value)
    with tempfile.TemporaryFile() as printed, _environment(java):
        output: dict[str, Any] = {} if verbose else {"stdout": printed, "stderr": subprocess.STDOUT}
        try:
            return launch_gateway(conf, popen_kwargs={**output, "start_new_session": True})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise SetupError(
                "spark-failed", f"Spark did not start with the Java in {java.home}: {_reason(printed)}"
            ) from error


def end(gateway: Any, *, patience: float = 60.0) -> bool:
    """True once the JVM of a gateway has ended; False if it was killed after `patience` seconds."""
    with contextlib.suppress(Exception):  # the connection may already be broken
        gateway.shutdown()
    process: subprocess.Popen[bytes] | None = gateway.proc
    if process is None:
        return True
    with contextlib.suppress(OSError):
        if process.stdin:
            process.stdin.close()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False
    return True


def spark_home() -> Path:
    """Where Spark is installed: SPARK_HOME, or else the pyspark package itself."""
    named = os.environ.get("SPARK_HOME")
    if named:
        return Path(named)
    spec = importlib.util.find_spec("pyspark") if has_pyspark() else None
    if spec is None or spec.origin is None:
        raise SetupError("pyspark-missing", "PySpark is not installed")
    return Path(spec.origin).parent


def has_pyspark() -> bool:
    """True where PySpark is installed. Does not import it."""
    try:
        return importlib.util.find_spec("pyspark") is not None
    except ImportError:  # a finder that hides it
        return False


@contextlib.contextmanager
def _environment(java: Java) -> Iterator[None]:
    """The variables that spark-submit reads, for as long as the JVM starts.

    SPARK_HOME spares it a Python start, SPARK_LAUNCHER_OPTS makes the small JVM that only builds the command faster.
    """
    ours = {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    }
    before = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _reason(printed: IO[bytes]) -> str:
    printed.seek(max(0, printed.seek(0, os.SEEK_END) - 4000))
    lines = printed.read().decode(errors="replace").splitlines()
    telling = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("at ")]
    return " | ".join(telling[-3:]) or "it printed nothing"
