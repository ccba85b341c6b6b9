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
from lakemirror.engines.kernels.sequence_order import from_texts, sequence_ranks
from lakemirror.engines.kernels.version_rows import (
    Changed,
    VersionRows,
    bounds_of,
    fold_versions,
    key_values,
    sequence_of,
    tracked_columns,
)
from lakemirror.engines.row_work import Target, Versioning
from lakemirror.keys.key_values import combined, comparable, key_codes, whole_numbers
from lakemirror.landing_zone.reserved_columns import END_AT, START_AT
from lakemirror.landing_zone.row_markers import DELETE
from lakemirror.landing_zone.table_options import IGNORE


def versions_after(
    target: Target, versioning: Versioning, known: pa.Table, changes: Changed, remembered: Changed | None = None
) -> VersionRows:
    """The same as `fold_versions`."""
    if versioning.deletes == IGNORE:
        changes = changes.chosen(np.flatnonzero(changes.markers != DELETE))
    plain = plain_keys(target, versioning, known, changes, remembered)
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
    """Keys with one change that comes in order. `versions`, `changes`: the open version of a key, and its change.
    `news`: changes of keys without a version. `codes`: of the keys of all versions, changes and remembered changes;
    `others`: by code, whether it is another key.
    """

    versions: np.ndarray
    changes: np.ndarray
    news: np.ndarray
    codes: Sequence[np.ndarray]
    others: np.ndarray


def plain_keys(
    target: Target, versioning: Versioning, known: pa.Table, changes: Changed, remembered: Changed | None
) -> PlainKeys:
    """The keys whose changes need no look at points in time. The parameters are those of `fold_versions`."""
    tables = [known, changes.rows, *([] if remembered is None else [remembered.rows])]
    keys = pa.concat_tables([key_values(table, target) for table in tables]).combine_chunks()
    codes = np.split(key_codes(comparable(keys)), np.cumsum([table.num_rows for table in tables])[:-1])
    old, new = codes[:2]
    width = int(max((part.max(initial=-1) for part in codes), default=-1)) + 1
    others, has_version = np.zeros(width, bool), np.zeros(width, bool)
    place = np.zeros(width, np.int32)  # of the last change of each key, from 1
    place[new] = np.arange(1, len(new) + 1)
    change = place[old].astype(np.int64) - 1
    has_version[old] = True
    others[new[place[new] != np.arange(1, len(new) + 1)]] = True
    others[old[change < 0]] = True
    if np.count_nonzero(has_version) < len(old):
        place[old] = np.arange(1, len(old) + 1)
        others[old[place[old] != np.arange(1, len(old) + 1)]] = True
    others[old[_as_bool(known[END_AT].is_valid())]] = True
    for part in codes[2:]:
        others[part] = True
    if changes.names is not None:
        others[new[_as_bool(changes.names.is_valid())]] = True
    if versioning.sequence:
        _late(versioning, known, changes, (old, new, change), others)
    versions = np.flatnonzero(~others[old])
    news = np.flatnonzero(~others[new] & ~has_version[new])
    return PlainKeys(versions, change[versions], news, codes, others)


def _late(
    versioning: Versioning, known: pa.Table, changes: Changed, codes: tuple[np.ndarray, ...], others: np.ndarray
) -> None:
    """Marks the keys of changes that are not after the last event of the open version. `codes`: of the keys of versions
    and of changes, and the change of each version, -1: none."""
    old, new, change = codes
    sequences = [sequence_of(rows, versioning.sequence) for rows in (known, changes.rows)]
    kind = sequences[1].type
    starts, lasts, times, since = sequence_ranks(
        [
            bounds_of(known, START_AT, versioning.sequence).cast(kind), sequences[0].cast(kind), sequences[1],
            from_texts(versioning.since, kind),
        ],
        len(others),
    )  # fmt: skip
    its = np.append(times, -1)[change]  # without a change: -1
    others[old[its <= np.maximum(starts, lasts)]] = True
    if len(since):
        others[new[times < since[0]]] = True
        others[old[starts < since[0]]] = True


def _versions_of(
    target: Target, versioning: Versioning, known: pa.Table, changes: Changed, plain: PlainKeys
) -> VersionRows:
    """What the changes of plain keys make of their versions. New versions are in the order of the changes, ended ones
    in that of the known versions."""
    old, change, count = plain.versions, plain.changes, changes.rows.num_rows
    names = [column.name for column in target.sources.columns if column.stored]
    tracked = tracked_columns(versioning, names)
    upserts = np.flatnonzero(changes.markers[change] != DELETE)
    goes_on, stays = np.zeros(len(old), bool), np.zeros(len(old), bool)
    goes_on[upserts] = equal_rows(known, tracked, old[upserts], change[upserts], changes.rows)
    same = np.flatnonzero(goes_on)
    others = [name for name in names if name not in tracked]
    stays[same] = equal_rows(known, others, old[same], change[same], changes.rows)
    begins = np.zeros(count, bool)
    begins[change[upserts]] = True
    begins[change[stays]] = False
    begins[plain.news] = changes.markers[plain.news] != DELETE
    begun, ended = np.flatnonzero(begins), np.flatnonzero(~goes_on)
    moments = np.arange(count)  # of each change, as a number of `times`: its own one, or the begin of its version
    moments[change[goes_on]] = count + old[goes_on]
    times = pa.concat_arrays([_times(target, versioning, known, changes, plain), combined(known[START_AT])])
    opened = _chosen(changes.rows, names, begun)
    opened[START_AT] = times.take(whole_numbers(moments[begun]))
    opened[END_AT] = pa.nulls(len(begun), times.type)
    closed = _chosen(known, [*names, START_AT], old[ended])
    closed[END_AT] = times.take(whole_numbers(change[ended]))
    removed = old[~stays]
    order = [each.name for each in target.columns if each.stored and each.name in opened]
    replacing = np.concatenate([moments[begun] >= count, np.ones(len(ended), bool)])
    return VersionRows(
        removed, pa.table({name: opened[name] for name in order}), pa.table({name: closed[name] for name in order}),
        np.ones(len(removed), bool), replacing,
    )  # fmt: skip


def _chosen(rows: pa.Table, names: Sequence[str], numbers: np.ndarray) -> dict[str, pa.ChunkedArray]:
    """The columns of these rows (ascending)."""
    chosen = rows.select(list(names))
    if len(numbers) < rows.num_rows:
        chosen = chosen.take(whole_numbers(numbers))
    return dict(zip(names, chosen.columns, strict=True))


def _times(target: Target, versioning: Versioning, known: pa.Table, changes: Changed, plain: PlainKeys) -> pa.Array:
    """When each change counts, in the type of `__START_AT`. Without a sequence, after the begin of the version."""
    kind = next(stored_arrow_type(column) for column in target.columns if column.name == START_AT)
    if not versioning.sequence:
        assert changes.times is not None
        times = changes.times.copy()
        starts = np.asarray(known[START_AT].cast(pa.int64()).combine_chunks())
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
