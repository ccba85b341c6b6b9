"""Converts dates and timestamps from the legacy calendar of Spark before version 3 to today's calendar.

Spark 2 counted dates before 15 October 1582 by the Julian calendar, and timestamps before 1900 with simpler time zone
rules. Its files name the Spark version and the time zone. The conversion keeps the local date and time that a user
sees, and changes the count since 1970.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

_DAY = 86_400_000_000  # microseconds
_CUT_OVER = -141_427  # 15 October 1582: from here on both calendars agree
_SINCE_1900 = -2_208_988_800_000_000  # from here on both time zone rules agree
_VERSION, _ZONE = b"org.apache.spark.version", b"org.apache.spark.timeZone"
_LEGACY, _LEGACY_INT96 = b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"


class Calendar(NamedTuple):
    """The calendar of a file. `legacy`: for dates and timestamps. `legacy_int96`: for timestamps stored as INT96.

    `zone`: the time zone of the program that wrote the file.
    """

    legacy: bool = False
    legacy_int96: bool = False
    zone: str = "UTC"


def calendar_of(metadata: Mapping[bytes, bytes] | None) -> Calendar:
    """The calendar of a Parquet file, from its footer's key-value metadata. Without a Spark version, today's."""
    told = metadata or {}
    version = told.get(_VERSION)
    if version is None:
        return Calendar()
    return Calendar(
        version < b"3.0.0" or _LEGACY in told,
        version < b"3.1.0" or _LEGACY_INT96 in told,
        told.get(_ZONE, b"UTC").decode("utf-8", "replace"),
    )


def today_days(days: Numbers) -> Numbers:
    """Days since 1970 in the legacy calendar, converted to today's calendar."""
    old = days < _CUT_OVER
    if not old.any():
        return days
    result = days.copy()
    result[old] = _gregorian(days[old])
    return result


def today_micros(micros: Numbers, zone: str) -> Numbers:
    """Microseconds since 1970 in the legacy calendar, converted to today's. ValueError for an unknown time zone."""
    old = micros < _SINCE_1900
    if not old.any():
        return micros
    given, places = np.unique(micros[old], return_inverse=True)
    wall = given + _standard_offset(zone)
    days, rest = np.floor_divide(wall, _DAY), np.mod(wall, _DAY)
    local = today_days(days) * _DAY + rest
    result = micros.copy()
    result[old] = (local - _offsets(local, zone))[places]
    return result


def _gregorian(days: Numbers) -> Numbers:
    """The same date in today's calendar. A date that it lacks (29 February 1500) becomes the next day."""
    # civil date by the Julian calendar, in years that begin in March; 1 March of year 0 is day 0
    count = days + 719_470
    cycle, rest = np.floor_divide(count, 1461), np.mod(count, 1461)
    year_of_cycle = np.minimum(rest // 365, 3)
    year = 4 * cycle + year_of_cycle
    day = rest - 365 * year_of_cycle
    leap = np.floor_divide(year, 4) - np.floor_divide(year, 100) + np.floor_divide(year, 400)
    return np.asarray(365 * year + leap + day - 719_468, dtype=np.int64)


def _standard_offset(zone: str) -> int:
    """The zone's current offset without daylight saving, in microseconds. Legacy files use it before 1900."""
    fixed = _fixed_offset(zone)
    if fixed is not None:
        return fixed
    rules = _rules(zone)
    months = (datetime.datetime(2024, month, 1, tzinfo=rules).utcoffset() for month in range(1, 13))
    return min(_micros(offset) for offset in months)


def _offsets(local: Numbers, zone: str) -> Numbers:
    """The zone's offset at each local time, in microseconds."""
    fixed = _fixed_offset(zone)
    if fixed is not None:
        return np.full(len(local), fixed)
    rules = _rules(zone)
    first = datetime.datetime(1, 1, 2, tzinfo=rules)
    epoch = datetime.datetime(1970, 1, 1)
    least = (datetime.datetime(1, 1, 2) - epoch) // datetime.timedelta(microseconds=1)
    found = np.full(len(local), _micros(first.utcoffset()))
    for place in np.flatnonzero(local >= least):
        at = (epoch + datetime.timedelta(microseconds=int(local[place]))).replace(tzinfo=rules)
        before, after = _micros(at.utcoffset()), _micros(at.replace(fold=1).utcoffset())
        # a local time that occurs twice means the later one; one that never occurs is moved by the gap
        found[place] = min(before, after) if before > after else before
    return found


def _fixed_offset(zone: str) -> int | None:
    if zone in ("UTC", "GMT", "Z", "UT", "Etc/UTC", "Etc/GMT", "Universal", "Zulu"):
        return 0
    match = _OFFSET.fullmatch(zone)
    if match is None:
        return None
    seconds = int(match[2]) * 3600 + int(match[3] or 0) * 60 + int(match[4] or 0)
    return (-seconds if match[1] == "-" else seconds) * 1_000_000


_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")


def _rules(zone: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(zone)
    except (OSError, ValueError, LookupError) as error:
        raise ValueError(f"the file names an unknown time zone: {zone[:100]!r}") from error


def _micros(offset: datetime.timedelta | None) -> int:
    return (offset or datetime.timedelta()) // datetime.timedelta(microseconds=1)
