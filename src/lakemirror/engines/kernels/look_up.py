"""Where the rows with given keys lie in a table's data files, found in this process by Arrow.

data files ─▶ row groups whose statistics leave room for one of the keys ─▶ their key columns ─▶ row numbers
                                                                              └ kept (`kept_keys.py`)

A column of whole numbers or days that lies in order, as keys that rise with time do, is searched, any other one is
hashed.
"""

from __future__ import annotations

import datetime
import os
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.delta.log import Action
from lakemirror.engines.kernels.key_cache import Cache, Kept, Runs, size_of
from lakemirror.engines.memory_budget import MemoryBudget

_MOST_KEYS_READ = 20_000_000  # rows of the table, or of one row group, whose keys are read here; Spark reads more
_MOST_NUMBERS_READ = 500_000_000  # where all of them are whole numbers or dates
_AT_ONCE = 4  # row groups that are read at the same time
_EPOCH = datetime.date(1970, 1, 1)


_LATELY_READ = Cache(128 << 20)  # 16 million numbers that are no runs


def positions(table: str, adds: Mapping[str, Action], keys: pa.Table) -> dict[str, pa.Array] | None:
    """Row numbers by the names of the data files, rows that are deleted already too; files without one are left out.

    `adds`: the files that may hold them. `keys`: one row each, none twice, NULL equals NULL. None where that is too
    much to read here, or cannot be read.
    """
    try:
        sought = [_Sought.of(name, keys[name]) for name in keys.column_names if _is_number(keys[name].type)]
        footers = {name: pq.read_metadata(Path(table) / add["path"]) for name, add in adds.items()}
        groups = [group for name, footer in footers.items() for group in _groups(name, footer, sought)]
        numbers = len(sought) == keys.num_columns
        rows_in = [group.rows for group in groups]
        if (
            sum(rows_in) > (_MOST_NUMBERS_READ if numbers else _MOST_KEYS_READ)
            or max(rows_in, default=0) > _MOST_KEYS_READ
        ):
            return None
        is_one_number = numbers and len(sought) == 1
        room = MemoryBudget(
            _LATELY_READ.most_bytes // 2
        )  # for this look: it drives out half of what others read at most
        kind = str(keys.schema)

        def look(group: _Group) -> pa.Array:
            add = adds[group.file]
            name = (table, add["path"], add.get("size"), add.get("modificationTime"), group.index, kind)
            kept = _LATELY_READ.get(name)
            if kept is None:
                with pq.ParquetFile(Path(table) / add["path"], metadata=footers[group.file]) as file:
                    kept = _to_keep(_keys(file, group, keys.schema), is_one_number)
                if room.take(size_of(kept)):
                    _LATELY_READ.put(name, kept)
            else:
                room.take(size_of(kept))
            if isinstance(kept, Runs):
                return whole_numbers(kept.places(sought[0].values) + group.begin)
            in_order = _searched(kept, sought[0]) if is_one_number else None
            return pc.add(_hashed(kept, keys) if in_order is None else in_order, group.begin)

        found: dict[str, list[pa.Array]] = {}
        with ThreadPoolExecutor(max(1, min(_AT_ONCE, os.cpu_count() or 1))) as pool:
            for group, rows in zip(groups, pool.map(look, groups), strict=True):
                if len(rows):
                    found.setdefault(group.file, []).append(rows)
        return {name: pa.concat_arrays(rows) for name, rows in found.items()}
    except (pa.ArrowException, OSError, ValueError, LookupError, MemoryError):
        return None


def codes(keys: pa.Table) -> pa.Array:
    """One number for each row, equal where all columns are; NULL equals NULL."""
    all_before = None
    for column in keys.columns:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        code = encoded.indices.cast(pa.int64())
        if all_before is not None:
            both = pc.add(pc.multiply(all_before, len(encoded.dictionary)), code)
            code = both.dictionary_encode().indices.cast(pa.int64())
        all_before = code
    return all_before


def whole_numbers(values: np.ndarray) -> pa.Array:
    """The same as `int64`. `pa.array` would import `numpy.ma` first, 0.05 s of a short run."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values, np.int64))])


@dataclass(frozen=True)
class _Group:
    """A row group of a data file: its number, the number of its first row, and how many it has."""

    file: str
    index: int
    begin: int
    rows: int


@dataclass(frozen=True)
class _Sought:
    """The values of a key column of whole numbers or days that are looked for, in order, and whether NULL is one."""

    column: str
    values: np.ndarray
    nulls: bool

    @staticmethod
    def of(column: str, values: pa.ChunkedArray) -> _Sought:
        return _Sought(column, np.sort(_numbers(values.drop_null())), values.null_count > 0)

    def may_be_in(self, chunk: Any) -> bool:
        """False where the statistics of a column chunk say that none of the values is in it."""
        found = chunk.statistics
        if found is None or not found.has_min_max or not found.has_null_count or (self.nulls and found.null_count):
            return True
        try:
            low, high = _number(found.min), _number(found.max)
        except (OverflowError, ValueError, TypeError):  # a day that Python has no name for
            return True
        first = bisect_left(self.values, low)
        return first < len(self.values) and bool(self.values[first] <= high)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_date32(kind))


def _numbers(values: pa.ChunkedArray) -> np.ndarray:
    """Whole numbers as they are, days as their number since 1970."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    return np.asarray(values.combine_chunks())


def _number(value: Any) -> int:
    """The same of one value from a footer. TypeError where it is neither."""
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return (value - _EPOCH).days
    if isinstance(value, int):
        return value
    raise TypeError(value)


def _groups(file: str, footer: pq.FileMetaData, sought: Sequence[_Sought]) -> list[_Group]:
    """The row groups that may hold a key."""
    plain = {
        column.name.lower(): place
        for place, column in enumerate(map(footer.schema.column, range(footer.num_columns if sought else 0)))
        if column.path == column.name and column.max_definition_level <= 1
    }
    places = [(plain[each.column.lower()], each) for each in sought if each.column.lower() in plain]
    groups, begin = [], 0
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        if group.num_rows and all(each.may_be_in(group.column(place)) for place, each in places):
            groups.append(_Group(file, index, begin, group.num_rows))
        begin += group.num_rows
    return groups


def _keys(file: pq.ParquetFile, group: _Group, schema: pa.Schema) -> pa.Table:
    """The key columns of a row group in these types; one that the file does not hold is NULL in all rows."""
    names = {name.lower(): name for name in file.schema_arrow.names}
    held = [names[name.lower()] for name in schema.names if name.lower() in names]
    rows = file.read_row_group(group.index, columns=held)
    columns = [
        rows[names[field.name.lower()]].cast(field.type)
        if field.name.lower() in names
        else pa.nulls(group.rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _to_keep(rows: pa.Table, is_one_number: bool) -> Kept:
    """The runs of a row group's only key where it has such, else its keys."""
    runs = None if not is_one_number or rows[0].null_count else Runs.of(_numbers(rows[0]))
    return rows if runs is None else runs


def _searched(rows: pa.Table, sought: _Sought) -> pa.Array | None:
    """The numbers of the rows whose only key is one of those; None where they do not lie in order."""
    if rows[0].null_count or not rows.num_rows:
        return None
    values = _numbers(rows[0])
    if (values[1:] < values[:-1]).any():
        return None
    low, high = np.searchsorted(sought.values, values[0]), np.searchsorted(sought.values, values[-1], "right")
    inside = sought.values[low:high]
    first, end = np.searchsorted(values, inside), np.searchsorted(values, inside, "right")
    count = end - first
    before = np.cumsum(count) - count
    return whole_numbers(np.repeat(first - before, count) + np.arange(count.sum()))


def _hashed(rows: pa.Table, keys: pa.Table) -> pa.Array:
    """The numbers of the rows whose keys are among these."""
    inside = None
    for name in keys.column_names:
        one = pc.is_in(rows[name], value_set=keys[name].combine_chunks())
        inside = one if inside is None else pc.and_(inside, one)
    found = pc.indices_nonzero(inside).cast(pa.int64())
    if keys.num_columns == 1 or not len(found):
        return found
    both = codes(pa.concat_tables([rows.take(found), keys]))  # each column alone fits; now all together
    return found.filter(pc.is_in(both.slice(0, len(found)), value_set=both.slice(len(found))))
