"""Folds the changes of keys into versions with intervals (history.md, section 3). Pure: rows and times are numbers.

known versions ─▶ points in time ┐
remembered and new events ───────┴▶ by key and time, one a time ─▶ runs of equal rows ─▶ versions ─▶ what changes

A version begins at the first event of a run of equal rows, has the row of the last one, and ends where the next run or
a delete is. So a late event needs no case of its own: it is one more point, and the runs beside it are made again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from lakemirror.engines.kernels.sequence_order import in_order

OPEN = np.iinfo(np.int64).max
"""The end of a version that has none."""

ALWAYS = np.iinfo(np.int64).min
"""The begin of the time of which versions are made where all of it counts."""

Same: TypeAlias = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""For pairs of rows, by their numbers: whether both are equal (bool)."""


class Known(NamedTuple):
    """Versions of the table. Version number i has row number i. All int64: `keys`: one number per key; `starts`,
    `ends`: times, OPEN without an end; `lasts`: the time of the last event of its run, `starts` where there is no
    sequence.
    """

    keys: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    lasts: np.ndarray


class Events(NamedTuple):
    """Events in the order in which they came; event i has the row number `len(known) + i`.

    `remembered`: so many of the first ones came in earlier applies, and are in the known versions already.
    """

    keys: np.ndarray
    times: np.ndarray
    deletes: np.ndarray
    remembered: int = 0


class Intervals(NamedTuple):
    """What changes in the table. `removed`: the numbers of known versions that go. New versions: the `rows` that they
    have, their `starts` and `ends` (OPEN: none).
    """

    removed: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def fold_intervals(
    known: Known, events: Events, same: Same, *, identical: Same | None = None, sequenced: bool = True,
    since: int = ALWAYS,
) -> Intervals:  # fmt: skip
    """The changes that events make to the known versions of their keys.

    `same`: whether two rows are equal in the tracked columns. `identical`: in all columns; then a version is not
    written again for an event that changes nothing. `sequenced`: events are ordered by time, of several with one time
    the last one counts. Otherwise they are in their order after all known versions, and `times` are raised to be
    strictly increasing from one point of a key to the next. `since`: versions are cut off before this time.

    `known` must have all versions of a key that end at its first event or later. Of the remembered events only those
    belong here that are not before these versions and not before the first new one.
    """
    points = points_in_order(known, events, sequenced, since).counting()
    runs = _runs(points, same)
    times = points.times if sequenced else _increasing(points, runs)
    rows, starts = points.rows[runs.lasts], np.maximum(times[runs.firsts], since)
    ends = np.where(runs.ends < 0, OPEN, times[runs.ends])
    stays = _unchanged(known, points, runs, starts, ends, identical)
    removed = np.ones(len(known.keys), bool)
    removed[stays[stays >= 0]] = False
    new = (stays < 0) & (ends > since)
    return Intervals(np.flatnonzero(removed), rows[new], starts[new], ends[new])


class Points(NamedTuple):
    """Where a key gets a row, or loses it, by key and time. `known`: the number of the version that begins here, -1:
    none. `counts`: False for a point at whose time a later one of its key is."""

    keys: np.ndarray
    times: np.ndarray
    rows: np.ndarray
    deletes: np.ndarray
    known: np.ndarray
    counts: np.ndarray

    def chosen(self, which: np.ndarray | slice) -> Points:
        return Points(*(values[which] for values in self))

    def counting(self) -> Points:
        return self if self.counts.all() else self.chosen(self.counts)


class _Runs(NamedTuple):
    """Runs of equal rows, as numbers of points: the first and the last of each, and where it ends; -1: nowhere."""

    firsts: np.ndarray
    lasts: np.ndarray
    ends: np.ndarray


def points_in_order(known: Known, events: Events, sequenced: bool, since: int = ALWAYS) -> Points:
    """All points by key and time. Of several at one time, what is more certain comes later.

    The end of a known version is a delete unless anything else is there. Its row is that of its last event, so at its
    start a remembered event knows better. A version that begins at `since` began there or before: its start is the
    first point of its key.
    """
    known = known._replace(starts=np.where(known.starts <= since, 0, known.starts))
    count, old = len(events.keys), events.remembered
    closed, longer = np.flatnonzero(known.ends != OPEN), np.flatnonzero(known.lasts > known.starts)
    shorter = np.flatnonzero(known.lasts <= known.starts)
    came = _points(events.keys, events.times, len(known.keys) + np.arange(count), events.deletes, -1)
    groups = [
        _points(known.keys[closed], known.ends[closed], closed, True, -1),
        _points(known.keys[longer], known.starts[longer], longer, False, longer),
        came.chosen(slice(0, old)),
        _points(known.keys[shorter], known.starts[shorter], shorter, False, shorter),
        _points(known.keys[longer], known.lasts[longer], longer, False, -1),
        came.chosen(slice(old, None)),
    ]
    points = Points(*(np.concatenate(values) for values in zip(*groups, strict=True)))
    is_new = np.arange(len(points.keys)) >= len(points.keys) - (count - old)
    times = points.times
    if not sequenced:
        times = np.where(is_new, points.times[~is_new].max(initial=0) + 1, times)
    order = in_order(points.keys, times)
    keys, times = points.keys[order], times[order]
    counts = np.ones(len(order), bool)
    counts[:-1] = (keys[1:] != keys[:-1]) | (times[1:] != times[:-1])
    if not sequenced:  # new events are in their order, whatever time they name
        counts |= is_new[order]
    return points.chosen(order)._replace(counts=counts)


def _points(
    keys: np.ndarray, times: np.ndarray, rows: np.ndarray, deletes: np.ndarray | bool, known: np.ndarray | int
) -> Points:
    numbers = np.broadcast_to(np.asarray(known, np.int64), len(keys))
    is_delete = np.broadcast_to(np.asarray(deletes, bool), len(keys))
    return Points(keys, times, rows, is_delete, numbers, np.ones(len(keys), bool))


def _runs(points: Points, same: Same) -> _Runs:
    """The runs of equal rows. Only rows of neighbours are compared."""
    count = len(points.keys)
    follows = np.zeros(count, bool)  # the point before is of the same key
    follows[1:] = points.keys[1:] == points.keys[:-1]
    extends = follows & ~points.deletes
    extends[1:] &= ~points.deletes[:-1]
    pairs = np.flatnonzero(extends)
    rows, before = points.rows[pairs], points.rows[pairs - 1]
    differ = np.flatnonzero(rows != before)
    extends[pairs[differ[~same(before[differ], rows[differ])]]] = False
    firsts = np.flatnonzero(~extends & ~points.deletes)
    ends_here = np.ones(count, bool)  # no point of the same run comes next
    ends_here[:-1] = ~extends[1:]
    lasts = np.flatnonzero(ends_here & ~points.deletes)
    after = np.minimum(lasts + 1, count - 1)
    ends = np.where((lasts + 1 < count) & follows[after], after, -1)
    return _Runs(firsts, lasts, ends)


def _increasing(points: Points, runs: _Runs) -> np.ndarray:
    """The times of all points; those where a run begins or ends are raised above the one before of the same key."""
    times = points.times.copy()
    is_bound = np.zeros(len(times), bool)
    is_bound[runs.firsts] = True
    is_bound[runs.ends[runs.ends >= 0]] = True
    bounds = np.flatnonzero(is_bound)
    keys, own = points.keys[bounds], times[bounds]
    wrong = np.flatnonzero((keys[1:] == keys[:-1]) & (own[1:] <= own[:-1]))
    if not len(wrong):
        return times
    chosen = np.isin(keys, keys[wrong])
    bounds, keys, own = bounds[chosen], keys[chosen], own[chosen]
    number = np.arange(len(bounds))
    level, places = np.unique(
        own - number, return_inverse=True
    )  # so that each is at least one more than the one before
    begins = np.cumsum(np.diff(keys, prepend=keys[:1] - 1) != 0)
    highest = np.maximum.accumulate(begins * len(level) + places) % len(level)
    times[bounds] = level[highest] + number
    return times


def _unchanged(
    known: Known, points: Points, runs: _Runs, starts: np.ndarray, ends: np.ndarray, identical: Same | None
) -> np.ndarray:
    """For each run the number of the known version that is the same, -1 for none."""
    rows = points.rows[runs.lasts]
    number = np.where(rows < len(known.keys), rows, points.known[runs.firsts])
    may = np.flatnonzero(number >= 0)
    its = number[may]
    fits = (known.starts[its] == starts[may]) & (known.ends[its] == ends[may])
    may, its = may[fits], its[fits]
    equal = rows[may] == its
    if identical is not None:
        other = np.flatnonzero(~equal)
        equal[other] = identical(its[other], rows[may[other]])
    found = np.full(len(rows), -1)
    found[may[equal]] = its[equal]
    return found
