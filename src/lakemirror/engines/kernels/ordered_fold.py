"""The net effect of changes in a table with options of deletes or order (history.md, sections 1 and 2).

    changes of some keys, in the order of arrival ┐
    the table's rows with these keys              ├─▶ changes that count, in their order ─▶ fold ─▶ FoldedKeys
    deletes of these keys that are remembered     ┘

- `ignore`: deletes are counted and left out.
- `sequence`: a change is late if its key has a higher sequence when it comes. A late change is counted and left out.
- `soft`: a delete is a partial row that leaves out every column, so that the row keeps its values. A delete of a row
  that is deleted already, or was never there, is left out. With a sequence, a late row of a deleted key belongs
  before the delete: the dead row takes its values, if none with a higher sequence came.

What is left out has no effect on any later change, so the fold is the same for every cut into batches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemirror.engines.kernels.fold import fold_places
from lakemirror.engines.kernels.partial_rows import PartialRows, partial_rows, with_keys
from lakemirror.engines.kernels.sequence_order import highest_before, in_order, sequence_ranks
from lakemirror.engines.row_work import DEAD, DIED, FILE, MARKER, NAMES, ROW, SEQUENCE, Ordering, Target
from lakemirror.keys.key_values import comparable, key_codes, order_of, whole_numbers
from lakemirror.landing_zone.reserved_columns import DELETED, DELETED_AT
from lakemirror.landing_zone.row_markers import DELETE, INSERT, UPSERT
from lakemirror.landing_zone.table_options import IGNORE

_REMEMBERED, _OF_TABLE, _DIED, _CHANGED = range(4)
"""When events arrive: the changes of the batch, in their order, after all others."""


class FoldedKeys(NamedTuple):
    """The net effect of some keys. All row numbers and positions ascend.

    `dropped`: the positions of the changes that are not inserted. `updates`: of those that the change data feed shows
    as updates. `files`: candidates with deleted rows: number, deleted rows, those of them that are updates. `partial`,
    `found`, `values`, `rows`: as of `NetEffect`. `ignored`, `late`: as of `RowResult`. `dead`: inserted rows that a
    remembered delete has deleted: ROW, DELETED_AT.
    """

    dropped: np.ndarray
    updates: np.ndarray
    files: list[tuple[int, np.ndarray, np.ndarray]]
    partial: PartialRows | None = None
    found: pa.Table | None = None
    ignored: int = 0
    late: int = 0
    dead: pa.Table | None = None
    values: Mapping[int, tuple[np.ndarray, pa.Table]] | None = None
    rows: pa.Table | None = None


@dataclass(frozen=True, eq=False)
class _Keys:
    """What is known of some keys, as arrays. `code`: of the key, for changes, rows of the table, remembered deletes.

    `rank`: of their sequences; zeros without one. `marker`: of the changes. `dead`: of the table's rows.
    """

    code: tuple[np.ndarray, np.ndarray, np.ndarray]
    rank: tuple[np.ndarray, np.ndarray, np.ndarray]
    marker: np.ndarray
    dead: np.ndarray

    @property
    def count(self) -> int:
        return max(int(code.max(initial=-1)) for code in self.code) + 1


class _Chosen(NamedTuple):
    """The changes that count, as indexes in the order in which they act, with the markers that the fold uses.

    `kept_values`: deletes after which the row stays. `buried`: changes whose row a remembered delete has deleted, and
    the number of that delete.
    """

    at: np.ndarray
    marker: np.ndarray
    kept_values: np.ndarray
    buried: tuple[np.ndarray, np.ndarray]


def fold_ordered(
    target: Target, ordering: Ordering, changes: pa.Table, old: pa.Table, remembered: pa.Table | None = None
) -> FoldedKeys:
    """The net effect of all changes of some keys.

    `changes`: keys, ROW, MARKER, NAMES if there may be partial rows, and SEQUENCE if there is one, in the order of
    arrival. `old`: the live rows of the table with these keys: keys, FILE, ROW, with a sequence SEQUENCE, with soft
    deletes DEAD and with both DIED. `remembered`: earlier deletes: keys, SEQUENCE, DELETED_AT.
    """
    keys = _known_keys(target, ordering, changes, old, remembered)
    alive, late = np.ones(changes.num_rows, bool), np.zeros(changes.num_rows, bool)
    ignored = 0
    if ordering.deletes == IGNORE:
        alive = keys.marker != DELETE
        ignored = int(len(alive) - alive.sum())
    if ordering.sequence:
        keys = replace(keys, marker=np.where(keys.marker == INSERT, UPSERT, keys.marker).astype(np.int8))
        alive, late = _in_time(keys, alive, ordering.is_soft)
    if ordering.is_soft and remembered is not None:
        remembered, keys = _after_their_rows(keys, old, remembered)
    chosen = _soft(keys, alive) if ordering.is_soft else _plain(keys, alive)
    folded = _folded(target, keys, chosen, changes, old, remembered)
    return _with_late(folded, changes, late)._replace(ignored=ignored, late=int(late.sum()))


def _known_keys(
    target: Target, ordering: Ordering, changes: pa.Table, old: pa.Table, remembered: pa.Table | None
) -> _Keys:
    names = list(target.key_columns)
    tables = [changes, old, *([] if remembered is None else [remembered])]
    codes = key_codes(comparable(pa.concat_tables([table.select(names) for table in tables]).combine_chunks()))
    code = list(np.split(codes, np.cumsum([table.num_rows for table in tables])[:-1]))
    rank = [np.zeros(table.num_rows, np.int64) for table in tables]
    if ordering.sequence:
        rank = sequence_ranks([table[SEQUENCE] for table in tables], int(codes.max(initial=0)) + 1)
    none = [np.zeros(0, np.int64)] * (3 - len(tables))
    dead = np.zeros(old.num_rows, bool)
    if ordering.is_soft:
        dead = np.asarray(old[DEAD].combine_chunks().fill_null(False))
    marker = np.asarray(changes[MARKER].combine_chunks())
    codes_of, ranks_of = [*code, *none], [*rank, *none]
    return _Keys((codes_of[0], codes_of[1], codes_of[2]), (ranks_of[0], ranks_of[1], ranks_of[2]), marker, dead)


def _in_time(keys: _Keys, alive: np.ndarray, is_soft: bool) -> tuple[np.ndarray, np.ndarray]:
    """The changes that count, and the late ones. `alive`: without ignored deletes."""
    (code, of_old, of_remembered), (rank, old_rank, remembered_rank) = keys.code, keys.rank
    rows = np.zeros(keys.count, np.int64)
    np.maximum.at(rows, of_old, old_rank)
    first = rows.copy()
    np.maximum.at(first, of_remembered, remembered_rank)
    late = alive & (rank < highest_before(code, rank, alive, first))
    if not is_soft or not late.any():
        return alive & ~late, late
    gives_values = alive & (keys.marker != DELETE)
    behind = rank >= highest_before(code, rank, gives_values, rows)
    return alive & (~late | behind), late


def _after_their_rows(keys: _Keys, old: pa.Table, remembered: pa.Table) -> tuple[pa.Table, _Keys]:
    """The remembered deletes without those that have the sequence of a deleted row and came before it: the row died at
    another time. They do nothing any more."""
    (code, of_old, of_remembered), (rank, old_rank, remembered_rank) = keys.code, keys.rank
    row_of = np.full(keys.count, -1)
    order = order_of(old_rank)
    row_of[of_old[order]] = order
    row = row_of[of_remembered]
    died, times = (np.asarray(each.combine_chunks().cast(pa.int64()).fill_null(-1)) for each in (
        old[DIED], remembered[DELETED_AT]
    ))  # fmt: skip
    has_row = np.flatnonzero(row >= 0)
    its = row[has_row]
    ties = keys.dead[its] & (old_rank[its] == remembered_rank[has_row])
    stays = np.ones(len(row), bool)
    stays[has_row[ties & (died[its] != times[has_row])]] = False
    if stays.all():
        return remembered, keys
    chosen = replace(
        keys, code=(code, of_old, of_remembered[stays]), rank=(rank, old_rank, remembered_rank[stays])
    )  # fmt: skip
    return remembered.take(whole_numbers(np.flatnonzero(stays))), chosen


def _plain(keys: _Keys, alive: np.ndarray) -> _Chosen:
    """The changes that count where deletes remove rows: with a sequence, they are in its order as they came."""
    at = np.flatnonzero(alive)
    none = np.zeros(0, np.int64)
    return _Chosen(at, keys.marker[at], np.zeros(len(at), bool), (none, none))


def _soft(keys: _Keys, alive: np.ndarray) -> _Chosen:
    """The changes that count where deleted rows stay."""
    (code, of_old, of_remembered), (rank, old_rank, remembered_rank) = keys.code, keys.rank
    changes = np.flatnonzero(alive)
    is_dead, is_remembered = np.zeros(keys.count, bool), np.zeros(keys.count, bool)
    is_dead[of_old[keys.dead]] = True
    since = np.zeros(keys.count, np.int64)
    np.maximum.at(since, of_old, old_rank)
    is_remembered[of_remembered[remembered_rank >= since[of_remembered]]] = True
    died = np.flatnonzero(keys.dead & ~is_remembered[of_old])  # else the delete itself is among the events
    # the table's row, its death, deletes before that row or after it, and the changes: in their order
    event_code = np.concatenate([of_old, of_old[died], of_remembered, code[changes]])
    event_rank = np.concatenate([old_rank, old_rank[died], remembered_rank, rank[changes]])
    its_delete = np.where(is_dead[of_remembered], _DIED, _REMEMBERED)
    arrival = np.concatenate([
        np.full(len(of_old), _OF_TABLE), np.full(len(died), _DIED), its_delete, np.full(len(changes), _CHANGED)
    ])  # fmt: skip
    number = np.concatenate([np.full(len(of_old) + len(died), -1), np.arange(len(of_remembered)), changes])
    is_change = arrival == _CHANGED
    is_delete = np.concatenate([
        np.zeros(len(of_old), bool), np.ones(len(died) + len(of_remembered), bool), keys.marker[changes] == DELETE
    ])  # fmt: skip
    order = in_order(event_code, event_rank * 4 + arrival)
    event_code, is_delete = event_code[order], is_delete[order]
    follows = np.ones(len(order), bool)
    follows[:1] = False
    follows[1:] = event_code[1:] == event_code[:-1]
    acts = ~is_delete | (follows & ~np.roll(is_delete, 1))
    order, event_code, is_delete = order[acts], event_code[acts], is_delete[acts]
    is_change, number = is_change[order], number[order]
    has_next = np.zeros(len(order), bool)
    has_next[:-1] = event_code[1:] == event_code[:-1]
    marker = np.zeros(len(order), np.int8)
    marker[is_change] = keys.marker[number[is_change]]
    before_insert = has_next & (np.roll(marker, -1) == INSERT) & np.roll(is_change, -1)
    kept_values = is_change & is_delete & ~before_insert
    marker[kept_values] = UPSERT
    grave = np.flatnonzero(is_delete & ~is_change & ~has_next)  # the last event, and there is one before it
    grave = grave[is_change[grave - 1]]
    chosen = np.flatnonzero(is_change)
    return _Chosen(number[chosen], marker[chosen], kept_values[chosen], (number[grave - 1], number[grave]))


def _folded(
    target: Target, keys: _Keys, chosen: _Chosen, changes: pa.Table, old: pa.Table, remembered: pa.Table | None
) -> FoldedKeys:
    at = np.asarray(changes[ROW].combine_chunks())
    index, its_code, positions = chosen.at, keys.code[0][chosen.at], at[chosen.at]
    its_keys = _as_keys(its_code)
    places = fold_places(its_keys, chosen.marker)
    is_replaced, is_inserted = np.zeros(keys.count, bool), np.zeros(keys.count, bool)
    is_replaced[its_code[places.deletes]] = True
    is_inserted[its_code[places.kept]] = True
    gone = is_replaced[keys.code[1]] | (keys.dead & is_inserted[keys.code[1]])
    updated = gone & is_inserted[keys.code[1]]
    drop = np.ones(len(at), bool)
    drop[index[places.kept]] = False
    updates = positions[:0]
    if target.feed and updated.any():
        has_old = np.zeros(keys.count, bool)
        has_old[keys.code[1][updated]] = True
        kept = places.kept[has_old[its_code[places.kept]]]
        updates = np.sort(positions[kept[np.unique(its_code[kept], return_index=True)[1]]])
    partial, found = _partial(target, chosen, changes, its_keys, places.kept, positions), None
    if partial is not None and partial.firsts.num_rows:
        of_table = _as_keys(keys.code[1]).append_column(FILE, old[FILE]).append_column(ROW, old[ROW])
        found = with_keys(partial.firsts, of_table)
    files, rows = (np.asarray(old[name].combine_chunks()).astype(np.int64) for name in (FILE, ROW))
    of_file = [(int(file), gone & (files == file)) for file in np.unique(files[gone])]
    return FoldedKeys(
        np.sort(at[drop]), updates,
        [(file, np.sort(rows[its]), np.sort(rows[its & updated])) for file, its in of_file],
        partial, found, dead=_buried(chosen, at, remembered),
    )  # fmt: skip


def _as_keys(codes: np.ndarray) -> pa.Table:
    """Codes of keys in their place: they are equal exactly if the keys are, and nobody has to hash them again."""
    return pa.table({"code": whole_numbers(codes)})


def _with_late(folded: FoldedKeys, changes: pa.Table, late: np.ndarray) -> FoldedKeys:
    """The fold where no late partial row needs a row of its key: a delete that it is older than may have come alone.
    What it leaves out is NULL then."""
    if folded.partial is None or not late.any():
        return folded
    return folded._replace(partial=folded.partial._replace(late=np.asarray(changes[ROW].combine_chunks())[late]))


def _partial(
    target: Target, chosen: _Chosen, changes: pa.Table, its_keys: pa.Table, kept: np.ndarray, positions: np.ndarray
) -> PartialRows | None:
    """What partial rows, and deletes after which the row stays, take from elsewhere; None if there are none."""
    left_out = pa.chunked_array([pa.nulls(len(chosen.at), pa.string())])
    if NAMES in changes.column_names:
        left_out = changes[NAMES].take(whole_numbers(chosen.at))
    if chosen.kept_values.any():
        left_out = pc.if_else(pa.array(chosen.kept_values), pa.scalar(value_columns(target)), left_out)
    if left_out.null_count == len(left_out):
        return None
    if isinstance(left_out, pa.Array):
        left_out = pa.chunked_array([left_out])
    return partial_rows(its_keys, chosen.marker, left_out, kept, positions)


def value_columns(target: Target) -> str:
    """The columns that a soft delete leaves as they are, as JSON text."""
    ours = {*target.key_columns, DELETED, DELETED_AT}
    return json.dumps(sorted(column.name for column in target.columns if column.name not in ours))


def _buried(chosen: _Chosen, at: np.ndarray, remembered: pa.Table | None) -> pa.Table | None:
    index, number = chosen.buried
    if remembered is None or not len(index):
        return None
    order = np.argsort(at[index])
    since = remembered[DELETED_AT].take(whole_numbers(number[order])).combine_chunks()
    return pa.table({ROW: whole_numbers(at[index][order]), DELETED_AT: since})
