"""What the mirrored tables must hold, computed from the data set alone: plain Python, none of the publisher's code.

The same figures come out of the mirrored tables by `query`; `differences` names each that is not the same.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SUMS = ("distance", "air_time", "dep_delay", "arr_delay")
COLUMNS = ("flights", "arrived", *SUMS)


@dataclass
class Figures:
    """The figures of a group of flights that departed: how many, how many arrived as planned, and sums (NULL is 0)."""

    flights: int = 0
    arrived: int = 0
    distance: int = 0
    air_time: int = 0
    dep_delay: int = 0
    arr_delay: int = 0


@dataclass
class Expected:
    """Rows per table, flights that must not be there because they were cancelled, and figures per group."""

    rows: dict[str, int]
    cancelled: int = 0
    total: Figures = field(default_factory=Figures)
    carrier: dict[str, Figures] = field(default_factory=dict)
    month: dict[int, Figures] = field(default_factory=dict)


def expected(data: str | Path, days: int | None = None) -> Expected:
    """What the tables must hold once all steps of a `FlightsSource` with these `days` are applied."""
    data = Path(data)
    found = Expected({})
    for table in ("airlines", "airports", "planes", "weather"):
        with (data / f"{table}.csv").open(encoding="utf-8", newline="") as file:
            found.rows[table] = sum(1 for _ in csv.reader(file)) - 1
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        rows = csv.reader(io.TextIOWrapper(archive.open("flights.csv"), encoding="utf-8", newline=""))
        place = {name: position for position, name in enumerate(next(rows))}
        _count(rows, place, found, _last_day(days))
    found.rows["flights"] = found.total.flights
    return found


def query(flights: str, group: str | None = None) -> str:
    """SQL for the same figures from a table of flights, in all or per `carrier` or `month`; for Spark and DuckDB."""
    sums = ", ".join(f"coalesce(sum({name}), 0) as {name}" for name in SUMS)
    columns = f"count(*) as flights, count(arr_delay) as arrived, {sums}"
    if group is None:
        return f"select {columns} from {flights}"
    return f"select {group}, {columns} from {flights} group by {group} order by {group}"


def differences(
    wanted: Expected,
    rows: Mapping[str, int],
    carriers: Iterable[Sequence[object]],
    months: Iterable[Sequence[object]],
) -> list[str]:
    """One sentence per figure that is not as expected; none where all is well.

    `rows`: the count of each mirrored table; `carriers` and `months`: the rows of `query(…, "carrier")` and
    `query(…, "month")`.
    """
    found = [
        f"{table}: {rows.get(table, 0)} rows, expected {count}"
        for table, count in wanted.rows.items()
        if rows.get(table, 0) != count
    ]
    for name, groups, given in (("carrier", wanted.carrier, carriers), ("month", wanted.month, months)):
        seen = {row[0]: Figures(*(int(str(value)) for value in row[1:])) for row in given}
        for group, figures in groups.items():
            if seen.get(group) != figures:
                found.append(f"{name} {group}: {seen.get(group)}, expected {figures}")
        found.extend(f"{name} {group}: not in the data set" for group in seen if group not in groups)
    return found


def _count(rows: Iterable[list[str]], place: Mapping[str, int], found: Expected, last: tuple[int, int]) -> None:
    month_at, day_at, carrier_at, departed_at = (place[n] for n in ("month", "day", "carrier", "dep_time"))
    arrived_at = place["arr_delay"]
    sums = [(name, place[name]) for name in SUMS]
    for row in rows:
        month = int(row[month_at])
        if (month, int(row[day_at])) > last:
            continue
        if row[departed_at] == "NA":
            found.cancelled += 1
            continue
        values = [(name, int(row[at])) for name, at in sums if row[at] != "NA"]
        for figures in (
            found.total,
            found.carrier.setdefault(row[carrier_at], Figures()),
            found.month.setdefault(month, Figures()),
        ):
            figures.flights += 1
            figures.arrived += row[arrived_at] != "NA"
            for name, value in values:
                setattr(figures, name, getattr(figures, name) + value)


def _last_day(days: int | None) -> tuple[int, int]:
    """Month and day of the last day, in a year of 365 days."""
    left = 365 if days is None else days
    for month, length in enumerate((31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31), start=1):
        if left <= length:
            return month, left
        left -= length
    return 12, 31
