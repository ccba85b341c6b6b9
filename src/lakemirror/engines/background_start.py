"""Spark's start beside the local engine, and why it does not start. Nobody waits for it.

much waits ─▶ PySpark, memory? ─▶ a thread starts Spark ─▶ ready
                   └ why not ◀──────────────┘ fails; tried again after AGAIN seconds
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable

from lakemirror.errors import LakemirrorError
from lakemirror.failures import coded
from lakemirror.settings.settings import ProcessSettings
from lakemirror.spark_session.jvm import has_pyspark
from lakemirror.spark_session.machine_memory import free_memory, heap_bytes

log = logging.getLogger("lakemirror")

AGAIN = 600.0
"""Seconds after which Spark is tried again: somebody may install Java, or end what took the memory."""


class BackgroundStart:
    """The start of Spark, in a thread. Safe for several threads.

    `start` returns once Spark can be used, and raises what keeps it from starting. `is_starting`, `is_ready`: one of
    them at most. `reason`: why neither; empty: nothing has asked for Spark.
    """

    def __init__(self, settings: ProcessSettings, start: Callable[[], object]) -> None:
        self.is_starting = self.is_ready = False
        self.reason = ""
        self.thread: threading.Thread | None = None
        self._settings = settings
        self._start = start
        self._lock = threading.Lock()
        self._failed_at = 0.0

    def ask(self, now: float | None = None) -> None:
        """Begins a start, where none runs and none has failed within AGAIN seconds. Does not wait.

        `now`: as of `time.monotonic`."""
        now = time.monotonic() if now is None else now
        with self._lock:
            if self.is_starting or self.is_ready or (self.reason and now - self._failed_at < AGAIN):
                return
            self.reason, self._failed_at = reason_against(self._settings), now
            if not self.reason:
                self.is_starting = True
                self.thread = threading.Thread(target=self._run, name="spark-start", daemon=True)
                try:
                    self.thread.start()
                except RuntimeError as error:  # the process has as many threads as it may have
                    self._failed(coded(error), now)

    def give_up(self, error: LakemirrorError, begun: float) -> bool:
        """Spark has failed at its work: it is not used for AGAIN seconds. `begun`: when that work began.

        False for work that began after Spark was given up: whoever did it needs Spark.
        """
        with self._lock:
            if self.is_ready:
                self._failed(error, time.monotonic())
            return bool(self.reason) and begun < self._failed_at

    def _run(self) -> None:
        begun = time.monotonic()
        log.info("much work waits: Spark is started in the background")
        try:
            self._start()
        except Exception as failure:
            error = coded(failure)
            with self._lock:
                self._failed(error, time.monotonic())
            return
        with self._lock:
            self.is_starting, self.is_ready = False, True
        log.info("Spark is ready after %.1f s: large batches go there", time.monotonic() - begun)

    def _failed(self, error: LakemirrorError, now: float) -> None:
        self.is_starting = self.is_ready = False
        self.reason, self._failed_at = str(error), now
        log.warning("the local engine goes on without Spark, for %.0f minutes: %s", AGAIN / 60, error)


def reason_against(settings: ProcessSettings) -> str:
    """Why Spark is not started on this machine; empty: it may be."""
    if not has_pyspark():
        return "PySpark is not installed"
    heap = heap_bytes(dict(settings.spark).get("spark.driver.memory") or settings.driver_memory)
    needed, free = heap + (os.cpu_count() or 1) * settings.memory, free_memory()
    if free is not None and free < needed:
        return f"{free / 1024**3:.1f} GiB of memory are free, and it may take {needed / 1024**3:.1f} GiB"
    return ""
