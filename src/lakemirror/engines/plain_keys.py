"""Keys of a table with options of deletes or order whose changes act as in any other table (contract, section 3).

Most changes are upserts that come in order: whatever row the table has with their key goes. So these rows are found,
and not read. What a row holds makes a difference (history.md, sections 1 and 2) for

- soft deletes, and keys with inserts alone, which replace deleted rows;
- keys that may have a row with a higher sequence, or whose changes are not in the order of their sequences;
- partial rows, and deletes that are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lakemirror.engines.kernels.fold import last_changes
from lakemirror.engines.kernels.ordered_fold import FoldedKeys
from lakemirror.engines.kernels.sequence_order import sequence_ranks
from lakemirror.engines.row_work import MARKER, NAMES, PLACES, ROW, SEQUENCE, Ordering
from lakemirror.engines.unit_kernels import as_upserts
from lakemirror.keys.key_values import comparable, key_codes, order_of, whole_numbers
from lakemirror.landing_zone.row_markers import DELETE, INSERT
from lakemirror.landing_zone.table_options import IGNORE


class Needs(NamedTuple):
    """For each change: `rows`: whether the rows that the table has with its key must be read. `last`: the last change
    of its key that is not an insert, -1 if there is none. `marker`: as the fold takes it."""

    rows: np.ndarray
    last: np.ndarray
    marker: np.ndarray


def need_rows(ordering: Ordering, changes: pa.Table, old: pa.Table) -> Needs:
    """What decides which rows of the table must be read.

    `changes`: as `fold_ordered` takes them. `old`: keys of rows whose sequences may be higher than one of the changes.
    """
    names, count = old.column_names, changes.num_rows
    codes = key_codes(comparable(pa.concat_tables([changes.select(names), old]).combine_chunks()))
    code = codes[:count]
    marker = np.asarray(changes[MARKER].combine_chunks())
    if ordering.sequence:
        marker = as_upserts(marker)
    last = last_changes(code, marker != INSERT)
    rows = np.zeros(count, bool)
    if ordering.is_soft:  # also a delete with inserts after it: that is rare, and any key may be read
        rows = (last < 0) | (marker[last] == DELETE)
    chosen = [codes[count:]]
    if ordering.deletes == IGNORE:
        chosen.append(code[marker == DELETE])
    if ordering.sequence:
        chosen.append(_out_of_order(code, changes[SEQUENCE], last != np.arange(count)))
    if NAMES in changes.column_names:
        chosen.append(code[np.asarray(changes[NAMES].combine_chunks().is_valid())])
    if any(map(len, chosen)):
        of_key = np.zeros(int(codes.max()) + 1, bool)
        of_key[np.concatenate(chosen)] = True
        rows |= of_key[code]
    return Needs(rows, last, marker)


def plain_changes(changes: pa.Table, needs: Needs) -> tuple[FoldedKeys, pa.Table]:
    """The net effect of the changes that need no rows, without what it deletes, and the keys of these rows."""
    names = [name for name in changes.column_names if name not in PLACES]
    place = np.arange(changes.num_rows)
    drops = ~needs.rows & ((place < needs.last) | (needs.marker == DELETE))
    deletes = np.flatnonzero(~needs.rows & (place == needs.last))
    dropped = np.asarray(changes[ROW].combine_chunks())[drops]
    return FoldedKeys(np.sort(dropped, kind="stable"), dropped[:0], []), changes.select(names).take(
        whole_numbers(deletes)
    )


def deleting(folded: FoldedKeys, rows: Mapping[int, np.ndarray]) -> FoldedKeys:
    """The net effect with the rows that it deletes, by the number of their file."""
    return folded._replace(files=[(number, rows[number], rows[number][:0]) for number in sorted(rows)])


def _out_of_order(code: np.ndarray, sequence: pa.ChunkedArray, repeated: np.ndarray) -> np.ndarray:
    """The codes of keys with a change whose sequence is lower than that of one before it. `repeated`: changes that are
    not the last one of their key."""
    if not repeated.any():
        return code[:0]
    chosen = np.flatnonzero(np.isin(code, code[repeated]))
    its = code[chosen]
    (rank,) = sequence_ranks([sequence.take(whole_numbers(chosen))], int(its.max()) + 1)
    order = order_of(its)
    falls = (np.diff(its[order]) == 0) & (np.diff(rank[order]) < 0)
    found: np.ndarray = its[order][1:][falls]
    return found
