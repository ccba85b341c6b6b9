"""The demo's source: its steps, what they leave in the landing zone, and that the figures come out of it."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from flights import FlightsSource, Step, differences, expected, query
from flights.source import FLIGHT_KEYS, HELD_BACK, TABLES, find_data, read_flights

from lakemirror.errors import LakemirrorError, SetupError

MARKER = "__rowMarker__"


@pytest.fixture(scope="module")
def year() -> list[Step]:
    return list(FlightsSource().steps())


@pytest.fixture(scope="module")
def zone(tmp_path_factory: pytest.TempPathFactory, year: list[Step]) -> Path:
    """The whole year, published."""
    db = tmp_path_factory.mktemp("flights")
    source = FlightsSource()
    for step in year:
        published = source.publish(db, step)
        assert (published.number, published.rows) == (step.number, step.rows.num_rows)
    return db / "Files" / "LandingZone"


def flights_sql(zone: Path) -> str:
    """The flights after all changes: of each key the last row, unless it is a delete."""
    return f"""(
        select * from (
            select *, row_number() over (
                partition by {", ".join(FLIGHT_KEYS)} order by filename desc, file_row_number desc) as latest
            from read_parquet('{zone}/flights/*.parquet', filename = true, file_row_number = true)
        ) where latest = 1 and "{MARKER}" <> 2)"""


def test_keys_are_unique() -> None:
    flights = read_flights(find_data(), 365)

    def distinct(*names: str) -> int:
        return flights.group_by(list(names)).aggregate([]).num_rows

    assert flights.num_rows == 336_776
    assert distinct(*FLIGHT_KEYS) == flights.num_rows
    assert distinct("year", "month", "day", "carrier", "flight", "origin") == flights.num_rows
    assert distinct("year", "month", "day", "carrier", "flight") == flights.num_rows - 24
    assert all(flights[name].null_count == 0 for name in FLIGHT_KEYS)


def test_dimension_tables_are_initial_loads_with_unique_keys(year: list[Step]) -> None:
    loads = {step.table: step.rows for step in year if step.day is None}
    assert {name: rows.num_rows for name, rows in loads.items()} == {
        "airlines": 16,
        "airports": 1458,
        "planes": 3322,
        "weather": 26115,
    }
    for name, rows in loads.items():
        assert MARKER not in rows.column_names
        assert rows.group_by(list(TABLES[name])).aggregate([]).num_rows == rows.num_rows
    assert loads["planes"].schema.field("speed").type == pa.int32()
    assert loads["planes"]["speed"].null_count > 3000  # NA in the data set


def test_numbers_have_one_gap_per_late_day(year: list[Step]) -> None:
    flights = [step for step in year if step.table == "flights"]
    assert sorted(step.number for step in flights) == list(range(1, len(flights) + 1))
    late = [step for step in flights if step.late]
    assert [step.day for step in late] == list(HELD_BACK)
    for step in late:
        place = flights.index(step)
        assert [other.number - step.number for other in flights[place - 3 : place + 2]] == [1, 2, 3, 0, 4]
    days = [step.day for step in sorted(flights, key=lambda step: step.number)]
    assert days == [dt.date(2012, 12, 31) + dt.timedelta(days=number) for number in range(len(days))]


def test_a_held_back_day_at_the_end_is_still_published() -> None:
    steps = list(FlightsSource(3, held_back=[dt.date(2013, 1, 3), dt.date(2013, 1, 2)]).steps())
    flights = [step for step in steps if step.table == "flights"]
    assert sorted(step.number for step in flights) == list(range(1, len(flights) + 1))
    assert [step.late for step in flights].count(True) == 2


def test_every_flight_lives_in_order(year: list[Step]) -> None:
    """Scheduled once, without actual times; then departed and perhaps landed, or cancelled; nothing else."""
    steps = sorted((step for step in year if step.table == "flights"), key=lambda step: step.number)
    rows = pa.concat_tables([step.rows for step in steps])
    assert rows.num_rows == 1_001_615
    lives = (
        rows.select([*FLIGHT_KEYS, MARKER]).group_by(list(FLIGHT_KEYS), use_threads=False).aggregate([(MARKER, "list")])
    )
    assert Counter(tuple(life) for life in lives[f"{MARKER}_list"].to_pylist()) == {
        (0, 1, 4): 328_063,
        (0, 1): 458,  # departed, and no arrival is known
        (0, 2): 8_255,
    }
    scheduled = rows.filter(pc.equal(rows[MARKER], 0))
    for name in ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time", "tailnum"):
        assert scheduled[name].null_count == scheduled.num_rows
    departed = rows.filter(pc.equal(rows[MARKER], 1))
    assert departed["dep_time"].null_count == 0
    assert departed["arr_time"].null_count == departed.num_rows


def test_events_lie_in_the_file_of_their_day(year: list[Step]) -> None:
    by_day = {step.day: step.rows for step in year if step.table == "flights"}
    day = by_day[dt.date(2013, 1, 2)]
    scheduled = day.filter(pc.equal(day[MARKER], 0))
    assert set(zip(scheduled["month"].to_pylist(), scheduled["day"].to_pylist(), strict=True)) == {(1, 3)}
    # B6 707 to San Juan was to leave on January 2nd at 23:59 and left 43 minutes late
    late = by_day[dt.date(2013, 1, 3)].filter(
        (pc.field("carrier") == "B6") & (pc.field("flight") == 707) & (pc.field("day") == 2)
    )
    assert late[MARKER].to_pylist() == [1, 4]
    assert late["dep_time"].to_pylist() == [42, 42]


@pytest.mark.full
def test_the_landing_zone_obeys_the_contract(zone: Path) -> None:
    assert {path.name for path in zone.iterdir()} == set(TABLES)
    for path in (zone / "flights").glob("*.parquet"):
        schema = pq.read_schema(path)
        assert schema.names[-1] == MARKER
        assert schema.field(MARKER).type == pa.int32()
    assert MARKER not in pq.read_schema(next((zone / "weather").glob("*.parquet"))).names


@pytest.mark.full
def test_figures_of_the_published_year(zone: Path) -> None:
    wanted = expected(find_data())
    found = duckdb.connect()
    found.sql(f"create table flights as select * from {flights_sql(zone)}")
    rows = {
        table: found.sql(f"select count(*) from read_parquet('{zone}/{table}/*.parquet')").fetchall()[0][0]
        for table in TABLES
    } | {"flights": found.sql("select count(*) from flights").fetchall()[0][0]}
    carriers = found.sql(query("flights", "carrier")).fetchall()
    months = found.sql(query("flights", "month")).fetchall()
    assert differences(wanted, rows, carriers, months) == []
    total = found.sql(query("flights")).fetchall()[0]
    assert total == (328_521, 327_346, 344_477_462, 49_326_610, 4_152_200, 2_257_174)
    assert tuple(vars(wanted.total).values()) == total
    assert (wanted.cancelled, len(carriers), len(months)) == (8_255, 16, 12)


@pytest.mark.full
@pytest.mark.full
def test_the_published_year_is_the_data_set_row_by_row(zone: Path) -> None:
    source = read_flights(find_data(), 365).filter(pc.field("dep_time").is_valid())
    found = duckdb.connect()
    found.register("source", source)
    columns = ", ".join(source.column_names)
    mirrored = f"select {columns} from {flights_sql(zone)}"
    assert found.sql(f"select count(*) from ({mirrored} except all select {columns} from source)").fetchall() == [(0,)]
    assert found.sql(f"select count(*) from (select {columns} from source except all {mirrored})").fetchall() == [(0,)]


def test_differences_name_what_is_wrong() -> None:
    wanted = expected(find_data(), 2)
    carriers = [[name, *vars(figures).values()] for name, figures in wanted.carrier.items()]
    months = [[name, *vars(figures).values()] for name, figures in wanted.month.items()]
    assert differences(wanted, wanted.rows, carriers, months) == []
    assert differences(wanted, {**wanted.rows, "planes": 1}, carriers, months) == ["planes: 1 rows, expected 3322"]
    lost, carriers[0][0] = carriers[0][0], "??"
    assert [text.split(":")[0] for text in differences(wanted, wanted.rows, carriers, months)] == [
        f"carrier {lost}",
        "carrier ??",
    ]
    months[0][3] += 1
    assert any("month 1" in text for text in differences(wanted, wanted.rows, carriers, months))


@pytest.mark.parametrize("days", [1, 2, pytest.param(40, marks=pytest.mark.full)])
def test_fewer_days(tmp_path: Path, days: int) -> None:
    source = FlightsSource(days)
    for step in source.steps():
        source.publish(tmp_path, step)
    wanted = expected(source.data, days)
    found = duckdb.connect()
    zone = tmp_path / "Files" / "LandingZone"
    carriers = found.sql(query(flights_sql(zone), "carrier")).fetchall()
    months = found.sql(query(flights_sql(zone), "month")).fetchall()
    assert sum(row[1] for row in carriers) == wanted.total.flights > 800 * days
    assert differences(wanted, wanted.rows, carriers, months) == []


def test_a_step_is_published_once(tmp_path: Path) -> None:
    source = FlightsSource(1)
    step = next(source.steps())
    source.publish(tmp_path, step)
    with pytest.raises(LakemirrorError, match="publish-conflict"):
        source.publish(tmp_path, step)


def test_without_the_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SetupError, match="demo-data-missing"):
        FlightsSource()


def test_labels(year: list[Step]) -> None:
    labels = [step.label for step in year]
    assert labels[0] == "airlines: initial load"
    assert "flights: 2013-02-09 (late)" in labels
    assert len(set(labels)) == len(labels)
