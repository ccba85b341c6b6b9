"""The values that the partial rows of a batch take from elsewhere (contract section 3a).

PartialRows, the table's rows with their keys ─▶ newest of each key ─▶ missing ones: an error, or NULLs
                                                  └▶ read: only the columns and rows that are needed ─▶ Fills
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from lakemirror.engines.kernels.partial_rows import FIRST, IN_TABLE, VALUE, Fills, PartialRows
from lakemirror.engines.row_work import FILE, ROW, Action, RowWork
from lakemirror.engines.unit_kernels import place_of
from lakemirror.engines.units import TouchedFile
from lakemirror.errors import Rejected
from lakemirror.keys.key_values import whole_numbers
from lakemirror.landing_zone.row_markers import UNCHANGED

ReadOld: TypeAlias = Callable[[Sequence[TouchedFile], Sequence[str]], Iterator[pa.Table]]
"""The values of rows of data files in these columns, in the order of the files and rows."""

ReadGiven: TypeAlias = Callable[[np.ndarray, Sequence[str]], Iterator[pa.Table]]
"""The values of the changes at these positions (ascending) in these columns."""


def newest_rows(found: pa.Table | None, candidates: Sequence[Action]) -> pa.Table:
    """One row of the table for each first partial row that has one: FIRST, FILE, ROW, ascending by FILE and ROW.

    `found`: as of `with_keys`. If inserts made several rows of a key, it is the last one of the newest file.
    """
    if found is None or not found.num_rows:
        return pa.table({name: whole_numbers(np.zeros(0, np.int64)) for name in (FIRST, FILE, ROW)})
    first, file, row = (np.asarray(found[name].combine_chunks()).astype(np.int64) for name in (FIRST, FILE, ROW))
    written = np.array([add.get("modificationTime") or 0 for add in candidates])
    order = np.lexsort((row, file, written[file], first))
    is_last = np.ones(len(order), bool)
    is_last[:-1] = first[order][1:] != first[order][:-1]
    chosen = order[is_last]
    chosen = chosen[np.lexsort((row[chosen], file[chosen]))]
    return pa.table({
        name: whole_numbers(values[chosen]) for name, values in ((FIRST, first), (FILE, file), (ROW, row))
    })  # fmt: skip


def missing_rows(partial: PartialRows, newest: pa.Table) -> np.ndarray:
    """The positions (ascending) of partial rows without a row of their key: in the table, or after a delete."""
    firsts = np.asarray(partial.firsts[ROW].combine_chunks())
    lost = np.setdiff1d(firsts, np.asarray(newest[FIRST].combine_chunks()), assume_unique=True)
    return np.sort(np.concatenate([lost, np.asarray(partial.gone[ROW].combine_chunks())]))


def missing_row(work: RowWork, position: int) -> Rejected:
    """The error of a partial row without a row of its key."""
    file, row = place_of(work.changes, position)
    message = f"{file}, row {row}: {UNCHANGED} names columns, and there is no row with this key to take them from"
    return Rejected("partial-row-missing", message, file, row, UNCHANGED)


def read_fills(
    partial: PartialRows, newest: pa.Table, candidates: Sequence[Action], read_old: ReadOld, read_given: ReadGiven
) -> Fills:
    """The values of all columns that inserted rows take from elsewhere."""
    names = [name for name in partial.kept.column_names if name not in (ROW, FIRST)]
    rows = np.asarray(partial.kept[ROW].combine_chunks())
    sources = {name: partial.kept[name].combine_chunks() for name in names}
    taken = {name: np.flatnonzero(np.asarray(of.is_valid())) for name, of in sources.items()}
    given = {name: np.asarray(sources[name].drop_null()) for name in names}
    positions = np.unique(np.concatenate([*(of[of >= 0] for of in given.values()), np.zeros(0, np.int64)]))
    given_names = [name for name in names if (given[name] >= 0).any()]
    of_change = _values(read_given(positions, given_names), given_names)
    first = np.asarray(partial.kept[FIRST].combine_chunks())
    old_names = [name for name in names if (given[name] == IN_TABLE).any()]
    asked = [first[taken[name]][given[name] == IN_TABLE] for name in old_names]
    needed = newest.filter(pa.array(np.isin(np.asarray(newest[FIRST].combine_chunks()), _all(asked))))
    of_table = _values(read_old(_by_file(needed, candidates), old_names), old_names)
    place_of_first = _places(np.asarray(needed[FIRST].combine_chunks()))
    fills = {}
    for name in names:
        source = given[name]
        at = np.full(len(source), -1, np.int64)
        is_given, is_old = source >= 0, source == IN_TABLE
        at[is_given] = np.searchsorted(positions, source[is_given])
        old = place_of_first(first[taken[name]][is_old])
        begin = len(of_change[name]) if name in of_change else 0
        at[is_old] = np.where(old >= 0, begin + old, -1)
        chunks = [each[name] for each in (of_change, of_table) if name in each]
        fills[name] = pa.table({ROW: whole_numbers(rows[taken[name]]), VALUE: _taken(chunks, at)})
    return fills


def _taken(parts: Sequence[pa.ChunkedArray], at: np.ndarray) -> pa.ChunkedArray:
    """The values at these places of all parts together; NULL for -1."""
    if not parts:
        return pa.chunked_array([pa.nulls(len(at))])
    together = pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)
    return together.take(pa.array(at, mask=at < 0))


def _values(tables: Iterator[pa.Table], names: Sequence[str]) -> Mapping[str, pa.ChunkedArray]:
    read = list(tables) if names else []
    if not read:
        return {}
    together = pa.concat_tables(read)
    return {name: together[name] for name in names}


def _by_file(needed: pa.Table, candidates: Sequence[Action]) -> list[TouchedFile]:
    files, rows = np.asarray(needed[FILE].combine_chunks()), np.asarray(needed[ROW].combine_chunks())
    if not len(files):
        return []
    begins = np.flatnonzero(np.diff(files, prepend=-1))
    return [
        TouchedFile(int(files[begin]), candidates[int(files[begin])], rows[begin:end])
        for begin, end in zip(begins, [*begins[1:], len(files)], strict=True)
    ]


def _places(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A function that gives the place of each number among distinct `values`, -1 where it is not among them."""
    order = np.argsort(values, kind="stable")
    ascending = values[order]

    def places(wanted: np.ndarray) -> np.ndarray:
        if not len(ascending):
            return np.full(len(wanted), -1, np.int64)
        at = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
        found: np.ndarray = np.where(ascending[at] == wanted, order[at], -1)
        return found

    return places


def _all(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([*parts, np.zeros(0, np.int64)])


__all__ = ["ReadGiven", "ReadOld", "missing_row", "missing_rows", "newest_rows", "read_fills"]
