"""The rows that tables must hold after changes, where deletes, order or history are options (history.md).

changes of some keys ─▶ in the order of the contract ─▶ partial rows completed ─▶ the current rows, or the versions

All changes of a key must be there, from its first on. Nothing is looked up: the rows follow from the changes alone.
Where the options were changed, the changes are taken phase by phase: the rows after a phase, and the deletes that are
remembered then, are events before those of the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.landing_zone.row_markers import DELETE, INSERT, UPSERT
from lakemirror.landing_zone.table_options import HARD, IGNORE
from lakemirror.verify.archived_files import NotComparable
from lakemirror.verify.option_phases import FILE_BITS, Meaning, Phase
from lakemirror.verify.row_hashes import row_hashes

PLACE, MARK, TIME = "__place__", "__mark__", "__time__"
"""Columns beside those of the table: order of arrival, row marker, the source's time in microseconds (may be NULL)."""

DELETED, DELETED_AT, START_AT, END_AT = "__deleted", "__deleted_at", "__START_AT", "__END_AT"
_LEFT_OUT, _KIND = "__left__", "__kind__"
_CHANGE, _LIVING, _DEAD, _DEATH, _REMEMBERED = range(5)
"""Kinds of events: a change; of earlier phases a living row, a deleted row, its delete, a delete that is remembered."""
_KEY, _KEY_TOO, _TRACKED = 2, 3, 4
_INSTANT = pa.timestamp("us", "UTC")

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def with_left_out(rows: pa.Table, left_out: Mapping[str, Flags]) -> pa.Table:
    """The rows with what says, for a column by its name, which of them leave it out (contract section 3a)."""
    held = dict(zip(rows.column_names, rows.columns, strict=True))
    return pa.table({**held, **{f"{_LEFT_OUT}{name}": pa.array(which) for name, which in left_out.items()}})


@dataclass(frozen=True, eq=False)
class Memory:
    """When each file was applied, and for how long deletes are remembered for late changes; in microseconds."""

    applied: Numbers
    kept: int

    def check(self, events: _Events) -> None:
        """NotComparable where a late change came so long after a later delete of its key that this may be forgotten."""
        file = np.asarray(events.rows[PLACE]).astype(np.int64) >> FILE_BITS
        times, is_delete = np.unique(self.applied), events.mark == DELETE
        deleted = np.where(is_delete, np.searchsorted(times, self.applied)[file], len(times))
        base = events.key * (len(times) + 1)
        first = np.minimum.accumulate((base + deleted)[::-1])[::-1] - base  # of the deletes from the event on
        forgotten = np.searchsorted(times, self.applied - self.kept, "right")[file]
        if ((first < forgotten) & ~is_delete).any():
            raise NotComparable("late changes came after deletes that may have been forgotten (`late_days`)")


def current_rows(changes: pa.Table, phases: Sequence[Phase], memory: Memory, *, marks_deleted: bool) -> pa.Table:
    """The rows of the mirrored table. `phases`: those of the changes, by their options.

    `marks_deleted`: with `__deleted` and `__deleted_at`, which is NULL where it is not known. NotComparable.
    """
    held = _Held(*[changes.slice(0, 0)] * 4)
    for phase, its in _by_phase(changes, phases):
        held = _after(held, its, phase, memory)
    rows = _values(held.living)
    if not marks_deleted:
        return rows
    none = held.living[TIME].cast(_INSTANT)
    none = pc.if_else(none.is_null(), none, pa.scalar(None, _INSTANT))
    living, dead = (
        each.append_column(DELETED, pa.repeat(is_dead, each.num_rows)).append_column(DELETED_AT, times)
        for each, is_dead, times in ((rows, False, none), (_values(held.dead), True, held.deaths[TIME].cast(_INSTANT)))
    )
    return pa.concat_tables([living, dead])


def version_rows(changes: pa.Table, phases: Sequence[Phase]) -> pa.Table:
    """The rows of the table of versions, with `__START_AT` and `__END_AT`; without a sequence by the changes' times.

    `phases`: may differ in their deletes.
    """
    modes = {phase.meaning.deletes for phase in phases} - {IGNORE}
    meaning = replace(phases[-1].meaning, deletes=min(modes, default=HARD))
    acting = [_acting(its, phase.meaning) for phase, its in _by_phase(changes, phases)]
    events = _in_order(pa.concat_tables(acting), meaning)
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
class _Held:
    """What a phase leaves, as changes: rows, deleted ones that stay, the delete of each of these, and the deletes that
    are remembered for late changes."""

    living: pa.Table
    dead: pa.Table
    deaths: pa.Table
    remembered: pa.Table

    def events(self) -> pa.Table:
        """All of them as events before those of a phase, with their kinds."""
        parts = [
            (self.living, _LIVING), (self.dead, _DEAD), (self.deaths, _DEATH), (self.remembered, _REMEMBERED)
        ]  # fmt: skip
        found = []
        for rows, kind in parts:
            mark = DELETE if kind in (_DEATH, _REMEMBERED) else INSERT
            rows, none = _with(rows, MARK, pa.repeat(mark, rows.num_rows)), pa.repeat(False, rows.num_rows)
            rows = pa.table({name: none if name.startswith(_LEFT_OUT) else rows[name] for name in rows.column_names})
            found.append(rows.append_column(_KIND, pa.repeat(pa.scalar(kind, pa.int8()), rows.num_rows)))
        return pa.concat_tables(found)


def _after(held: _Held, changes: pa.Table, phase: Phase, memory: Memory) -> _Held:
    """What is held after the changes of a phase."""
    meaning = phase.meaning
    if phase.forgets:
        held = replace(held, remembered=held.remembered.slice(0, 0))
    events = _in_order(_acting(changes, meaning), meaning, (held.events(), memory))
    mark, index = events.mark, np.arange(len(events.mark))
    starts = np.flatnonzero(events.begins)
    kept, dead = np.zeros(len(mark), bool), np.zeros(len(mark), bool)
    if len(starts):
        last = np.maximum.reduceat(np.where(mark != INSERT, index, -1), starts)
        kept = (index >= last[np.cumsum(events.begins) - 1]) & (mark != DELETE)
        values = np.maximum.reduceat(np.where(mark != DELETE, index, -1), starts)
        if meaning.is_soft and not phase.purged:
            dead[values[(values >= 0) & (values < last)]] = True
    rows = events.rows.drop_columns([_KIND])
    died = rows.take(pa.array(np.flatnonzero(dead)))
    deaths = _with(died, TIME, rows[TIME].take(pa.array(np.flatnonzero(dead) + 1)))  # the first delete after the row
    return _Held(rows.filter(pa.array(kept)), died, deaths, _remembered(held.remembered, changes, phase))


def _remembered(before: pa.Table, changes: pa.Table, phase: Phase) -> pa.Table:
    """The deletes that are remembered after the changes of a phase."""
    deletes = changes.filter(pc.equal(changes[MARK], DELETE))
    if not phase.meaning.is_soft:
        deletes = _with(deletes, TIME, pa.nulls(deletes.num_rows, deletes[TIME].type))
    return pa.concat_tables([before, deletes])


def _by_phase(changes: pa.Table, phases: Sequence[Phase]) -> Iterator[tuple[Phase, pa.Table]]:
    """The changes of each phase."""
    place, begin = np.asarray(changes[PLACE]), 0
    for phase in phases:
        its = changes if len(phases) == 1 else changes.filter(pa.array((place >= begin) & (place < phase.end)))
        yield phase, its
        begin = phase.end


def _acting(changes: pa.Table, meaning: Meaning) -> pa.Table:
    """The changes without ignored deletes, and with the markers that count."""
    mark = np.asarray(changes[MARK]).astype(np.int64)
    if meaning.inserts_replace:
        changes = _with(changes, MARK, pa.array(np.where(mark == INSERT, UPSERT, mark)))
    return changes.filter(pa.array(mark != DELETE)) if meaning.deletes == IGNORE else changes


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
        return _values(self.rows)

    def chosen(self, which: Flags) -> _Events:
        return _Events(
            self.rows.filter(pa.array(which)), self.mark[which], self.key[which], self.rank[which], self.late[which],
            self.partial[which],
        )  # fmt: skip


def _in_order(changes: pa.Table, meaning: Meaning, before: tuple[pa.Table, Memory] | None = None) -> _Events:
    """The changes as events. `before`: those of earlier phases, as of `_Held.events`, and what was remembered."""
    rows = changes.append_column(_KIND, pa.repeat(pa.scalar(_CHANGE, pa.int8()), changes.num_rows))
    if before is not None:
        rows = pa.concat_tables([before[0].select(rows.column_names).cast(rows.schema), rows])
    keys = [_array(rows[name]) for name in meaning.keys]
    by = {
        name: row_hashes(keys, rows.num_rows, seed).view(np.int64) for name, seed in (("key", _KEY), ("too", _KEY_TOO))
    }
    for i, name in enumerate(meaning.sequence):  # NULL, before the table had a sequence, is before all others
        by |= {f"has{i}": rows[name].is_valid(), f"s{i}": rows[name]}
    sorted_by = pa.table({**by, PLACE: rows[PLACE], _KIND: rows[_KIND]})
    order = pc.sort_indices(sorted_by, [(name, "ascending") for name in sorted_by.column_names])
    rows, sorted_by = rows.take(order), sorted_by.take(order)
    mark = np.asarray(rows[MARK]).astype(np.int64)
    key = _numbered([sorted_by["key"], sorted_by["too"]])
    order_of_key = [sorted_by[f"s{i}"] for i in range(len(meaning.sequence))] or [sorted_by[PLACE].cast(pa.int64())]
    rank = _numbered([sorted_by["key"], sorted_by["too"], *order_of_key])
    late = _late(rank, key, np.asarray(rows[PLACE]))
    lefts = _lefts(rows)
    partial = np.zeros(len(mark), bool)
    for name in lefts:
        partial |= np.asarray(rows[name])
    events = _Events(rows, mark, key, rank, late, partial)
    if before is not None:
        before[1].check(events)
        events = _without_idle(events, meaning) if before[0].num_rows else events
    return _completed(events, meaning, lefts) if events.partial.any() else events


def _without_idle(events: _Events, meaning: Meaning) -> _Events:
    """The events without those that change nothing because of an earlier phase.

    A change is dropped if a row of its key had a higher sequence when the phase began; without soft deletes also if a
    remembered delete had. A remembered delete acts on changes of this phase alone. A deleted row died by the remembered
    delete after it, if there is one.
    """
    kind = np.asarray(events.rows[_KIND])
    bars = np.isin(kind, (_LIVING, _DEAD) if meaning.is_soft else (_LIVING, _DEAD, _REMEMBERED))
    highest = np.full(int(events.key.max(initial=0)) + 1, -1)
    np.maximum.at(highest, events.key[bars], events.rank[bars])
    acts = (kind != _CHANGE) | (events.rank >= highest[events.key])
    if not meaning.is_soft:
        return events.chosen(acts & (kind != _REMEMBERED))
    events, kind = events.chosen(acts), kind[acts]
    index = np.arange(len(kind))
    row = np.maximum.accumulate(np.where((events.mark != DELETE) | events.begins, index, 0))
    acts = (kind != _REMEMBERED) | (kind[row] != _LIVING)
    last = np.full(len(highest), -1)
    np.maximum.at(last, events.key[kind == _REMEMBERED], index[kind == _REMEMBERED])
    return events.chosen(acts & ((kind != _DEATH) | (last[events.key] < index)))


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
    stops = begins | (is_delete & (not meaning.is_soft))
    sources: dict[str, Numbers] = {}
    for left in lefts:
        has = ~is_delete & ~np.asarray(rows[left])
        source = np.maximum.accumulate(np.where(has | stops, place, 0))
        sources[left] = np.where(has[source], source, -1)
    both = np.intersect1d(events.key[events.late], events.key[events.partial])
    for key in both:
        _complete_by_arrival(events, np.flatnonzero(events.key == key), meaning, sources)
    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    for left, source in sources.items():
        taken = np.where(events.partial, source, place)
        columns[left[len(_LEFT_OUT) :]] = rows[left[len(_LEFT_OUT) :]].take(pa.array(taken, mask=taken < 0))
    rows = pa.Table.from_arrays(list(columns.values()), schema=rows.schema)
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
            elif not meaning.is_soft:
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
    found = np.clip(given, -(1 << 62), 1 << 62)  # beyond, there is no room for later versions
    key = events.key[points]
    for index in range(1, len(found)):
        if key[index] == key[index - 1]:
            found[index] = max(found[index], found[index - 1] + 1)
    return pa.array(found).cast(_INSTANT)


def _values(rows: pa.Table) -> pa.Table:
    ours = (PLACE, MARK, TIME, _KIND)
    return rows.select([name for name in rows.column_names if name not in ours and not name.startswith(_LEFT_OUT)])


def _lefts(rows: pa.Table) -> list[str]:
    return [name for name in rows.column_names if name.startswith(_LEFT_OUT)]


def _with(rows: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The rows with other values in a column."""
    index = rows.schema.get_field_index(name)
    return rows.set_column(index, name, values.cast(rows.schema.field(index).type))


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
