"""Delta's statistics of data files: computed from rows, checked against a Parquet footer, written as JSON text.

    rows ─▶ count, NULLs and bounds of each column ─▶ the `stats` of an `add` action
              └─▶ compared with the footer, row group by row group: readers skip data by both

Statistics of another writer keep every character: no bound is converted to a float.
"""

from __future__ import annotations

import datetime
import decimal
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.delta import exact_json
from lakemirror.delta.long_texts import KEPT, LONG, least_and_most, may_be_cut
from lakemirror.delta.schema import Column
from lakemirror.storage.place import Place, opened

_ROWS_AT_ONCE = 256 * 1024
_SAMPLED = 16  # times so many rows as a dictionary has values: mostly, all values are met in them
_REMEMBERED = 4096  # texts in the cache: the same files are changed again and again
_PREFIX = 32  # characters of a string bound, as in Delta Spark
_LAST_ASCII, _LAST = "\x7f", chr(sys.maxunicode)
_WHOLE: dict[str, pa.DataType] = {  # the form in which bounds are computed
    "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(), "date": pa.int32(),
    "timestamp": pa.int64(), "timestamp_ntz": pa.int64(),
}  # fmt: skip
_FLOATING = ("float", "double")
_CHECKED_ONLY = ("boolean", "binary")  # Delta has no bounds for them, Parquet has
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MILLISECOND = datetime.timedelta(milliseconds=1)
_DICTIONARIES = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}
_DIGITS = decimal.Context(prec=76)


class UnsafeBounds(ValueError):
    """The footer is correct, but readers that skip row groups by bounds or dictionaries would miss rows."""


def parse_statistics(add: Mapping[str, Any]) -> dict[str, Any]:
    """The statistics of an `add` action, with exact numbers (int or Decimal). Empty if there are none, or invalid."""
    stats = add.get("stats")
    return dict(_parsed(stats)) if isinstance(stats, str) else {}


def record_count(add: Mapping[str, Any]) -> int | None:
    """The number of rows in a data file, deleted rows included, as its `add` action says; None if it does not."""
    return _counted(add.get("stats") or "{}")


@lru_cache(_REMEMBERED // 8)
def _parsed(stats: str) -> Mapping[str, Any]:
    try:
        return exact_json.read(stats)
    except (ValueError, TypeError):
        return {}


@lru_cache(_REMEMBERED)
def _counted(stats: str) -> int | None:
    count = _parsed(stats).get("numRecords")
    return count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None


@lru_cache(_REMEMBERED)
def with_loose_bounds(stats: str) -> str:
    """The `stats` text for a file that now has deleted rows: `tightBounds` is false, all else is unchanged.

    ValueError if the text is no JSON object. Source: Delta protocol, "Per-file Statistics".
    """
    return exact_json.replaced(stats, "tightBounds", False)


def statistics(
    source: Any,
    columns: Sequence[Column],
    rows: int,
    dictionaries: Callable[[int], Iterable[str]] = lambda _: (),
    *,
    indexed: Collection[str] | None = None,
    see: Callable[[int, pa.RecordBatch], None] | None = None,
) -> dict[str, Any]:
    """Delta's `stats` of a Parquet file, computed from its rows. `source`: what `storage.opened` gives.

    `indexed`: the names of the columns in the result; None: all. The rows of all `columns` are checked.
    `rows`: the number of rows in the footer. `dictionaries`: called before each row group is read, with its number;
    gives the string columns whose pages in it are all dictionary-encoded: each distinct value is read once. `see`:
    called with each batch and the number of its row group.

    Errors: ArrowException or ValueError if the rows contradict the footer: another number of rows or NULLs, or a value
    outside the bounds. UnsafeBounds if a floating-point column has NaN and bounds in its footer, or -0.0 without 0.0
    in its dictionary: Spark would skip such a row group for `> 5` or `= 0.0`.
    """
    whole = Tally(columns)
    names = [column.name for column in columns]
    texts = {column.name for column in columns if column.type == "string"}
    footer = pq.read_metadata(source)
    for index in range(footer.num_row_groups):
        group = Tally(columns)
        short = list(texts.intersection(dictionaries(index)))
        with pq.ParquetFile(source, metadata=footer, read_dictionary=short) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=[index], columns=names or None, use_threads=False):
                group.add(batch)
                if see is not None:
                    see(index, batch)
        group.check(footer.row_group(index), index)
        whole.join(group)
    if whole.rows != rows:
        raise ValueError(f"{whole.rows} rows, but the footer says {rows}")
    return whole.stats(indexed)


def statistics_told(footer: pq.FileMetaData, columns: Sequence[Column]) -> dict[str, Any]:
    """Delta's `stats` of a Parquet file, from its footer alone.

    A column without statistics in the footer gets none. Floating-point columns get no bounds, because a footer does
    not say whether there are NaN values.
    """
    whole = Tally(columns)
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        whole.rows += group.num_rows
        chunks = {chunk.path_in_schema: chunk for chunk in map(group.column, range(group.num_columns))}
        for column in columns:
            told = chunks[column.name].statistics if column.name in chunks else None
            if column.name not in chunks:
                whole.add_nulls(column.name, group.num_rows)
            elif told is None or not told.has_null_count:
                whole.forget(column.name)
            elif column.name in whole.nulls:
                whole.add_nulls(column.name, told.null_count)
                if _is_bounded(column.type) and told.null_count < group.num_rows:
                    bounds = None if column.type in _FLOATING else _bounds_told(told, column.type)
                    if bounds is None:
                        whole.without_bounds(column.name)
                    else:
                        whole.widen(column.name, *bounds)
    return whole.stats()


def statistics_of_own(path: Place, columns: Sequence[Column]) -> dict[str, Any]:
    """Delta's `stats` of a Parquet file that this process has just written, so that its footer is known to be correct.

    Only floating-point columns are read, for their bounds. Error: UnsafeBounds, as in `statistics`.
    """
    footer = pq.read_metadata(opened(path))
    told = statistics_told(footer, columns)
    floating = [column for column in columns if column.type in _FLOATING]
    if floating:
        read = statistics(opened(path), floating, footer.num_rows)
        for bounds in ("minValues", "maxValues"):
            told[bounds].update(read[bounds])
    return told


class Tally:
    """Counts rows and NULLs, and keeps the bounds of each column. `columns`: with their names in the data file.

    Bounds are integers (days, microseconds) for dates and timestamps, Decimal for decimals, str for strings, and
    Python values for other types.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self.rows = 0
        self.nulls = {column.name: 0 for column in columns}
        self.bounds: dict[str, tuple[Any, Any]] = {}
        self._nan: set[str] = set()
        self._zeros: dict[str, set[bool]] = {}  # the zeros found in each column: True for -0.0, False for 0.0
        self._unbounded: set[str] = set()
        self._dictionaries: dict[str, pa.Array] = {}  # the last one of each column of which all values were met
        self._columns = columns

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds the rows of a batch. ArrowException if a string is not UTF-8."""
        held = {name: index for index, name in enumerate(batch.schema.names)}
        self.rows += batch.num_rows
        for column in self._columns:
            if column.name not in held:
                self.nulls[column.name] += batch.num_rows
                continue
            values = batch.column(held[column.name])
            self.nulls[column.name] += values.null_count
            if isinstance(values, pa.DictionaryArray):
                dictionary, met = values.dictionary, self._dictionaries.get(column.name)
                if met is not None and met.equals(dictionary):
                    _check_places(values.indices, len(dictionary))
                    continue
                values = _distinct(values)
                if len(values) == len(dictionary) and column.type not in _FLOATING and dictionary.nbytes <= LONG:
                    self._dictionaries[column.name] = dictionary  # of numbers, 0.0 would equal -0.0
            if column.type == "string":
                values.validate(full=True)  # raises for a string that is not UTF-8
            if values.null_count < len(values):
                self._add_bounds(column, values)

    def _add_bounds(self, column: Column, values: pa.Array) -> None:
        kind = values.type
        if column.type in _WHOLE:
            values = values.view(_WHOLE[column.type])
        elif column.type in _FLOATING:
            if pc.any(pc.is_nan(values)).as_py():
                self._nan.add(column.name)
                self.without_bounds(column.name)
        elif not (_is_bounded(column.type) or column.type in _CHECKED_ONLY) or pa.types.is_nested(kind):
            return
        low, high = least_and_most(values)
        if column.type in _FLOATING and low <= 0 <= high:
            numbers = np.asarray(values)  # NULL is NaN
            signs = np.signbit(numbers[numbers == 0])
            met = self._zeros.setdefault(column.name, set())
            met.update(sign for sign, is_met in ((True, signs.any()), (False, not signs.all())) if is_met)
        if column.type in _FLOATING and not (math.isfinite(low) and math.isfinite(high)):
            self.without_bounds(column.name)
        if not (isinstance(low, float) and (math.isnan(low) or math.isnan(high))):
            self.widen(column.name, low, high)

    def add_nulls(self, name: str, count: int) -> None:
        """Adds NULLs to a column's count, unless the column was forgotten."""
        if name in self.nulls:
            self.nulls[name] += count

    def forget(self, name: str) -> None:
        """Drops the NULL count and the bounds of a column."""
        self.nulls.pop(name, None)
        self.without_bounds(name)

    def without_bounds(self, name: str) -> None:
        """Drops the bounds of a column."""
        self._unbounded.add(name)

    def exact_bounds(self, name: str) -> tuple[Any, Any] | None:
        """The bounds of a column that every reader may rely on; None if there are none, or it has NaN."""
        return None if name in self._nan else self.bounds.get(name)

    def join(self, other: Tally) -> None:
        """Adds the counts and bounds of another tally over the same columns."""
        self.rows += other.rows
        self._unbounded |= other._unbounded
        self._nan |= other._nan
        for name, nulls in other.nulls.items():
            self.nulls[name] += nulls
        for name, (low, high) in other.bounds.items():
            self.widen(name, low, high)

    def check(self, group: pq.RowGroupMetaData, index: int) -> None:
        """ValueError if the footer of a row group contradicts its rows; UnsafeBounds as in `statistics`."""
        if group.num_rows != self.rows:
            raise ValueError(f"{self.rows} rows in row group {index}, but the footer says {group.num_rows}")
        types = {column.name: column.type for column in self._columns}
        for number in range(group.num_columns):
            chunk = group.column(number)
            name, told = chunk.path_in_schema, chunk.statistics
            if name not in self.nulls:
                continue
            wrong = chunk.num_values != self.rows
            if told is not None:
                wrong = wrong or (told.has_null_count and told.null_count != self.nulls[name])
                wrong = wrong or (told.has_min_max and not self._is_bounded_by(told, name, types[name]))
            if wrong:
                raise ValueError(f"the footer is wrong about column {name!r} in row group {index}")
            if name in self._nan and told is not None and told.has_min_max:
                raise UnsafeBounds(f"column {name!r} has bounds and NaN in row group {index}")
            if self._zeros.get(name) == {True} and _DICTIONARIES & set(chunk.encodings):
                raise UnsafeBounds(f"column {name!r} has -0.0 in a dictionary in row group {index}")

    def _is_bounded_by(self, told: pq.Statistics, name: str, type_: str) -> bool:
        """True if every value except NaN is within the footer's bounds."""
        if name not in self.bounds:
            return True
        low, high = self.bounds[name]
        least, most = told.min_raw, told.max_raw
        if isinstance(low, Decimal):
            bounds = _bounds_told(told, type_)
            return bounds is not None and bounds[0] <= low and high <= bounds[1]
        if may_be_cut(low, least) or may_be_cut(high, most):
            raise UnsafeBounds(f"column {name!r} has bounds of more than {KEPT} characters")
        low, high = (value.encode() if isinstance(value, str) else value for value in (low, high))
        return bool(least <= low and high <= most)

    def stats(self, indexed: Collection[str] | None = None) -> dict[str, Any]:
        """Delta's `stats` of the columns with these names; None: of all columns."""
        low, high = {}, {}
        wanted = self.nulls.keys() if indexed is None else self.nulls.keys() & indexed
        columns = [column for column in self._columns if column.name in wanted]
        for column in columns:
            if column.name in self.bounds and column.name not in self._unbounded and _is_bounded(column.type):
                least, most = self.bounds[column.name]
                least, most = _bound(least, column.type, up=False), _bound(most, column.type, up=True)
                if least is not None and most is not None:
                    low[column.name], high[column.name] = least, most
        nulls = {column.name: self.nulls[column.name] for column in columns}
        return {"numRecords": self.rows, "minValues": low, "maxValues": high, "nullCount": nulls, "tightBounds": True}

    def widen(self, name: str, low: Any, high: Any) -> None:
        """Widens a column's bounds so that they include these values."""
        if name in self.bounds:
            low, high = min(low, self.bounds[name][0]), max(high, self.bounds[name][1])
        self.bounds[name] = (low, high)


def _distinct(values: pa.DictionaryArray) -> pa.Array:
    """The distinct values that occur, without NULL: the dictionary itself if it holds no others.

    ValueError if a row points behind the dictionary.
    """
    dictionary, indices, size = values.dictionary, values.indices, len(values.dictionary)
    if size > len(indices):
        return dictionary.take(pc.unique(indices).drop_null())
    first = _SAMPLED * size
    if 2 * first <= len(indices) and _counts(indices.slice(0, first), size).all():
        _check_places(indices, size)  # a third of the time that counting all rows takes
        return dictionary
    counts = _counts(indices, size)
    return dictionary if counts.all() else dictionary.take(pa.array(np.flatnonzero(counts)))


def _counts(indices: pa.Array, size: int) -> np.ndarray:
    """How many rows point to each value of a dictionary of this size. ValueError as in `_distinct`."""
    counts = np.bincount(np.asarray(indices.drop_null() if indices.null_count else indices), minlength=size)
    if len(counts) > size:
        raise ValueError(f"a row points to value {len(counts) - 1} of a dictionary of {size}")
    return counts


def _check_places(indices: pa.Array, size: int) -> None:
    """ValueError if a row points behind a dictionary of this size, or before it."""
    for place in pc.min_max(indices).as_py().values():
        if place is not None and not 0 <= place < size:
            raise ValueError(f"a row points to value {place} of a dictionary of {size}")


def _is_bounded(type_: str) -> bool:
    """True for a type whose bounds Delta uses to skip files."""
    return type_ in _WHOLE or type_ in _FLOATING or type_ == "string" or type_.startswith("decimal")


def _bounds_told(told: pq.Statistics, type_: str) -> tuple[Any, Any] | None:
    """The footer's bounds in the form of `Tally`; None if it has none, or they are invalid."""
    if not told.has_min_max:
        return None
    low, high = told.min_raw, told.max_raw
    if type_.startswith("decimal"):
        scale = int(type_[len("decimal(") : -1].split(",")[1])
        low, high = (Decimal(_unscaled(value)).scaleb(-scale, _DIGITS) for value in (low, high))
    elif isinstance(low, bytes):
        try:
            low, high = low.decode(), high.decode()
        except UnicodeDecodeError:
            return None
    return (low, high) if low <= high else None


def _unscaled(value: int | bytes) -> int:
    return int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else value


def _bound(value: Any, type_: str, *, up: bool) -> Any:
    """A bound as Delta writes it; None if Delta cannot write it."""
    try:
        if type_ == "date":
            return (_EPOCH + datetime.timedelta(days=value)).date().isoformat()
        if type_.startswith("timestamp"):
            return _timestamp(_EPOCH + datetime.timedelta(microseconds=value), "" if type_.endswith("ntz") else "Z", up)
    except OverflowError:  # a date beyond Python's years 1 to 9999
        return None
    if type_ == "string":
        return _cut(value, up=up)
    if type_ in _FLOATING and value == 0:
        return 0.0 if up else -0.0  # some readers compare 0.0 and -0.0 as equal, others do not
    return value


def _cut(value: str, *, up: bool) -> str | None:
    """A string bound of at most 32 characters; an upper bound gets one more, greater than the cut-off rest."""
    if len(value) <= _PREFIX or not up:
        return value[:_PREFIX]
    following = value[_PREFIX]
    if following == _LAST:
        return None
    return value[:_PREFIX] + (_LAST_ASCII if following < _LAST_ASCII else _LAST)


def _timestamp(value: datetime.datetime, zone: str, up: bool) -> str | None:
    """A timestamp bound in milliseconds, as Delta writes it. An upper bound is rounded up, to include every value."""
    whole = value.replace(microsecond=value.microsecond // 1000 * 1000)
    if up and whole != value:
        whole += _MILLISECOND
    text = whole.strftime("%Y-%m-%dT%H:%M:%S.") + f"{whole.microsecond // 1000:03d}{zone}"
    return text if whole.year >= 1000 else None
