"""The fold of versions against a plain model: any cut into batches, any order of arrival, ties, deletes of absent keys.

In these tests a row is (key, time, tracked value, untracked value), and all events are remembered.
"""

from __future__ import annotations

import itertools
import random
from typing import Any, NamedTuple

import numpy as np
import pytest

from lakemirror.engines.kernels.intervals import ALWAYS, OPEN, Events, Known, fold_intervals


class Event(NamedTuple):
    key: int
    time: int
    value: int | None  # None: a delete
    other: int = 0


class Version(NamedTuple):
    start: int
    end: int
    row: Event


def plain(events: list[Event], *, sequenced: bool = True) -> dict[int, list[Version]]:
    """The versions of each key after events that came in this order."""
    found: dict[int, list[Version]] = {}
    for key in sorted({event.key for event in events}):
        its = [event for event in events if event.key == key]
        if sequenced:
            its = list({event.time: event for event in sorted(its, key=lambda event: event.time)}.values())
        versions: list[Version] = []
        before: int | None = None
        for event in its:
            is_open = bool(versions) and versions[-1].end == OPEN
            if is_open and event.value == versions[-1].row.value:
                versions[-1] = versions[-1]._replace(row=event)
            elif is_open or event.value is not None:
                at = event.time if sequenced or before is None else max(event.time, before + 1)
                before = at
                if is_open:
                    versions[-1] = versions[-1]._replace(end=at)
                if event.value is not None:
                    versions.append(Version(at, OPEN, event))
        if versions:
            found[key] = versions
    return found


class Table:
    """What an apply has: versions in a table, and the events that came."""

    def __init__(self, *, sequenced: bool = True, remembers: bool = True, since: int = ALWAYS) -> None:
        self.sequenced, self.remembers, self.since = sequenced, remembers, since
        self.versions: list[Version] = []
        self.events: list[Event] = []
        self.written = 0

    def apply(self, batch: list[Event]) -> None:
        least = {event.key: min(other.time for other in batch if other.key == event.key) for event in batch}
        known = [each for each in self.versions if each.row.key in least and each.end >= least[each.row.key]]
        begin = dict(least)
        for each in known:
            begin[each.row.key] = min(begin[each.row.key], each.start if each.start > self.since else 0)
        remembered = [each for each in self.events if each.key in least and each.time >= begin[each.key]]
        if not (self.sequenced and self.remembers):
            remembered = []
        rows = [each.row for each in known] + remembered + batch

        def equal(one: np.ndarray, other: np.ndarray, part: Any) -> np.ndarray:
            return np.array([part(rows[a]) == part(rows[b]) for a, b in zip(one, other, strict=True)], bool)

        lasts = [each.row.time if self.sequenced else each.start for each in known]
        found = fold_intervals(
            Known(
                numbers([each.row.key for each in known]), numbers([each.start for each in known]),
                numbers([each.end for each in known]), numbers(lasts),
            ),
            Events(
                numbers([each.key for each in remembered + batch]), numbers([each.time for each in remembered + batch]),
                np.array([each.value is None for each in remembered + batch], bool), len(remembered),
            ),
            lambda a, b: equal(a, b, lambda row: row.value),
            identical=lambda a, b: equal(a, b, lambda row: row[:4]),
            sequenced=self.sequenced,
            since=self.since,
        )  # fmt: skip
        for number in sorted(found.removed, reverse=True):
            self.versions.remove(known[number])
        for row, start, end in zip(found.rows, found.starts, found.ends, strict=True):
            self.versions.append(Version(int(start), int(end), rows[row]))
        self.written += len(found.rows)
        self.events += batch

    def by_key(self) -> dict[int, list[Version]]:
        found: dict[int, list[Version]] = {}
        for each in sorted(self.versions, key=lambda each: (each.row.key, each.start)):
            found.setdefault(each.row.key, []).append(each)
        return found


def numbers(values: list[int]) -> np.ndarray:
    return np.array(values, np.int64)


def some_events(rng: random.Random, *, distinct: bool) -> list[Event]:
    keys, count = rng.randint(1, 4), rng.randint(1, 30)
    times = rng.sample(range(60), count) if distinct else [rng.randint(0, 25) for _ in range(count)]
    return [
        Event(rng.randint(1, keys), time, rng.choice([None, 1, 1, 2, 3]), rng.randint(0, 1)) for time in times
    ]  # fmt: skip


def batches(rng: random.Random, events: list[Event]) -> list[list[Event]]:
    found, begin = [], 0
    while begin < len(events):
        end = begin + rng.randint(1, 8)
        found.append(events[begin:end])
        begin = end
    return found


@pytest.mark.parametrize("distinct", [True, False], ids=["distinct", "ties"])
@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in range(0, 200, 20)], ids=str)
def test_any_cut_into_batches_gives_the_versions_of_the_model(seeds: range, distinct: bool) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        events = some_events(rng, distinct=distinct)
        table = Table()
        for batch in batches(rng, events):
            table.apply(batch)
        assert table.by_key() == plain(events), f"seed {seed}: {events}"


@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in range(0, 100, 20)], ids=str)
def test_any_order_of_arrival_gives_the_same_versions(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        events = some_events(rng, distinct=True)
        expected = plain(sorted(events, key=lambda event: event.time))
        for _ in range(4):
            rng.shuffle(events)
            table = Table()
            for batch in batches(rng, events):
                table.apply(batch)
            assert table.by_key() == expected, f"seed {seed}: {events}"


@pytest.mark.parametrize("distinct", [True, False], ids=["distinct", "ties"])
@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in range(0, 200, 20)], ids=str)
def test_versions_that_are_cut_off_are_those_of_all_time_from_there_on(seeds: range, distinct: bool) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        since = rng.randint(1, 40)
        events = [event._replace(time=event.time + 1) for event in some_events(rng, distinct=distinct)]
        table = Table(since=since)
        for batch in batches(rng, events):
            table.apply(batch)
        cut = {key: [each._replace(start=max(each.start, since)) for each in versions if each.end > since]
               for key, versions in plain(events).items()}  # fmt: skip
        assert table.by_key() == {key: versions for key, versions in cut.items() if versions}, f"seed {seed}: {events}"


@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in range(0, 200, 20)], ids=str)
def test_without_a_sequence_events_are_in_their_order_and_times_increase(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        events = some_events(rng, distinct=False)
        table = Table(sequenced=False)
        for batch in batches(rng, events):
            table.apply(batch)
        assert table.by_key() == plain(events, sequenced=False), f"seed {seed}: {events}"
        for versions in table.by_key().values():
            for one, other in itertools.pairwise(versions):
                assert one.start < one.end <= other.start


def test_in_order_changes_need_no_memory() -> None:
    rng = random.Random(1)
    for _ in range(100):
        events = sorted(some_events(rng, distinct=True), key=lambda event: event.time)
        table = Table(remembers=False)
        for batch in batches(rng, events):
            table.apply(batch)
        with_deletes = plain(events)
        assert table.by_key() == with_deletes, events


def test_a_late_change_splits_the_interval_as_well_as_the_table_knows() -> None:
    """Nothing is remembered: the rest of the run is what its last event says."""
    table = Table(remembers=False)
    for event in (Event(1, 10, 1), Event(1, 20, 1, other=5)):
        table.apply([event])
    table.apply([Event(1, 15, 2)])
    assert [(each.start, each.end, each.row.value) for each in table.by_key()[1]] == [
        (10, 15, 1), (15, 20, 2), (20, OPEN, 1),
    ]  # fmt: skip


def test_a_late_change_and_a_late_delete_end_the_version_there() -> None:
    table = Table()
    table.apply([Event(1, 10, 1), Event(1, 30, 2)])
    table.apply([Event(1, 20, None)])
    assert [each[:2] for each in table.by_key()[1]] == [(10, 20), (30, OPEN)]
    table.apply([Event(1, 25, 2)])  # the same as the next version
    assert [each[:2] for each in table.by_key()[1]] == [(10, 20), (25, OPEN)]
    table.apply([Event(1, 20, 2)])  # in place of the delete
    assert [each[:2] for each in table.by_key()[1]] == [(10, 20), (20, OPEN)]


def test_a_delete_of_an_absent_key_is_remembered_for_what_comes_late() -> None:
    table = Table()
    table.apply([Event(1, 30, None), Event(1, 40, None)])
    assert table.by_key() == {}
    table.apply([Event(1, 20, 1)])
    assert [each[:2] for each in table.by_key()[1]] == [(20, 30)]
    table.apply([Event(1, 35, 1)])
    assert [each[:2] for each in table.by_key()[1]] == [(20, 30), (35, 40)]


def test_an_event_that_changes_nothing_writes_nothing() -> None:
    table = Table(sequenced=False)
    table.apply([Event(1, 10, 1), Event(2, 10, 1)])
    written = table.written
    table.apply([Event(1, 10, 1), Event(2, 11, 2)])
    assert table.written == written + 2
    assert [each[:2] for each in table.by_key()[1]] == [(10, OPEN)]


def test_only_versions_that_change_are_written_again() -> None:
    table = Table()
    table.apply([Event(1, time, time) for time in range(0, 100, 10)])
    written = table.written
    table.apply([Event(1, 55, 7)])
    assert table.written == written + 2  # [50, 55) and [55, 60)
