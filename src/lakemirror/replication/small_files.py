"""Small data files become one, sorted by key, without Spark: what many small applies leave behind.

With them go middling files of which a good part is deleted: every reader reads those rows, and every delete writes
their vector anew. Once a table rests, all of its vectors go, if not too much has to be written for it: Spark reads a
table with a single vector a quarter slower than one without, however few rows it deletes.

    snapshot ─▶ such files ─▶ their living rows ─▶ one file, or a few ─▶ a commit without a change of data, if free

Large files are compaction's, which needs Spark (`maintenance.py`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror import failpoints
from lakemirror.delta_log import Action, Snapshot, read_snapshot
from lakemirror.delta_vectors import read_vector
from lakemirror.errors import LakemirrorError
from lakemirror.replication.adoption import arrow_type
from lakemirror.replication.direct import MOST_BYTES, Room, exactly, write
from lakemirror.replication.direct_commit import put_commit, removed
from lakemirror.replication.direct_table import against
from lakemirror.replication.schema import Column, from_delta
from lakemirror.replication.table_log import KEYS_PROPERTY

log = logging.getLogger("lakemirror")

EVERY = 32
"""Commits of a table after which its small files are looked at."""

AT_LEAST = 16
"""Small files that are worth a commit."""

LARGEST = 8 << 20
"""Bytes of a small file."""

_LARGEST_WORN = 32 << 20
_WORN = 0.1  # of its rows deleted: it is written anew at the price of ten rows for each of them
_MOST_BYTES = 64 << 20  # of files that are merged at once
_MOST_AT_REST = 256 << 20  # of files with vectors, up to which all are written anew: some seconds
_BECOME = 12 << 20  # bytes of the files that they become: no small ones, and several, which several cores read


def merge_small_files(table: str) -> int:
    """How many files became one; 0 where there was nothing to do, or somebody else commits at this moment.

    Never raises for the table's sake: it can be read and changed without it.
    """
    return _merge(table, _worth_it, {"auto": True})


def merge_at_rest(table: str) -> int:
    """The same, of a table that nobody changes at the moment: all small files, and no vector is left if there is not
    too much to write. To be called until there is nothing to do: each is one commit.
    """
    return _merge(table, _all_of_it, {"auto": False})


def _merge(table: str, choose: Callable[[Sequence[Action]], list[Action]], parameters: Mapping[str, bool]) -> int:
    try:
        snapshot = read_snapshot(table)
        if snapshot is None or against(snapshot.metadata.value, snapshot) is not None:
            return 0
        plain = [add for add in snapshot.files.values() if "%" not in add["path"] and ":" not in add["path"]]
        files = _as_many_as_fit(choose(plain))
        columns = from_delta(snapshot.metadata.value["schemaString"])
        if not files or any(arrow_type(column.type) is None for column in columns):
            return 0
        room = Room(MOST_BYTES)
        key_columns = json.loads(snapshot.metadata.configuration.get(KEYS_PROPERTY, "[]"))
        rows = _sorted(pa.concat_tables([_living(Path(table), add, columns, room) for add in files]), key_columns)
        now = int(time.time() * 1000)
        actions: list[Action] = [{"remove": removed(add, now, data_change=False)} for add in files]
        size = sum(int(add["size"]) * (1 - deleted_share(add)) for add in files)
        adds = write(table, columns, rows, files=max(1, int(size // _BECOME)))
        actions += [{"add": {**add, "dataChange": False}} for add in adds]
        failpoints.reach("merge.before-commit")
        info = _info(snapshot, actions, now, parameters)
        return len(files) if put_commit(table, snapshot, [{"commitInfo": info}, *actions]) is not None else 0
    except (LakemirrorError, pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        log.info("%s: small files stay: %s", table, error)
        return 0


def _worth_it(adds: Sequence[Action]) -> list[Action]:
    """Small files, where they are many, and worn ones."""
    small = [add for add in adds if add["size"] <= LARGEST]
    worn = [add for add in adds if LARGEST < add["size"] <= _LARGEST_WORN and deleted_share(add) >= _WORN]
    return [*(small if len(small) >= AT_LEAST else []), *worn]


def _all_of_it(adds: Sequence[Action]) -> list[Action]:
    """Small files, where there is more than one, and those with vectors if all of them can go, else the worn ones."""
    small = [add for add in adds if add["size"] <= LARGEST]
    vectors = [add for add in adds if add.get("deletionVector")]
    if sum(add["size"] for add in vectors) > _MOST_AT_REST or any(add["size"] > _LARGEST_WORN for add in vectors):
        vectors = [add for add in vectors if add["size"] <= _LARGEST_WORN and deleted_share(add) >= _WORN]
    chosen = small if len(small) > 1 else []
    return [*chosen, *(add for add in vectors if add not in chosen)]


def _as_many_as_fit(adds: Sequence[Action]) -> list[Action]:
    """The smallest, as many as are merged at once."""
    found, size = [], 0
    for add in sorted(adds, key=lambda add: int(add["size"])):
        size += add["size"]
        if size > _MOST_BYTES:
            break
        found.append(add)
    return found


def deleted_share(add: Action) -> float:
    """The share of a file's rows that its vector deletes."""
    vector = add.get("deletionVector")
    return vector["cardinality"] / max(1, json.loads(add["stats"])["numRecords"]) if vector else 0.0


def _living(table: Path, add: Mapping[str, Any], columns: Sequence[Column], room: Room) -> pa.Table:
    """The rows of a file that no vector deletes, in the table's columns.

    ArrowInvalid for what does not fit them, ValueError for a file that is not as the log says, or too large in memory.
    """
    with pq.ParquetFile(table / add["path"], coerce_int96_timestamp_unit="us") as file:
        batches = []
        for batch in file.iter_batches(use_threads=False):
            if not room.take(batch.nbytes):
                raise ValueError("they take too much memory together")
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


def _info(snapshot: Snapshot, actions: Sequence[Action], now: int, parameters: Mapping[str, bool]) -> dict[str, Any]:
    added = [action["add"] for action in actions if "add" in action]
    return {
        "timestamp": now,
        "operation": "OPTIMIZE",
        "operationParameters": {"predicate": "[]", "zOrderBy": "[]", **parameters},
        "readVersion": snapshot.version,
        "isolationLevel": "SnapshotIsolation",
        "isBlindAppend": False,
        "operationMetrics": {
            "numAddedFiles": str(len(added)),
            "numRemovedFiles": str(len(actions) - len(added)),
            "numAddedBytes": str(sum(add["size"] for add in added)),
        },
        "engineInfo": "lakemirror",
        "txnId": str(uuid.uuid4()),
    }
