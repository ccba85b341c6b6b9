"""Starts and ends the JVM of pyspark, without output on the terminal.

It runs in a separate process session and ignores SIGINT, so Ctrl-C reaches only Python. It ends when its standard input
is closed, also when Python is killed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from lakemirror.errors import SetupError
from lakemirror.spark_session.java import Java

LOOPBACK = "127.0.0.1"
DRIVER_ADDRESS = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
"""Where the driver listens if executors are in the same JVM, unless the user says otherwise."""

_MOST_READ = 256 * 1024  # bytes at the end of what a JVM printed
_CAUSES = (
    (r"UnknownHostException: ([^\s:]+)", "the name {0} does not resolve"),
    (r"Host (\S+) not found", "the host {0} cannot be found: no network, or no name server"),
    (
        r"Server access error at url \w+://(?:[^/@\s]*@)?([^/@\s]+)\S* \((?:[\w.]*\.)?(\w+: .*)\)",
        "{0} cannot be reached: {1}",
    ),
    (r"unresolved dependency: ([^,\]\s]+): not found", "no repository has {0}"),
)
"""What a JVM prints, and what that means; the first that fits is the cause, which others may follow from."""


class StartFailed(SetupError):
    """SetupError `spark-failed`, with the `reason` for which the JVM ended."""

    def __init__(self, java: Java, reason: str) -> None:
        super().__init__("spark-failed", f"Spark did not start with the Java in {java.home}: {reason}")
        self.reason = reason


def launch(options: Mapping[str, str], java: Java, *, verbose: bool = False) -> Any:
    """A Py4J gateway to a new JVM with these spark.* options. The JVM's output is dropped unless `verbose`.

    StartFailed, with what its output tells, if it ends before it accepts a connection.
    """
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if logging.getLogger("py4j").level == logging.NOTSET:
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # its caller gets an exception for everything it logs
    conf = SparkConf(loadDefaults=False)
    for key, value in options.items():
        conf.set(key, value)
    with tempfile.TemporaryFile() as printed, environment(_variables(java, options)):
        output: dict[str, Any] = {} if verbose else {"stdout": printed, "stderr": subprocess.STDOUT}
        try:
            return launch_gateway(conf, popen_kwargs={**output, "start_new_session": True})  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            raise StartFailed(java, reason_in(_last(printed), socket.gethostname())) from error


def python_of(options: Mapping[str, str]) -> str:
    """The Python of Spark's workers: the user's choice, else this interpreter.

    PySpark would take the first `python3` on the path, which may have no pyarrow.
    """
    return options.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable


def is_local(master: str) -> bool:
    """True where driver and executors are one JVM on this machine, so that nobody else connects to it."""
    return master == "local" or master.startswith("local[")


def reason_in(output: str, own_name: str) -> str:
    """Why a JVM ended, by what it printed: the cause where it is a known one, else the last lines.

    `own_name`: of this machine. Addresses are shown without what precedes and follows the host.
    """
    for pattern, sentence in _CAUSES:
        found = re.search(pattern, output)
        if found is not None:
            if found[1] == own_name:
                return f"this machine's own name {own_name} does not resolve: add it to /etc/hosts"
            return sentence.format(*found.groups())
    lines = output.splitlines()
    telling = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("at ")]
    return " | ".join(telling[-3:]) or "it printed nothing"


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
def environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Sets variables of the environment for the block, and hides those that are None."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _variables(java: Java, options: Mapping[str, str]) -> dict[str, str]:
    """The variables that spark-submit reads.

    SPARK_HOME spares it a Python start, SPARK_LAUNCHER_OPTS makes the small JVM that only builds the command faster.
    SPARK_LOCAL_IP: without it Spark asks for the address of this machine's own name, and ends where there is none.
    PYSPARK_PYTHON runs Spark's search for data sources, such as ours (`pyspark_lakemirror`).
    """
    ours = {
        "JAVA_HOME": str(java.home),
        "PYSPARK_PYTHON": python_of(options),
        "SPARK_HOME": str(spark_home()),
        "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    }
    on_loopback = all(options.get(key, LOOPBACK) == LOOPBACK for key in DRIVER_ADDRESS)
    if is_local(options.get("spark.master", "local")) and on_loopback and "SPARK_LOCAL_IP" not in os.environ:
        ours["SPARK_LOCAL_IP"] = LOOPBACK
    return ours


def _last(printed: IO[bytes]) -> str:
    printed.seek(max(0, printed.seek(0, os.SEEK_END) - _MOST_READ))
    return printed.read().decode(errors="replace")
