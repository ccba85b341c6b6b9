"""Versions of rows from changes, with the table's columns (history.md, section 3): `intervals.py` for real rows.

    versions of the table's keys ┐
    remembered changes           ├─▶ one table of rows; keys and times as numbers ─▶ fold_intervals ─▶ new versions
    changes, partial rows filled ┘

A delete has no row. An ignored delete is no event. A partial row takes its values from the event of its key before it,
by the sequence, of those that came before it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lakemirror.engines.kernels.data_rows import stored_arrow_type
from lakemirror.engines.kernels.equal_rows import equal_rows
from lakemirror.engines.kernels.intervals import (
    ALWAYS,
    OPEN,
    Events,
    Intervals,
    Known,
    Points,
    fold_intervals,
    points_in_order,
)
from lakemirror.engines.kernels.sequence_order import from_texts, sequence_of, sequence_ranks
from lakemirror.engines.row_work import Target, Versioning
from lakemirror.keys.key_values import comparable, key_codes, order_of, whole_numbers
from lakemirror.landing_zone.reserved_columns import END_AT, START_AT
from lakemirror.landing_zone.row_markers import DELETE
from lakemirror.landing_zone.table_options import HARD, IGNORE, SOFT

_TIME = pa.timestamp("us", "UTC")


class Changed(NamedTuple):
    """Changes in the order of arrival. `rows`: the columns of the source. `markers`: int8. `names`: what each leaves
    unchanged, None without partial rows. `times`: where there is no sequence, microseconds since the epoch.
    """

    rows: pa.Table
    markers: np.ndarray
    names: pa.Array | pa.ChunkedArray | None = None
    times: np.ndarray | None = None

    def chosen(self, which: np.ndarray) -> Changed:
        """The changes with these numbers (ascending)."""
        if len(which) == len(self.markers):
            return self
        return Changed(
            self.rows.take(whole_numbers(which)), self.markers[which],
            None if self.names is None else self.names.take(whole_numbers(which)),
            None if self.times is None else self.times[which],
        )  # fmt: skip


class VersionRows(NamedTuple):
    """What changes in the table. `removed`: numbers of known versions. `open`, `closed`: new versions, with all columns
    of the table. `replaced`: of `removed`, those whose begin a new version has; `replacing`: for each row of `open`,
    then of `closed`, whether its begin is that of a removed version.
    """

    removed: np.ndarray
    open: pa.Table
    closed: pa.Table
    replaced: np.ndarray
    replacing: np.ndarray


@dataclass(frozen=True, eq=False)
class _Rows:
    """All rows: known versions, then events. `moments`: the values of the times of versions, events and `since`."""

    content: pa.Table
    known: Known
    events: Events
    moments: pa.Array | None
    since: int = ALWAYS


def fold_versions(
    target: Target, versioning: Versioning, known: pa.Table, changes: Changed, remembered: Changed | None = None
) -> VersionRows:
    """The versions that changes make of their keys, and those that go.

    `target`: the table of versions. `known`: its versions of these keys that end at the first change of the key or
    later, or not at all; all columns. `remembered`: complete changes of these keys that came in earlier applies.
    """
    if versioning.deletes == IGNORE:
        changes = changes.chosen(np.flatnonzero(changes.markers != DELETE))
    rows = _rows(target, versioning, known, changes, remembered)
    content = rows.content
    if changes.names is not None:
        content = _completed(rows, changes, soft=versioning.deletes == SOFT)
    tracked = tracked_columns(versioning, content.column_names)
    found = fold_intervals(
        rows.known, rows.events,
        lambda one, other: equal_rows(content, tracked, one, other),
        identical=lambda one, other: equal_rows(content, content.column_names, one, other),
        sequenced=bool(versioning.sequence),
        since=rows.since,
    )  # fmt: skip
    return _result(target, rows, content, found)


def tracked_columns(versioning: Versioning, names: Sequence[str]) -> list[str]:
    """Those of the columns whose changes begin a version."""
    tracked, known = versioning.track or [name for name in names if name not in versioning.sequence], set(names)
    return [name for name in tracked if name in known]


def completed_rows(
    target: Target, versioning: Versioning, known: pa.Table, changes: Changed, remembered: Changed | None
) -> pa.Table:
    """The rows of the changes, with the values that partial ones take from the events before them. As `fold_versions`;
    `remembered` are all changes that partial rows may take values from."""
    rows = _rows(target, versioning, known, changes, remembered)
    content = _completed(rows, changes, soft=versioning.deletes != HARD)
    return content.slice(content.num_rows - len(changes.markers))


def bounds_of(versions: pa.Table, column: str, names: tuple[str, ...]) -> pa.ChunkedArray:
    """The begins or ends of versions, as `sequence_of` gives the sequence."""
    values = versions[column].combine_chunks()
    parts = values.flatten() if pa.types.is_struct(values.type) else [values]
    return pa.chunked_array([pa.StructArray.from_arrays(parts, names=list(names))])


def _rows(
    target: Target, versioning: Versioning, known: pa.Table, changes: Changed, remembered: Changed | None
) -> _Rows:
    names = [column.name for column in target.sources.columns if column.stored]
    earlier = [] if remembered is None else [remembered]
    parts = [known.select(names), *(plain_columns(each.rows.select(names)) for each in (*earlier, changes))]
    content = pa.concat_tables(parts).combine_chunks()
    keys = key_codes(comparable(key_values(content, target)))
    count = known.num_rows
    is_open = np.asarray(known[END_AT].combine_chunks().is_null().cast(pa.uint8())).astype(bool)
    deletes = np.concatenate([each.markers for each in (*earlier, changes)]) == DELETE
    old = sum(len(each.markers) for each in earlier)
    if not versioning.sequence:
        starts, ends = (np.asarray(known[name].combine_chunks().cast(pa.int64()).fill_null(OPEN)) for name in _BOUNDS)
        assert changes.times is not None
        return _Rows(
            content, Known(keys[:count], starts, ends, starts), Events(keys[count:], changes.times, deletes), None
        )
    sequence = sequence_of(content, versioning.sequence)
    bounds = [bounds_of(known, name, versioning.sequence).cast(sequence.type) for name in _BOUNDS]
    began = from_texts(versioning.since, sequence.type)
    starts, ends, lasts, times, since = sequence_ranks(
        [*bounds, sequence.slice(0, count), sequence.slice(count), began], int(keys.max(initial=0)) + 1
    )
    moments = pa.concat_arrays([chunk for part in (*bounds, sequence, began) for chunk in part.chunks])
    ends = np.where(is_open, OPEN, ends)
    least = int(since.max(initial=ALWAYS))
    lasts = np.where(starts <= least, lasts, np.maximum(lasts, starts))
    return _Rows(
        content, Known(keys[:count], starts, ends, lasts), Events(keys[count:], times, deletes, old), moments, least
    )  # fmt: skip


_BOUNDS = (START_AT, END_AT)


def _completed(rows: _Rows, changes: Changed, *, soft: bool) -> pa.Table:
    """The rows, with the values that partial ones take from the event of their key before them; NULL without one."""
    content, count = rows.content, rows.content.num_rows
    assert changes.names is not None
    names = changes.names.combine_chunks() if isinstance(changes.names, pa.ChunkedArray) else changes.names
    encoded = names.dictionary_encode()
    texts = [dict.fromkeys(json.loads(text)) for text in encoded.dictionary.to_pylist()]
    codes = np.full(count, len(texts))
    codes[count - len(names) :] = np.asarray(encoded.indices.fill_null(len(texts)))
    points = points_in_order(rows.known, rows.events, rows.moments is not None, rows.since)
    begins = np.ones(len(points.keys), bool)
    begins[1:] = points.keys[1:] != points.keys[:-1]
    ends = points.deletes & (not soft)
    apart = _rows_before(rows, points, codes < len(texts), soft=soft) if rows.moments is not None else {}
    columns = dict(zip(content.column_names, content.columns, strict=True))
    for name in dict.fromkeys(name for text in texts for name in text):
        if name not in columns:
            continue
        lacks = np.array([*(name in text for text in texts), False])[codes]
        has_value = ~points.deletes & ~lacks[points.rows]
        stops = np.where(has_value | ends | begins, np.arange(len(begins)), 0)
        source = np.maximum.accumulate(stops)
        value = np.where(has_value[source], points.rows[source], -1)
        takes = np.arange(count)
        partial = ~points.deletes & lacks[points.rows]
        takes[points.rows[partial]] = value[partial]
        for row, before in apart.items():  # in the order of arrival
            takes[row] = row if not lacks[row] else takes[before] if before >= 0 else -1
        columns[name] = columns[name].take(pa.array(takes, mask=takes < 0))
    return pa.Table.from_arrays(list(columns.values()), schema=content.schema)


def _rows_before(rows: _Rows, points: Points, is_partial: np.ndarray, *, soft: bool) -> dict[int, int]:
    """For keys with partial changes that came in another order than that of the sequence: by the row of each change, in
    the order of arrival, the row of the event before it, of those that came before it; -1: none."""
    first = len(rows.known.keys) + rows.events.remembered
    keys, times = (values[rows.events.remembered :] for values in rows.events[:2])
    order = order_of(keys)
    falls = (np.diff(keys[order]) == 0) & (np.diff(times[order]) < 0)
    chosen = np.intersect1d(keys[order][1:][falls], keys[is_partial[first:]])
    found: dict[int, int] = {}
    for key in chosen:
        low, high = np.searchsorted(points.keys, [key, key + 1])
        its, deletes = points.rows[low:high].tolist(), points.deletes[low:high].tolist()
        for place in sorted((place for place, row in enumerate(its) if row >= first), key=its.__getitem__):
            before, row = place - 1, its[place]
            while before >= 0 and (its[before] > row or (soft and deletes[before])):
                before -= 1
            if not deletes[place]:
                found[row] = its[before] if before >= 0 and not deletes[before] else -1
    return found


def _result(target: Target, rows: _Rows, content: pa.Table, found: Intervals) -> VersionRows:
    is_open = found.ends == OPEN
    order = np.argsort(~is_open, kind="stable")
    row, start, end = found.rows[order], found.starts[order], found.ends[order]
    taken = content.take(whole_numbers(row))
    bounds = _values(target, rows, start, end)
    columns = {
        **{name: taken[name] for name in taken.column_names},
        **{name: pa.chunked_array([values]) for name, values in bounds.items()},
    }
    table = pa.table({each.name: columns[each.name] for each in target.columns if each.stored and each.name in columns})
    opened = int(is_open.sum())
    replaced, replacing = np.zeros(0, bool), np.zeros(0, bool)
    if target.feed:
        replaced, replacing = _pairs(rows.known, found.removed, rows_keys(rows)[row], start)
    return VersionRows(found.removed, table.slice(0, opened), table.slice(opened), replaced, replacing)


def rows_keys(rows: _Rows) -> np.ndarray:
    """The number of the key of each row."""
    return np.concatenate([rows.known.keys, rows.events.keys])


def _pairs(known: Known, removed: np.ndarray, keys: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which removed versions have the key and begin of a new one, and the other way round."""
    old = pa.table({"k": known.keys[removed], "s": known.starts[removed]})
    codes = key_codes(pa.concat_tables([old, pa.table({"k": keys, "s": starts})]).combine_chunks())
    return np.isin(codes[: len(removed)], codes[len(removed) :]), np.isin(codes[len(removed) :], codes[: len(removed)])


def _values(target: Target, rows: _Rows, start: np.ndarray, end: np.ndarray) -> dict[str, pa.Array]:
    """The begins and ends as columns of the table."""
    is_open = end == OPEN
    if rows.moments is None:
        starts = pa.array(start, pa.int64()).cast(_TIME)
        return {START_AT: starts, END_AT: pa.array(end, pa.int64(), mask=is_open).cast(_TIME)}
    known, events, columns = rows.known, rows.events, {column.name: column for column in target.columns}
    times = np.concatenate([known.starts, known.ends, known.lasts, events.times, [rows.since]])
    distinct, first = np.unique(times, return_index=True)
    found: dict[str, pa.Array] = {}
    for name, its in ((START_AT, start), (END_AT, end)):
        place = first[np.minimum(np.searchsorted(distinct, its), len(distinct) - 1)] if len(distinct) else its
        parts = rows.moments.take(pa.array(place, mask=its == OPEN)).flatten()
        kind = stored_arrow_type(columns[name])
        if not pa.types.is_struct(kind):
            found[name] = parts[0].cast(kind)
        else:
            parts = [part.cast(field.type) for part, field in zip(parts, kind, strict=True)]
            found[name] = pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.array(its == OPEN))
    return found


def key_values(rows: pa.Table, target: Target) -> pa.Table:
    """The values of the key columns; NULL where no change file has shown the column yet."""
    columns = {
        key.name: rows[key.name] if key.name in rows.column_names else pa.nulls(rows.num_rows, stored_arrow_type(key))
        for key in target.keys
    }
    return pa.table(columns)


def codes_of(tables: Sequence[pa.Table], target: Target) -> list[np.ndarray]:
    """One number for each row of each table, the same for rows with the same key."""
    keys = pa.concat_tables([key_values(table, target) for table in tables]).combine_chunks()
    return np.split(key_codes(comparable(keys)), np.cumsum([table.num_rows for table in tables])[:-1])


def plain_columns(rows: pa.Table) -> pa.Table:
    """The rows without dictionary encoding."""
    encoded = {field.name: field.type for field in rows.schema if pa.types.is_dictionary(field.type)}
    if not encoded:
        return rows
    columns = zip(rows.column_names, rows.columns, strict=True)
    return pa.table({name: held.cast(encoded[name].value_type) if name in encoded else held for name, held in columns})
