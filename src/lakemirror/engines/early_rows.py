"""Rows that are written while the rest of a batch's net effect is worked out: the first row groups of a data file.

changes in memory ─▶ rows of keys whose old rows do not matter ─▶ `begin`: a thread writes them ─┐
                 └─▶ look-ups, old rows, fold ─▶ rows that take values from elsewhere ─▶ `add` ──┴▶ `close`: one file
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lakemirror.engines.held_changes import HeldChanges
from lakemirror.engines.kernels.write import ROWS_A_FILE, Files
from lakemirror.engines.row_work import Action
from lakemirror.engines.units import Shared
from lakemirror.worker_pool import worker_pool

FEWEST_ROWS = 32 * 1024
"""Fewer rows are written faster than a thread begins to pay."""


class EarlyRows:
    """One file of inserted rows. `positions`: those of the rows that it began with, ascending; none if there is none.
    Errors of the thread are raised by `add` and `close`.
    """

    positions = np.zeros(0, np.int64)

    def __init__(self, pool: ThreadPoolExecutor, shared: Shared, held: HeldChanges | None) -> None:
        self._pool, self._shared, self._held = pool, shared, held
        self._parts: list[pa.Table] = []
        self._files: Files | None = None
        self._begun: Future[None] | None = None

    def begin(self, positions: np.ndarray) -> None:
        """Has the changes at these positions (ascending) written, if they are worth it and fit into one file."""
        target, most = self._shared.target, self._shared.sizes.rows_a_group
        count = len(positions)
        is_plain = not (target.partition_columns or target.constraints or target.feed)
        is_plain = is_plain and all(column.nullable for column in target.columns)
        if self._held is None or not is_plain or not FEWEST_ROWS <= count <= ROWS_A_FILE:
            return
        groups = -(-count // most)
        self.positions = positions
        self._files = Files(target, replace(self._shared.sizes, rows_a_group=-(-count // groups)))
        self._begun = self._pool.submit(self._write_first, self._held, self._files)

    def add(self, rows: pa.Table) -> None:
        """Adds rows to the file that was begun."""
        files = self._waited()
        assert files is not None
        self._write(rows, files)

    def close(self) -> Sequence[Action]:
        """Completes the file. The content of its `add` action; nothing if none was begun."""
        files = self._waited()
        return [] if files is None else files.close()

    def remove(self) -> None:
        """Removes the file. No thread writes it any more."""
        if self._files is not None:
            self._files.remove()

    def rows(self) -> list[pa.Table]:
        """All rows of the file in one table; nothing if none was begun, or they have not the same types."""
        return [pa.concat_tables(self._parts)] if len({part.schema for part in self._parts}) == 1 else []

    def _write_first(self, held: HeldChanges, files: Files) -> None:
        self._write(held.rows(self.positions), files)

    def _write(self, rows: pa.Table, files: Files) -> None:
        self._parts.append(rows)
        for batch in rows.to_batches():
            files.add(batch)

    def _waited(self) -> Files | None:
        if self._begun is not None:
            self._begun.result()
        return self._files


@contextmanager
def early_rows(shared: Shared, held: HeldChanges | None) -> Iterator[EarlyRows]:
    """Early rows of changes in memory; None: none are early. After an error in the block their file is removed."""
    early: EarlyRows | None = None
    try:
        with worker_pool(1, "early rows") as pool:
            early = EarlyRows(pool, shared, held)
            yield early
    except BaseException:
        if early is not None:
            early.remove()
        raise
