"""A mirrored database: what `import lakemirror` and the command line both offer.

MirroredDatabase("shop").sync()     one pass: everything that is there is applied
MirroredDatabase("shop").run()      until stopped
MirroredDatabase("shop").status()   without a JVM
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lakemirror.engines.engine import key_index
from lakemirror.errors import LakemirrorError
from lakemirror.executions.execution import Execution
from lakemirror.executions.execution_log import ExecutionLog, read_executions
from lakemirror.landing_zone.database_folder import require_zone
from lakemirror.landing_zone.findings import Warned, lasting
from lakemirror.landing_zone.partner_events import read_partner
from lakemirror.landing_zone.zone import TableName, scan
from lakemirror.mirror.apply import Applied
from lakemirror.mirror.dropped_tables import MISSING
from lakemirror.mirror.observer import Observer
from lakemirror.mirror.scheduler import PATIENCE, Scheduler
from lakemirror.mirror.status_writer import StatusWriter
from lakemirror.mirror.step import Replicator
from lakemirror.mirror.table_rules import allowed
from lakemirror.mirror.table_state import status_now
from lakemirror.mirror.table_states import TableStates
from lakemirror.settings.settings import Settings, read_definition, resolve
from lakemirror.settings.spelling import unknown_settings
from lakemirror.status import status as monitoring
from lakemirror.status.status import needing_attention
from lakemirror.status.status_reader import last_status
from lakemirror.storage import Place, Storage
from lakemirror.storage.place import storage_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakemirror.mirror import operations
    from lakemirror.mirror.cut_versions import Cut, Cuts
    from lakemirror.mirror.loop import Runner
    from lakemirror.readers.catalog_entries import Registered

_SOON = 2.0  # seconds: a pass waits for tables that are due so soon again,
_LONGEST_WAIT = 5.0  # and for all of them no longer than this while nothing is committed
_SLICE = 0.2  # seconds after which a pass asks whether it is to stop


@dataclass
class TableResult:
    """What one pass applied to one table: numbers of commits, files, changes and bytes. `error`: why it stopped."""

    commits: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    error: LakemirrorError | None = None


@dataclass
class SyncResult:
    """What one pass did. `tables`: the result of each table that did something or needs attention, by name.

    `dropped`: the tables that were dropped. `warnings`: warnings about the database. `failed`: the errors of tables.
    `attention`: what has no error and will not be applied before a person changes something, such as a table folder in
    which every file is ignored; by table or place.
    """

    tables: dict[str, TableResult] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    seconds: float = 0.0
    started_spark: bool = False
    warnings: tuple[Warned, ...] = ()
    attention: dict[str, Warned] = field(default_factory=dict)

    @property
    def failed(self) -> dict[str, LakemirrorError]:
        """The tables that need attention."""
        return {name: t.error for name, t in self.tables.items() if t.error is not None}


class MirroredDatabase:
    """A mirrored database: a landing zone, and the Delta tables that mirror it.

    `path`: the folder that holds `Files/LandingZone`, or its address in an object store. `spark`: a session to use
    instead of starting one. `storage_options`: options of the object store. Further keywords are settings, such as
    `engine="local"`.
    """

    def __init__(
        self, path: str | os.PathLike[str] | Place, *, spark: SparkSession | Sequence[str] | None = None,
        storage: Storage | None = None, storage_options: Mapping[str, str] | None = None, **settings: Any,
    ) -> None:  # fmt: skip
        """`settings` are those of the class `Settings`, by name; they win over environment and definition.

        `path`: a local folder, or the address of an object store (`s3://`, `az://`, `abfss://`, `gs://`), which
        `storage_options` are for, over the environment: `{"AWS_ENDPOINT_URL": …}`. `spark`: a session to use as it
        is, or the setting `spark`, as a list of KEY=VALUE.
        LakemirrorError `definition-invalid`, `setting-invalid`, and what the store raises.
        """
        self.storage: Storage = storage or storage_of(path, storage_options)
        if isinstance(spark, list | tuple):
            settings["spark"], spark = spark, None
        self._given: Any = spark
        self.flags = settings
        self._runner: Runner | None = None
        self._earlier: Scheduler | None = None  # of the last pass
        self._executions: ExecutionLog | None = None  # of all passes
        self._writer: StatusWriter | None = None  # of the last pass
        self._taking = threading.Lock()
        definition = read_definition(self.storage)
        self._setting_warnings = unknown_settings(definition)
        self.settings: Settings = allowed(resolve(definition, **self.flags))

    def sync(self, observer: Observer | None = None, stop: threading.Event | None = None) -> SyncResult:
        """Applies every complete change file that is there now, up to the first gap. Returns what was done.

        Starts Spark only if a table needs it. An error of one table is in its result and is not raised; a table that
        needs Spark gets a SetupError if Spark cannot start. Once `stop` is set, no further commit begins. Error:
        `database-missing`.
        """
        begun = time.monotonic()
        stop = stop or threading.Event()
        with self._taking:  # one pass at a time uses them
            earlier, self._earlier = self._earlier, None
        if earlier is None:
            require_zone(self.storage)
            self.storage.probe()
        collected = _Collector()
        executions = self._executions = self._executions or ExecutionLog(self.storage, self.settings)
        start_spark = partial(_start_spark, self.settings)
        before = (self._writer.unchanged() if self._writer is not None else None) or last_status(self.storage)
        observers = (executions, collected, *([observer] if observer is not None else ()))
        tables = TableStates(observers, before.tables, self.settings.retry_limit)
        tables.maintained = executions.maintained
        scheduler = Scheduler(
            self.storage, self.settings, start_spark, spark=self._given, tables=tables, earlier=earlier
        )
        readers = None
        if self.settings.readers:
            from lakemirror.mirror.declared_readers import DeclaredReaders

            readers = DeclaredReaders(self.settings.readers, self.storage.uri, executions.maintained)
        unmet: list[Warned] = []
        self._writer = writer = StatusWriter(self.storage, before)
        try:
            self._pass(scheduler, stop)
            if readers is not None and not stop.is_set():
                readers.step(scheduler, scheduler.engines.session, again=True)
                unmet = list(readers.warnings.values())
            writer.warnings = [*self._setting_warnings, *unmet]
            writer.write("Stopped", scheduler)
        finally:
            scheduler.stop(PATIENCE if stop.is_set() else None)
        executions.carry_at_end()
        self._earlier = scheduler if scheduler.is_idle and not stop.is_set() else None
        started = scheduler.engines.spark is not self._given
        result = SyncResult(
            collected.tables, collected.gone, time.monotonic() - begun, started, tuple(self._setting_warnings)
        )
        for name, state in scheduler.states.items():
            if state.error is not None:
                result.tables.setdefault(str(name), TableResult()).error = state.error
        if not stop.is_set():
            found = [*scheduler.zone.warnings, *unmet]
            result.attention = needing_attention(scheduler.tables.rows(), found)
        return result

    def index_keys(self, most: float, stop: threading.Event) -> None:
        """Builds the key indexes that the last `sync` lacked, for at most so many seconds, until `stop` is set.

        Without it, they are built by threads that end with the process: each pass of a short process reads all keys.
        """
        index = key_index(self.settings)
        if index is not None:
            index.wait(most, stop.is_set)

    def _pass(self, scheduler: Scheduler, stop: threading.Event) -> None:
        """Lists the landing zone once, and waits for every table that has work, or is due soon: delimited text is
        complete once it has been seen twice, and transient errors get a few more tries.
        """
        if stop.is_set():
            return
        scheduler.tick()
        idle = 0.0
        while not scheduler.wait(_SLICE, _SOON if idle < _LONGEST_WAIT else 0.0):
            if stop.is_set():
                scheduler.request_stop()
                scheduler.wait(PATIENCE)
                return
            idle += 0.0 if scheduler.at_work else _SLICE

    def run(self, stop: threading.Event | None = None, *observers: Observer) -> None:
        """Applies change files when they arrive, until `stop` is set. Running commits end before it returns."""
        from lakemirror.mirror.loop import Runner

        self._runner = Runner(
            self.storage,
            self._resolve,
            partial(_start_spark, long_lived=True),
            observers=observers,
            spark=self._given,
        )
        self._runner.run(stop or threading.Event())

    @property
    def has_looked(self) -> bool:
        """True once `run` has listed the landing zone."""
        return self._runner is not None and self._runner.has_looked

    def abandon(self) -> None:
        """Writes the status `Stopped` while threads of `run` still work: for a process that ends without waiting for
        them.
        """
        if self._runner is not None:
            self._runner.abandon()

    def status(self) -> monitoring.DatabaseStatus:
        """The state of every table. It starts no JVM and changes nothing. Error: `database-missing`."""
        return current_status(self.storage, self.settings, self._setting_warnings)

    def log(self, table: str = "", since: float = 86_400.0) -> list[Execution]:
        """What happened in the last `since` seconds, oldest first: applies, errors, drops, maintenance.

        `table`: of one table alone, such as `sales.orders`. Error: `database-missing`.
        """
        require_zone(self.storage)
        return read_executions(self.storage, self.settings, table, time.time() - since)

    def cuts(self) -> Cuts:
        """The cuts that publishers declared, newest first, to iterate over. They are read one by one, without a JVM.

        Error: `database-missing`.
        """
        from lakemirror.mirror.cut_versions import Cuts

        require_zone(self.storage)
        return Cuts(self.storage, self.settings.default_schema, self.settings.retention_in_days)

    def cut(self, which: str | int = "last") -> Cut:
        """One cut: the newest that every table has reached, or that of a number. `versions` says which version of each
        Delta table it is, `snippets()` how each tool reads them. Errors: `cut-unknown`, `database-missing`.
        """
        return self.cuts().find(str(which))

    def register(self, spark: SparkSession | None, schema: str = "", catalog: str = "") -> Registered:
        """Makes the tables external tables of a catalog of the session, and drops the entries of tables that are gone.

        `spark`: None for Unity Catalog by its REST interface. `schema`: the catalog's schema of tables without one;
        empty: the name of the database's folder. `catalog`: empty: the current one. An error of one table is in the
        result. Errors: `database-missing`, `catalog-refused`.
        """
        from lakemirror.readers.catalog_entries import Catalog, register
        from lakemirror.readers.catalog_of_spark import CatalogOfSpark
        from lakemirror.readers.catalog_of_unity import unity_catalog
        from lakemirror.readers.table_readers import readable_tables

        folder = self.storage.uri().rstrip("/")
        own = dict(self.settings.spark)
        found: Catalog | None = unity_catalog(
            catalog, lambda key: own.get(key, "") if spark is None else str(spark.conf.get(key, ""))
        )
        if found is None and spark is not None:
            found = CatalogOfSpark(spark, catalog)
        if found is None:
            raise LakemirrorError("catalog-refused", f"{catalog or 'the current catalog'} is known to a session alone")
        return register(found, folder, readable_tables(folder), schema or folder.rpartition("/")[2])

    def pause(self, table: str) -> operations.Outcome:
        """Stops every engine from applying the table's change files, until `resume`. Error: `table-unknown`."""
        from lakemirror.mirror import operations

        require_zone(self.storage)
        return operations.pause(self.storage, table)

    def resume(self, table: str) -> operations.Outcome:
        """Ends a pause. Error: `table-unknown`."""
        from lakemirror.mirror import operations

        require_zone(self.storage)
        return operations.resume(self.storage, table)

    def resync(self, table: str, *, purge_deleted: bool = False) -> operations.Outcome:
        """Makes the next pass build the table again from its applied files. `purge_deleted`: instead removes the rows
        that soft deletes keep, at once.

        Errors: `table-unknown`, `archive-incomplete`, `concurrent-commit`.
        """
        from lakemirror.mirror import operations

        require_zone(self.storage)
        if purge_deleted:
            settings = self.settings
            return operations.purge_deleted(self.storage, table, settings.default_schema, settings.tables)
        return operations.resync(self.storage, table, self.settings.default_schema)

    def replay(self, table: str, file: str = "") -> operations.Outcome:
        """Makes the next pass apply quarantined files in their order. `file`: one name; empty: all.

        Errors: `table-unknown`, `archive-incomplete`.
        """
        from lakemirror.mirror import operations

        require_zone(self.storage)
        return operations.replay(self.storage, table, file, self.settings.default_schema, self.settings.tables)

    def drop_history(self, table: str) -> operations.Outcome:
        """Moves the history tables of a table to `Files/_DroppedTables`. Error: `table-unknown`."""
        from lakemirror.mirror.history import history_operations

        require_zone(self.storage)
        return history_operations.drop_history(self.storage, table, self.settings)

    def build_history(self, table: str) -> operations.Outcome:
        """Makes the history tables of a table again from its applied files, up to where the table is.

        Errors: `table-unknown`, `history-incomplete`, `concurrent-commit`.
        """
        from lakemirror.mirror.history import history_operations

        require_zone(self.storage)
        return history_operations.build_history(self.storage, table, self.settings)

    def restore(self, table: str) -> operations.Outcome:
        """Puts a dropped table back under `Tables/`. Error: `table-unknown`."""
        from lakemirror.mirror import operations

        require_zone(self.storage)
        return operations.restore(self.storage, table, self.settings.default_schema)

    def _resolve(self) -> Settings:
        """The settings as `mirroring.json` has them now."""
        return allowed(resolve(read_definition(self.storage), **self.flags))


def current_status(storage: Storage, settings: Settings, of_settings: Sequence[Warned]) -> monitoring.DatabaseStatus:
    """The state of every table with these settings, now. `of_settings`: the warnings about them. `database-missing`."""
    from lakemirror.mirror.declared_readers import UNMET

    require_zone(storage)
    zone = scan(storage)
    stored = last_status(storage)
    last = {table.name: table for table in stored.tables}
    tables, now = [], time.time()
    for name, folder in zone.tables.items():
        look = Replicator(storage, name, allowed(settings, str(name))).observe(folder, mark=False)
        tables.append(status_now(name, look, last.pop(str(name), None), now))
    partner, warned = read_partner(storage, zone)
    targets = {name.target(settings.default_schema) for name in zone.tables}
    missing = [each for each in stored.warnings if each.code == MISSING and each.file not in targets]
    of_the_last_pass = (UNMET, "drop-postponed")
    kept = [each for each in stored.warnings if each.code in of_the_last_pass or each.code.startswith("verify-")]
    found = (*zone.warnings, *([warned] if warned else ()), *missing, *of_settings, *kept)
    absent = {each.file for each in missing}
    tables += [
        row for row in last.values() if TableName(row.schema, row.table).target(settings.default_schema) in absent
    ]
    return replace(stored, tables=tuple(tables), warnings=lasting(stored.warnings, found, now), partner=partner)


def _start_spark(settings: Settings, *, long_lived: bool = False) -> SparkSession:
    """A session. `long_lived`: for more than a pass; where it has Delta's SQL, its JVM then computes faster."""
    from lakemirror.spark_session import session as spark

    delta = bool(settings.readers)  # dropping a feature may need Delta's SQL
    return spark.start(settings, delta=delta, short=not long_lived)


class _Collector:
    """Adds up the results of a pass."""

    def __init__(self) -> None:
        self.tables: dict[str, TableResult] = {}
        self.gone: list[str] = []
        self._lock = threading.Lock()

    def applied(self, name: TableName, applied: Applied) -> None:
        with self._lock:
            result = self.tables.setdefault(str(name), TableResult())
            result.commits += 1
            result.files += len(applied.batch.files)
            result.rows += applied.batch.rows
            result.bytes += applied.batch.bytes

    def failed(self, name: TableName, error: LakemirrorError) -> None:
        """Does nothing: an error that lasts is in the table's state when the pass ends."""

    def dropped(self, target: str) -> None:
        self.gone.append(target)
