"""Compares row counts, NULL counts and bounds of decoded rows with those in the log and in the footer, exactly.

    decoded rows ─▶ Tally of a row group ─▶ true to the footer? ─▶ Tally of the file ─▶ true to `stats`?

No value passes through a float that is not one: fractions are Decimals, text is bytes, moments are microseconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemirror.verify.columns import TableColumn, plain

Problem = tuple[str, str]
"""A code of `finding.KINDS`, and a sentence."""

_DATE = r"([+-]?\d{4,})-(\d\d)-(\d\d)"
_MOMENT = re.compile(_DATE + r"[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?(Z|[+-]\d\d:?\d\d)?")
_DAY = re.compile(_DATE + r"(?:[T ].*)?")
_MILLISECOND = 1000


@dataclass
class ColumnTally:
    """The NULL count and bounds of one column, in the order of the file's type. `lowest` None: there is no value."""

    type: pa.DataType
    nulls: int = 0
    lowest: Any = None
    highest: Any = None
    has_nan: bool = False

    def add(self, column: pa.Array) -> None:
        self.nulls += column.null_count
        kind = column.type
        if column.null_count == len(column) or not _is_ordered(kind):
            return
        if pa.types.is_floating(kind):
            self.has_nan = self.has_nan or bool(pc.any(pc.is_nan(column)).as_py())
            if self.has_nan:
                column = column.filter(pc.invert(pc.is_nan(column)))
        ends = pc.min_max(_as_stored(column))
        self._widen(ends["min"].as_py(), ends["max"].as_py())

    def join(self, other: ColumnTally) -> None:
        self.nulls += other.nulls
        self.has_nan = self.has_nan or other.has_nan
        self._widen(other.lowest, other.highest)

    def _widen(self, lowest: Any, highest: Any) -> None:
        if lowest is None:
            return
        self.lowest = lowest if self.lowest is None else min(self.lowest, lowest)
        self.highest = highest if self.highest is None else max(self.highest, highest)


@dataclass
class Tally:
    """The counts and bounds of decoded rows. Columns by physical name."""

    rows: int = 0
    columns: dict[str, ColumnTally] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch, at: Mapping[str, int]) -> None:
        """`at`: the index of each column in the batch."""
        self.rows += batch.num_rows
        for name, index in at.items():
            column = plain(batch.column(index))
            self.columns.setdefault(name, ColumnTally(column.type)).add(column)

    def join(self, other: Tally) -> None:
        self.rows += other.rows
        for name, column in other.columns.items():
            self.columns.setdefault(name, ColumnTally(column.type)).join(column)


def footer_problems(
    group: pq.RowGroupMetaData, tally: Tally, at: Mapping[str, int], schema: pa.Schema
) -> Iterator[str]:
    """Where the footer of a row group contradicts its decoded rows. Readers skip row groups by the footer."""
    if group.num_rows != tally.rows:
        yield f"it says {group.num_rows} rows and has {tally.rows}"
    chunks = {chunk.path_in_schema: chunk for chunk in map(group.column, range(group.num_columns))}
    names = schema.names
    for name, index in at.items():
        chunk = chunks.get(names[index])
        if chunk is None or not chunk.is_stats_set or chunk.statistics is None:
            continue
        promised, counted = chunk.statistics, tally.columns.get(name)
        if counted is None:
            continue
        if promised.has_null_count and promised.null_count != counted.nulls:
            yield f"column {name!r}: it says {promised.null_count} NULLs and has {counted.nulls}"
        if promised.has_min_max and counted.lowest is not None and _is_signed(counted.type):
            low, high = (_raw(value, counted.type) for value in (promised.min_raw, promised.max_raw))
            if _is_nan(low) or _is_nan(high):
                continue  # readers ignore such bounds (Parquet format, `ColumnOrder`)
            if type(low) is type(counted.lowest) and not (low <= counted.lowest and counted.highest <= high):
                yield f"column {name!r}: its bounds leave out values between {counted.lowest!r} and {counted.highest!r}"


def statistics_problems(
    stats: Mapping[str, Any], tally: Tally, columns: Sequence[TableColumn], *, deleted: int
) -> Iterator[Problem]:
    """Where the `stats` of an `add` action contradict the decoded rows. `deleted`: rows that a vector deletes."""
    if "numRecords" in stats and stats["numRecords"] != tally.rows:
        yield "verify-row-count", f"statistics say {stats['numRecords']} rows, the file has {tally.rows}"
    tight = stats.get("tightBounds") is True and not deleted
    parts = {name: stats.get(name) or {} for name in ("nullCount", "minValues", "maxValues")}
    if any(not isinstance(part, Mapping) for part in parts.values()):
        yield "verify-statistics-unreadable", "statistics are not objects of columns"
        return
    for column in columns:
        if column.type is None or column.partition:
            continue
        counted = tally.columns.get(column.physical)
        nulls = tally.rows if counted is None else counted.nulls
        promised = parts["nullCount"].get(column.physical)
        # with a vector the count may be that of the rows that are left
        if promised is not None and not (promised == nulls or (deleted and nulls - deleted <= promised <= nulls)):
            yield "verify-null-count", f"column {column.name!r}: statistics say {promised} NULLs, the file has {nulls}"
        yield from _bound_problems(column, counted, parts["minValues"], parts["maxValues"], tight=tight)


def _bound_problems(
    column: TableColumn, counted: ColumnTally | None, lows: Mapping[str, Any], highs: Mapping[str, Any], *, tight: bool
) -> Iterator[Problem]:
    if counted is None or (counted.lowest is None and not counted.has_nan):
        return
    lowest, highest = (_comparable(value, counted.type) for value in (counted.lowest, counted.highest))
    try:
        low, high = (_bound(side.get(column.physical), column.type) for side in (lows, highs))
    except (ValueError, TypeError, ArithmeticError) as error:
        yield "verify-statistics-unreadable", f"column {column.name!r}: a bound cannot be read: {error}"
        return
    slack = _MILLISECOND - 1 if pa.types.is_timestamp(column.type) else 0  # Delta cuts moments to milliseconds
    if counted.has_nan and high is not None and not _is_nan(high):
        yield "verify-bounds-untrue", f"column {column.name!r}: the highest bound leaves out NaN"
    if lowest is None:
        return
    where = f"column {column.name!r}"
    if low is not None and not _is_nan(low) and lowest < low:
        yield "verify-bounds-untrue", f"{where}: the lowest bound is {_shown(low)}, a row has {_shown(lowest)}"
    if high is not None and not _is_nan(high) and highest > (high + slack if slack else high):
        yield "verify-bounds-untrue", f"{where}: the highest bound is {_shown(high)}, a row has {_shown(highest)}"
    if not tight or slack or isinstance(lowest, bytes) or counted.has_nan:
        return
    if (low is not None and low < lowest) or (high is not None and high > highest):
        message = f"{where}: bounds are called tight; they are {_shown(low)} and {_shown(high)}"
        yield "verify-bounds-loose", f"{message}, rows go from {_shown(lowest)} to {_shown(highest)}"


def _is_ordered(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_null(kind)


def _is_signed(kind: pa.DataType) -> bool:
    return not pa.types.is_unsigned_integer(kind) and not pa.types.is_float16(kind)


def _as_stored(column: pa.Array) -> pa.Array:
    """Dates, times and timestamps as the integers that Parquet stores; text as bytes."""
    kind = column.type
    if pa.types.is_string(kind):
        return column.cast(pa.binary())
    if pa.types.is_large_string(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return column.view(pa.int32())
    if (
        pa.types.is_timestamp(kind)
        or pa.types.is_time64(kind)
        or pa.types.is_duration(kind)
        or pa.types.is_date64(kind)
    ):
        return column.view(pa.int64())
    if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        return column.cast(pa.binary())
    return column


def _raw(value: Any, kind: pa.DataType) -> Any:
    """A bound of the footer in the form of a ColumnTally."""
    if pa.types.is_decimal(kind):
        number = int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else int(value)
        digits = tuple(int(digit) for digit in str(abs(number)))
        return Decimal((int(number < 0), digits, -kind.scale))
    return value


def _comparable(value: Any, kind: pa.DataType) -> Any:
    """A value of a ColumnTally in the form of `_bound`."""
    if value is None or not pa.types.is_timestamp(kind):
        return value
    if kind.unit == "ns":
        return value // 1000
    return value * {"us": 1, "ms": 1000, "s": 1_000_000}[kind.unit]


def _bound(value: Any, kind: pa.DataType) -> Any:
    """A bound of `stats` as a number or bytes that compare exactly; None if there is none.

    ValueError where it is none of this type.
    """
    if value is None or isinstance(value, Mapping):
        return None
    if pa.types.is_floating(kind):
        number = float(value)
        return float(np.float32(number)) if pa.types.is_float32(kind) else number
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is no text")
        return value.encode("utf-8", "surrogatepass")
    if pa.types.is_date(kind):
        match = _DAY.fullmatch(value)
        if match is None:
            raise ValueError(f"{value!r} is no date")
        return _days(int(match[1]), int(match[2]), int(match[3]))
    if pa.types.is_timestamp(kind):
        return _microseconds(value)
    if isinstance(value, str) or (isinstance(value, bool) and not pa.types.is_boolean(kind)):
        raise ValueError(f"{value!r} is no number")
    return value


def _microseconds(text: Any) -> int:
    match = _MOMENT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is no moment")
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    seconds = (_days(int(year), int(month), int(day)) * 24 + int(hour)) * 3600 + int(minute) * 60 + int(second or 0)
    if zone and zone != "Z":
        sign = -1 if zone[0] == "-" else 1
        seconds -= sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)
    return seconds * 1_000_000 + int(((fraction or "") + "000000")[:6])


def _days(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a day of the proleptic Gregorian calendar, of any year."""
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise ValueError(f"{year}-{month}-{day} is no date")
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _shown(value: Any) -> str:
    return repr(value.decode("utf-8", "replace")[:60] if isinstance(value, bytes) else value)
