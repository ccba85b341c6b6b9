"""The rows that tables must hold after changes, where deletes, order or history are options (history.md).

changes of some keys ─▶ in the order of the contract ─▶ partial rows completed ─▶ the current rows, or the versions

All changes of a key must be there, from its first on. Nothing is looked up: the rows follow from the changes alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.landing_zone.row_markers import DELETE, INSERT, UPSERT
from lakemirror.verify.row_hashes import row_hashes

PLACE, MARK, TIME = "__place__", "__mark__", "__time__"
"""Columns beside those of the table: order of arrival, row marker, the source's time in microseconds (may be NULL)."""

DELETED, DELETED_AT, START_AT, END_AT = "__deleted", "__deleted_at", "__START_AT", "__END_AT"
SOFT, IGNORE = "soft", "ignore"
_LEFT_OUT = "__left__"
_KEY, _KEY_TOO, _TRACKED = 2, 3, 4
_INSTANT = pa.timestamp("us", "UTC")

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Meaning:
    """What changes of a table mean. `track`: the columns whose changes begin a version; empty: all but the sequence.

    `inserts_replace`: marker 0 is an upsert.
    """

    keys: tuple[str, ...]
    deletes: str = "hard"
    sequence: tuple[str, ...] = ()
    track: tuple[str, ...] = ()
    inserts_replace: bool = False


def with_left_out(rows: pa.Table, left_out: Mapping[str, Flags]) -> pa.Table:
    """The rows with what says, for a column by its name, which of them leave it out (contract section 3a)."""
    for name, which in left_out.items():
        rows = rows.append_column(f"{_LEFT_OUT}{name}", pa.array(which))
    return rows


def current_rows(changes: pa.Table, meaning: Meaning) -> pa.Table:
    """The rows of the mirrored table; where deletes are soft, with `__deleted` and `__deleted_at` (NULL: not known)."""
    events = _in_order(changes, meaning)
    mark, index = events.mark, np.arange(len(events.mark))
    starts = np.flatnonzero(events.begins)
    kept, dead = np.zeros(len(mark), bool), np.zeros(len(mark), bool)
    if len(starts):
        last = np.maximum.reduceat(np.where(mark != INSERT, index, -1), starts)
        kept = (index >= last[np.cumsum(events.begins) - 1]) & (mark != DELETE)
        values = np.maximum.reduceat(np.where(mark != DELETE, index, -1), starts)
        if meaning.deletes == SOFT:
            dead[values[(values >= 0) & (values < last)]] = True
    rows = events.values.filter(pa.array(kept | dead))
    if meaning.deletes != SOFT:
        return rows
    is_dead = dead[kept | dead]
    deletes = pa.array(np.flatnonzero(kept | dead) + 1, mask=~is_dead)  # the first delete after the row
    since = events.rows[TIME].take(deletes).cast(_INSTANT)
    return rows.append_column(DELETED, pa.array(is_dead)).append_column(DELETED_AT, since)


def version_rows(changes: pa.Table, meaning: Meaning) -> pa.Table:
    """The rows of the table of versions, with `__START_AT` and `__END_AT`; without a sequence by the changes' times."""
    events = _in_order(changes, meaning)
    if meaning.sequence:
        events = events.chosen(np.append(events.rank[1:] != events.rank[:-1], True)[: len(events.rank)])
    count, deletes = len(events.mark), events.mark == DELETE
    names = events.values.column_names
    tracked = [name for name in names if (name in meaning.track if meaning.track else name not in meaning.sequence)]
    content = row_hashes([_array(events.rows[name]) for name in tracked], count, _TRACKED)
    was_delete = np.roll(deletes, 1)
    begins = ~deletes & (events.begins | was_delete | (content != np.roll(content, 1)))
    points = np.flatnonzero(begins | (deletes & ~events.begins & ~was_delete))
    times = _times(events, meaning, points)
    first = np.flatnonzero(begins)
    at = np.searchsorted(points, first)
    end_of_key = np.searchsorted(events.key, events.key[first], "right")
    following = np.append(points, count)[at + 1]
    is_open = following >= end_of_key
    last = np.where(is_open, end_of_key, following) - 1
    rows = events.values.take(pa.array(last))
    rows = rows.append_column(START_AT, times.take(pa.array(at)))
    return rows.append_column(END_AT, times.take(pa.array(at + 1, mask=is_open)))


@dataclass(frozen=True, eq=False)
class _Events:
    """Changes in the order in which they act. `key`: a number for each key, ascending. `rank`: the same for changes of
    a key with one sequence. `late`: a change of the key with a higher sequence came before."""

    rows: pa.Table
    mark: Numbers
    key: Numbers
    rank: Numbers
    late: Flags
    partial: Flags

    @property
    def begins(self) -> Flags:
        """True at the first event of each key."""
        found = np.ones(len(self.key), bool)
        found[1:] = self.key[1:] != self.key[:-1]
        return found

    @property
    def values(self) -> pa.Table:
        """The columns of the table."""
        ours = (PLACE, MARK, TIME)
        return self.rows.select([n for n in self.rows.column_names if n not in ours and not n.startswith(_LEFT_OUT)])

    def chosen(self, which: Flags) -> _Events:
        return _Events(
            self.rows.filter(pa.array(which)), self.mark[which], self.key[which], self.rank[which], self.late[which],
            self.partial[which],
        )  # fmt: skip


def _in_order(changes: pa.Table, meaning: Meaning) -> _Events:
    mark = np.asarray(changes[MARK]).astype(np.int64)
    if meaning.deletes == IGNORE:
        changes = changes.filter(pa.array(mark != DELETE))
        mark = mark[mark != DELETE]
    if meaning.inserts_replace:
        mark = np.where(mark == INSERT, UPSERT, mark)
    keys = [_array(changes[name]) for name in meaning.keys]
    by = {name: row_hashes(keys, len(mark), seed).view(np.int64) for name, seed in (("key", _KEY), ("too", _KEY_TOO))}
    for i, name in enumerate(meaning.sequence):  # NULL, before the table had a sequence, is before all others
        by |= {f"has{i}": changes[name].is_valid(), f"s{i}": changes[name]}
    sorted_by = pa.table({**by, PLACE: changes[PLACE]})
    order = pc.sort_indices(sorted_by, [(name, "ascending") for name in sorted_by.column_names])
    rows, mark, sorted_by = changes.take(order), mark[np.asarray(order)], sorted_by.take(order)
    key = _numbered([sorted_by["key"], sorted_by["too"]])
    order_of_key = [sorted_by[f"s{i}"] for i in range(len(meaning.sequence))] or [sorted_by[PLACE].cast(pa.int64())]
    rank = _numbered([sorted_by["key"], sorted_by["too"], *order_of_key])
    late = _late(rank, key, np.asarray(rows[PLACE]))
    lefts = [name for name in rows.column_names if name.startswith(_LEFT_OUT)]
    partial = np.zeros(len(mark), bool)
    for name in lefts:
        partial |= np.asarray(rows[name])
    events = _Events(rows, mark, key, rank, late, partial)
    return _completed(events, meaning, lefts) if partial.any() else events


def _late(rank: Numbers, key: Numbers, arrived: np.ndarray[Any, Any]) -> Flags:
    """Ranks ascend from key to key, so the highest of the keys before is lower than every one of this key."""
    arrival = np.lexsort((arrived, key))
    highest = np.maximum.accumulate(rank[arrival])
    late = np.zeros(len(rank), bool)
    late[arrival[1:]] = rank[arrival[1:]] < highest[:-1]
    return late


def _numbered(columns: list[pa.ChunkedArray]) -> Numbers:
    """Numbers that are equal for neighbours with equal values, and else one higher."""
    arrays = [_array(column) for column in columns]
    hashes = row_hashes(arrays, len(arrays[0]), _TRACKED)
    found: Numbers = np.cumsum(hashes != np.roll(hashes, 1))
    return found


def _completed(events: _Events, meaning: Meaning, lefts: list[str]) -> _Events:
    """The events with the values that partial rows take from the event of their key before them; NULL without one."""
    rows, place = events.rows, np.arange(len(events.mark))
    is_delete, begins = events.mark == DELETE, events.begins
    stops = begins | (is_delete & (meaning.deletes != SOFT))
    sources: dict[str, Numbers] = {}
    for left in lefts:
        has = ~is_delete & ~np.asarray(rows[left])
        source = np.maximum.accumulate(np.where(has | stops, place, 0))
        sources[left] = np.where(has[source], source, -1)
    both = np.intersect1d(events.key[events.late], events.key[events.partial])
    for key in both:
        _complete_by_arrival(events, np.flatnonzero(events.key == key), meaning, sources)
    for left, source in sources.items():
        name = left[len(_LEFT_OUT) :]
        index = rows.schema.get_field_index(name)
        taken = np.where(events.partial, source, place)
        rows = rows.set_column(index, rows.schema.field(index), rows[name].take(pa.array(taken, mask=taken < 0)))
    return _Events(rows, events.mark, events.key, events.rank, events.late, events.partial)


def _complete_by_arrival(events: _Events, of_key: Numbers, meaning: Meaning, sources: Mapping[str, Numbers]) -> None:
    """The same for a key with late changes: a partial row takes what was known when it came."""
    arrived: list[int] = []
    place = np.asarray(events.rows[PLACE])
    left_out = {left: np.asarray(events.rows[left]) for left in sources}
    for event in of_key[np.argsort(place[of_key])].tolist():
        before = -1
        for other in sorted(arrived):  # their order is that of the sequence
            if other > event:
                break
            if events.mark[other] != DELETE:
                before = other
            elif meaning.deletes != SOFT:
                before = -1
        for left, source in sources.items():
            source[event] = event if not left_out[left][event] else source[before] if before >= 0 else -1
        arrived.append(event)


def _times(events: _Events, meaning: Meaning, points: Numbers) -> pa.Array:
    """The place in time of these events; without a sequence strictly increasing for each key."""
    if meaning.sequence:
        parts = [_array(events.rows[name]).take(pa.array(points)) for name in meaning.sequence]
        if len(parts) == 1:
            return parts[0]
        return pa.StructArray.from_arrays(parts, names=list(meaning.sequence))
    given = np.asarray(events.rows[TIME].cast(pa.int64()).fill_null(0))[points]
    found = given.copy()
    key = events.key[points]
    for index in range(1, len(found)):
        if key[index] == key[index - 1]:
            found[index] = max(found[index], found[index - 1] + 1)
    return pa.array(found).cast(_INSTANT)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
