"""Delta's statistics of a data file, from its rows; and whether the file's own footer tells the truth about them.

rows ─▶ number, NULLs and bounds of each column ─▶ the `stats` of an `add` action
          └─▶ beside those of the footer, row group by row group: readers skip by them what they do not look for
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.delta.schema import Column

_ROWS_AT_ONCE = 256 * 1024
_INDEXED = 32  # columns with statistics, Delta's own number
_SHORT_TEXT = 32  # Delta cuts longer bounds; so short a one is a bound even where the writer of the file cut it
_NUMBERS: dict[str, pa.DataType] = {  # which bounds are held as
    "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "date": pa.int32(), "timestamp": pa.int64(),
}  # fmt: skip
_BOUNDED = (*_NUMBERS, "string")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MILLISECOND = datetime.timedelta(milliseconds=1)


def statistics(path: Path, columns: Sequence[Column], rows: int) -> dict[str, Any]:
    """Delta's `stats` of a Parquet file, from its rows, `rows` in number; ArrowException or ValueError where they
    are not what the footer says.

    Bounds for integers, dates, timestamps and short ASCII text, where Arrow's order is Delta's.
    """
    whole = _Tally(columns)
    with pq.ParquetFile(path) as file:
        for index in range(file.num_row_groups):
            group = _Tally(columns)
            for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=[index], use_threads=False):
                group.add(batch)
            group.check(file.metadata.row_group(index), index)
            whole.join(group)
    if whole.rows != rows:
        raise ValueError(f"{whole.rows} rows where the footer says {rows}")
    return whole.stats()


def statistics_told(footer: pq.FileMetaData, columns: Sequence[Column]) -> dict[str, Any]:
    """The same as the footer says, its rows unread; nothing of a column of which it does not say it."""
    whole = _Tally(columns)
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        whole.rows += group.num_rows
        chunks = {chunk.path_in_schema: chunk for chunk in map(group.column, range(group.num_columns))}
        for column in columns:
            told = chunks[column.name].statistics if column.name in chunks else None
            if column.name not in chunks:
                whole.nulls[column.name] += group.num_rows
            elif told is None or not told.has_null_count:
                whole.forget(column.name)
            elif column.name in whole.nulls:
                whole.nulls[column.name] += told.null_count
                if column.type in _BOUNDED and told.null_count < group.num_rows:
                    bounds = _bounds_told(told)
                    if bounds is None:
                        whole.forget(column.name)
                    else:
                        whole.widen(column.name, *bounds)
    return whole.stats()


def _bounds_told(told: pq.Statistics) -> tuple[Any, Any] | None:
    if not told.has_min_max:
        return None
    low, high = told.min_raw, told.max_raw
    try:
        return (low.decode(), high.decode()) if isinstance(low, bytes) else (low, high)
    except UnicodeDecodeError:
        return None


def statistics_of(batches: Iterable[pa.RecordBatch], columns: Sequence[Column]) -> dict[str, Any]:
    """Delta's `stats` of rows, of the first columns as Delta does; ArrowException where text is no UTF-8."""
    tally = _Tally(columns[:_INDEXED])
    for batch in batches:
        tally.add(batch)
    return tally.stats()


class _Tally:
    """Rows, NULLs and bounds of what was added; days and microseconds as whole numbers, as Parquet has them."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.rows = 0
        self.nulls = {column.name: 0 for column in columns}
        self.bounds: dict[str, tuple[Any, Any]] = {}
        self._columns = columns

    def add(self, batch: pa.RecordBatch) -> None:
        held = set(batch.schema.names)
        self.rows += batch.num_rows
        for place, column in enumerate(self._columns):
            if column.name not in held:
                self.nulls[column.name] += batch.num_rows
                continue
            values = batch.column(column.name)
            self.nulls[column.name] += values.null_count
            text = column.type == "string"
            if text:
                values.validate(full=True)  # what is no UTF-8 is found here
            if values.null_count < len(values) and (column.type in _NUMBERS or (text and place < _INDEXED)):
                found = pc.min_max(values if text else values.view(_NUMBERS[column.type]))
                self.widen(column.name, found["min"].as_py(), found["max"].as_py())

    def forget(self, name: str) -> None:
        """Nothing is known of the column."""
        self.nulls.pop(name, None)
        self.bounds.pop(name, None)

    def join(self, other: _Tally) -> None:
        self.rows += other.rows
        for name, nulls in other.nulls.items():
            self.nulls[name] += nulls
        for name, (low, high) in other.bounds.items():
            self.widen(name, low, high)

    def check(self, group: pq.RowGroupMetaData, index: int) -> None:
        """ValueError where the footer says of a row group what is not so."""
        for place in range(group.num_columns):
            chunk = group.column(place)
            name, told = chunk.path_in_schema, chunk.statistics
            if told is None or name not in self.nulls:
                continue
            wrong = told.has_null_count and told.null_count != self.nulls[name]
            if told.has_min_max and name in self.bounds:
                low, high = (value.encode() if isinstance(value, str) else value for value in self.bounds[name])
                wrong = wrong or low < told.min_raw or told.max_raw < high
            if wrong:
                raise ValueError(f"what its footer says of column {name!r} in row group {index} is not so")

    def stats(self) -> dict[str, Any]:
        low, high = {}, {}
        columns = [column for column in self._columns[:_INDEXED] if column.name in self.nulls]
        for column in columns:
            if column.name in self.bounds:
                least, most = self.bounds[column.name]
                least, most = _bound(least, column.type, up=False), _bound(most, column.type, up=True)
                if least is not None and most is not None:
                    low[column.name], high[column.name] = least, most
        nulls = {column.name: self.nulls[column.name] for column in columns}
        return {"numRecords": self.rows, "minValues": low, "maxValues": high, "nullCount": nulls, "tightBounds": True}

    def widen(self, name: str, low: Any, high: Any) -> None:
        if name in self.bounds:
            low, high = min(low, self.bounds[name][0]), max(high, self.bounds[name][1])
        self.bounds[name] = (low, high)


def _bound(value: Any, type_: str, *, up: bool) -> Any:
    """A bound as Delta writes it, None for what it has no form for."""
    try:
        if type_ == "date":
            return (_EPOCH + datetime.timedelta(days=value)).date().isoformat()
        if type_ == "timestamp":
            return _timestamp(_EPOCH + datetime.timedelta(microseconds=value), up=up)
    except OverflowError:  # a day that Python has no name for
        return None
    if type_ == "string":
        return value if len(value) <= _SHORT_TEXT and value.isascii() and value.isprintable() else None
    return value


def _timestamp(value: datetime.datetime, *, up: bool) -> str | None:
    """In Delta's milliseconds, the largest one rounded up: a bound has to hold every value."""
    whole = value.replace(microsecond=value.microsecond // 1000 * 1000)
    if up and whole != value:
        whole += _MILLISECOND
    return whole.strftime("%Y-%m-%dT%H:%M:%S.") + f"{whole.microsecond // 1000:03d}Z" if whole.year >= 1000 else None
