"""The rows of Delta's change data feed for one apply (contract section 10).

    deleted rows    update_preimage if the apply also inserts a row of their key, else delete
    inserted rows   update_postimage for the first row of a key that had a living row, else insert

The keys of the deleted rows are held in memory; the rows themselves are streamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lakemirror.engines.kernels.live_rows import chosen_rows
from lakemirror.engines.kernels.write import CHANGE_TYPE
from lakemirror.engines.row_work import Action, RowWork, Target
from lakemirror.keys.key_values import comparable
from lakemirror.keys.look_up import key_columns
from lakemirror.keys.wanted_keys import is_among


class FeedRows(NamedTuple):
    """What an apply deletes, as needed for the change data feed.

    `touched`: `add` actions and the numbers of their deleted rows. `had`: the keys of those rows. `replaced`: keys of
    which the apply deletes rows and also inserts a row. Both in the form of `comparable`.
    """

    target: Target
    touched: tuple[tuple[Action, np.ndarray], ...]
    had: pa.Table
    replaced: pa.Table

    @staticmethod
    def of(work: RowWork, found: Mapping[str, np.ndarray], replaced: pa.Table) -> FeedRows | None:
        """None if the table has no feed, or no living row is deleted: then readers derive the inserts from the new
        data files.
        """
        if not work.target.feed or not found:
            return None
        columns = key_columns(work.target)
        touched = tuple((add, found[add["path"]]) for add in work.candidates if add["path"] in found)
        parts = [part for add, rows in touched for part in chosen_rows(add, work.target, rows, columns)]
        if not sum(part.num_rows for part in parts):
            return None
        return FeedRows(work.target, touched, comparable(pa.concat_tables(parts)), comparable(replaced))

    def old_rows(self) -> Iterator[pa.RecordBatch]:
        """The deleted rows, with CHANGE_TYPE."""
        for add, numbers in self.touched:
            for rows in chosen_rows(add, self.target, numbers, self.target.whole.columns):
                comes = np.zeros(rows.num_rows, bool)
                comes[is_among(self._keys(rows), self.replaced)] = True
                yield from typed(rows, comes, "update_preimage", "delete").to_batches()

    def new_rows(self, rows: pa.Table, firsts: np.ndarray) -> pa.Table:
        """Inserted rows, with CHANGE_TYPE. `firsts`: True for the first row of each key that is also deleted."""
        had = np.zeros(rows.num_rows, bool)
        had[is_among(self._keys(rows), self.had)] = True
        return typed(rows, had & firsts, "update_postimage", "insert")

    def _keys(self, rows: pa.Table) -> pa.Table:
        return comparable(rows.select(list(self.target.key_columns)))


def typed(rows: pa.Table, first: np.ndarray, yes: str, no: str) -> pa.Table:
    """Rows with CHANGE_TYPE: `yes` where `first` is True, else `no`."""
    types = pa.DictionaryArray.from_arrays(pa.array((~first).astype(np.int8)), pa.array([yes, no]))
    return rows.append_column(CHANGE_TYPE, types.cast(pa.string()))
