"""The engines of one process by their names, each made when a batch first needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from lakemirror.engines.engine import SPARK, Engine
from lakemirror.engines.local import LocalEngine
from lakemirror.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engines:
    """`start_spark` gives the session where a batch needs one; SetupError where it cannot start."""

    def __init__(self, settings: Settings, start_spark: Callable[[], SparkSession]) -> None:
        self._settings = settings
        self._start_spark = start_spark
        self._made: dict[str, Engine] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> Engine:
        """The engine of this name: `local` or `spark`."""
        with self._lock:
            if name not in self._made:
                self._made[name] = self._spark() if name == SPARK else LocalEngine(self._settings.memory)
            return self._made[name]

    def _spark(self) -> Engine:
        from lakemirror.engines.spark import SparkEngine

        engine: Engine = SparkEngine(self._start_spark(), memory=self._settings.memory)
        return engine
