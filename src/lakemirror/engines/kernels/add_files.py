"""A batch of inserts whose files already are what the table's data files would be: they are copied, not rewritten.

batch + the table's configuration ─▶ adoptable ─▶ reason against it | None
batch ─▶ adopt ─▶ a copy of each file in the table's folder, read once, and its `add` action

Copied, never linked: a publisher may write into its file again (`docs/decisions/020-adoption.md`).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.schema import Column
from lakemirror.delta.statistics import statistics, statistics_told
from lakemirror.errors import LakemirrorError, TableError
from lakemirror.landing_zone.column_types import FileColumn, arrow_type
from lakemirror.landing_zone.footer import read_footer
from lakemirror.landing_zone.pages import check_all_pages
from lakemirror.landing_zone.row_markers import ROW_MARKER
from lakemirror.replication.batch import Batch, BatchFile
from lakemirror.storage import copy_file

SMALLEST_BYTES = 8 << 20  # below it, folding many files into one is kinder to readers
_FEW = 4
_SMALLEST_OF_FEW = 1 << 20
_LARGEST_GROUP_BYTES = 512 << 20  # a reader holds a row group in memory
_CODECS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"}
_AS_THEY_ARE = {
    pa.bool_(): "boolean", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint", pa.float32(): "float",
    pa.float64(): "double", pa.string(): "string", pa.binary(): "binary", pa.date32(): "date",
    pa.large_string(): "string", pa.large_binary(): "binary",
}  # fmt: skip
_AT_ONCE = 4  # files that are read at the same time
_RULES = (
    '"nullable":false',
    "delta.invariants",
    "delta.generationExpression",
    "delta.identity.",
    "__CHAR_VARCHAR_TYPE_STRING",
)


def adoptable(batch: Batch, metadata: Mapping[str, Any]) -> str | None:
    """None where every file of the batch can be a data file of the table, else the reason against it."""
    if not batch.append_only:
        return "not every change is an insert"
    smallest = min(SMALLEST_BYTES, _SMALLEST_OF_FEW) if len(batch.files) <= _FEW else SMALLEST_BYTES
    return unusual(metadata) or next(
        (reason for item in batch.files if (reason := _against(item, batch.columns, smallest))), None
    )


def unusual(metadata: Mapping[str, Any]) -> str | None:
    """What of a table's `metaData` asks more of a data file than its columns by their names, None for nothing."""
    if metadata["configuration"].get("delta.columnMapping.mode", "none") != "none":
        return "the table maps its columns"
    if any(key.startswith("delta.constraints.") for key in metadata["configuration"]):
        return "the table has constraints"
    if metadata.get("partitionColumns"):
        return "the table is partitioned"
    if any(mark in metadata["schemaString"].replace(" ", "") for mark in _RULES):
        return "the table has rules for its columns"
    return None


def adopt(
    batch: Batch,
    table: str,
    path_of: Callable[[str], str],
    *,
    modified: int | None = None,
    trust_footers: bool = False,
) -> list[dict[str, Any]]:
    """Copies every file of the batch into the table's folder; the `add` actions of the copies.

    A copy is read once, whole: what does not decode, or is not what the footer says, never enters the table. Not so
    with `trust_footers`: the footer is believed. `path_of` gives the local path of a file of the database. TableError
    `file-unreadable`; then the copies are gone again. What a killed process leaves is VACUUM's.
    """
    names = [f"part-{place:05}-{uuid.uuid4()}-c000.parquet" for place in range(len(batch.files))]
    try:
        with ThreadPoolExecutor(max(1, min(_AT_ONCE, os.cpu_count() or 1))) as pool:
            one = partial(_adopt, batch=batch, path_of=path_of, modified=modified, trust_footer=trust_footers)
            return list(pool.map(one, [Path(table) / name for name in names], batch.files))
    except BaseException:
        for name in names:
            (Path(table) / name).unlink(missing_ok=True)
        raise


def _adopt(
    copy: Path,
    item: BatchFile,
    *,
    batch: Batch,
    path_of: Callable[[str], str],
    modified: int | None,
    trust_footer: bool,
) -> dict[str, Any]:
    path = item.file.entry.path
    try:
        copy_file(path_of(item.file.path), copy)
        with pa.OSFile(str(copy)) as source:
            check_all_pages(source, read_footer(source))
        if trust_footer:
            footer = pq.read_metadata(copy)
            if not footer.equals(item.file.footer):
                raise ValueError("it was written anew while it was copied")
            stats = statistics_told(footer, batch.columns)
        else:
            stats = statistics(copy, batch.columns, item.file.footer.num_rows)
    except FileNotFoundError as error:
        raise LakemirrorError("concurrent-commit", f"{path} is gone") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError("file-unreadable", f"{path}: its rows cannot be read: {error}", file=path) from error
    found = copy.stat()
    return {
        "path": copy.name,
        "partitionValues": {},
        "dataChange": True,
        "size": found.st_size,
        "modificationTime": modified or int(found.st_mtime * 1000),
        "stats": json.dumps(stats),
    }


def legacy_calendar(footer: pq.FileMetaData) -> bool:
    """True for a file whose days before 1582 mean others than they say: Spark's readers shift them, Arrow does not."""
    told = footer.metadata or {}
    version = told.get(b"org.apache.spark.version", b"3")
    marked = any(key in told for key in (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"))
    return marked or not version[:1].isdigit() or int(version.split(b".")[0]) < 3


def _against(item: BatchFile, columns: Sequence[Column], smallest: int) -> str | None:
    path, footer = item.file.entry.path, item.file.footer
    if item.file.entry.size < smallest:
        return f"{path} is small"
    if legacy_calendar(footer):
        return f"{path} counts days by the legacy calendar"
    types = {column.name: column.type for column in columns}
    for found in item.columns:
        if found.name == ROW_MARKER:
            return f"{path} has a row marker column"
        if types.get(found.name) is None or kept_type(found) != types[found.name]:
            return f"{path}: column {found.name!r} does not lie in the file as the table needs it"
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        if group.total_byte_size > _LARGEST_GROUP_BYTES:
            return f"{path} has a row group of {group.total_byte_size} bytes"
        for place in range(group.num_columns):
            if group.column(place).compression not in _CODECS:
                return f"{path} is compressed with {group.column(place).compression}"
    return None


def kept_type(column: FileColumn) -> str | None:
    """The table's type whose Parquet form the column already has; None where it needs a conversion."""
    if column.encoding or column.note or column.unsupported:
        return None
    kind = column.arrow_type
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.unit == "us" and kind.tz is not None else None
    if pa.types.is_decimal128(kind):
        return column.table_type
    return _AS_THEY_ARE.get(kind)


__all__ = ["adopt", "adoptable", "arrow_type", "kept_type", "legacy_calendar", "unusual"]
