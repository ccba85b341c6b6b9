"""The interface of all engines, the choice of the engine for a batch, and the engines of one process by name.

Spark is started when a batch first needs it; for a backlog, in the background, while the local engine goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakValueDictionary

from lakemirror.engines.local_engine import LocalEngine
from lakemirror.engines.row_work import Action, RewriteWork, RowResult, RowWork, Target
from lakemirror.engines.units import SMALL_BYTES
from lakemirror.errors import LakemirrorError
from lakemirror.keys.key_index import KeyIndex
from lakemirror.settings.settings import ProcessSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakemirror.engines.background_start import BackgroundStart

AUTO, LOCAL, SPARK = "auto", "local", "spark"
ENGINES = (AUTO, LOCAL, SPARK)

FROM_BYTES = 10 << 30
"""If so many decoded bytes wait in all tables, `auto` starts Spark in the background although none was configured."""

FROM_BYTES_WITH_SPARK = 128 << 20
"""From this many decoded bytes in a batch, `auto` uses a Spark that runs or is configured.

On a warm session of the same machine, Spark takes up to 1.5 times the CPU of the local engine from here on, and twice
as much for 64 MiB. Up to 32 MiB, its driver does all.
"""

WHILE_STARTING = 512 << 20
"""Most decoded bytes of a batch while Spark starts, so that much is left for it. Each batch looks keys up again."""

_DONE_MEANWHILE = 2
"""The local engine does up to one in so many of the bytes that start Spark until Spark is ready. Where less is left,
Spark's first tasks do not pay: they cost as much CPU time as 3 GiB by the local engine on the same machine.
"""

STARTING, READY, COLD = "starting", "ready", "cold"


class Engine(Protocol):
    """Runs kernels on units of work. Commits nothing. After an error, no file that it has written is left.

    Errors: Bad if a change file cannot be applied, `concurrent-commit` if a file does not exist any more,
    `storage-unavailable`, `table-unreadable`, `file-too-large`.
    """

    @property
    def name(self) -> str: ...

    def run(self, work: RowWork) -> RowResult:
        """Computes the net effect of a batch (contract section 3) and writes its files."""

    def rewrite(self, work: RewriteWork) -> Sequence[Action]:
        """Writes the live rows of `work.files` to new files. Returns their `add` actions."""


class Waiting(Protocol):
    """A change file that waits."""

    @property
    def decoded(self) -> int: ...


class Choice(NamedTuple):
    """The engine of a batch, and why."""

    engine: str
    reason: str


class Preference(NamedTuple):
    """What the settings say about engines, and what `auto` knows beside a batch.

    `engine`: one of `ENGINES`. `spark_given`: a session, a master or a Connect address is configured. `from_bytes`: the
    setting `spark_from_bytes`; 0: the default. `waiting`: decoded bytes that wait in all tables. `spark`: STARTING,
    COLD (it runs and has done nothing yet), READY, or why it does not run; empty: nothing has asked for it.
    """

    engine: str = AUTO
    spark_given: bool = False
    from_bytes: int = 0
    waiting: int = 0
    spark: str = ""

    @property
    def uses_from(self) -> int:
        """A batch of so many bytes is for a Spark that runs or is configured."""
        least = self.from_bytes or FROM_BYTES_WITH_SPARK
        return least if self.spark_given else min(least, FROM_BYTES_WITH_SPARK)


def preference_of(settings: ProcessSettings, *, spark_given: bool = False) -> Preference:
    """What the settings say. `spark_given`: a session runs already."""
    given = spark_given or bool(settings.master or settings.connect_address)
    return Preference(settings.engine, given, settings.spark_from_bytes)


def choose(preference: Preference, bytes: int, *, needs_spark: str = "") -> Choice:
    """The engine for a batch of so many decoded bytes. `needs_spark`: why only Spark can do it; empty if both can.

    With `engine` = `local`, the choice is local even if Spark is needed; the caller then refuses the batch.
    """
    if preference.engine == LOCAL:
        return Choice(LOCAL, "the setting `engine` says local")
    if needs_spark:
        return Choice(SPARK, needs_spark)
    if preference.engine == SPARK:
        few = min(SMALL_BYTES, preference.from_bytes or SMALL_BYTES)
        does = f"; its driver does up to {_size(few)} itself" if bytes <= few else ""
        return Choice(SPARK, f"the setting `engine` says spark{does}")
    if preference.spark_given or preference.spark == READY:
        if bytes >= preference.uses_from:
            return Choice(SPARK, f"the batch has {_size(bytes)}, Spark is used from {_size(preference.uses_from)}")
        return Choice(LOCAL, f"the batch has {_size(bytes)}, less than {_size(preference.uses_from)}")
    waits, starts = max(bytes, preference.waiting), preference.from_bytes or FROM_BYTES
    waiting = _size(waits)
    if preference.spark == COLD:
        pays = starts - starts // _DONE_MEANWHILE
        if waits >= pays and bytes >= preference.uses_from:
            return Choice(SPARK, f"{waiting} wait, and Spark has started")
        return Choice(LOCAL, f"{waiting} wait, the first tasks of Spark pay from {_size(pays)}")
    if preference.spark == STARTING:
        return Choice(LOCAL, f"{waiting} wait, and Spark is starting for the batches after this one")
    if preference.spark:
        return Choice(LOCAL, f"{waiting} wait, and Spark cannot help: {preference.spark}")
    return Choice(LOCAL, f"{waiting} wait, Spark is started from {_size(starts)}")


def _size(bytes: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes >= size:
            return f"{bytes / size:.1f} {unit}"
    return f"{bytes} bytes"


class Engines:
    """The engines with these settings, and the session. `start_spark`: returns one, or raises SetupError if it cannot
    start. `spark`: a session that runs already.

    `get` raises SetupError `spark-workers` for a session whose Python workers cannot run tasks.
    """

    def __init__(
        self, settings: ProcessSettings, start_spark: Callable[[], SparkSession], spark: SparkSession | None = None
    ) -> None:
        self.spark = spark  # the session, once it was needed
        self._settings = settings
        self._start_spark = start_spark
        self._preference = preference_of(settings, spark_given=spark is not None)
        self.index = key_index(settings)
        self._local: Engine = local_engine(settings.memory, self.index)
        self._by_spark: Engine | None = None
        self._starting = threading.Lock()
        self._asking = threading.Lock()  # for a session, also without an engine
        self._background: BackgroundStart | None = None
        self._is_cold = True  # Spark has done nothing yet
        self._waiting: dict[object, int] = {}  # decoded bytes, by table

    def get(self, name: str) -> Engine:
        """The engine of this name, `local` or `spark`. Only calls for `spark` wait for Spark's start."""
        if name != SPARK:
            return self._local
        engine = self._started()
        self._is_cold = False
        return engine

    def waits(self, table: object, files: Iterable[Waiting] = ()) -> None:
        """The change files of a table that wait, as its last look found them."""
        decoded = sum([file.decoded for file in files])
        if decoded:
            self._waiting[table] = decoded
        else:
            self._waiting.pop(table, None)

    def preference(self) -> Preference:
        """What is known before a batch is planned. If much waits, `auto` starts Spark in the background."""
        preference, waiting = self._preference, sum(list(self._waiting.values()))
        if preference.engine != AUTO or preference.spark_given:
            return preference
        is_much = waiting >= (preference.from_bytes or FROM_BYTES)
        if self._background is None and is_much:
            from lakemirror.engines.background_start import BackgroundStart

            with _making:
                self._background = self._background or BackgroundStart(self._settings, self._started)
        background, spark = self._background, READY if self._by_spark is not None else ""
        if background is not None:
            if is_much:
                background.ask()
            ready = COLD if self._is_cold else READY
            spark = STARTING if background.is_starting else ready if background.is_ready else background.reason
        return preference._replace(waiting=waiting, spark=spark)

    def goes_on_without_spark(self, error: LakemirrorError, begun: float, *, is_gone: bool) -> bool:
        """True if the local engine takes over after this error of a Spark that `auto` has started by itself.

        `begun`: when the failed work began, as of `time.monotonic`. `is_gone`: Spark's process has ended.
        """
        if self._background is None or not (is_gone or error.code.startswith("spark-")):
            return False
        if not self._background.give_up(error, begun):
            return False
        with self._starting:
            self._by_spark, self._is_cold = None, True
        if is_gone:
            self._forget_session()
        return True

    def session(self) -> SparkSession:
        """The session; started if there is none. SetupError if it cannot start."""
        with self._asking:
            if self.spark is None:
                self.spark = self._start_spark()
            return self.spark

    def index_keys(self, target: Target, adds: Sequence[Action]) -> None:
        """Has the key index of merged data files built soon. Does not wait."""
        if self.index is not None:
            for add in adds:
                self.index.want(add, target)

    def _forget_session(self) -> None:
        """Forgets a session whose process has ended, so that another one can be started."""
        from lakemirror.spark_session import session

        with self._asking:
            gone, self.spark = self.spark, None
        if gone is not None:
            session.stop(gone)

    def _started(self) -> Engine:
        with self._starting:
            if self._by_spark is None:
                self._by_spark = self._spark()
            return self._by_spark

    def _spark(self) -> Engine:
        from lakemirror.engines.spark import SparkEngine
        from lakemirror.engines.spark.jobs import spark_errors
        from lakemirror.spark_session.python_workers import interpreter_for, is_local

        session = self.session()
        with spark_errors("asking the Python workers"):
            interpreter = interpreter_for(session)
        few = min(SMALL_BYTES, self._settings.spark_from_bytes or SMALL_BYTES)
        engine: Engine = SparkEngine(
            session, memory=self._settings.memory, few_bytes=few, index=self.index, interpreter=interpreter,
            keys_here=is_local(session) and few == SMALL_BYTES,
        )  # fmt: skip
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
