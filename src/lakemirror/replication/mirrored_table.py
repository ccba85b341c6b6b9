"""A mirrored table: where it is, and the one commit that an apply makes. Nothing else commits to it.

position = the table's own `txn` action ─▶ apply(batch) ─▶ rows + columns + position + manifest, one commit
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakemirror import failpoints
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.formats import FILE, MARKER, ROW, Scan, read_changes
from lakemirror.landing_zone.metadata import LAST_UPDATE
from lakemirror.replication import changes, direct, find
from lakemirror.replication.adoption import adopt, adoptable
from lakemirror.replication.applied_record import DETECTION_PROPERTY, AppliedPaths, Detection
from lakemirror.replication.apply_work import Applied, Work
from lakemirror.replication.batch import CONSTANT, Batch, BatchFile, next_batch
from lakemirror.replication.change_feed import with_change_rows
from lakemirror.replication.delta_transaction import DeltaTransaction, transaction
from lakemirror.replication.position import Manifest, Position, as_note
from lakemirror.replication.schema import ROW_MARKER, Column, from_delta, is_widened, needs_mapping, to_delta
from lakemirror.replication.table_log import KEYS_PROPERTY, read_table_log

IDENTITY_PROPERTY = "lakemirror.identity"
FEED_PROPERTY = "lakemirror.changeDataFeed"

_MAPPING = "delta.columnMapping.mode"
_FEED = "delta.enableChangeDataFeed"
_RETENTION = "delta.deletedFileRetentionDuration"

_SMALL_ROWS = 200_000  # a batch of at most so many rows is written as one file
_BROADCAST_ROWS = 1_000_000
_MOST_NOTES = 50


class MirroredTable:
    """One Delta table that mirrors one table folder."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path

    def apply(
        self,
        work: Work,
        files: Sequence[Any],
        uri_of: Any,
        *,
        most_files: int,
        most_bytes: int,
        trust_statistics: bool = True,
    ) -> tuple[Applied | None, TableError | None]:
        """Applies the longest run of `files` that can be one commit.

        Returns what was applied (None where the very first file is bad), and the error of the file behind it, if
        that one is bad. Raises LakemirrorError `concurrent-commit` when the table is no longer where `work` says,
        and TableError for a bad row or an unreadable page: then nothing was applied.
        """
        with self._expected(work) as txn:
            before = () if work.replaces or txn.version < 0 else from_delta(txn.metadata["schemaString"])
            batch, error = next_batch(
                files,
                before,
                work.key_columns,
                upsert_by_default=work.upsert_by_default,
                most_files=most_files,
                most_bytes=most_bytes,
                trust_statistics=trust_statistics,
                rules=work.rules,
            )
            if batch is None:
                return None, error
            mapping_first = _needs_mapping_first(txn, work, batch)
            try:
                if not mapping_first:
                    return self._commit(txn, work, batch, before, uri_of), error
                work = self._turn_on_mapping(txn, work, batch)
            except (Py4JJavaError, PySparkException) as failure:
                raise _row_error(failure, batch) or failure from failure
        return self.apply(
            work, files, uri_of, most_files=most_files, most_bytes=most_bytes, trust_statistics=trust_statistics
        )

    def _turn_on_mapping(self, txn: DeltaTransaction, work: Work, batch: Batch) -> Work:
        """Column mapping in a commit of its own, without rows, where Delta wants that; the work that is left.

        An existing table keeps its position. A new one gets the position 0: dying behind this commit is as dying
        before the first apply.
        """
        if txn.version >= 0:
            configuration = {**txn.metadata["configuration"], _MAPPING: "name"}
            txn.set_metadata({**txn.metadata, "configuration": configuration})
            txn.commit({}, manifest="", mode="Append")
            return work
        begun = Position(work.identity, work.generation, 0)
        txn.set_metadata(_metadata(txn, work, batch, work.detection))
        txn.commit({begun.app_id: 0}, manifest="", mode="Append")
        return replace(work, expected=begun)

    @contextmanager
    def _expected(self, work: Work) -> Iterator[DeltaTransaction]:
        """A transaction on a snapshot that is where `work` says."""
        with transaction(self._spark, self._path, fresh=work.expected is None) as txn:
            # from the log, not from Delta's snapshot: asking that costs a Spark job or three
            at = read_table_log(self._path, txn.version) if txn.version >= 0 else None
            found = at.position if at else None
            if found != work.expected:
                txn.forget()
                raise LakemirrorError("concurrent-commit", f"the table is at {found}, expected at {work.expected}")
            if found is None and txn.version >= 0:
                raise TableError("target-foreign", f"{self._path} holds a Delta table that lakemirror did not make")
            for position in (found, Position(work.identity, work.generation, 0)):
                if position is not None:
                    txn.depend_on(position.app_id)
            yield txn

    def _commit(
        self, txn: DeltaTransaction, work: Work, batch: Batch, before: Sequence[Column], uri_of: Any
    ) -> Applied:
        detection = self._recorded(work, batch)
        metadata = _metadata(txn, work, batch, detection)
        if metadata != txn.metadata:
            txn.set_metadata(metadata, replace=work.replaces)
        if work.replaces:
            txn.delete_all()
        exists = txn.version >= 0 and not work.replaces
        failpoints.reach("apply.before-write")
        if batch.rows and adoptable(batch, metadata) is None:
            txn.add_files(adopt(batch, self._path, uri_of))
        elif batch.rows and not self._written_directly(txn, work, batch, before if exists else (), metadata, uri_of):
            self._spark.conf.set("spark.sql.shuffle.partitions", str(self._partitions(batch)))
            rows = self._changes(work, batch, uri_of)
            if batch.append_only or not work.key_columns:
                txn.write(_sized(changes.inserts(rows), batch))
            else:
                feed = exists and metadata["configuration"].get("delta.enableChangeDataFeed", "").lower() == "true"
                self._write_net_effect(txn, rows, work.key_columns, batch, before if exists else (), feed)
        position = Position(work.identity, work.generation, batch.files[-1].file.number)
        manifest = _manifest(work, batch, detection)
        failpoints.reach("apply.before-commit")
        version = txn.commit(
            _transactions(position, batch),
            manifest=manifest.to_json(),
            mode="Append" if batch.append_only and exists else "Overwrite",
        )
        failpoints.reach("apply.after-commit")
        return Applied(batch, position, manifest, version)

    def _written_directly(
        self,
        txn: DeltaTransaction,
        work: Work,
        batch: Batch,
        before: Sequence[Column],
        metadata: Mapping[str, Any],
        uri_of: Any,
    ) -> bool:
        """Applies a small batch without a Spark job. False where that cannot be: then nothing was written."""
        mixed = bool(before) and not batch.append_only
        if direct.against(batch, metadata, work.key_columns) is not None:
            return False
        if mixed and metadata["configuration"].get(_FEED, "").lower() == "true":
            return False
        folded = direct.fold(
            batch, work.key_columns, changes.UPSERT if work.upsert_by_default else changes.INSERT, uri_of
        )
        if folded is None:
            return False
        if mixed and folded.clears.num_rows:
            files = find.plain_files(self._path, txn.version, txn.metadata, before, batch)
            found = None if files is None else direct.positions(self._path, files, folded.clears, batch.ranges)
            if files is None or found is None:
                return False
            if found and not txn.delete_by_vectors(found, {name: files[name] for name in found}):
                return False
        if folded.survivors.num_rows:
            txn.add_files([direct.write(self._path, batch, folded.survivors)])
        return True

    def _recorded(self, work: Work, batch: Batch) -> Detection:
        """The table's record of how files are found, with the batch's."""
        if work.detection.strategy != LAST_UPDATE:
            return work.detection
        applied = AppliedPaths(self._path, work.detection.segments)
        return replace(work.detection, segments=applied.with_paths(f.file.below for f in batch.files))

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
        default = changes.UPSERT if work.upsert_by_default else changes.INSERT
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
                plain = None if feed else find.touched_plainly(self._spark, self._path, txn.version, txn.metadata, keys)
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


def _needs_mapping_first(txn: DeltaTransaction, work: Work, batch: Batch) -> bool:
    """True where column mapping has to be on before the batch: Delta does not turn it on together with other columns,
    nor together with rows that the change data feed shows.
    """
    if not any(needs_mapping(column.name) for column in batch.columns):
        return False
    if txn.version >= 0:
        return bool(txn.metadata["configuration"].get(_MAPPING, "none") == "none")
    return work.properties.get(_FEED) == "true"


def _transactions(position: Position, batch: Batch) -> dict[str, int]:
    """The numbers that the commit sets, by application id: the position, and where each partition is."""
    found = {position.app_id: position.number}
    for item in batch.files:
        if item.file.partition and item.file.sequence:
            found[position.partition_app_id(item.file.partition)] = item.file.sequence
    return found


def _constants(items: Sequence[BatchFile]) -> dict[str, dict[int, str | None]]:
    """The columns that no file of one shape holds, with the value for each file's number."""
    names = [column.name for column in items[0].columns if column.encoding == CONSTANT]
    return {name: {item.file.number: dict(item.file.constants)[name] for item in items} for name in names}


def _metadata(txn: DeltaTransaction, work: Work, batch: Batch, detection: Detection) -> dict[str, Any]:
    """The table's `metaData` action after the batch."""
    before = txn.metadata
    if not before:
        before = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "partitionColumns": [],
            "configuration": {},
            "createdTime": int(time.time() * 1000),
        }
    configuration = {**before["configuration"], **_changed_properties(before["configuration"], work.properties)}
    so_far = before.get("schemaString", "") if not work.replaces else ""
    same = bool(so_far) and from_delta(so_far) == batch.columns
    schema = so_far if same else to_delta(batch.columns, so_far)
    if is_widened(schema):
        configuration["delta.enableTypeWidening"] = "true"
    if any(needs_mapping(column.name) for column in batch.columns):
        configuration.setdefault(_MAPPING, "name")
    configuration[IDENTITY_PROPERTY] = work.identity
    configuration[KEYS_PROPERTY] = json.dumps(list(work.key_columns))
    configuration.pop(DETECTION_PROPERTY, None)
    if not detection.is_plain:
        configuration[DETECTION_PROPERTY] = detection.to_json()
    return {**before, "schemaString": schema, "configuration": configuration}


def _changed_properties(before: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """What has to be set so that the table has the properties that the settings want.

    All of a new table's. Later the change data feed and the retention follow the settings; the feed is switched off
    only where lakemirror has switched it on.
    """
    if not before:
        return {**wanted, **({FEED_PROPERTY: "true"} if wanted.get(_FEED) == "true" else {})}
    changed = {name: value for name, value in wanted.items() if name == _RETENTION and before.get(name) != value}
    if wanted.get(_FEED) == "true":
        changed.update({_FEED: "true", FEED_PROPERTY: "true"})
    elif before.get(FEED_PROPERTY) == "true":
        changed.update({_FEED: "false", FEED_PROPERTY: "false"})
    return changed


def _manifest(work: Work, batch: Batch, detection: Detection) -> Manifest:
    last = batch.files[-1].file
    return Manifest(
        identity=work.identity,
        first=batch.files[0].file.number,
        last=last.number,
        file=last.below,
        size=last.entry.size,
        modified=last.entry.modified,
        key_columns=work.key_columns,
        rows=work.rows_before + batch.rows,
        bytes=work.bytes_before + batch.bytes,
        committed=max(f.file.entry.modified for f in batch.files) / 1e9,
        notes=tuple(dict.fromkeys([*work.notes_before, *(as_note(w) for w in batch.warnings)]))[:_MOST_NOTES],
        detection=detection.to_json(),
    )


def _sized(rows: DataFrame, batch: Batch) -> DataFrame:
    return rows.coalesce(1) if batch.rows <= _SMALL_ROWS else rows


def _row_error(failure: Exception, batch: Batch) -> TableError | None:
    paths = {f.file.number: f.file.entry.path for f in batch.files}
    return changes.refused_row(str(failure), paths)
