"""The Delta table `Tables/_lakemirror/executions`: one row for each thing that happened, one partition for each day.

    executions ─▶ append: one commit with the rows, how far the spool is carried (`txn`), and the days that are too old
    read       ─▶ the rows of some days, as Arrow

A commit holds the rows and, under the id of the spool, the number of its last line. So a line is appended exactly once,
whenever the process is killed. Columns have Fabric's names where they mean the same.
"""

from __future__ import annotations

import datetime
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.delta.commit import commit
from lakemirror.delta.commit_info import commit_info
from lakemirror.delta.data_files import removed
from lakemirror.delta.log import Action, Snapshot, read_snapshot
from lakemirror.delta.protocol import protocol_of
from lakemirror.delta.schema import Column, to_delta
from lakemirror.engines.kernels.live_rows import live_rows
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.row_work import RewriteWork
from lakemirror.engines.target import target_of
from lakemirror.errors import LakemirrorError
from lakemirror.executions.execution import Execution
from lakemirror.maintenance.compaction import merge_few
from lakemirror.maintenance.vacuum import vacuum
from lakemirror.storage.durable import POWER, make_folders
from lakemirror.storage.place import place

EXECUTIONS = "Tables/_lakemirror/executions"
DAY = "OperationDate"
_APP = "lakemirror.executions"
_COLUMNS: dict[str, tuple[str, pa.DataType]] = {
    "Timestamp": ("timestamp", pa.timestamp("us", "UTC")),
    "OperationName": ("string", pa.string()),
    "SourceSchemaName": ("string", pa.string()),
    "SourceTableName": ("string", pa.string()),
    "DurationSeconds": ("double", pa.float64()),
    "ProcessedRows": ("bigint", pa.int64()),
    "ProcessedBytes": ("bigint", pa.int64()),
    "ReplicatorBatchLatency": ("double", pa.float64()),
    "PositionFrom": ("bigint", pa.int64()),
    "PositionTo": ("bigint", pa.int64()),
    "TableVersion": ("bigint", pa.int64()),
    "EngineName": ("string", pa.string()),
    "ErrorType": ("string", pa.string()),
    "ErrorCode": ("string", pa.string()),
    "ErrorMessage": ("string", pa.string()),
    DAY: ("date", pa.date32()),
}
"""The columns of the table, their types in Delta and in Arrow."""

_PROPERTIES = {
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 6 hours",
    "delta.dataSkippingNumIndexedCols": "1",  # the time
}
_RACES = 5  # commits in a row that others were faster with
_TIDIED_EVERY = 32  # commits
_KEPT = 6 * 3600.0  # seconds for which files of older versions stay


def append(
    table: str, spool: str, first: int, found: Sequence[Execution | None], *, days: float, durability: str = POWER
) -> int:
    """Appends the executions of a spool, those that are not yet in the table, in one commit. Returns their number.

    `found`: from the line `first` on; None for a line that cannot be read. `days`: how long rows are kept.
    LakemirrorError `concurrent-commit`, `table-unreadable`, `storage-unavailable`; then nothing was appended.
    """
    last = first + len(found) - 1
    for tries in range(_RACES):
        snapshot = read_snapshot(table)
        new = found[max(0, carried(snapshot, spool) - first + 1) :] if snapshot is not None else found
        rows = [each for each in new if each is not None]
        if not rows:
            return 0
        try:
            version = _commit(table, snapshot, rows, _txn(spool, last), days, durability)
        except LakemirrorError as error:
            if error.code != "concurrent-commit" or tries == _RACES - 1:
                raise
            continue
        _tidy(table, version)
        return len(rows)
    return 0


def carried(snapshot: Snapshot, spool: str) -> int:
    """The number of the last line of a spool that is in the table; 0 if none is."""
    found = snapshot.transactions.get(f"{_APP}:{spool}")
    return found.version if found is not None else 0


def read(table: str, since: float = 0.0, columns: Sequence[str] = ()) -> tuple[pa.Table, Snapshot | None]:
    """The rows since a time (seconds since the epoch), in no order, and the table's version they are of.

    `columns`: with `Timestamp` among them; empty: all.
    """
    columns = columns or tuple(_COLUMNS)
    for tries in range(_RACES):
        snapshot = read_snapshot(table)
        if snapshot is None:
            return pa.table({name: pa.array([], _COLUMNS[name][1]) for name in columns}), None
        try:
            return pa.concat_tables(_parts(snapshot, since, columns)), snapshot
        except FileNotFoundError:  # merged meanwhile, and removed hours later
            if tries == _RACES - 1:
                raise
    raise AssertionError


def rows_of(table: pa.Table) -> list[Execution]:
    """The executions of rows with all columns."""
    ended = [moment.timestamp() for moment in table.column("Timestamp").to_pylist()]
    names = (
        "OperationName", "SourceSchemaName", "SourceTableName", "DurationSeconds", "ProcessedRows", "ProcessedBytes",
        "ReplicatorBatchLatency", "PositionFrom", "PositionTo", "TableVersion", "EngineName", "ErrorCode",
        "ErrorMessage",
    )  # fmt: skip
    values = [table.column(name).to_pylist() for name in names]
    defaults: list[Any] = list(Execution(0.0, "", "", ""))[1:]
    found = []
    for moment, *row in zip(ended, *values, strict=True):
        known: list[Any] = [d if value is None else value for value, d in zip(row, defaults, strict=True)]
        found.append(Execution(moment, *known))
    return found


def as_arrow(rows: Sequence[Execution]) -> pa.Table:
    """The rows of these executions, in the order of their times."""
    ordered = sorted(rows)
    moments = [datetime.datetime.fromtimestamp(each.ended, datetime.timezone.utc) for each in ordered]
    values: dict[str, list[Any]] = {
        "Timestamp": moments,
        "OperationName": [each.operation for each in ordered],
        "SourceSchemaName": [_utf8(each.schema) for each in ordered],
        "SourceTableName": [_utf8(each.table) for each in ordered],
        "DurationSeconds": [each.seconds for each in ordered],
        "ProcessedRows": [each.rows for each in ordered],
        "ProcessedBytes": [each.size for each in ordered],
        "ReplicatorBatchLatency": [each.lag for each in ordered],
        "PositionFrom": [each.first or None for each in ordered],
        "PositionTo": [each.last or None for each in ordered],
        "TableVersion": [each.version if each.version >= 0 else None for each in ordered],
        "EngineName": [each.engine or None for each in ordered],
        "ErrorType": [each.error_type or None for each in ordered],
        "ErrorCode": [each.error_code or None for each in ordered],
        "ErrorMessage": [_utf8(each.error_message) or None for each in ordered],
        DAY: [moment.date() for moment in moments],
    }
    return pa.table({name: pa.array(values[name], kind) for name, (_, kind) in _COLUMNS.items()})


def _commit(
    table: str, snapshot: Snapshot | None, rows: Sequence[Execution], txn: Action, days: float, durability: str
) -> int:
    metadata = _metadata() if snapshot is None else _checked(table, snapshot)
    version = 0 if snapshot is None else snapshot.version + 1
    target = replace(target_of(table, metadata), version=version)
    if snapshot is None:
        make_folders(place(table), place(table).parent.parent.parent)
    actions: list[Action] = [{"add": add} for add in write_rows(as_arrow(rows).to_batches(), target)]
    now = time.time()
    actions += [{"remove": removed(add, int(now * 1000), data_change=True)} for add in _expired(snapshot, days, now)]
    info = commit_info(snapshot, "WRITE", {"mode": "Append", "partitionBy": json.dumps([DAY])}, blind_append=True)
    state: list[Action] = []
    if snapshot is None:
        state = [protocol_of(metadata).to_action(), {"metaData": metadata}]
    return commit(table, snapshot, [{"commitInfo": info}, *state, {"txn": txn}, *actions], durability=durability)


def _txn(spool: str, last: int) -> Action:
    return {"appId": f"{_APP}:{spool}", "version": last, "lastUpdated": int(time.time() * 1000)}


def _metadata() -> dict[str, Any]:
    return {
        "id": str(uuid.uuid4()),
        "name": "executions",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": to_delta([Column(name, kind) for name, (kind, _) in _COLUMNS.items()]),
        "partitionColumns": [DAY],
        "configuration": dict(_PROPERTIES),
        "createdTime": int(time.time() * 1000),
    }


def _checked(table: str, snapshot: Snapshot) -> dict[str, Any]:
    """The table's metadata; `table-unreadable` if it is not the table that is made here."""
    there = {column.name for column in target_of(table, snapshot.metadata.value).columns}
    if not set(_COLUMNS) <= there or list(snapshot.metadata.partition_columns) != [DAY]:
        raise LakemirrorError("table-unreadable", f"{table} is not lakemirror's table of executions")
    return dict(snapshot.metadata.value)


def _expired(snapshot: Snapshot | None, days: float, now: float) -> list[Action]:
    """The files of days that ended more than `days` ago."""
    oldest = _day(now - days * 86_400)
    return [add for add in snapshot.files.values() if _day_of(add) < oldest] if snapshot is not None else []


def _day(moment: float) -> str:
    return datetime.datetime.fromtimestamp(max(0.0, moment), datetime.timezone.utc).date().isoformat()


def _day_of(add: Mapping[str, Any]) -> str:
    return (add.get("partitionValues") or {}).get(DAY) or "9999"


def _parts(snapshot: Snapshot, since: float, columns: Sequence[str]) -> Iterator[pa.Table]:
    target = target_of(str(snapshot.table), snapshot.metadata.value)
    wanted = tuple(column for column in target.columns if column.name in columns)
    narrow = replace(target, columns=wanted, partition_columns=(DAY,) if DAY in columns else ())
    yield pa.table({name: pa.array([], _COLUMNS[name][1]) for name in columns})
    oldest = _day(since)
    for add in snapshot.files.values():
        if _day_of(add) >= oldest:
            for rows in live_rows(add, narrow):
                yield _since(rows, since).select(list(columns)).cast(pa.schema([(c, _COLUMNS[c][1]) for c in columns]))


def _since(rows: pa.Table, since: float) -> pa.Table:
    kind = _COLUMNS["Timestamp"][1]
    first = pa.scalar(int(since * 1e6), pa.int64()).cast(kind)
    return rows.filter(pc.greater_equal(rows.column("Timestamp").cast(kind), first)) if since else rows


def _tidy(table: str, version: int) -> None:
    """Now and then merges small files of a day, and removes files of older versions."""
    with suppress(LakemirrorError, OSError):
        if version % _TIDIED_EVERY == 0:
            merge_few(table, durability=POWER, rewrite=_by_table)
            vacuum(table, _KEPT)


def _by_table(work: RewriteWork) -> list[Action]:
    """Writes the rows of these files as one file for each day, those of a table side by side: a fifth smaller."""
    rows = pa.concat_tables(part for add in work.files for part in live_rows(add, work.target))
    order = [(name, "ascending") for name in (DAY, "SourceSchemaName", "SourceTableName", "Timestamp")]
    return write_rows(rows.sort_by(order).to_batches(), work.target)


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
