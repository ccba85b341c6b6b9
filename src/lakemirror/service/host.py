"""The engine host: one Runner for each mirrored database that runs; one queue, one watch of folders and one Spark
session for all of them.

    folder events, publish ─▶ apply queue ─▶ a step of a table ─▶ Delta tables

A database has no thread of its own. A failure in one is that database's error and does not delay the others.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.landing_zone.zone import TableName
from lakemirror.mirror.apply import Applied
from lakemirror.mirror.loop import Runner, Shared
from lakemirror.mirror.queue import ApplyQueue
from lakemirror.mirror.schedule import Again
from lakemirror.mirror.table_rules import allowed
from lakemirror.service.interface import DatabaseEntry
from lakemirror.service.operator_settings import OperatorSettings, warnings_of
from lakemirror.settings.settings import DatabaseSettings, read_definition
from lakemirror.status.status import DatabaseStatus
from lakemirror.storage.place import storage_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("lakemirror")

LONGEST_PAUSE = 30.0  # seconds between two starts of an engine that ends by an error
_STEADY = 60.0  # seconds after which an engine that ends is started again soon
SELDOM = 240.0
"""Seconds between two listings of an idle landing zone while the system tells of changes: they only check that."""

ROUNDS = 20.0
"""Seconds between two rounds of an idle database that waits, or has idle work."""

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
        self._spark_lock = threading.Lock()
        self._spark: SparkSession | None = None
        self.shared = Shared(ApplyQueue(max(4, 2 * (os.cpu_count() or 1))), seldom=SELDOM, rounds=ROUNDS)

    def follow(self, databases: Iterable[DatabaseEntry]) -> None:
        """Starts and stops engines, so that exactly the databases with the state `Running` run."""
        wanted = {each.id: each for each in databases if each.state == "Running"}
        with self._lock:
            for database_id, engine in self._engines.items():
                if database_id not in wanted or wanted[database_id].folder != engine.database.folder:
                    engine.stop()
            for database_id, database in wanted.items():
                before = self._engines.get(database_id)
                if self._ended or (before is not None and not before.is_stopping):
                    continue
                self._engines[database_id] = _Engine(self, database, before)
            self._engines = {i: each for i, each in self._engines.items() if each.is_alive or i in wanted}

    def start(self, database: DatabaseEntry) -> None:
        """Starts the database's engine where none runs."""
        with self._lock:
            before = self._engines.get(database.id)
            if not self._ended and (before is None or before.is_stopping):
                self._engines[database.id] = _Engine(self, database, before)

    def stop(self, database_id: str) -> None:
        """Asks the database's engine to end. Does not wait."""
        engine = self._engine(database_id)
        if engine is not None:
            engine.stop()

    def has_stopped(self, database_id: str) -> bool:
        """True if no engine of the database is at work."""
        engine = self._engine(database_id)
        return engine is None or engine.ended.is_set()

    def wake(self, database_id: str) -> None:
        """The database's engine looks at its landing zone at once."""
        engine = self._engines.get(database_id)
        if engine is not None:
            engine.wake()

    def state(self, database: DatabaseEntry) -> tuple[str, LakemirrorError | None]:
        """The state that the REST interface shows, and what keeps the engine from running."""
        engine = self._engine(database.id)
        if database.state == "Running":
            if engine is None or engine.is_stopping or not engine.has_looked:
                return "Starting", None
            return "Running", engine.error
        if engine is not None and engine.is_alive:
            return "Stopping", None
        return database.state, None

    def _engine(self, database_id: str) -> _Engine | None:
        with self._lock:
            return self._engines.get(database_id)

    def not_looked_at(self, databases: Iterable[DatabaseEntry]) -> list[DatabaseEntry]:
        """The databases that should run and whose engine has not looked at them since the service started."""
        with self._lock:
            looked = {database_id for database_id, engine in self._engines.items() if engine.has_looked}
        return [each for each in databases if each.state == "Running" and each.id not in looked]

    def status(self, database_id: str) -> DatabaseStatus | None:
        """The status that the database's engine has written last; None where none runs."""
        engine = self._engine(database_id)
        return engine.status if engine is not None and not engine.is_stopping else None

    def history(self, database_id: str, table: str) -> list[ApplySeen]:
        """The last applies of a table since the start of its engine, oldest first."""
        engine = self._engine(database_id)
        return list(engine.history.get(table, ())) if engine else []

    def shutdown(self, patience: float) -> bool:
        """Ends all engines; True once they have, False after `patience` seconds."""
        with self._lock:
            self._ended = True
            engines = list(self._engines.values())
        for engine in engines:
            engine.stop()
        deadline = time.monotonic() + patience
        ended = [engine.ended.wait(max(0.0, deadline - time.monotonic())) for engine in engines]
        self.shared.watch.close()
        self.shared.queue.close()
        return all(ended)

    def spark(self, *, delta: bool) -> SparkSession:
        """The one session, started when it is first needed; with Delta where the first database that needs it declares
        readers. Everything else is the operator's.
        """
        from lakemirror.spark_session import session

        with self._spark_lock:
            if self._spark is None or session.is_over(self._spark):
                self._spark = session.start(self.settings.process, delta=delta)
            return self._spark

    def spark_is_gone(self, used: SparkSession | None) -> None:
        """Forgets a session whose JVM has died, so that the next use starts another one."""
        from lakemirror.spark_session import session

        with self._spark_lock:
            if used is not None and self._spark is used:
                log.error("Spark's process ended: it is started again when it is needed")
                self._spark = None
                session.stop(used)


class _Engine:
    """One database's Runner, started again after an error. Its steps in the queue start and end the Runner."""

    def __init__(self, host: EngineHost, database: DatabaseEntry, before: _Engine | None) -> None:
        """`before`: the engine that the database had, which ends first."""
        self.database = database
        self.history: dict[str, deque[ApplySeen]] = {} if before is None else before.history
        self.is_stopping = False
        self.ended = threading.Event()
        self._host = host
        self._queue = host.shared.queue
        self._before = before
        self._error: LakemirrorError | None = None
        self._runner: Runner | None = None
        self._spark: SparkSession | None = None
        self._begun, self._pause = 0.0, 1.0
        self._lane = self._queue.add(self._step, looks=1, computes=False)
        self._queue.wake(self._lane, "engine")

    @property
    def is_alive(self) -> bool:
        return not self.ended.is_set()

    @property
    def error(self) -> LakemirrorError | None:
        """What keeps the engine from running."""
        return None if self._runner is not None and self._runner.has_looked else self._error

    @property
    def has_looked(self) -> bool:
        """True once the landing zone was looked at, or could not be."""
        return self._error is not None or (self._runner is not None and self._runner.has_looked)

    @property
    def status(self) -> DatabaseStatus | None:
        """What the Runner has written last; None where there is none."""
        runner = self._runner
        return runner.status if runner is not None else None

    def stop(self) -> None:
        """Ends the engine. Does not wait."""
        self.is_stopping = True
        self._queue.wake(self._lane, "engine")

    def wake(self) -> None:
        """Looks at the landing zone at once; starts the engine again at once where it has failed."""
        runner = self._runner
        if runner is not None:
            runner.wake()
        else:
            self._queue.wake(self._lane, "engine")

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

    def _step(self, _name: str, _plan: object) -> Again:
        """Starts or ends the Runner, as it is due. Never raises: the boundary around one database."""
        if self._before is not None and not self._before.ended.wait(0.0):
            return Again(0.1)
        self._before = None
        if self._runner is not None and (self.is_stopping or self._runner.ended_by is not None):
            runner, self._runner = self._runner, None
            runner.end()
            self._error = None if runner.has_looked else self._error
            if runner.ended_by is not None:
                return Again(0.0 if self.is_stopping else self._failed(runner.ended_by))
        if self.is_stopping:
            self._queue.stop(self._lane)
            self.ended.set()
        elif self._runner is None:
            try:
                self._runner = self._started()
            except Exception as failure:
                return Again(self._failed(coded(failure)))
        return Again()

    def _started(self) -> Runner:
        self._begun = time.monotonic()
        storage = storage_of(self.database.folder)
        runner = Runner(
            storage, lambda: allowed(self._host.settings.of_database(read_definition(storage))), self._start_spark,
            observers=(self,), shared=self._host.shared, warnings_of=warnings_of,
        )  # fmt: skip
        runner.on_end = lambda: self._queue.wake(self._lane, "engine")
        runner.begin()
        return runner

    def _failed(self, error: LakemirrorError) -> float:
        """Notes what has ended the engine. Returns the seconds until it is started again."""
        if str(error) != str(self._error):
            database = self.database.display_name
            log.error("%s: %s", database, error, extra={"database": database})
        self._error = error
        if error.code == "spark-failed":
            self._host.spark_is_gone(self._spark)
        if time.monotonic() - self._begun > _STEADY:
            self._pause = 1.0
        pause, self._pause = self._pause, min(LONGEST_PAUSE, 2 * self._pause)
        return pause

    def _start_spark(self, settings: DatabaseSettings) -> SparkSession:
        self._spark = self._host.spark(delta=bool(settings.readers))
        return self._spark
