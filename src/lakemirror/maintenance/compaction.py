"""Small data files become one, sorted by key, without Spark: what many small applies leave behind.

With them go middling files of which a good part is deleted, and once a table rests all that have vectors
(`compaction.py` chooses).

    snapshot ─▶ such files ─▶ their living rows ─▶ one file, or a few ─▶ a commit without a change of data, if free
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror import failpoints
from lakemirror.delta.commit import commit, removed
from lakemirror.delta.deletion_vectors import read_vector
from lakemirror.delta.log import Action, Snapshot, read_snapshot
from lakemirror.delta.schema import Column, from_delta
from lakemirror.engines.kernels.add_files import arrow_type, legacy_calendar
from lakemirror.engines.memory_budget import MemoryBudget
from lakemirror.errors import LakemirrorError
from lakemirror.maintenance import policy as compaction
from lakemirror.replication.direct import exactly, write
from lakemirror.replication.direct_table import against
from lakemirror.replication.table_log import KEYS_PROPERTY

log = logging.getLogger("lakemirror")

EVERY = 32
"""Commits of a table after which its small files are looked at."""

_MOST_IN_MEMORY = 256 << 20  # of rows before they are sorted
_EXPECTED = (LakemirrorError, pa.ArrowException, OSError, ValueError, KeyError, TypeError)


class _NoRoom(Exception):
    """A file takes more memory than is left."""


def merge_small_files(table: str) -> int:
    """How many files became one; 0 where there was nothing to do, or somebody else commits at this moment.

    Never raises for the table's sake: it can be read and changed without it.
    """
    return _merge(table, compaction.in_turn) or 0


def merge_at_rest(table: str, *, all_vectors: bool) -> int | None:
    """The same, of a table that nobody changes at the moment; None where somebody does, or the disk does not let us.
    `all_vectors`: they are to go.

    One commit, of one piece: to be called until there is nothing to do. The last one says so (`is_complete`).
    """
    return _merge(table, partial(compaction.at_rest, all_vectors=all_vectors), at_rest=True)


def is_complete(info: Mapping[str, Any]) -> bool:
    """True for the `commitInfo` of a compaction, ours or another engine's, after which nothing was left to do."""
    given = info.get("operationParameters")
    is_piece = info.get("engineInfo") == "lakemirror" and isinstance(given, Mapping) and given.get("auto") is True
    return info.get("operation") == "OPTIMIZE" and not is_piece


def _merge(table: str, choose: Callable[[Collection[Action]], list[Action]], *, at_rest: bool = False) -> int | None:
    snapshot: Snapshot | None = None
    adds: Sequence[Action] = ()
    txn = str(uuid.uuid4())
    try:
        snapshot = read_snapshot(table)
        if snapshot is None or against(snapshot.metadata.value, snapshot) is not None:
            return 0
        files = choose(snapshot.files.values())
        columns = from_delta(snapshot.metadata.value["schemaString"])
        if not files or any(arrow_type(column.type) is None for column in columns):
            return 0
        parts = _as_many_as_fit(Path(table), files, columns)
        files = files[: len(parts)]
        if not compaction.changes_something(files):
            return 0
        key_columns = json.loads(snapshot.metadata.configuration.get(KEYS_PROPERTY, "[]"))
        size = sum(int(add["size"] * (1 - compaction.deleted_share(add))) for add in files)
        count = compaction.pieces(snapshot.files.values(), size)
        adds = write(table, columns, _sorted(pa.concat_tables(parts), key_columns), files=count)
        gone = {id(add) for add in files}
        left = [*(add for add in snapshot.files.values() if id(add) not in gone), *adds]
        is_last = at_rest and not choose(left) and not compaction.optimize_helps(left)
        failpoints.reach("merge.before-commit")
        commit(table, snapshot, _actions(snapshot, files, adds, txn, auto=not is_last))
        return len(files)
    except _EXPECTED as error:
        log.info("%s: small files stay: %s", table, error)
        if (
            snapshot is not None
            and not isinstance(error, Overwritten)
            and _is_nobodys(table, snapshot.version + 1, txn)
        ):
            _unlink(table, adds)
        return None if adds or isinstance(error, OSError) else 0
    _unlink(table, adds)
    return 0


def _is_nobodys(table: str, version: int, txn: str) -> bool:
    """True where that version is certainly not our commit, whatever went wrong: nothing refers to what was written."""
    path = Path(table) / f"_delta_log/{version:020}.json"
    try:
        return not path.exists() or txn not in path.read_text()
    except (OSError, ValueError):
        return False


def _as_many_as_fit(table: Path, files: Sequence[Action], columns: Sequence[Column]) -> list[pa.Table]:
    """The living rows of these files, of the first ones that memory is there for."""
    room, parts = MemoryBudget(_MOST_IN_MEMORY), []
    with contextlib.suppress(_NoRoom):
        for add in files:
            parts.append(_living(table, add, columns, room))
    return parts


def _unlink(table: str, adds: Sequence[Action]) -> None:
    with contextlib.suppress(OSError):
        for add in adds:
            (Path(table) / add["path"]).unlink(missing_ok=True)


def _actions(
    snapshot: Snapshot, files: Sequence[Action], adds: Sequence[Action], txn: str, *, auto: bool
) -> list[Action]:
    now = int(time.time() * 1000)
    actions: list[Action] = [{"remove": removed(add, now, data_change=False)} for add in files]
    actions += [{"add": {**add, "dataChange": False}} for add in adds]
    return [{"commitInfo": _info(snapshot, actions, now, txn, auto=auto)}, *actions]


def _living(table: Path, add: Mapping[str, Any], columns: Sequence[Column], room: MemoryBudget) -> pa.Table:
    """The rows of a file that no vector deletes, in the table's columns.

    ArrowInvalid for what does not fit them, ValueError for a file that is not as the log says, _NoRoom.
    """
    with pq.ParquetFile(table / add["path"], coerce_int96_timestamp_unit="us") as file:
        if legacy_calendar(file.metadata):
            raise ValueError(f"{add['path']} counts days by the legacy calendar")
        batches = []
        for batch in file.iter_batches(use_threads=False):
            if not room.take(batch.nbytes):
                raise _NoRoom
            batches.append(batch)
        rows = pa.Table.from_batches(batches, file.schema_arrow)
    if rows.num_rows != json.loads(add["stats"])["numRecords"]:
        raise ValueError(f"{add['path']} has another number of rows than the log says")
    if vector := add.get("deletionVector"):
        living = read_vector(table, vector).flip(0, rows.num_rows)
        rows = rows.take(pa.array(living.to_array(), pa.int64()))
    held = {name.lower(): values for name, values in zip(rows.column_names, rows.columns, strict=True)}
    return pa.table({
        column.name: exactly(held[column.name.lower()], arrow_type(column.type))
        if column.name.lower() in held
        else pa.nulls(rows.num_rows, arrow_type(column.type))
        for column in columns
    })  # fmt: skip


def _sorted(rows: pa.Table, key_columns: Sequence[str]) -> pa.Table:
    """By key, so that a row group's statistics tell what is not in it."""
    names = {name.lower(): name for name in rows.column_names}
    keys = [(names[key.lower()], "ascending") for key in key_columns if key.lower() in names]
    with contextlib.suppress(pa.ArrowException):  # a type without an order
        return rows.sort_by(keys) if keys else rows
    return rows


def _info(snapshot: Snapshot, actions: Sequence[Action], now: int, txn: str, *, auto: bool) -> dict[str, Any]:
    added = [action["add"] for action in actions if "add" in action]
    return {
        "timestamp": now,
        "operation": "OPTIMIZE",
        "operationParameters": {"predicate": "[]", "zOrderBy": "[]", "auto": auto},
        "readVersion": snapshot.version,
        "isolationLevel": "SnapshotIsolation",
        "isBlindAppend": False,
        "operationMetrics": {
            "numAddedFiles": str(len(added)),
            "numRemovedFiles": str(len(actions) - len(added)),
            "numAddedBytes": str(sum(add["size"] for add in added)),
        },
        "engineInfo": "lakemirror",
        "txnId": txn,
    }
