"""Versions of keys with one change that comes in order, which are nearly all: no interval is split (history.md, 3).

one open version, or none ┐
one complete change       ┴▶ other values: the version ends, one begins │ the same: it goes on │ a delete: it ends
all other keys ─▶ `fold_versions`, which makes the same of any keys, but puts points in time in order for that
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lakemirror.engines.kernels.data_rows import stored_arrow_type
from lakemirror.engines.kernels.equal_rows import equal_rows
from lakemirror.engines.kernels.sequence_order import from_texts, sequence_of, sequence_ranks
from lakemirror.engines.kernels.version_rows import (
    Changed,
    VersionRows,
    bounds_of,
    codes_of,
    fold_versions,
    tracked_columns,
)
from lakemirror.engines.row_work import Target, Versioning
from lakemirror.keys.key_values import combined, whole_numbers
from lakemirror.landing_zone.reserved_columns import END_AT, START_AT
from lakemirror.landing_zone.row_markers import DELETE
from lakemirror.landing_zone.table_options import IGNORE


def versions_after(
    target: Target, versioning: Versioning, known: pa.Table, changes: Changed, remembered: Changed | None = None,
    keys: PlainKeys | None = None,
) -> VersionRows:  # fmt: skip
    """The same as `fold_versions`. `keys`: what `plain_keys` says of them, if that is known."""
    if versioning.deletes == IGNORE and (changes.markers == DELETE).any():
        changes, keys = changes.chosen(np.flatnonzero(changes.markers != DELETE)), None
    plain = keys or plain_keys(target, versioning, known, changes, remembered)
    rows = _versions_of(target, versioning, known, changes, plain)
    if not plain.others.any():
        return rows
    which = [np.flatnonzero(plain.others[codes]) for codes in plain.codes]
    its = None if remembered is None else remembered.chosen(which[2])
    rest = fold_versions(target, versioning, known.take(whole_numbers(which[0])), changes.chosen(which[1]), its)
    return VersionRows(
        np.concatenate([rows.removed, which[0][rest.removed]]),
        pa.concat_tables([rows.open, rest.open]),
        pa.concat_tables([rows.closed, rest.closed]),
        np.concatenate([rows.replaced, rest.replaced]),
        np.concatenate([
            *(part.replacing[: part.open.num_rows] for part in (rows, rest)),
            *(part.replacing[part.open.num_rows :] for part in (rows, rest)),
        ]),
    )  # fmt: skip


class PlainKeys(NamedTuple):
    """Keys with one change that comes in order. `versions`, `changes`: the open version of a key (ascending), and its
    change. `news`: changes of keys without a version. `codes`: of the keys of all versions, changes and remembered
    changes; `others`: by code, whether it is another key; `deeper`: whether the versions and remembered changes that
    are given may not be all that its changes touch: it has no open version, or a change is late.
    """

    versions: np.ndarray
    changes: np.ndarray
    news: np.ndarray
    codes: Sequence[np.ndarray]
    others: np.ndarray
    deeper: np.ndarray


def plain_keys(
    target: Target, versioning: Versioning, known: pa.Table, changes: Changed, remembered: Changed | None = None
) -> PlainKeys:
    """The keys whose changes need no look at points in time. The parameters are those of `fold_versions`."""
    codes = codes_of([known, changes.rows, *([] if remembered is None else [remembered.rows])], target)
    (old, new), width = codes[:2], max(int(its.max(initial=-1)) for its in codes) + 1
    is_open = _as_bool(known[END_AT].is_null())
    place = np.zeros(width, np.int32)  # of the open version of each key, from 1
    numbers = np.flatnonzero(is_open)
    place[old[numbers]] = numbers + 1
    version = place[new].astype(np.int64) - 1
    others, deeper = np.zeros(width, bool), np.zeros(width, bool)
    others[old[~is_open]] = True
    others[old[numbers[place[old[numbers]] != numbers + 1]]] = True  # a key with two open versions
    has, lacks = np.flatnonzero(version >= 0), np.flatnonzero(version < 0)
    deeper[new[lacks]] = True
    change = np.full(len(old), -1)  # the last one of the key of each open version
    change[version[has]] = has
    others[new[has[change[version[has]] != has]]] = True
    others[_repeated(new[lacks], place)] = True
    for its in codes[2:]:
        others[its] = True
    if changes.names is not None:
        others[new[_as_bool(changes.names.is_valid())]] = True
    if versioning.sequence:
        late, outside = _late(versioning, known, changes, version)
        deeper[new[late]] = others[new[late]] = True
        for its, which in zip((old, new), outside, strict=True):
            others[its[which]] = True
    versions = np.flatnonzero((change >= 0) & ~others[old])
    news = lacks[~others[new[lacks]]]
    return PlainKeys(versions, change[versions], news, codes, others, deeper)


def _repeated(codes: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Those of the codes that are there twice. `place`: a number for each code, which is overwritten."""
    numbers = np.arange(len(codes), dtype=place.dtype)
    place[codes] = numbers
    repeated: np.ndarray = codes[place[codes] != numbers]
    return repeated


def _late(
    versioning: Versioning, known: pa.Table, changes: Changed, version: np.ndarray
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Which changes are not after the last event of the open version (`version`: its number, -1: none); and which
    versions begin, and which changes are, before the time from which on versions are made."""
    sequences = [sequence_of(rows, versioning.sequence) for rows in (known, changes.rows)]
    kind = sequences[1].type
    starts, lasts, times, since = sequence_ranks(
        [
            bounds_of(known, START_AT, versioning.sequence).cast(kind), sequences[0].cast(kind), sequences[1],
            from_texts(versioning.since, kind),
        ],
        len(known) + len(changes.rows),
    )  # fmt: skip
    began = since.max(initial=-1)
    last = np.append(np.maximum(starts, lasts), -1)[version]
    return times <= last, (starts < began, times < began)


def _versions_of(
    target: Target, versioning: Versioning, known: pa.Table, changes: Changed, plain: PlainKeys
) -> VersionRows:
    """What the changes of plain keys make of their versions. New versions are in the order of the changes, ended ones
    in that of the known versions."""
    old, change, count = plain.versions, plain.changes, changes.rows.num_rows
    names = [column.name for column in target.sources.columns if column.stored]
    values = [name for name in names if name not in target.key_columns]  # keys are equal
    tracked = tracked_columns(versioning, values)
    upserts = np.flatnonzero(changes.markers[change] != DELETE)
    goes_on, stays = np.zeros(len(old), bool), np.zeros(len(old), bool)
    goes_on[upserts] = equal_rows(known, tracked, old[upserts], change[upserts], changes.rows)
    same = np.flatnonzero(goes_on)
    others = list(set(values).difference(tracked))
    stays[same] = equal_rows(known, others, old[same], change[same], changes.rows)
    begins = np.zeros(count, bool)
    begins[change[upserts]] = True
    begins[change[stays]] = False
    begins[plain.news] = changes.markers[plain.news] != DELETE
    begun, ended = np.flatnonzero(begins), ~goes_on
    moments = np.arange(count)  # of each change, as a number of `times`: its own one, or the begin of its version
    moments[change[goes_on]] = count + old[goes_on]
    times = pa.concat_arrays([_times(target, versioning, known, changes, plain), combined(known[START_AT])])
    opened = _chosen(changes.rows, names, begins)
    opened[START_AT] = times.take(whole_numbers(moments[begun]))
    opened[END_AT] = pa.nulls(len(begun), times.type)
    closes = np.zeros(known.num_rows, bool)
    closes[old[ended]] = True
    closed = _chosen(known, [*names, START_AT], closes)
    closed[END_AT] = times.take(whole_numbers(change[ended]))
    removed = old[~stays]
    order = [each.name for each in target.columns if each.stored and each.name in opened]
    replacing = np.concatenate([moments[begun] >= count, np.ones(int(ended.sum()), bool)])
    return VersionRows(
        removed, pa.table({name: opened[name] for name in order}), pa.table({name: closed[name] for name in order}),
        np.ones(len(removed), bool), replacing,
    )  # fmt: skip


def _chosen(rows: pa.Table, names: Sequence[str], which: np.ndarray) -> dict[str, pa.ChunkedArray]:
    """These columns of some rows. `which`: bool."""
    chosen = rows.select(list(names))
    chosen = chosen if which.all() else chosen.filter(pa.array(which))
    return dict(zip(chosen.column_names, chosen.columns, strict=True))


def _times(target: Target, versioning: Versioning, known: pa.Table, changes: Changed, plain: PlainKeys) -> pa.Array:
    """When each change counts, in the type of `__START_AT`. Without a sequence, after the begin of the version."""
    kind = next(stored_arrow_type(column) for column in target.columns if column.name == START_AT)
    if not versioning.sequence:
        assert changes.times is not None
        times = changes.times
        starts = np.asarray(known[START_AT].cast(pa.int64()).combine_chunks())
        if len(times) and len(starts) and starts.max() >= times.min():
            times = times.copy()
            times[plain.changes] = np.maximum(times[plain.changes], starts[plain.versions] + 1)
        return pa.array(times, pa.int64()).cast(kind)
    parts = sequence_of(changes.rows, versioning.sequence).combine_chunks().flatten()
    if not pa.types.is_struct(kind):
        return parts[0].cast(kind)
    its = [part.cast(field.type) for part, field in zip(parts, kind, strict=True)]
    return pa.StructArray.from_arrays(its, fields=list(kind))


def _as_bool(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    found: np.ndarray = np.asarray(values.cast(pa.uint8())).astype(bool)
    return found
