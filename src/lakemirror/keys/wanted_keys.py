"""The keys that are wanted in a table, and whether a file's bounds rule them out.

    keys of a batch ─▶ WantedKeys ─▶ WantedColumn ─▶ bounds of the log or of a footer: may a key be there?

Bounds are compared for integers, dates, timestamps, text and short decimals; never for floating point (NaN, -0.0) or
binary. The bounds of the wanted keys come from the decoded keys, never from a change file's footer.
"""

from __future__ import annotations

import datetime
import decimal
from bisect import bisect_left
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.engines.kernels.data_rows import constant
from lakemirror.keys.key_file import KeysOfLayout
from lakemirror.keys.key_layout import KeyLayout, encode
from lakemirror.keys.key_values import (
    combined,
    comparable,
    comparable_column,
    is_number,
    key_codes,
    numbers_of,
    whole_numbers,
)

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_DAY = datetime.date(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_DENSE, _DENSE_IF_FEW = 8, 32  # a map of the wanted numbers has at most so many places for each number
_FEW = 1 << 24  # places: they take 16 MB
_EXACT_DIGITS = 15  # every writer's JSON numbers hold a decimal of so many digits exactly


class WantedKeys:
    """The wanted keys. `keys`: one row per key, in the table's types, named as the table's key columns."""

    def __init__(self, keys: pa.Table) -> None:
        self.keys = keys
        self.columns = {name: WantedColumn(keys[name]) for name in keys.column_names}
        columns = list(self.columns.values())
        self.is_one_number = len(columns) == 1 and columns[0].is_number
        """True for a single key column of integers, dates or timestamps."""
        self._in_layout: dict[KeyLayout, KeysOfLayout] = {}

    @cached_property
    def values(self) -> pa.Table:
        """The keys in the form of `comparable`."""
        return comparable(self.keys)

    def in_layout(self, layout: KeyLayout) -> KeysOfLayout:
        """The keys as words of this layout, without those that it cannot hold."""
        found = self._in_layout.get(layout)
        if found is None:
            words, fits = encode(self.keys, layout)
            found = self._in_layout[layout] = KeysOfLayout(words[fits])
        return found


class WantedColumn:
    """The wanted values of one key column."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        self.values = values
        self.is_number = is_number(values.type)

    @property
    def is_bounded(self) -> bool:
        """True if a file's bounds can be compared with these keys."""
        kind = self.values.type
        return bool(self.is_number or pa.types.is_string(kind) or pa.types.is_decimal(kind))

    @cached_property
    def nulls(self) -> bool:
        return bool(self.values.null_count)

    @cached_property
    def numbers(self) -> np.ndarray:
        """The values without NULL and repetitions, ascending. Only if `is_number`."""
        values = np.sort(numbers_of(self.values.drop_null()))
        rises = values[1:] != values[:-1]
        return values if rises.all() else values[np.append(True, rises)]

    @cached_property
    def _is_wanted(self) -> np.ndarray:
        """For each number from the lowest wanted one to the one after the highest, whether it is wanted."""
        numbers = self.numbers
        found = np.zeros(int(numbers[-1]) - int(numbers[0]) + 2, bool)
        found[np.subtract(numbers, numbers[0], dtype=np.int64)] = True
        return found

    def places_of(self, values: np.ndarray) -> np.ndarray | None:
        """Positions (int64, ascending) of the values that are wanted; None if that needs hashing. Only if `is_number`.

        `values`: as from `numbers_of`, of this column's type.
        """
        numbers = self.numbers
        if not len(numbers) or values.dtype != numbers.dtype:
            return None
        width, count = int(numbers[-1]) - int(numbers[0]), len(numbers) + len(values)
        if width > max(_DENSE * count, min(_DENSE_IF_FEW * count, _FEW)) + 1024:
            return None
        distance = np.subtract(values, numbers[0], dtype=np.int64).view(np.uint64)  # of a lower value: above all
        places = np.minimum(distance, np.uint64(len(self._is_wanted) - 1), out=distance).view(np.int64)
        return np.flatnonzero(self._is_wanted.take(places))

    @cached_property
    def bounds(self) -> tuple[Any, Any] | None:
        """The lowest and highest value in the form of `bound`; None if there are no values, or bounds are not used."""
        kind = self.values.type
        if self.is_number:
            return (int(self.numbers[0]), int(self.numbers[-1])) if len(self.numbers) else None
        if not (pa.types.is_string(kind) or pa.types.is_decimal(kind)) or self.values.null_count == len(self.values):
            return None
        found = pc.min_max(self.values)
        low, high = found["min"].as_py(), found["max"].as_py()
        return (low.encode(), high.encode()) if isinstance(low, str) else (low, high)

    @cached_property
    def texts(self) -> set[str | None] | None:
        """The values as a set, if they are text and few; else None."""
        few = pa.types.is_string(self.values.type) and len(self.values) <= 10_000
        return set(self.values.to_pylist()) if few else None

    def has_text(self, value: str | None) -> bool:
        """False if a partition's value is not one of the wanted values."""
        if value is None:
            return self.nulls
        if self.texts is not None:
            return value in self.texts
        wanted = pa.array([constant(value, self.values.type).as_py()], self.values.type)
        mine = comparable_column(self.values)
        return bool(pc.is_in(comparable_column(pa.chunked_array([wanted])), value_set=combined(mine))[0].as_py())

    def may_be_in_file(self, low: Any, high: Any, type_: str, *, nulls: bool) -> bool:
        """`may_be_between` for the statistics of a file in the log: of a column of this type."""
        return self.may_be_between(bound(low, type_, up=False), bound(high, type_, up=True), nulls)

    def may_be_between(self, low: Any, high: Any, nulls: bool) -> bool:
        """False if no wanted value can be within these bounds. A bound of None is unknown."""
        if (self.nulls and nulls) or low is None or high is None:
            return True
        if self.bounds is None:
            return bool(self.values.null_count < len(self.values))  # only NULLs are wanted, and the file has none
        if isinstance(low, bytes) and self.bounds[0].startswith(high):
            return True  # the upper bound was cut off
        if low > high:
            return True  # such bounds are invalid
        if self.is_number:
            first = bisect_left(self.numbers, low)
            return first < len(self.numbers) and bool(self.numbers[first] <= high)
        return bool(self.bounds[0] <= high and low <= self.bounds[1])

    def may_be_in(self, chunk: Any) -> bool:
        """`may_be_between` for the statistics of a column chunk."""
        found = chunk.statistics
        if found is None or not found.has_min_max or not found.has_null_count:
            return True
        if pa.types.is_decimal(self.values.type) or pa.types.is_string(self.values.type):
            try:
                low, high = _raw_bound(found.min), _raw_bound(found.max)
            except (UnicodeDecodeError, OverflowError, ValueError):
                return True
        else:
            try:
                low, high = number(found.min), number(found.max)
            except (OverflowError, ValueError, TypeError):  # a date beyond Python's years 1 to 9999
                return True
        kinds = {type(each) for each in (low, high, *(self.bounds or ()))}
        if len(kinds - {np.int64}) > 1:
            return True  # the column was widened: the file has another type
        return self.may_be_between(low, high, found.null_count > 0)


def is_among(rows: pa.Table, keys: pa.Table) -> np.ndarray:
    """Positions (int64, ascending) of the rows whose key is among `keys`; both in the form of `comparable`."""
    inside = None
    for name in keys.column_names:
        one = pc.is_in(rows[name], value_set=combined(keys[name].cast(rows[name].type)))
        inside = one if inside is None else pc.and_(inside, one)
    if inside is None:
        return np.zeros(0, np.int64)
    found = np.asarray(pc.indices_nonzero(inside)).astype(np.int64)
    if keys.num_columns == 1 or not len(found):
        return found
    codes = key_codes(pa.concat_tables([rows.take(whole_numbers(found)).cast(keys.schema), keys]))
    mark = np.zeros(int(codes.max()) + 1, bool)  # each column matched by itself; now match all columns together
    mark[codes[len(found) :]] = True
    result: np.ndarray = found[mark[codes[: len(found)]]]
    return result


def number(value: Any) -> int:
    """One value of a footer as an integer, as in `numbers_of`. TypeError for any other value."""
    if isinstance(value, datetime.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
        return (moment - _EPOCH) // _MICROSECOND
    if isinstance(value, datetime.date):
        return (value - _DAY).days
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(value)


def bound(value: Any, type_: str, *, up: bool) -> Any:
    """A bound of the log in the form that `WantedColumn` compares; None if it cannot be used."""
    try:
        if type_ in ("tinyint", "smallint", "int", "bigint"):
            return int(value) if isinstance(value, int) and not isinstance(value, bool) else None
        if type_ == "date":
            return (datetime.date.fromisoformat(value) - _DAY).days
        if type_ in ("timestamp", "timestamp_ntz"):
            moment = number(datetime.datetime.fromisoformat(value.replace("Z", "+00:00")))
            return moment + 1000 if up else moment  # some writers round the upper bound down to milliseconds
        if type_ == "string":
            return str(value).encode()
        if type_.startswith("decimal("):
            digits = int(type_[len("decimal(") :].partition(",")[0])
            return decimal.Decimal(value) if digits <= _EXACT_DIGITS else None
    except (ValueError, TypeError, OverflowError, AttributeError, decimal.InvalidOperation):
        return None
    return None


def _raw_bound(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | decimal.Decimal):
        return value
    raise ValueError(value)
