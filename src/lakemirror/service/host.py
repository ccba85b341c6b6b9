"""The engine host: one Runner for each mirrored database that runs, one Spark session for all of them.

    publish ─▶ wake ─▶ Runner of that database ─▶ Delta tables

Each database has its own thread. A failure in one is that database's error and does not delay the others.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.landing_zone.zone import TableName
from lakemirror.mirror.apply import Applied
from lakemirror.mirror.declared_readers import allowed
from lakemirror.mirror.fair_turns import FairTurns
from lakemirror.mirror.loop import Runner
from lakemirror.service.interface import DatabaseEntry
from lakemirror.service.landing_watch import LandingWatch
from lakemirror.service.operator_settings import OperatorSettings, warnings_of
from lakemirror.settings import DatabaseSettings, read_definition
from lakemirror.storage import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakemirror")

LONGEST_PAUSE = 30.0  # seconds between two starts of an engine that ends by an error
_STEADY = 60.0  # seconds after which an engine that ends is started again at once
REST_AFTER = 35.0  # seconds without a change after which looks at a landing zone become rare; longer than `settle`
LONGEST_REST = 20.0  # seconds between two looks then, and between two signs of life
TOLD_REST = 240.0  # seconds between two looks while the system reports changes: they only check those reports
_IDLE_PAUSE = 0.9  # seconds that only an idle Runner waits
BUSY_PAUSE = 1.0  # most seconds that a busy engine pauses between two looks, to leave time for others
_HISTORY = 60  # applies of one table that are remembered


@dataclass(frozen=True)
class ApplySeen:
    """One apply of one table, as it ended. `time` in seconds since the epoch; `seconds` from its plan to its commit."""

    time: float
    rows: int
    files: int
    bytes: int
    seconds: float
    engine: str


class EngineHost:
    """Runs the databases of a service. Safe to use from several threads."""

    def __init__(self) -> None:
        """LakemirrorError `setting-invalid` where the environment has a setting that cannot be used."""
        self.settings = OperatorSettings.from_environment()
        self._lock = threading.Lock()
        self._engines: dict[str, _Engine] = {}
        self._ended = False
        self.busy = Busy()
        self._spark_lock = threading.Lock()
        self._spark: SparkSession | None = None
        self.turns = FairTurns(max(4, 2 * (os.cpu_count() or 1)))

    def follow(self, databases: Iterable[DatabaseEntry]) -> None:
        """Starts and stops engines, so that exactly the databases with the state `Running` run."""
        wanted = {each.id: each for each in databases if each.state == "Running"}
        with self._lock:
            for database_id, engine in self._engines.items():
                if database_id not in wanted or wanted[database_id].folder != engine.database.folder:
                    engine.stop.set()
            for database_id, database in wanted.items():
                before = self._engines.get(database_id)
                if self._ended or (before is not None and not before.stop.is_set()):
                    continue
                self._engines[database_id] = _Engine(self, database, before)
            self._engines = {i: each for i, each in self._engines.items() if each.is_alive or i in wanted}

    def start(self, database: DatabaseEntry) -> None:
        """Starts the database's engine where none runs."""
        with self._lock:
            before = self._engines.get(database.id)
            if not self._ended and (before is None or before.stop.is_set()):
                self._engines[database.id] = _Engine(self, database, before)

    def stop(self, database_id: str) -> None:
        """Asks the database's engine to end. Does not wait."""
        with self._lock:
            engine = self._engines.get(database_id)
        if engine is not None:
            engine.stop.set()

    def wait_stopped(self, database_id: str, timeout: float) -> bool:
        """True once no engine of the database is at work; False after `timeout` seconds."""
        with self._lock:
            engine = self._engines.get(database_id)
        if engine is not None:
            engine.thread.join(timeout)
            return not engine.is_alive
        return True

    def wake(self, database_id: str) -> None:
        """The database's engine looks at its landing zone at once."""
        engine = self._engines.get(database_id)
        if engine is not None:
            engine.stop.wake()

    def state(self, database: DatabaseEntry) -> tuple[str, LakemirrorError | None]:
        """The state that the REST interface shows, and what keeps the engine from running."""
        with self._lock:
            engine = self._engines.get(database.id)
        if database.state == "Running":
            if engine is None or engine.stop.is_set() or not engine.looked:
                return "Starting", None
            return "Running", engine.error
        if engine is not None and engine.is_alive:
            return "Stopping", None
        return database.state, None

    def not_looked_at(self, databases: Iterable[DatabaseEntry]) -> list[DatabaseEntry]:
        """The databases that should run and whose engine has not looked at them since the service started."""
        with self._lock:
            looked = {database_id for database_id, engine in self._engines.items() if engine.looked}
        return [each for each in databases if each.state == "Running" and each.id not in looked]

    def history(self, database_id: str, table: str) -> list[ApplySeen]:
        """The last applies of a table since the start of its engine, oldest first."""
        with self._lock:
            engine = self._engines.get(database_id)
        return list(engine.history.get(table, ())) if engine else []

    def shutdown(self, patience: float) -> bool:
        """Ends all engines; True once they have, False after `patience` seconds."""
        with self._lock:
            self._ended = True
            engines = list(self._engines.values())
        for engine in engines:
            engine.stop.set()
        deadline = time.monotonic() + patience
        for engine in engines:
            engine.thread.join(max(0.0, deadline - time.monotonic()))
        return not any(engine.is_alive for engine in engines)

    def spark(self, *, delta: bool) -> SparkSession:
        """The one session, started when it is first needed; with Delta where the first database that needs it declares
        readers. Everything else is the operator's.
        """
        from lakemirror.spark_session import session

        with self._spark_lock:
            if self._spark is None:
                self._spark = session.start(self.settings.process, delta=delta)
            return self._spark

    def _spark_is_gone(self, used: SparkSession | None) -> None:
        """Forgets a session whose JVM has died, so that the next use starts another one."""
        from lakemirror.spark_session import session

        with self._spark_lock:
            if used is not None and self._spark is used:
                log.error("Spark's process ended: it is started again when it is needed")
                self._spark = None
                session.stop(used)


class _Engine:
    """One database's Runner in its thread, started again after an error."""

    def __init__(self, host: EngineHost, database: DatabaseEntry, before: _Engine | None) -> None:
        self.database = database
        self.stop = WakeableStop(LandingWatch(database.folder), host.busy)
        self.error: LakemirrorError | None = None
        self.history: dict[str, deque[ApplySeen]] = {} if before is None else before.history
        self._host = host
        self._before: threading.Thread | None = None if before is None else before.thread
        self._spark: SparkSession | None = None
        self.thread: threading.Thread = threading.Thread(
            target=self._work, name=f"engine-{database.id[:8]}", daemon=True
        )
        self.thread.start()

    @property
    def is_alive(self) -> bool:
        return self.thread.is_alive()

    @property
    def looked(self) -> bool:
        """True once the landing zone was looked at, or could not be."""
        return self.stop.waited or self.error is not None

    def applied(self, name: TableName, applied: Applied) -> None:
        batch = applied.batch
        seen = ApplySeen(time.time(), batch.rows, len(batch.files), batch.bytes, applied.seconds, applied.engine)
        self.history.setdefault(str(name), deque(maxlen=_HISTORY)).append(seen)
        self._say(logging.INFO, str(name), f"{seen.files} files, {seen.rows} changes")

    def failed(self, name: TableName, error: LakemirrorError) -> None:
        self._say(logging.WARNING, str(name), str(error))

    def dropped(self, target: str) -> None:
        self._say(logging.INFO, target, "dropped, its folder is gone")

    def _say(self, level: int, table: str, message: str) -> None:
        database = self.database.display_name
        log.log(level, "%s/%s: %s", database, table, message, extra={"database": database, "table": table})

    def _work(self) -> None:
        if self._before is not None:
            self._before.join()
        pause = 1.0
        while not self.stop.is_set():
            begun = time.monotonic()
            try:
                self._run()
            except Exception as failure:  # the boundary around one database
                error = coded(failure)
                if str(error) != str(self.error):
                    database = self.database.display_name
                    log.error("%s: %s", database, error, extra={"database": database})
                self.error = error
                if error.code == "spark-failed":
                    self._host._spark_is_gone(self._spark)
                if time.monotonic() - begun > _STEADY:
                    pause = 1.0
                self._host.busy.rests(self.stop)
                self.stop.pause(pause)
                pause = min(LONGEST_PAUSE, 2 * pause)
        self._host.busy.rests(self.stop)
        self.stop.close()

    def _run(self) -> None:
        storage = LocalStorage(self.database.folder)
        runner = Runner(
            storage, lambda: allowed(self._host.settings.of_database(read_definition(storage))), self._start_spark,
            observer=self, turns=self._host.turns, warnings_of=warnings_of,
        )  # fmt: skip
        self.stop.on_wait = self._no_error
        self.stop.sign_of_life, self.stop.is_restless = runner.sign_of_life, lambda: runner.is_restless
        runner.run(self.stop)

    def _no_error(self) -> None:
        self.error = None

    def _start_spark(self, settings: DatabaseSettings, _: int) -> SparkSession:
        self._spark = self._host.spark(delta=bool(settings.readers))
        return self._spark


class WakeableStop(threading.Event):
    """Set to stop. `wait` also ends when somebody calls `wake`; then it gives back False.

    With a watch, a `wait` of an idle Runner goes on for LONGEST_REST seconds as long as the watch sees no change; for
    TOLD_REST seconds, with signs of life, where the system says what changes and the Runner waits for nothing else.
    """

    def __init__(self, watch: LandingWatch | None = None, busy: Busy | None = None) -> None:
        super().__init__()
        self._busy = busy
        self.waited = False  # a Runner waits after each look at its landing zone
        self.on_wait: Callable[[], None] = _nothing
        self.sign_of_life: Callable[[], None] = _nothing
        self.is_restless: Callable[[], bool] = lambda: True
        self._watch = watch
        self._woken = threading.Event()
        self._last_change = time.monotonic()

    def set(self) -> None:
        super().set()
        self.wake()

    def wake(self) -> None:
        self._woken.set()
        if self._watch is not None:
            self._watch.ring()

    def wait(self, timeout: float | None = None) -> bool:
        self.waited = True
        self.on_wait()
        if self._watch is None or timeout is None or timeout < _IDLE_PAUSE:
            self._last_change = time.monotonic()
            return self.pause(timeout if timeout is None or self._busy is None else self._busy.pause(self, timeout))
        if self._busy is not None:
            self._busy.rests(self)
        rests = time.monotonic() - self._last_change > REST_AFTER
        told = self._watch.is_told
        longest = TOLD_REST if told and not self.is_restless() else LONGEST_REST
        until = time.monotonic() + (longest if rests else timeout if told else 0.0)
        slept = LONGEST_REST if rests and told else timeout
        while not self._rested(slept, told) and not self._watch.has_changed() and time.monotonic() < until:
            if rests and told:
                self.sign_of_life()
        if self._woken.is_set() or (rests and self._watch.has_changed()):
            self._last_change = time.monotonic()
        self._watch.note()
        return self.pause(0.0)

    def _rested(self, timeout: float, told: bool) -> bool:
        """True if `wake` was called during the wait. If the system reports changes, a publish ends the wait as a
        change.
        """
        assert self._watch is not None
        if not told:
            return self._woken.wait(timeout)
        if not self._woken.is_set():
            self._watch.wait(timeout)
        return self._woken.is_set()

    def close(self) -> None:
        """Ends the watch."""
        if self._watch is not None:
            self._watch.close()

    def pause(self, timeout: float | None) -> bool:
        """`wait`, but not as a sign that the landing zone was looked at."""
        self._woken.wait(timeout)
        if not self.is_set():
            self._woken.clear()
        return self.is_set()


class Busy:
    """The engines that have work. The more there are, the longer each pauses between two looks at its landing zone, to
    leave the processor to applies. A publish over the endpoint ends a pause at once.
    """

    def __init__(self) -> None:
        self._at_work: set[WakeableStop] = set()
        self._lock = threading.Lock()

    def pause(self, engine: WakeableStop, wanted: float) -> float:
        """Seconds that an engine with work is to pause."""
        with self._lock:
            self._at_work.add(engine)
            count = len(self._at_work)
        return max(wanted, min(BUSY_PAUSE, wanted * count / 2))

    def rests(self, engine: WakeableStop) -> None:
        """The engine is idle, or has ended."""
        with self._lock:
            self._at_work.discard(engine)


def _nothing() -> None:
    pass


__all__ = ["ApplySeen", "EngineHost", "WakeableStop"]
