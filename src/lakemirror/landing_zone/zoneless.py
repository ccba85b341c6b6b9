"""Times without a time zone: the zone they are read in, and the instants that they become (contract section 6).

    setting `zoneless`     utc | ntz | the name of a zone
    2026-07-01 09:00       in Europe/Berlin ─▶ 2026-07-01T07:00Z

The zone's rules come from the system or the package tzdata. Arrow's own conversion is not used: it knows no daylight
saving after 2037.
"""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

UTC, NTZ = "utc", "ntz"
UNREADABLE = "ntz-unreadable"  # as `ntz`, in a database with a declared reader that cannot read such a column

_EPOCH = datetime.datetime(1970, 1, 1)
_MICROSECOND = datetime.timedelta(microseconds=1)
_DAY = 86_400_000_000  # microseconds
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # of the years 1 to 9999
_VARIES = np.iinfo(np.int64).min


class NoInstant(ValueError):
    """A time that is no instant in the zone. `row`: its position in the array."""

    def __init__(self, why: str, row: int) -> None:
        super().__init__(why)
        self.row = row


def zone_of(setting: str) -> str:
    """The zone in which a column of type timestamp reads times without a zone, by the setting `zoneless`."""
    return "UTC" if setting in (UTC, NTZ, UNREADABLE) else setting


def how_read(zone: str) -> str:
    """What is said once about a column whose times have no zone."""
    return f"its times have no zone and are read in {zone} (setting zoneless)"


def always_utc(_: str) -> str:
    """The zone of every column where nothing else is said: UTC."""
    return "UTC"


@dataclass(frozen=True)
class Zones:
    """How the columns of delimited text read times without a zone.

    `of` gives a column's zone by its name, or `ntz` for one that keeps such times as they are. `met`: the zones of the
    columns in which there was such a time; a reader fills it.
    """

    of: Callable[[str], str] = always_utc
    met: dict[str, str] = field(default_factory=dict)


def instants(values: pa.Array, zone: str) -> pa.Array:
    """Times without a zone, in microseconds, as instants: `timestamp("us", "UTC")`.

    A time that occurs twice, when clocks are set back, is the earlier of the two instants. The first and the last
    moment of the years 1 to 9999 are those of UTC in every zone: sources write infinity so. NoInstant for a time that
    never occurs, because clocks are set forward over it, and for one outside of these years.
    """
    kind = pa.timestamp("us", "UTC")
    numbers = values.view(pa.int64())
    if zone == "UTC" or values.null_count == len(values):
        return numbers.view(kind)
    local = np.asarray(numbers.fill_null(0))
    _check_years(local)
    days, places = np.unique(np.floor_divide(local, _DAY), return_inverse=True)
    offsets = np.array([_offset_of_day(zone, int(day)) for day in days], np.int64)[places]
    for row in np.flatnonzero(offsets == _VARIES):
        offset = _offset(zone, int(local[row]))
        if offset is None:
            shown = str(_EPOCH + int(local[row]) * _MICROSECOND)
            raise NoInstant(f"{shown} does not occur in {zone}: clocks are set forward over it", int(row))
        offsets[row] = offset
    found = np.where((local == _FIRST) | (local == _LAST), local, local - offsets)
    _check_years(found)
    return pa.array(found, mask=np.asarray(values.is_null()) if values.null_count else None).view(kind)


def local_times(values: pa.Array, zone: str) -> pa.Array:
    """Instants as the times without a zone that clocks in the zone show: the reverse of `instants`."""
    rules = _rules(zone)
    shown = [each if each is None else each.astimezone(rules).replace(tzinfo=None) for each in values.to_pylist()]
    return pa.array(shown, pa.timestamp("us"))


def _check_years(numbers: npt.NDArray[np.int64]) -> None:
    wrong = (numbers < _FIRST) | (numbers > _LAST)
    if wrong.any():
        raise NoInstant("a time is outside of the years 1 to 9999", int(wrong.argmax()))


@lru_cache(64 * 1024)
def _offset_of_day(zone: str, day: int) -> int:
    """The zone's offset in microseconds on a day since 1970; `_VARIES` on a day on which it changes.

    No zone changes its offset twice within one day.
    """
    begin, end = (_EPOCH + (day * _DAY + at) * _MICROSECOND for at in (0, _DAY - 1))
    rules = _rules(zone)
    found = {at.replace(tzinfo=rules, fold=fold).utcoffset() for at in (begin, end) for fold in (0, 1)}
    return _micros(found.pop()) if len(found) == 1 else _VARIES


@lru_cache(64 * 1024)
def _offset(zone: str, local: int) -> int | None:
    """The zone's offset at a local time; None for a time that does not occur."""
    at = (_EPOCH + local * _MICROSECOND).replace(tzinfo=_rules(zone))
    first, second = _micros(at.utcoffset()), _micros(at.replace(fold=1).utcoffset())
    return None if first < second else first


def _rules(zone: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(zone)
    except (OSError, ValueError, LookupError) as error:
        raise ValueError(f"this machine does not know the time zone {zone[:100]!r}") from error


def _micros(offset: datetime.timedelta | None) -> int:
    return (offset or datetime.timedelta()) // _MICROSECOND
