"""The engines of a soak: processes of `lakemirror run`, started and killed, with failing disks and wrong clocks."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HASTY = """
from lakemirror.mirror import loop
from lakemirror.engines import early_rows
from lakemirror.keys import key_index
from lakemirror.verify import idle

key_index.FEWEST_ROWS, key_index._READ_ALL, key_index._READ_NUMBERS = 8, 1, 0
early_rows.FEWEST_ROWS = 1
loop._QUIET, idle._LEAST_PAUSE, idle._SHARE, idle.CHANGED = 0.3, 0.1, 2.0, 0.5
"""
"""Small files have a key index, single rows are written early, and tables are verified whenever an engine is idle for a
moment."""

NO_SPARK = """
from lakemirror.errors import SetupError
from lakemirror.spark_session import session

def start(*_, **__):
    raise SetupError("java-missing", "this soak runs without Spark")

session.start = start
"""
MAIN = """
from lakemirror.cli import main
main()
"""
DROP_AFTER = 4.0  # seconds: many folders are gone for good in a soak, and some for a moment
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
        self._cache = logs / "cache"
        self._cache.mkdir()

    def start(
        self, *, failpoint: str = "", limit: int = 0, clock: str = "", settings: Mapping[str, str] | None = None
    ) -> bool:
        """Starts one more engine, if there is room. `limit`: bytes a file of it may have; `clock`: such as `+1d`;
        `settings`: variables of its environment."""
        self.reap()
        if len(self.running) >= 2:
            return False
        self._launch(["run"], failpoint, limit, clock, settings)
        return True

    def act(self, act: str, table: str, failpoint: str = "") -> str:
        """An operator's act by the command line, to its end; its exit code and its last words."""
        engine = self._launch([act], failpoint, 0, "", None, [table])
        engine.expected |= {1, 2, 3}
        code = engine.process.wait(timeout=180)
        said = engine.log.read_text(errors="replace").strip().splitlines()
        self.reap()
        return f"{act} {table}: {code}: {said[-1][:200] if said else ''}"

    def sync(self) -> int:
        """One pass in a process of its own, to its end; its exit code."""
        engine = self._launch(["sync"], "", 0, "")
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
        """Looks at the processes that have ended."""
        for engine in [each for each in self.running if each.process.poll() is not None]:
            self.running.remove(engine)
            said = engine.log.read_text(errors="replace")
            code = engine.process.returncode
            if "Traceback" in said:
                last = said.strip().splitlines()[-1][:300]
                self.findings.append(f"{engine.log.name}: a traceback reached the user: {last}")
            elif code not in engine.expected:
                self.findings.append(f"{engine.log.name}: ended by itself with {code}: {said.strip()[-300:]}")

    def _launch(
        self, command: Sequence[str], failpoint: str, limit: int, clock: str, settings: Mapping[str, str] | None = None,
        more: Sequence[str] = (),
    ) -> Engine:  # fmt: skip
        self._count += 1
        log = self._logs / f"engine-{self._count}-{command[0]}.log"
        environment = {
            **os.environ,
            "LAKEMIRROR_PARTIAL_ROW_MISSING": "null",
            "LAKEMIRROR_FAILPOINT": failpoint,
            "LAKEMIRROR_POLL": "0.05",
            "LAKEMIRROR_POLL_IDLE": "0.2",
            "LAKEMIRROR_SETTLE": "1",
            "LAKEMIRROR_DROP_AFTER": str(DROP_AFTER),
            "LAKEMIRROR_RETRY_LIMIT": "1",
            "LAKEMIRROR_MASTER": "local[2]",
            "LAKEMIRROR_CACHE_DIR": str(self._cache),
            "OMP_NUM_THREADS": "2",
            **(settings or {}),
        }
        if clock and FAKETIME.exists():
            environment |= {"LD_PRELOAD": str(FAKETIME), "FAKETIME": clock}
        script = ["-c", HASTY + ("" if self._spark else NO_SPARK) + MAIN]

        def limited() -> None:
            if limit:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        with log.open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, *script, *command, str(self._database), *more],
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
