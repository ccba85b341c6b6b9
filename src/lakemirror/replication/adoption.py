"""May a batch's files become data files of the table as they are, and what their footers say of them; pure.

batch + the table's columns + its configuration ─▶ adoptable ─▶ reason against it | None
footer + columns ─▶ statistics ─▶ Delta's `stats`: rows, NULLs, bounds
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.landing_zone.column_types import FileColumn
from lakemirror.replication.batch import Batch, BatchFile
from lakemirror.replication.schema import ROW_MARKER, Column

_SMALLEST_BYTES = 8 << 20  # below it, folding several files into one is kinder to readers
_LARGEST_GROUP_BYTES = 512 << 20  # a reader holds a row group in memory
_CODECS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"}
_AS_THEY_ARE = {
    pa.bool_(): "boolean", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint", pa.float32(): "float",
    pa.float64(): "double", pa.string(): "string", pa.binary(): "binary", pa.date32(): "date",
}  # fmt: skip
_SHORT_TEXT = 32  # Delta cuts longer bounds; so short a one is a bound even where the writer of the file cut it
_MILLISECOND = datetime.timedelta(milliseconds=1)


def adoptable(batch: Batch, configuration: Mapping[str, str], partition_columns: Sequence[str] = ()) -> str | None:
    """None where every file of the batch can be a data file of the table, else the reason against it."""
    if not batch.append_only:
        return "not every change is an insert"
    if partition_columns:
        return "the table is partitioned"
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        return "the table maps its columns"
    if any(key.startswith("delta.constraints.") for key in configuration):
        return "the table has constraints"
    return next((reason for item in batch.files if (reason := _against(item, batch.columns))), None)


def statistics(footer: pq.FileMetaData, columns: Sequence[Column]) -> str:
    """Delta's `stats` of a file that `adoptable` let through.

    Bounds only for integers, dates, timestamps and short ASCII text, where the footer's order is Delta's; a column
    of which a row group says nothing is left out.
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    places = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    groups = [footer.row_group(i) for i in range(footer.num_row_groups)]
    for column in columns:
        if column.name not in places:
            nulls[column.name] = footer.num_rows
            continue
        found = [group.column(places[column.name]).statistics for group in groups if group.num_rows]
        if not found or any(s is None or not s.has_null_count for s in found):
            continue
        nulls[column.name] = sum(s.null_count for s in found)
        valued = [s for s, group in zip(found, (g for g in groups if g.num_rows), strict=True)
                  if s.null_count < group.num_rows]  # fmt: skip
        if valued and all(s.has_min_max for s in valued):
            least = _bound(min(s.min for s in valued), column.type, up=False)
            most = _bound(max(s.max for s in valued), column.type, up=True)
            if least is not None and most is not None:
                low[column.name], high[column.name] = least, most
    return json.dumps({"numRecords": footer.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def _against(item: BatchFile, columns: Sequence[Column]) -> str | None:
    path, footer = item.file.entry.path, item.file.footer
    if item.file.entry.size < _SMALLEST_BYTES:
        return f"{path} is small"
    types = {column.name: column.type for column in columns}
    for found in item.columns:
        if found.name == ROW_MARKER:
            return f"{path} has a row marker column"
        if types.get(found.name) is None or _kept_type(found) != types[found.name]:
            return f"{path}: column {found.name!r} does not lie in the file as the table needs it"
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        if group.total_byte_size > _LARGEST_GROUP_BYTES:
            return f"{path} has a row group of {group.total_byte_size} bytes"
        for place in range(group.num_columns):
            if group.column(place).compression not in _CODECS:
                return f"{path} is compressed with {group.column(place).compression}"
    return None


def _kept_type(column: FileColumn) -> str | None:
    """The table's type whose Parquet form the column already has; None where it needs a conversion."""
    if column.encoding or column.note or column.unsupported:
        return None
    kind = column.arrow_type
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.unit == "us" and kind.tz is not None else None
    if pa.types.is_decimal128(kind):
        return column.table_type
    return _AS_THEY_ARE.get(kind)


def _bound(value: Any, type_: str, *, up: bool) -> Any:
    if type_ in ("smallint", "int", "bigint"):
        return value if isinstance(value, int) else None
    if type_ == "date":
        return value.isoformat() if type(value) is datetime.date else None
    if type_ == "timestamp" and isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return _timestamp(value.astimezone(datetime.UTC), up=up)
    if type_ == "string" and isinstance(value, str):
        return value if len(value) <= _SHORT_TEXT and value.isascii() and value.isprintable() else None
    return None


def _timestamp(value: datetime.datetime, *, up: bool) -> str | None:
    """In Delta's milliseconds, the largest one rounded up: a bound has to hold every value."""
    whole = value.replace(microsecond=value.microsecond // 1000 * 1000)
    if up and whole != value:
        try:
            whole += _MILLISECOND
        except OverflowError:
            return None
    return whole.strftime("%Y-%m-%dT%H:%M:%S.") + f"{whole.microsecond // 1000:03d}Z" if whole.year >= 1000 else None
