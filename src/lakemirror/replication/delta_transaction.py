"""One Delta transaction on a snapshot that has been looked at first.

Delta's public writers check an application id for "already this version or higher" and nothing else: a second engine
that planned from an older position and found one file more would pass that check and apply the shared files twice.
So the transaction is opened here on the very snapshot whose position was compared with the planned one; any commit in
between then carries the same application id and Delta refuses ours (`docs/decisions/001-pinned-transaction.md`).
As a gain, deletes, new rows, columns and position are one commit in every case, also where no row survives.

This is Delta Spark's `OptimisticTransaction`, reached through Py4J: internal classes, so only this module names them.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from lakemirror.delta.checkpoint import write_checkpoint
from lakemirror.delta.log import read_snapshot
from lakemirror.errors import LakemirrorError, SetupError
from lakemirror.replication.deletion_vectors import mark_deleted

log = logging.getLogger("lakemirror")

_CONCURRENT = "org.apache.spark.sql.delta.DeltaConcurrentModificationException"
_CONCURRENT_STORAGE = "io.delta.exceptions.DeltaConcurrentModificationException"


class DeltaTransaction:
    """An open transaction. `version` is the snapshot's, -1 where the table does not exist yet.

    Every method may raise LakemirrorError `concurrent-commit`, or what Spark raises for a failing job.
    """

    def __init__(self, spark: SparkSession, path: str, *, fresh: bool) -> None:
        self._spark = spark
        self._path = path
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._delta = self._jvm.org.apache.spark.sql.delta
        self._none = _scala_object(self._jvm, "scala.None")
        self._actions: list[Any] = []
        try:
            self._reader = _scala_object(jvm, "org.apache.spark.sql.delta.actions.Action")
            type(spark)._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)
            if fresh:
                self.forget()
            self._log = self._delta.DeltaLog.forTable(spark._jsparkSession, path)
            self._snapshot = self._log.update(False, self._none, self._none)
            self._txn = self._log.startTransaction(self._none, self._some(self._snapshot))
        except (Py4JError, TypeError, AttributeError) as error:
            if isinstance(error, Py4JJavaError):
                raise
            raise SetupError("spark-unsupported", f"this Spark has no usable Delta Lake 4.4: {error}") from error
        self.version: int = self._snapshot.version()

    @property
    def metadata(self) -> dict[str, Any]:
        """The snapshot's `metaData` action as in the log; empty for a new table."""
        if self.version < 0:
            return {}
        found: dict[str, Any] = json.loads(self._snapshot.metadata().json())["metaData"]
        return found

    def depend_on(self, app_id: str) -> None:
        """Makes the commit fail where another one has moved this application's `txn` action since the snapshot.

        Delta checks that for applications whose version was asked of the transaction. Asking reconstructs the
        table's state in Spark, so the name alone is put where the asking would put it.
        """
        self._txn.readTxn().addOne(app_id)

    def set_metadata(self, metadata: Mapping[str, Any], *, replace: bool = False) -> None:
        """Sets columns and properties; `replace` also where columns go or change. Before anything is written."""
        action = self._action({"metaData": dict(metadata)})
        if replace:
            self._txn.updateMetadataForTableOverwrite(action)
        else:
            self._txn.updateMetadata(action, False)

    def delete(self, matching: DataFrame, *, without_change_rows: bool = False) -> None:
        """Deletes the rows of the table that `matching` holds: one filter on a plain read of this table.

        By deletion vectors where the table has them. `without_change_rows`: the caller writes the change data feed.
        """
        actions = mark_deleted(self._spark, self._log, self._snapshot, matching)
        if actions is not None:
            self._actions += actions
            return
        plan = matching._jdf.queryExecution().analyzed()
        command = self._delta.commands.DeleteCommand(self._log, self._none, plan.child(), self._some(plan.condition()))
        found = command.performDelete(self._spark._jsparkSession, self._log, self._txn)._1()
        self._add(found, but="AddCDCFile" if without_change_rows else "")

    def delete_by_vectors(self, matching: DataFrame, files: Mapping[str, Mapping[str, Any]]) -> bool:
        """Deletes the rows that `matching` finds in these files, given as `add` actions by their names.

        False where Delta's own command has to do it; then nothing was deleted.
        """
        adds = {name: self._action({"add": dict(add)}) for name, add in files.items()}
        actions = mark_deleted(self._spark, self._log, self._snapshot, matching, adds)
        self._actions += actions or []
        return actions is not None

    def delete_all(self) -> None:
        """Deletes every row, by files."""
        removed = int(time.time() * 1000)
        files = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(self._txn.filterFiles())
        self._actions.extend(file.removeWithTimestamp(removed, True) for file in files)

    def write(self, rows: DataFrame) -> None:
        """Writes rows as new data files; a column `_change_type` makes change-data rows of those where it is set."""
        self._add(self._txn.writeFiles(rows._jdf))

    def commit(self, transactions: Mapping[str, int], *, manifest: str, mode: str) -> int:
        """Commits everything with a `txn` action per application id, and the manifest; returns the new version."""
        now = int(time.time() * 1000)
        for app_id, number in transactions.items():
            self._actions.append(self._action({"txn": {"appId": app_id, "version": number, "lastUpdated": now}}))
        jvm_mode = getattr(self._jvm.org.apache.spark.sql.SaveMode, mode)
        nothing = [self._none] * 5
        operation = self._delta.DeltaOperations.Write(jvm_mode, self._none, self._none, self._some(manifest), *nothing)
        actions = self._jvm.java.util.ArrayList()
        for action in self._actions:
            actions.add(action)
        committed: int = self._txn.commit(
            self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq(), operation
        )
        interval = int(self.metadata.get("configuration", {}).get("delta.checkpointInterval", "10"))
        if committed and committed % 10 == 0 and committed % interval:
            self._write_checkpoint(committed)
        return committed

    def forget(self) -> None:
        """Makes the next transaction of this process read the table's log from its beginning."""
        forget(self._spark, self._path)

    def _write_checkpoint(self, version: int) -> None:
        """A checkpoint without a Spark job, between those that Delta writes; without it the log is only longer."""
        try:
            snapshot = read_snapshot(self._path, version)
            if snapshot is not None:
                write_checkpoint(snapshot)
        except (LakemirrorError, OSError, ValueError) as error:
            log.warning("%s: no checkpoint %d: %s", self._path, version, error)

    def _add(self, actions: Any, but: str = "") -> None:
        for action in self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(actions):
            if not but or action.getClass().getSimpleName() != but:
                self._actions.append(action)

    def _action(self, content: Mapping[str, Any]) -> Any:
        return self._reader.fromJson(json.dumps(content))

    def _some(self, value: Any) -> Any:
        return self._jvm.scala.Some(value)


@contextmanager
def transaction(spark: SparkSession, path: str, *, fresh: bool = False) -> Iterator[DeltaTransaction]:
    """A transaction on the newest snapshot of the table at `path`, which need not exist yet.

    `fresh` forgets what this process knows of the table: one that left its place may have been another one.
    Not to be nested within one thread. Leaving the block without `commit` leaves the table as it was; data files that
    were written stay behind until VACUUM. LakemirrorError `concurrent-commit` when another commit was in the way.
    """
    opened = DeltaTransaction(spark, path, fresh=fresh)
    active = _scala_object(opened._jvm, "org.apache.spark.sql.delta.OptimisticTransaction")
    active.setActive(opened._txn)
    try:
        yield opened
    except Py4JJavaError as error:
        if is_concurrent(error):
            raise LakemirrorError("concurrent-commit", f"another commit was faster: {_first_line(error)}") from error
        raise
    finally:
        active.clearActive()


def forget(spark: SparkSession, path: str) -> None:
    """Makes Delta in this JVM read the log of the table at `path` from its beginning."""
    jvm: Any = spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog
    log.invalidateCache(spark._jsparkSession, jvm.org.apache.hadoop.fs.Path(path))


def is_concurrent(error: Py4JJavaError) -> bool:
    """True where Delta refused a commit because of another one."""
    thrown = error.java_exception
    while thrown is not None:
        kind = thrown.getClass()
        while kind is not None:
            if kind.getName() in (_CONCURRENT, _CONCURRENT_STORAGE):
                return True
            kind = kind.getSuperclass()
        thrown = thrown.getCause()
    return False


def _first_line(error: Py4JJavaError) -> str:
    return str(error.java_exception.getMessage()).splitlines()[0]


def _scala_object(jvm: Any, name: str) -> Any:
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return jvm.java.lang.Class.forName(f"{name}$", True, loader).getField("MODULE$").get(None)
