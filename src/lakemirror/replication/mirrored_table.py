"""An apply by Spark: one commit through Delta's own transaction, for whatever `direct_table` leaves.

position = the table's own `txn` action ─▶ apply(batch) ─▶ rows + columns + position + manifest, one commit
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakemirror import failpoints
from lakemirror.delta.delta_at_work import delta_at_work
from lakemirror.delta.protocol import FEED, MAPPING
from lakemirror.delta.schema import Column, from_delta
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.formats import FILE, MARKER, ROW, Scan, read_changes
from lakemirror.landing_zone.row_markers import INSERT, ROW_MARKER, UPSERT
from lakemirror.replication import changes, find, table_commit
from lakemirror.replication.apply_work import Applied, Limits, Work
from lakemirror.replication.batch import CONSTANT, Batch, BatchFile
from lakemirror.replication.change_feed import with_change_rows
from lakemirror.replication.delta_transaction import DeltaTransaction, forget, transaction
from lakemirror.replication.position import Position
from lakemirror.replication.table_log import read_table_log

_SMALL_ROWS = 200_000  # a batch of at most so many rows is written as one file
_BROADCAST_ROWS = 1_000_000


class MirroredTable:
    """One Delta table that mirrors one table folder."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path

    def forget(self) -> None:
        """Makes this JVM read the table's log from its beginning: another table may have been there before."""
        forget(self._spark, self._path)

    def apply(
        self,
        work: Work,
        files: Sequence[Any],
        uri_of: Any,
        limits: Limits,
        trust_statistics: bool = True,
    ) -> tuple[Applied | None, TableError | None]:
        """Applies the longest run of `files` that can be one commit.

        Returns what was applied (None where the very first file is bad), and the error of the file behind it, if
        that one is bad. Raises LakemirrorError `concurrent-commit` when the table is no longer where `work` says,
        and TableError for a bad row or an unreadable page: then nothing was applied.
        """
        with delta_at_work(self._path), self._expected(work) as txn:
            before = () if work.replaces or txn.version < 0 else from_delta(txn.metadata["schemaString"])
            batch, error = table_commit.next_of(work, files, before, limits, trust_statistics)
            if batch is None:
                return None, error
            mapping_first = table_commit.needs_mapping_first(txn.metadata, work, batch)
            try:
                if not mapping_first:
                    return self._commit(txn, work, batch, before, uri_of), error
                work = self._turn_on_mapping(txn, work, batch)
            except (Py4JJavaError, PySparkException) as failure:
                raise _row_error(failure, batch) or failure from failure
        return self.apply(work, files, uri_of, limits, trust_statistics)

    def _turn_on_mapping(self, txn: DeltaTransaction, work: Work, batch: Batch) -> Work:
        """Column mapping in a commit of its own, without rows, where Delta wants that; the work that is left.

        An existing table keeps its position. A new one gets the position 0: dying behind this commit is as dying
        before the first apply.
        """
        if txn.version >= 0:
            configuration = {**txn.metadata["configuration"], MAPPING: "name"}
            txn.set_metadata({**txn.metadata, "configuration": configuration})
            txn.commit({}, manifest="", mode="Append")
            return work
        begun = Position(work.identity, work.generation, 0)
        txn.set_metadata(table_commit.metadata({}, work, batch, work.detection, by_delta=True))
        txn.commit({begun.app_id: 0}, manifest="", mode="Append")
        return replace(work, expected=begun)

    @contextmanager
    def _expected(self, work: Work) -> Iterator[DeltaTransaction]:
        """A transaction on a snapshot that is where `work` says."""
        with transaction(self._spark, self._path, fresh=work.expected is None) as txn:
            # from the log, not from Delta's snapshot: asking that costs a Spark job or three
            at = read_table_log(self._path, txn.version) if txn.version >= 0 else None
            found = at.position if at else None
            try:
                table_commit.check_expected(work, found, self._path, exists=txn.version >= 0)
            except LakemirrorError:
                txn.forget()
                raise
            for position in (found, Position(work.identity, work.generation, 0)):
                if position is not None:
                    txn.depend_on(position.app_id)
            yield txn

    def _commit(
        self, txn: DeltaTransaction, work: Work, batch: Batch, before: Sequence[Column], uri_of: Any
    ) -> Applied:
        detection = table_commit.recorded(work, batch, self._path)
        metadata = table_commit.metadata(txn.metadata, work, batch, detection, by_delta=True)
        if metadata != txn.metadata:
            txn.set_metadata(metadata, replace=work.replaces)
        if work.replaces:
            txn.delete_all()
        exists = txn.version >= 0 and not work.replaces
        failpoints.reach("apply.before-write")
        if batch.rows:
            self._spark.conf.set("spark.sql.shuffle.partitions", str(self._partitions(batch)))
            rows = self._changes(work, batch, uri_of)
            if batch.append_only or not work.key_columns:
                txn.write(_sized(changes.inserts(rows), batch))
            else:
                feed = exists and metadata["configuration"].get(FEED, "").lower() == "true"
                self._write_net_effect(txn, rows, work.key_columns, batch, before if exists else (), feed)
        position = table_commit.new_position(work, batch)
        manifest = table_commit.manifest(work, batch, detection)
        failpoints.reach("apply.before-commit")
        version = txn.commit(
            table_commit.transactions(position, batch),
            manifest=manifest.to_json(),
            mode="Append" if batch.append_only and exists else "Overwrite",
        )
        failpoints.reach("apply.after-commit")
        return Applied(batch, position, manifest, version)

    def _partitions(self, batch: Batch) -> int:
        """As many as the cores can work at for a batch of some size, more where each would be too large."""
        cores = self._spark.sparkContext.defaultParallelism
        return max(min(cores, 1 + batch.rows // 20_000), batch.rows // 2_000_000)

    def _changes(self, work: Work, batch: Batch, uri_of: Any) -> DataFrame:
        shapes: dict[Any, list[Any]] = {}
        for item in batch.files:
            shapes.setdefault(item.shape, []).append(item)
        scans = []
        absent = []
        for items in shapes.values():
            names = {c.name.lower() for c in items[0].columns}
            marker = ROW_MARKER if any(c.name == ROW_MARKER for c in items[0].columns) else None
            scans.append(Scan(tuple(uri_of(i.file.path) for i in items), items[0].columns, marker, _constants(items)))
            if any(key.lower() not in names for key in work.key_columns):
                absent += [i.file.number for i in items]
        table = [(c.name, c.type) for c in batch.columns]
        default = UPSERT if work.upsert_by_default else INSERT
        return changes.checked(read_changes(self._spark, scans, table), default, work.key_columns, absent)

    def _write_net_effect(
        self,
        txn: DeltaTransaction,
        rows: DataFrame,
        key_columns: Sequence[str],
        batch: Batch,
        before: Sequence[Column],
        feed: bool,
    ) -> None:
        """Deletes what the batch clears and writes what survives; `before` empty means there is nothing to clear."""
        folded = changes.folded(rows, key_columns)
        view = f"lakemirror_{uuid.uuid4().hex}"
        if before:
            folded = folded.persist()
        try:
            survivors = changes.survivors(folded)
            if before:
                cleared = changes.clears(folded, key_columns)
                if batch.rows <= _BROADCAST_ROWS:
                    cleared = F.broadcast(cleared)
                cleared.createOrReplaceTempView(view)
                keys = find.Keys(view, key_columns, before, batch)
                plain = None if feed else find.touched_plainly(self._spark, self._path, txn.version, keys)
                if plain is None or (plain.files and not txn.delete_by_vectors(plain.rows, plain.files)):
                    touched = find.touched(self._spark, self._path, keys)
                    txn.delete(touched, without_change_rows=feed)
                    if feed:
                        survivors = with_change_rows(survivors, touched, key_columns)
            txn.write(_sized(survivors.drop(FILE, ROW, MARKER), batch))
        finally:
            if before:
                self._spark.catalog.dropTempView(view)
                folded.unpersist()


def _constants(items: Sequence[BatchFile]) -> dict[str, dict[int, str | None]]:
    """The columns that no file of one shape holds, with the value for each file's number."""
    names = [column.name for column in items[0].columns if column.encoding == CONSTANT]
    return {name: {item.file.number: dict(item.file.constants)[name] for item in items} for name in names}


def _sized(rows: DataFrame, batch: Batch) -> DataFrame:
    return rows.coalesce(1) if batch.rows <= _SMALL_ROWS else rows


def _row_error(failure: Exception, batch: Batch) -> TableError | None:
    paths = {f.file.number: f.file.entry.path for f in batch.files}
    return changes.refused_row(str(failure), paths)
