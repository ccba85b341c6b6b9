"""The mirror as a streaming query: each batch is one pass over the database, with the query's own session.

    landing zone ─▶ `arrivals`, a source whose offset is a look at it ─▶ batch: MirroredDatabase.sync ─▶ tables

Exactly once does not rest on the checkpoint: the position of each table is in the table (contract section 9). A batch
that is repeated applies nothing twice, and a query with a new checkpoint begins with a pass, which applies what is
there. So the checkpoint may be lost.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakemirror.errors import SetupError
from lakemirror.landing_zone.database_folder import require_zone
from lakemirror.landing_zone.zone import TableName
from lakemirror.publisher.spark_batches import store_options
from lakemirror.spark_session.python_workers import interpreter_for, running
from lakemirror.status.status_reader import last_status
from lakemirror.storage.place import local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from lakemirror.api import MirroredDatabase, SyncResult
    from lakemirror.maintenance.idle_work import Maintenance

log = logging.getLogger("lakemirror")

EVERY = "1 second"
"""How often the landing zone is looked at, unless `trigger` says otherwise. Spark's own default is not to wait."""

_ASKED_EVERY = 1.0  # seconds between two questions to Spark whether the query still runs


def mirror(
    spark: SparkSession, path: str | os.PathLike[str], *, credential: str = "", **settings: Any
) -> DataStreamWriter:
    """A stream that mirrors the database at `path`, ready for `trigger`, `queryName`, `option` and `start`.

    `start()` gives Spark's StreamingQuery. Its rows are the change files that arrived; `MirroredDatabase.status` says
    what became of them. With `trigger(availableNow=True)` it makes one pass and ends. `checkpointLocation` is optional.

    `credential`: a JSON file with the options of an object store, readable by driver and executors; else the
    environment counts. `settings`: as for `MirroredDatabase`. With Spark Connect the batches run on the server: `path`
    is a path there, and lakemirror must be installed there.

    An error of one table is in the status and does not end the query. An error of the whole database does, such as
    `database-missing`, `storage-unavailable` or `spark-workers`. With PySpark 3.5, which has no data sources in
    Python, each trigger makes a pass, and the query's rows say nothing.
    """
    address = str(path)
    is_remote = type(spark).__module__.startswith("pyspark.sql.connect")
    if not is_remote:
        folder = local_path(address)
        address = address if folder is None else str(folder.absolute())
        require_zone(_opened(address, credential, settings).storage)
    arrives = importlib.util.find_spec("pyspark.sql.datasource") is not None
    if arrives:
        from lakemirror.spark.arrivals import Arrivals

        with running(spark, interpreter_for(spark)):
            spark.dataSource.register(Arrivals)
        source = spark.readStream.format(Arrivals.name()).option("credential", credential)
        frame = source.load(address)
    else:
        frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    batch = Pass(address, credential, settings, arrives, None if is_remote else spark)
    name = f"lakemirror: {address.rstrip('/').rpartition('/')[2]}"
    return frame.writeStream.queryName(name).trigger(processingTime=EVERY).foreachBatch(batch)


@dataclass(frozen=True)
class Pass:
    """One pass over the database for each batch. Small: with Spark Connect it travels to the server.

    `reads`: the batch's rows are read, which makes them rows of the query's progress. `owner`: the classic session that
    started the query; a batch's frame has another one, which does not know it.
    """

    path: str
    credential: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    reads: bool = False
    owner: SparkSession | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Applies what is there. LakemirrorError if the whole database fails, SetupError if Spark cannot work."""
        if self.reads:
            frame.write.format("noop").mode("overwrite").save()
        database = _opened(self.path, self.credential, self.settings, frame.sparkSession)
        result = database.sync(stop=_Stopped(self.owner))
        _tell(batch, result)
        _maintain(database)


def _opened(
    path: str, credential: str, settings: Mapping[str, Any], spark: SparkSession | None = None
) -> MirroredDatabase:
    from lakemirror.api import MirroredDatabase

    options = store_options(credential) if credential else None
    return MirroredDatabase(path, spark=spark, storage_options=options, **settings)


class _Stopped(threading.Event):
    """Set once the query whose batch runs is stopped: Spark waits for the batch, which then begins no more commits."""

    def __init__(self, session: SparkSession | None) -> None:
        super().__init__()
        self._query = _query_of(session)
        self._asked = time.monotonic()

    def is_set(self) -> bool:
        """Asks Spark, at most once a second."""
        now = time.monotonic()
        if self._query is not None and now - self._asked >= _ASKED_EVERY and not super().is_set():
            self._asked = now
            if not self._query.isActive:
                self.set()
        return super().is_set()


def _query_of(session: SparkSession | None) -> Any:
    """The query whose batch this thread runs; None where Spark does not tell, as with Connect."""
    if session is None:
        return None
    query = session.sparkContext.getLocalProperty("sql.streaming.queryId")
    return next((each for each in session.streams.active if each.id == query), None)


def _tell(batch: int, result: SyncResult) -> None:
    """Logs what a pass did. Raises the error of Spark itself, which concerns all tables."""
    for name, error in result.failed.items():
        if isinstance(error, SetupError):
            raise error
        log.warning("%s: %s", name, error)
    files = sum(table.files for table in result.tables.values())
    rows = sum(table.rows for table in result.tables.values())
    log.info("batch %d: %d files with %d changes applied to %d tables", batch, files, rows, len(result.tables))


_maintained: dict[str, Maintenance] = {}


def _maintain(database: MirroredDatabase) -> None:
    """Starts a piece of idle work that is due, in a thread: compaction or vacuum of one table. Does not wait for it.

    The first pass of a process starts none: the process may have no other, and its end would wait for the piece.
    """
    from lakemirror.maintenance.idle_work import Maintenance

    storage, settings = database.storage, database.settings
    known = _maintained.get(storage.uri())
    if known is None:
        look_every = max(5.0, 10 * storage.capabilities.looks_last)
        made = Maintenance(
            storage.uri, settings.retention_in_days, durability=settings.durability, look_every=look_every
        )
        _maintained[storage.uri()] = made
    elif settings.maintenance:
        known.retain(settings.retention_in_days)
        tables = [table for table in last_status(storage).tables if table.last_sync is not None]
        known.step(TableName(table.schema, table.table).target(settings.default_schema) for table in tables)
