"""The rows of Delta's change data feed for one apply (contract section 10): one key's update is an update.

    rows that go    update_preimage where a row of their key comes, else delete
    rows that come  update_postimage for the first of a key that had a living row, else insert

The keys of the rows that go are in memory meanwhile; the rows are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakemirror.engines.kernels.key_values import comparable
from lakemirror.engines.kernels.living_rows import chosen_rows
from lakemirror.engines.kernels.look_up import is_among, key_columns
from lakemirror.engines.kernels.write import CHANGE_TYPE
from lakemirror.engines.row_work import Action, RowWork, Target


@dataclass(frozen=True)
class FeedRows:
    """What an apply does to the rows of the table. `touched`: `add` actions and numbers of the rows that go. `had`:
    keys of those rows, `replaced`: keys that are deleted and of which a row comes; as `comparable` gives them.
    """

    target: Target
    touched: tuple[tuple[Action, np.ndarray], ...]
    had: pa.Table
    replaced: pa.Table

    @staticmethod
    def of(work: RowWork, found: Mapping[str, np.ndarray], replaced: pa.Table) -> FeedRows | None:
        """None where the table has no feed, or no living row goes: then readers take new rows for inserts."""
        if not work.target.feed or not found:
            return None
        columns = key_columns(work.target)
        touched = tuple((add, found[add["path"]]) for add in work.candidates if add["path"] in found)
        parts = [part for add, rows in touched for part in chosen_rows(add, work.target, rows, columns)]
        if not sum(part.num_rows for part in parts):
            return None
        return FeedRows(work.target, touched, comparable(pa.concat_tables(parts)), comparable(replaced))

    def old_rows(self) -> Iterator[pa.RecordBatch]:
        """The rows that go, with CHANGE_TYPE."""
        for add, numbers in self.touched:
            for rows in chosen_rows(add, self.target, numbers, self.target.columns):
                comes = np.zeros(rows.num_rows, bool)
                comes[is_among(self._keys(rows), self.replaced)] = True
                yield from typed(rows, comes, "update_preimage", "delete").to_batches()

    def new_rows(self, rows: pa.Table, firsts: np.ndarray) -> pa.Table:
        """Rows that come, with CHANGE_TYPE. `firsts`: True for the first row of a key that is deleted."""
        had = np.zeros(rows.num_rows, bool)
        had[is_among(self._keys(rows), self.had)] = True
        return typed(rows, had & firsts, "update_postimage", "insert")

    def _keys(self, rows: pa.Table) -> pa.Table:
        return comparable(rows.select(list(self.target.key_columns)))


def typed(rows: pa.Table, first: np.ndarray, yes: str, no: str) -> pa.Table:
    """Rows with CHANGE_TYPE: `yes` where `first`, else `no`."""
    types = pa.DictionaryArray.from_arrays(pa.array((~first).astype(np.int8)), pa.array([yes, no]))
    return rows.append_column(CHANGE_TYPE, types.cast(pa.string()))
