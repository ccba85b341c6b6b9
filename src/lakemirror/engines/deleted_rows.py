"""Soft deletes without a fold: the table's row of a key that a batch only deletes gets `__deleted` and `__deleted_at`.

changes, old rows with their values ─▶ keys with one delete and at most one row ─▶ their rows, complete
                                   └─▶ all others, for the fold (`kernels/ordered_fold.py`)
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from lakemirror.engines.kernels.data_rows import work_schema
from lakemirror.engines.kernels.ordered_fold import FoldedKeys
from lakemirror.engines.row_work import DEAD, DIED, FILE, MARKER, ROW, Target
from lakemirror.keys.find_keys import rows_by_file
from lakemirror.keys.key_values import comparable, key_codes, whole_numbers
from lakemirror.landing_zone.reserved_columns import DELETED, DELETED_AT
from lakemirror.landing_zone.row_markers import DELETE


def deleted_rows(
    target: Target, changes: pa.Table, old: pa.Table, values: Mapping[int, tuple[np.ndarray, pa.Table]]
) -> tuple[FoldedKeys, pa.Table, pa.Table]:
    """The net effect of keys with one change, a delete, and one row at most; the other changes, and their old rows.

    `changes`: keys, ROW, MARKER, and DIED: when a deleted row died. `old`: the live rows of the table with these keys:
    keys, FILE, ROW, DEAD, in the order of files and rows. `values`: as of `NetEffect`, of the same rows.
    """
    names = list(target.key_columns)
    keys = comparable(pa.concat_tables([changes.select(names), old.select(names)]).combine_chunks())
    codes = key_codes(keys)
    count = int(codes.max(initial=-1)) + 1
    code, of_old = codes[: changes.num_rows], codes[changes.num_rows :]
    is_alone = (np.bincount(code, minlength=count) == 1) & (np.bincount(of_old, minlength=count) < 2)
    chosen = is_alone[code] & (np.asarray(changes[MARKER].combine_chunks()) == DELETE)
    change_of = np.full(count, -1)
    change_of[code[chosen]] = np.flatnonzero(chosen)
    change = change_of[of_old]
    dies = (change >= 0) & ~np.asarray(old[DEAD].combine_chunks().fill_null(False))
    gone = whole_numbers(np.flatnonzero(dies))
    since = changes[DIED].take(whole_numbers(change[dies]))
    told = {name: old[name].take(gone) for name in names} | {
        DELETED: pa.chunked_array([pa.repeat(True, len(since))]), DELETED_AT: since
    }  # fmt: skip
    schema, others = work_schema(target), [column for column in target.columns if column.name not in told]
    if others:
        none = work_schema(target, others).empty_table()
        kept = pa.concat_tables([none, *(values[number][1].select(none.column_names) for number in sorted(values))])
        told |= dict(zip(kept.column_names, kept.take(gone).columns, strict=True))
    rows = pa.table([told[name].cast(schema.field(name).type) for name in schema.names], schema=schema)
    files = [(number, its, its[:0]) for number, its in rows_by_file(old.select([FILE, ROW]).take(gone))]
    dropped = np.asarray(changes[ROW].combine_chunks())[chosen]
    folded = FoldedKeys(dropped, dropped[:0], files, rows=rows)
    return folded, changes.filter(pa.array(~chosen)), old.filter(pa.array(change < 0))
