"""Keys of a table with options of deletes or order whose changes act as in any other table (contract, section 3).

Most changes are upserts that come in order: whatever row the table has with their key goes. So these rows are found,
and not read. What a row holds makes a difference (history.md, sections 1 and 2) for

- soft deletes, and keys with inserts alone, which replace deleted rows;
- keys that may have a row with a higher sequence, or whose changes are not in the order of their sequences;
- partial rows, and deletes that are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from lakemirror.engines.kernels.fold import fold_places
from lakemirror.engines.kernels.ordered_fold import FoldedKeys
from lakemirror.engines.kernels.sequence_order import sequence_ranks
from lakemirror.engines.row_work import MARKER, NAMES, ROW, SEQUENCE, Ordering
from lakemirror.engines.unit_kernels import as_upserts
from lakemirror.keys.key_values import comparable, key_codes, order_of, whole_numbers
from lakemirror.landing_zone.row_markers import DELETE, INSERT
from lakemirror.landing_zone.table_options import HARD


def need_rows(ordering: Ordering, changes: pa.Table, old: pa.Table) -> np.ndarray:
    """For each change, whether the rows that the table has with its key must be read (bool).

    `changes`: as `fold_ordered` takes them. `old`: keys of rows whose sequences may be higher than one of the changes.
    """
    names = old.column_names
    codes = key_codes(comparable(pa.concat_tables([changes.select(names), old]).combine_chunks()))
    code, of_old = codes[: changes.num_rows], codes[changes.num_rows :]
    marker = np.asarray(changes[MARKER].combine_chunks())
    needs = np.zeros(int(codes.max(initial=-1)) + 1, bool)
    needs[of_old] = True
    place = np.arange(len(code))
    last = np.empty(len(needs), np.int64)
    last[code] = place
    is_last = last[code] == place
    if ordering.is_soft:
        needs[code[is_last & (marker == DELETE)]] = True
    elif ordering.deletes != HARD:
        needs[code[marker == DELETE]] = True
    if ordering.sequence:
        needs[_out_of_order(code, changes[SEQUENCE], ~is_last)] = True
    elif ordering.is_soft:
        replaces = np.zeros(len(needs), bool)
        replaces[code[marker != INSERT]] = True
        needs[code[~replaces[code]]] = True
    if NAMES in changes.column_names:
        needs[code[np.asarray(changes[NAMES].combine_chunks().is_valid())]] = True
    found: np.ndarray = needs[code]
    return found


def plain_changes(ordering: Ordering, changes: pa.Table, needs: np.ndarray) -> tuple[FoldedKeys, pa.Table]:
    """The net effect of the changes that need no rows, without what it deletes, and the keys of these rows."""
    names = [name for name in changes.column_names if name not in (ROW, MARKER, NAMES, SEQUENCE)]
    marker = np.asarray(changes[MARKER].combine_chunks())
    if ordering.sequence:
        marker = as_upserts(marker)
    places = fold_places(changes.select(names), marker)
    drops = ~needs
    drops[places.kept] = False
    deletes = places.deletes[~needs[places.deletes]]
    dropped = np.asarray(changes[ROW].combine_chunks())[drops]
    return FoldedKeys(np.sort(dropped), dropped[:0], []), changes.select(names).take(whole_numbers(deletes))


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
