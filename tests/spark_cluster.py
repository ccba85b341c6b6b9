"""A Spark cluster from the pyspark package, for tests: a master, two workers, a Connect server, all on loopback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lakemirror.spark_session import java, jvm
from tests.object_stores import free_port

PATIENCE = 300.0  # seconds, on a busy machine
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


class Cluster:
    """Processes from the pyspark package; what each prints goes to a file."""

    def __init__(self, folder: Path) -> None:
        self.master = ""
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers: list[subprocess.Popen[bytes]] = []
        self._log = folder
        # without PYTHONPATH: lakemirror comes with the tasks; without the options of stores, which come so, too
        left_out = ("PYTHONPATH", "AWS_", "AZURE_", "GOOGLE_")
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(left_out)},
            "JAVA_HOME": str(java.find().home),
            "SPARK_HOME": str(jvm.spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            "SPARK_WORKER_DIR": str(folder / "work"),
        }

    def start(self) -> None:
        self._start("Master", "--host", "127.0.0.1", "--port", "0")
        self.master = self._said("Master", r"master at (spark://\S+)")
        for _ in range(2):
            words = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", self.master)
            self._workers.append(self._start("Worker", *words))
            self._said("Worker", r"registered with master (\S+)")

    def start_connect(self, options: dict[str, str]) -> str:
        """The address of a Connect server whose executors are on this cluster."""
        port = free_port()
        options = {
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
            "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port),
            "spark.pyspark.python": sys.executable, "spark.driver.extraJavaOptions": QUICK, **options,
        }  # fmt: skip
        words = [word for key, value in options.items() for word in ("--conf", f"{key}={value}")]
        submit = str(jvm.spark_home() / "bin" / "spark-submit")
        self._launch("Connect", [submit, "--master", self.master, *words, "--class", CONNECT, "spark-internal"])
        self._said("Connect", r"(Spark Connect server started)")
        return f"sc://127.0.0.1:{port}"

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kill_a_worker(self) -> None:
        """The last worker, as a machine that is gone: its executor ends with it."""
        self._workers[-1].kill()

    def executors(self) -> list[str]:
        """The log folders of the executors that ran here, a worker each."""
        return sorted(str(path) for path in (self._folder / "work").glob("app-*/*"))

    def _start(self, role: str, *words: str) -> subprocess.Popen[bytes]:
        main = f"org.apache.spark.deploy.{role.lower()}.{role}"
        return self._launch(role, [str(jvm.spark_home() / "bin" / "spark-class"), main, "--webui-port", "0", *words])

    def _launch(self, role: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        self._log = self._folder / f"{role}-{len(self._processes)}.log"
        with self._log.open("wb") as file:
            process = subprocess.Popen(
                command, env=self.environment, stdout=file, stderr=subprocess.STDOUT, cwd=self._folder
            )
        self._processes.append(process)
        return process

    def _said(self, role: str, says: str) -> str:
        """What the newest process prints, once it does."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self._processes[-1].poll() is None:
            found = re.search(says, self._log.read_text(errors="replace"))
            if found:
                return found[1]
            time.sleep(0.1)
        raise RuntimeError(f"{role} did not start: {self._log.read_text(errors='replace')[-2000:]}")
