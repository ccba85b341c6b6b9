"""The interface of all engines, the choice of the engine for a batch, and the engines of one process by name.

Spark is started when a batch first needs it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakValueDictionary

from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.row_work import Action, RewriteWork, RowResult, RowWork, Target
from lakemirror.keys.key_index import KeyIndex
from lakemirror.settings import ProcessSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AUTO, LOCAL, SPARK = "auto", "local", "spark"
ENGINES = (AUTO, LOCAL, SPARK)

FROM_BYTES = 16 << 30
"""From this many decoded bytes in a batch, `auto` starts Spark although none was configured."""

FROM_BYTES_WITH_SPARK = 128 << 20
"""The same limit if a session, a master or a Connect address is configured.

On a warm session of the same machine, Spark takes 3 times as long as the local engine for batches of 18 to 49 MiB, and
less than twice as long for 122 MiB.
"""


class Engine(Protocol):
    """Runs kernels on units of work. Commits nothing.

    Errors: `concurrent-commit` if a file does not exist any more, `storage-unavailable`, `table-unreadable`,
    `file-too-large`.
    """

    @property
    def name(self) -> str: ...

    def run(self, work: RowWork) -> RowResult:
        """Computes the net effect of a batch (contract section 3) and writes its files."""

    def rewrite(self, work: RewriteWork) -> Sequence[Action]:
        """Writes the live rows of `work.files` to new files. Returns their `add` actions."""


class Choice(NamedTuple):
    """The engine of a batch, and why."""

    engine: str
    reason: str


class Preference(NamedTuple):
    """What the settings say about engines.

    `engine`: one of `ENGINES`. `spark_given`: a session, a master or a Connect address is configured. `from_bytes`:
    `auto` uses Spark for a batch of at least so many decoded bytes; 0: the default.
    """

    engine: str = AUTO
    spark_given: bool = False
    from_bytes: int = 0

    @property
    def threshold(self) -> int:
        return self.from_bytes or (FROM_BYTES_WITH_SPARK if self.spark_given else FROM_BYTES)


def choose(preference: Preference, bytes: int, *, needs_spark: str = "") -> Choice:
    """The engine for a batch of so many decoded bytes. `needs_spark`: why only Spark can do it; empty if both can.

    With `engine` = `local`, the choice is local even if Spark is needed; the caller then refuses the batch.
    """
    if preference.engine == LOCAL:
        return Choice(LOCAL, "the setting `engine` says local")
    if needs_spark:
        return Choice(SPARK, needs_spark)
    if preference.engine == SPARK:
        return Choice(SPARK, "the setting `engine` says spark")
    if bytes >= preference.threshold:
        return Choice(SPARK, f"the batch has {_size(bytes)}, Spark is used from {_size(preference.threshold)}")
    return Choice(LOCAL, f"the batch has {_size(bytes)}, less than {_size(preference.threshold)}")


def _size(bytes: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes >= size:
            return f"{bytes / size:.1f} {unit}"
    return f"{bytes} bytes"


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
