"""The engines of a soak: processes of `lakemirror run`, started and killed, with failing disks and wrong clocks."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

NO_SPARK = """
import sys
from lakemirror.errors import SetupError
from lakemirror.spark_session import session

def start(*_, **__):
    raise SetupError("java-missing", "this soak runs without Spark")

session.start = start
from lakemirror.cli import main
main()
"""
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


@dataclass
class Engine:
    """One process. `expected`: exit codes that are not findings."""

    process: subprocess.Popen[bytes]
    log: Path
    expected: set[int] = field(default_factory=lambda: {0})


class Engines:
    """At most two engines at once."""

    def __init__(self, database: Path, logs: Path, *, spark: bool) -> None:
        self.running: list[Engine] = []
        self.findings: list[str] = []
        self._database, self._logs, self._spark = database, logs, spark
        self._count = 0

    def start(self, *, failpoint: str = "", limit: int = 0, clock: str = "") -> bool:
        """Starts one more engine, if there is room. `limit`: bytes a file of it may have; `clock`: such as `+1d`."""
        self.reap()
        if len(self.running) >= 2:
            return False
        self._launch("run", failpoint, limit, clock)
        return True

    def sync(self) -> int:
        """One pass in a process of its own, to its end; its exit code."""
        engine = self._launch("sync", "", 0, "")
        engine.expected |= {1, 3}
        code = engine.process.wait(timeout=180)
        self.reap()
        return code

    def kill(self, which: int) -> bool:
        """Ends an engine in the middle of whatever it does."""
        self.reap()
        if not self.running:
            return False
        engine = self.running[which % len(self.running)]
        engine.expected.add(-signal.SIGKILL)
        engine.process.kill()
        engine.process.wait()
        self.reap()
        return True

    def stop(self, which: int = 0) -> bool:
        """Asks an engine to end: it must within 15 s."""
        self.reap()
        if not self.running:
            return False
        engine = self.running[which % len(self.running)]
        engine.expected.add(-signal.SIGTERM)  # before it has come to its signal handler
        engine.process.terminate()
        try:
            engine.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.findings.append(f"{engine.log.name}: SIGTERM did not end the engine within 20 s")
            engine.expected.add(-signal.SIGKILL)
            engine.process.kill()
            engine.process.wait()
        self.reap()
        return True

    def stop_all(self) -> None:
        while self.stop():
            pass

    def kill_all(self) -> None:
        """For the end of a soak that fails: leaves no process behind."""
        while self.kill(0):
            pass

    def reap(self) -> None:
        """Looks at the engines that have ended by themselves."""
        for engine in [each for each in self.running if each.process.poll() is not None]:
            self.running.remove(engine)
            said = engine.log.read_text(errors="replace")
            code = engine.process.returncode
            if "Traceback" in said:
                last = said.strip().splitlines()[-1][:300]
                self.findings.append(f"{engine.log.name}: a traceback reached the user: {last}")
            elif code not in engine.expected:
                self.findings.append(f"{engine.log.name}: ended by itself with {code}: {said.strip()[-300:]}")

    def _launch(self, command: str, failpoint: str, limit: int, clock: str) -> Engine:
        self._count += 1
        log = self._logs / f"engine-{self._count}-{command}.log"
        environment = {
            **os.environ,
            "LAKEMIRROR_FAILPOINT": failpoint,
            "LAKEMIRROR_POLL": "0.05",
            "LAKEMIRROR_POLL_IDLE": "0.2",
            "LAKEMIRROR_SETTLE": "1",
            "LAKEMIRROR_RETRY_LIMIT": "1",
            "LAKEMIRROR_MASTER": "local[2]",
            "OMP_NUM_THREADS": "2",
        }
        if clock and FAKETIME.exists():
            environment |= {"LD_PRELOAD": str(FAKETIME), "FAKETIME": clock}
        script = ["-m", "lakemirror.cli"] if self._spark else ["-c", NO_SPARK]

        def limited() -> None:
            if limit:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        with log.open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, *script, command, str(self._database)],
                env=environment, stdout=said, stderr=subprocess.STDOUT, preexec_fn=limited,
            )  # fmt: skip
        engine = Engine(process, log)
        if failpoint and not failpoint.endswith(":error"):
            engine.expected.add(-signal.SIGKILL)
        self.running.append(engine)
        return engine


def wait_until(moment: float) -> None:
    """Sleeps until then, if it is not past."""
    time.sleep(max(0.0, moment - time.monotonic()))
