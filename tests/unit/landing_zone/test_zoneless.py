"""Times without a zone as instants: every zone, in every century, as Python's own rules have it."""

from __future__ import annotations

import datetime as dt
import zoneinfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemirror.landing_zone.delimited.values import BadValue, any_zoneless, converted
from lakemirror.landing_zone.zoneless import NoInstant, instants

UTC = dt.timezone.utc
ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Asia/Kolkata",
]
BERLIN = "Europe/Berlin"


def read(zone: str, *times: dt.datetime | None) -> list[dt.datetime | None]:
    found: list[dt.datetime | None] = instants(pa.array(times, pa.timestamp("us")), zone).to_pylist()
    return found


@given(st.sampled_from(ZONES), st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29)))
def test_a_time_becomes_the_instant_that_shows_it(zone: str, local: dt.datetime) -> None:
    rules = zoneinfo.ZoneInfo(zone)
    shown = local.replace(tzinfo=rules).astimezone(UTC).astimezone(rules).replace(tzinfo=None)
    if shown != local:
        with pytest.raises(NoInstant, match=f"does not occur in {zone}"):
            read(zone, local)
        return
    assert read(zone, None, local) == [None, local.replace(tzinfo=rules).astimezone(UTC)]


def test_the_hour_that_occurs_twice_is_the_earlier_one() -> None:
    assert read(BERLIN, dt.datetime(2026, 10, 25, 2, 30)) == [dt.datetime(2026, 10, 25, 0, 30, tzinfo=UTC)]
    assert read(BERLIN, dt.datetime(2026, 10, 25, 3)) == [dt.datetime(2026, 10, 25, 2, tzinfo=UTC)]


def test_the_hour_that_never_occurs_is_refused_with_its_row() -> None:
    """Else 02:30 and 03:30 would become one instant, and as keys one row."""
    times = [dt.datetime(2026, 3, 29, 1, 59), None, dt.datetime(2026, 3, 29, 2, 30)]
    with pytest.raises(NoInstant, match="2026-03-29 02:30:00 does not occur in Europe/Berlin") as caught:
        read(BERLIN, *times)
    assert caught.value.row == 2
    assert read(BERLIN, dt.datetime(2026, 3, 29, 3)) == [dt.datetime(2026, 3, 29, 1, tzinfo=UTC)]


def test_summers_after_2037_have_daylight_saving() -> None:
    assert read(BERLIN, dt.datetime(2050, 7, 1, 9)) == [dt.datetime(2050, 7, 1, 7, tzinfo=UTC)]


@pytest.mark.parametrize("micros", [-(2**62), 2**62])
def test_what_no_calendar_of_ours_holds_is_refused(micros: int) -> None:
    with pytest.raises(NoInstant, match="years 1 to 9999"):
        instants(pa.array([micros], pa.int64()).view(pa.timestamp("us")), BERLIN)
    with pytest.raises(NoInstant, match="years 1 to 9999"):
        read("Asia/Kolkata", dt.datetime(1, 1, 1, 1))


def test_infinity_as_sources_write_it_stays_the_last_and_the_first_moment() -> None:
    ends = [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)]
    for zone in ZONES:
        assert read(zone, *ends) == [each.replace(tzinfo=UTC) for each in ends]


def test_text_with_and_without_a_zone_in_one_column() -> None:
    texts = ["2026-07-01 09:00", "2026-07-01T09:00:00Z", "2026-07-01 09:00:00.1234567+01:00", None, "", "2026-07-01"]
    found = converted(pa.array(texts), "timestamp", BERLIN)
    assert found.type == pa.timestamp("us", "UTC")
    day = dt.datetime(2026, 7, 1, tzinfo=UTC)
    assert found.to_pylist() == [
        day.replace(hour=7), day.replace(hour=9), day.replace(hour=8, microsecond=123456), None, None,
        day - dt.timedelta(hours=2),
    ]  # fmt: skip
    with pytest.raises(BadValue) as caught:
        converted(pa.array(["2026-03-29 02:30", "x"]), "timestamp", BERLIN)
    assert (caught.value.place, caught.value.text) == (0, "2026-03-29 02:30")
    assert "does not occur in Europe/Berlin" in caught.value.why
    with pytest.raises(BadValue) as caught:
        converted(pa.array(["2026-03-29 03:30Z", "x"]), "timestamp", BERLIN)
    assert (caught.value.place, caught.value.why) == (1, "")


@pytest.mark.parametrize("text", ["2026-07-01T09:00Z", "2026-07-01 09:00:00+02", " 2026-07-01 09:00:00.5 +02:00 "])
def test_a_column_of_times_without_zone_takes_none_with_one(text: str) -> None:
    with pytest.raises(BadValue, match="2026") as caught:
        converted(pa.array(["2026-07-01 09:00", text]), "timestamp_ntz")
    assert caught.value.place == 1 and "names a time zone" in caught.value.why
    assert not any_zoneless(pa.array([text, None, " "]))
    assert any_zoneless(pa.array([text, "2026-07-01"]))


def test_a_column_of_times_without_zone() -> None:
    texts = ["2026-07-01 09:00", "2026-07-01T09:00:00.1234567", "", None, "2026-07-01", " 2026-07-01 10:00"]
    found = converted(pa.array(texts), "timestamp_ntz")
    assert found.type == pa.timestamp("us")
    day = dt.datetime(2026, 7, 1)
    assert found.to_pylist() == [
        day.replace(hour=9), day.replace(hour=9, microsecond=123456), None, None, day, day.replace(hour=10),
    ]  # fmt: skip
    with pytest.raises(BadValue):
        converted(pa.array(["2026-13-01"]), "timestamp_ntz")
