"""The engines of one process by name. Spark is started when a batch first needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from lakemirror.engines.engine import SPARK, Engine
from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.row_work import Action, Target
from lakemirror.keys.key_index import KeyIndex
from lakemirror.settings import ProcessSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Engines:
    """The engines with these settings. `start_spark`: returns a session, or raises SetupError if it cannot start.

    `get` raises SetupError `spark-workers` for a session whose Python workers cannot run tasks.
    """

    def __init__(self, settings: ProcessSettings, start_spark: Callable[[], SparkSession]) -> None:
        self._settings = settings
        self._start_spark = start_spark
        self.index = key_index(settings)
        self._local: Engine = local_engine(settings.memory, self.index)
        self._by_spark: Engine | None = None
        self._starting = threading.Lock()

    def get(self, name: str) -> Engine:
        """The engine of this name, `local` or `spark`. Only calls for `spark` wait for Spark's start."""
        if name != SPARK:
            return self._local
        with self._starting:
            if self._by_spark is None:
                self._by_spark = self._spark()
            return self._by_spark

    def index_keys(self, target: Target, adds: Sequence[Action]) -> None:
        """Has the key index of new data files built soon. Does not wait."""
        if self.index is not None:
            for add in adds:
                self.index.want(add, target)

    def _spark(self) -> Engine:
        from lakemirror.engines.spark import SparkEngine
        from lakemirror.engines.spark.jobs import spark_errors
        from lakemirror.spark_session.python_workers import interpreter_for

        session = self._start_spark()
        with spark_errors("asking the Python workers"):
            interpreter = interpreter_for(session)
        engine: Engine = SparkEngine(session, memory=self._settings.memory, index=self.index, interpreter=interpreter)
        return engine


def local_engine(memory: int, index: KeyIndex | None) -> LocalEngine:
    """The local engine that all databases of the process with these settings share, so that `memory` is the most that
    all their batches hold together."""
    with _making:
        engine = _local_engines.get((memory, id(index)))
        if engine is None:
            engine = _local_engines[memory, id(index)] = LocalEngine(memory, index=index)
        return engine


_making = threading.Lock()
_local_engines: WeakValueDictionary[tuple[int, int], LocalEngine] = WeakValueDictionary()  # each keeps its index


def key_index(settings: ProcessSettings) -> KeyIndex | None:
    """The key index that all engines of the process with these settings share; None if `key_index` is false."""
    return KeyIndex.shared(settings.cache_folder / "keys", settings.key_index_bytes) if settings.key_index else None
