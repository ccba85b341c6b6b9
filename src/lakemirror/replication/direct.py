"""A small batch, applied in this process by Arrow: no Spark job, whose start alone would take longer than the work.

change files ─▶ fold ─▶ clears ─▶ `key_lookup` finds their rows (the caller writes the vectors)
                  └───▶ survivors ─▶ write: data files and their `add` actions

The same net effect as `changes`, `find` and a Spark write, for columns that Arrow converts exactly if at all.
Everything else is None here, and those do it: with their conversions, and with their errors for bad rows
(`docs/decisions/022-small-batches.md`).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.delta.log import Action
from lakemirror.delta.schema import Column
from lakemirror.delta.statistics import statistics_of
from lakemirror.engines.kernels.add_files import arrow_type, kept_type, legacy_calendar, unusual
from lakemirror.engines.kernels.key_values import comparable, key_codes, whole_numbers
from lakemirror.engines.memory_budget import MemoryBudget
from lakemirror.errors import LakemirrorError
from lakemirror.landing_zone.column_types import FileColumn
from lakemirror.landing_zone.row_markers import DELETE, INSERT, ROW_MARKER, UPDATE, UPSERT
from lakemirror.replication.batch import Batch, BatchFile

MOST_ROWS = 1_000_000
"""Changes of a batch up to which it is small."""

_MOST_INSERTS = 5_000_000  # of a batch of inserts alone, which need no fold
MOST_BYTES = 512 << 20
"""Of columns in memory at once."""

_AT_ONCE = 4  # files that are read or written at the same time
_ROWS_AT_ONCE = 64 * 1024
_ROWS_A_GROUP = 256 * 1024
_ROWS_A_FILE = 4 * _ROWS_A_GROUP  # more are written as several, which are written, and read, at the same time
_CALENDAR = {"org.apache.spark.version": "4.2.0"}  # what tells Spark 3 that days before 1582 mean what they say
_KEY_TYPES = ("smallint", "int", "bigint", "string", "date", "decimal")
_MARKERS = (INSERT, UPDATE, DELETE, UPSERT)


@dataclass(frozen=True)
class Folded:
    """The net effect of a batch: the keys whose rows in the table go, one row each, and the rows that come."""

    clears: pa.Table
    survivors: pa.Table


def against(batch: Batch, metadata: Mapping[str, Any], key_columns: Sequence[str]) -> str | None:
    """None where a batch can be applied here, else the reason against it; from footers and the table's metadata."""
    if batch.rows > (_MOST_INSERTS if batch.append_only else MOST_ROWS):
        return "the batch is large"
    if any(legacy_calendar(item.file.footer) for item in batch.files):
        return "a file counts days by the legacy calendar"
    types = {column.name.lower(): column.type for column in batch.columns}
    if not batch.append_only and not all(
        types.get(key.lower(), "").partition("(")[0] in _KEY_TYPES for key in key_columns
    ):
        return "a key column has a type that Spark compares"
    exact = {column.name: column.type for column in batch.columns}
    for item in batch.files:
        for found in item.columns:
            if found.name != ROW_MARKER and not _convertible(found, exact.get(found.name)):
                return f"{item.file.entry.path}: column {found.name!r} has to be converted by Spark"
    return unusual(metadata)


def fold(batch: Batch, key_columns: Sequence[str], default_marker: int, path_of: Callable[[str], str]) -> Folded | None:
    """The net effect (contract section 3), None where a row or a file is not as it should be.

    LakemirrorError `concurrent-commit` where a file is gone: another engine has applied it.
    """
    held = {found.name for item in batch.files for found in item.columns}
    columns = {column.name: arrow_type(column.type) for column in batch.columns if column.name in held}
    keys = [name for key in key_columns for name in columns if name.lower() == key.lower()]
    if not columns or None in columns.values() or (len(keys) < len(key_columns) and not batch.append_only):
        return None
    room = MemoryBudget(MOST_BYTES)
    with ThreadPoolExecutor(max(1, min(_AT_ONCE, os.cpu_count() or 1))) as pool:
        read = list(pool.map(lambda item: _read(item, columns, keys, default_marker, path_of, room), batch.files))
    whole = [each for each in read if each is not None]
    if len(whole) < len(read):
        return None
    try:
        return _folded([part for part, _ in whole], [marker for _, marker in whole], keys, batch.append_only)
    except (pa.ArrowException, MemoryError):
        return None


def _folded(
    parts: Sequence[pa.Table], markers: Sequence[pa.Array], keys: Sequence[str], append_only: bool
) -> Folded | None:
    rows = pa.concat_tables(parts)
    marker = np.concatenate([np.asarray(each) for each in markers])
    changes = np.flatnonzero(marker != INSERT)
    if not len(changes):
        return Folded(rows.select(keys).slice(0, 0), rows)
    if append_only or not keys:
        return None
    rows = rows.combine_chunks()
    key = key_codes(comparable(rows.select(keys)))
    last = np.full(key.max() + 1, -1)  # the place of each key's last change; of one that is only inserted, none
    np.maximum.at(last, key[changes], changes)
    kept = (np.arange(rows.num_rows) >= last[key]) & (marker != DELETE)
    clears, survivors = whole_numbers(last[last >= 0]), whole_numbers(np.flatnonzero(kept))
    return Folded(rows.select(keys).take(clears), rows.take(survivors))


def write(table: str, columns: Sequence[Column], rows: pa.Table, *, files: int = 0) -> list[Action]:
    """Writes rows as data files of the table, whose columns are given; their `add` actions.

    `files`: how many; 0: as many as are written fast.
    """
    files = files or -(-rows.num_rows // _ROWS_A_FILE)
    size = -(-rows.num_rows // max(files, 1))
    parts = [rows.slice(begin, size) for begin in range(0, rows.num_rows, size or 1)]
    paths = [Path(table) / f"part-00000-{uuid.uuid4()}-c000.snappy.parquet" for _ in parts]
    try:
        with ThreadPoolExecutor(max(1, min(_AT_ONCE, os.cpu_count() or 1))) as pool:
            return list(pool.map(partial(_write_file, columns), paths, parts))
    except BaseException:
        for path in paths:
            path.unlink(missing_ok=True)
        raise


def _write_file(columns: Sequence[Column], path: Path, rows: pa.Table) -> Action:
    stats = json.dumps(statistics_of(rows.to_batches(), columns))
    with pq.ParquetWriter(path, rows.schema, compression="snappy", store_schema=False) as file:
        file.write_table(rows, row_group_size=_ROWS_A_GROUP)
        file.add_key_value_metadata(_CALENDAR)
    found = path.stat()
    return {
        "path": path.name,
        "partitionValues": {},
        "size": found.st_size,
        "modificationTime": int(found.st_mtime * 1000),
        "dataChange": True,
        "stats": stats,
    }


def _read(
    item: BatchFile,
    columns: Mapping[str, pa.DataType],
    keys: Sequence[str],
    default: int,
    path_of: Callable[[str], str],
    room: MemoryBudget,
) -> tuple[pa.Table, pa.Array] | None:
    """The rows of a change file in the table's columns, and their markers."""
    try:
        with pq.ParquetFile(path_of(item.file.path)) as file:
            batches = []
            for each in file.iter_batches(_ROWS_AT_ONCE, use_threads=False):
                if not room.take(each.nbytes):
                    return None
                batches.append(each)
            rows = pa.Table.from_batches(batches, file.schema_arrow)
        if rows.num_rows != item.file.footer.num_rows:
            return None
        rows.validate(full=True)
        marker = _markers(rows, default)
        held = dict(zip(rows.column_names, rows.columns, strict=True))  # a look-up by name costs Arrow all names
        kept = {name: exactly(held[name], type_) for name, type_ in columns.items() if name in held}
    except FileNotFoundError as error:
        raise LakemirrorError("concurrent-commit", f"{item.file.entry.path} is gone") from error
    except (pa.ArrowException, OSError, ValueError):
        return None
    if marker is None or _lacks_keys(rows, keys, marker) or len(held) < rows.num_columns:
        return None
    absent = {name: pa.nulls(rows.num_rows, type_) for name, type_ in columns.items() if name not in kept}
    return pa.table({name: kept[name] if name in kept else absent[name] for name in columns}), marker


def _convertible(column: FileColumn, type_: str | None) -> bool:
    """True where Arrow's cast gives each value as it is, or fails."""
    kind = column.arrow_type
    if type_ is None or column.encoding or column.unsupported:
        return False
    if pa.types.is_timestamp(kind):
        return type_ == "timestamp"
    if pa.types.is_integer(kind):
        return not column.note and type_ in ("smallint", "int", "bigint")
    return pa.types.is_null(kind) or kept_type(column) == type_


def exactly(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Times without zone are UTC, nanoseconds are cut (contract section 6). ArrowInvalid for what does not fit."""
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = pc.floor_temporal(column.cast(pa.timestamp("ns")), unit="microsecond")
    return column.cast(kind)


def _markers(rows: pa.Table, default: int) -> pa.Array | None:
    """The marker of every row, None where one is none of 0, 1, 2, 4, or where two columns have its name."""
    if rows.column_names.count(ROW_MARKER) > 1:
        return None
    if ROW_MARKER not in rows.column_names:
        return pa.repeat(pa.scalar(default, pa.int32()), rows.num_rows)
    column = rows[ROW_MARKER].combine_chunks()
    if pa.types.is_string(column.type):
        if not _all(pc.is_in(column.drop_null(), value_set=pa.array([str(number) for number in _MARKERS]))):
            return None
    elif not pa.types.is_integer(column.type):
        return None
    marker = pc.fill_null(column.cast(pa.int32()), default)
    return marker if _all(pc.is_in(marker, value_set=pa.array(_MARKERS, pa.int32()))) else None


def _all(mask: pa.Array) -> bool:
    return bool(pc.all(mask, min_count=0).as_py())


def _lacks_keys(rows: pa.Table, keys: Sequence[str], marker: pa.Array) -> bool:
    absent = any(key not in rows.column_names for key in keys)
    return absent and bool(pc.any(pc.not_equal(marker, INSERT)).as_py())
