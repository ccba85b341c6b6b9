"""All changes of a small batch in memory: they are read once, and what the fold keeps is written from memory.

units ─▶ shares, one thread each ─▶ rows and markers ─▶ keys for the fold ─▶ kept rows, in slices to write
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lakemirror.engines.kernels.data_rows import work_schema
from lakemirror.engines.kernels.decode import MemoryBudget
from lakemirror.engines.kernels.fill_values import Fills
from lakemirror.engines.kernels.read import read_changes, read_together
from lakemirror.engines.kernels.write import file_count
from lakemirror.engines.row_work import ChangeUnit, RowWork, Target
from lakemirror.engines.unit_kernels import names_of
from lakemirror.engines.units import ONE_THREAD_BYTES, Shared
from lakemirror.keys.key_index import Each
from lakemirror.keys.key_values import whole_numbers


class TooMuch(Exception):
    """The rows do not fit into the given memory. The caller then reads them in passes."""


class HeldChanges(NamedTuple):
    """The changes of a batch, in their order. `parts`: rows of some change files each. `markers`: of all rows.

    `names`: the columns that each row leaves unchanged; None if no file has partial rows.
    """

    parts: tuple[pa.Table, ...]
    markers: np.ndarray
    names: pa.ChunkedArray | None = None

    @staticmethod
    def read(work: RowWork, shared: Shared, most_bytes: int, each: Each) -> HeldChanges:
        """Reads all changes. TooMuch if they need more than `most_bytes`. `each`: a `map` for several threads."""
        allowance = MemoryBudget(most_bytes)
        read = list(each(lambda units: _read(units, shared, allowance), _shares(work.changes)))
        read = read or [(work_schema(work.target).empty_table(), np.zeros(0, np.int8), [])]
        names = pa.chunked_array([each for one in read for each in one[2]], pa.string()) if work.partial else None
        return HeldChanges(tuple(one[0] for one in read), np.concatenate([one[1] for one in read]), names)

    def keys(self, target: Target) -> pa.Table:
        """The keys of all changes."""
        names = list(target.key_columns)
        return pa.concat_tables([part.select(names) for part in self.parts]).combine_chunks()

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """These columns of all changes."""
        return pa.concat_tables([part.select(list(names)) for part in self.parts])

    def rows(self, positions: np.ndarray | None) -> pa.Table:
        """The rows at these positions (ascending); None: all."""
        if positions is None or len(positions) == len(self.markers):
            return pa.concat_tables(self.parts)
        ends = np.cumsum([part.num_rows for part in self.parts])
        cut = np.searchsorted(positions, ends)
        begins, firsts = [0, *cut[:-1]], ends - [part.num_rows for part in self.parts]
        chosen = [
            part.take(whole_numbers(positions[begin:end] - first))
            for part, begin, end, first in zip(self.parts, begins, cut, firsts, strict=True)
            if end > begin  # Arrow copies all chunks of a part to take none of its rows
        ]
        return pa.concat_tables(chosen or [self.parts[0].slice(0, 0)]).combine_chunks()

    def inserted(self, flags: np.ndarray | None, fills: Fills | None) -> tuple[pa.Table, np.ndarray | None]:
        """The inserted rows and their positions (None: all), with what they take from elsewhere.

        Rows that take values come first: no other row is taken or cast for them. Only updates, upserts and deletes are
        such rows, so that the inserted rows of a key keep their order: others of them are inserts, and came later.
        """
        kept = None if flags is None else np.flatnonzero(flags)
        if kept is None or fills is None or not fills.columns:
            return self.rows(kept), kept
        takes = np.zeros(len(self.markers), bool)
        for fill in fills.columns.values():
            takes[fill.rows] = True
        its, others = kept[takes[kept]], kept[~takes[kept]]
        rows, more = fills.filled(self.rows(its), its), self.rows(others)
        if more.schema != rows.schema:
            more = more.cast(rows.schema)
        return pa.concat_tables([rows, more]), np.concatenate([its, others])


def may_share(read: Target, other: Target) -> bool:
    """True if rows that were read for one target have the values of another one's columns, too.

    `other` has each column that a change file has.
    """
    names = {column.name.lower(): (column.name, column.type, column.zone) for column in read.columns}
    return read.partition_columns == other.partition_columns and all(
        names.get(each.name.lower()) in (None, (each.name, each.type, each.zone)) for each in other.columns
    )


def slices(rows: pa.Table) -> list[pa.Table]:
    """The rows in parts of about equal size, one for each file."""
    step = -(-rows.num_rows // max(file_count(rows.num_rows), 1)) or 1
    return [rows.slice(begin, step) for begin in range(0, rows.num_rows, step)]


def _shares(units: Sequence[ChangeUnit]) -> list[list[ChangeUnit]]:
    """The units, in order, in runs that are worth a thread."""
    shares: list[list[ChangeUnit]] = []
    size = ONE_THREAD_BYTES
    for unit in units:
        if size >= ONE_THREAD_BYTES:
            shares.append([])
            size = 0
        shares[-1].append(unit)
        size += unit.bytes
    return shares


def _read(
    units: Sequence[ChangeUnit], shared: Shared, allowance: MemoryBudget
) -> tuple[pa.Table, np.ndarray, list[pa.Array]]:
    """The rows of some units, their markers and what partial rows name, in order; many small units in one batch."""
    if len(units) > 1 or units[0].bytes <= ONE_THREAD_BYTES:
        together = read_together(units, shared)
        if together is not None:
            if not allowance.take(together.rows.nbytes):
                raise TooMuch
            return (
                pa.Table.from_batches([together.rows]),
                together.marker,
                [names_of(together)] if shared.partial else [],
            )
    parts, markers, names = [], [np.zeros(0, np.int8)], []
    for unit in units:
        for changes in read_changes(unit, shared, waits=True):
            if not allowance.take(changes.rows.nbytes):
                raise TooMuch
            parts.append(changes.rows)
            markers.append(changes.marker)
            if shared.partial:
                names.append(names_of(changes))
    if not parts:
        return work_schema(shared.target).empty_table(), markers[0], names
    rows = pa.Table.from_batches(parts)
    return rows.combine_chunks() if len(units) > 1 else rows, np.concatenate(markers), names
