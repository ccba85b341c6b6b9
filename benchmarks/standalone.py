"""A standalone Spark cluster on this machine: a master and two workers on loopback, from the pyspark package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lakemirror.spark_session import java, jvm

PATIENCE = 600.0
"""Seconds until a process of the cluster must have started, on a busy machine."""

ONE_HOST = ("127.0.0.1", "127.0.0.1")
"""The hosts of two workers. Spark runs two attempts of one task only on different hosts."""

_LEFT_OUT = ("PYTHONPATH", "AWS_", "AZURE_", "GOOGLE_")  # lakemirror and options of stores come with the tasks


class Cluster:
    """The processes of a cluster. `master`: its address once it is started. `folder`: for logs and executors' files."""

    def __init__(self, folder: Path, *, java_options: str = "") -> None:
        self.master = ""
        self.workers: list[int] = []
        """The process ids of the workers; executors are their children."""
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(_LEFT_OUT)},
            "JAVA_HOME": str(java.find().home),
            "SPARK_HOME": str(jvm.spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_JAVA_OPTS": java_options,
            "SPARK_WORKER_DIR": str(folder / "work"),
        }

    @property
    def processes(self) -> list[int]:
        """The process ids of master and workers."""
        return [process.pid for process in self._processes]

    def start(self, *, hosts: Sequence[str] = ONE_HOST, memory: str = "1g") -> None:
        """Starts the master, and on each of `hosts` a worker of one core. `memory`: of all executors of a worker."""
        self.master = self._start("Master", "--host", "127.0.0.1", "--port", "0", says=r"master at (spark://\S+)")
        for host in hosts:
            words = ("--host", host, "--cores", "1", "--memory", memory, self.master)
            self._start("Worker", *words, says=r"registered with master (\S+)")
            self.workers.append(self._processes[-1].pid)

    def stop(self) -> None:
        """Ends all processes."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kill_a_worker(self) -> None:
        """Kills the last worker. Its executor ends with it, as if the machine had gone."""
        next(process for process in self._processes if process.pid == self.workers[-1]).kill()

    def executors(self) -> list[str]:
        """The log folders of the executors that ran here."""
        return sorted(str(path) for path in (self._folder / "work").glob("app-*/*"))

    def launch(self, name: str, command: Sequence[str], *, says: str) -> str:
        """Starts a process of the cluster; returns the first group of `says` once the process prints it."""
        log = self._folder / f"{name}-{len(self._processes)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, env=self.environment, stdout=file, stderr=subprocess.STDOUT, cwd=self._folder
            )
        self._processes.append(process)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and process.poll() is None:
            found = re.search(says, log.read_text(errors="replace"))
            if found:
                return found[1]
            time.sleep(0.1)
        raise RuntimeError(f"{name} did not start: {log.read_text(errors='replace')[-2000:]}")

    def _start(self, role: str, *words: str, says: str) -> str:
        main = f"org.apache.spark.deploy.{role.lower()}.{role}"
        program = str(jvm.spark_home() / "bin" / "spark-class")
        return self.launch(role, [program, main, "--webui-port", "0", *words], says=says)


@contextmanager
def cluster(
    folder: Path, *, memory: str = "1g", java_options: str = "", hosts: Sequence[str] = ONE_HOST
) -> Iterator[Cluster]:
    """A cluster that runs while the block does."""
    folder.mkdir(parents=True, exist_ok=True)
    started = Cluster(folder, java_options=java_options)
    try:
        started.start(hosts=hosts, memory=memory)
        yield started
    finally:
        started.stop()
