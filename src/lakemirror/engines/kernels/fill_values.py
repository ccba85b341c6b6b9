"""The values that partial rows take from elsewhere, and rows with these values (contract section 3a).

PartialRows, newest rows of their keys ─▶ read_fills: only the rows and columns that are needed ─▶ Fills ─▶ filled rows
FillRequest: the same, to be read where the rows are written (Spark's tasks)

Values that take much memory are in a temporary file, which is mapped and has no name any more.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from lakemirror.delta.long_texts import has_long
from lakemirror.engines.kernels.partial_rows import FIRST, IN_TABLE, PartialRows
from lakemirror.engines.row_work import FILE, ROW, Action
from lakemirror.keys.key_values import order_of, whole_numbers
from lakemirror.landing_zone.reserved_columns import DELETED, DELETED_AT

_LARGE = 1 << 30  # bytes: 32-bit offsets may be too narrow for more texts

Rows: TypeAlias = tuple[int, Action, np.ndarray]
"""Rows of a data file: its number among the candidates, its `add` action, row numbers (ascending)."""

ReadOld: TypeAlias = Callable[[Sequence[Rows], Sequence[str]], Iterator[pa.Table]]
"""The values of rows of data files in these columns, in the order of the files and rows."""

ReadGiven: TypeAlias = Callable[[np.ndarray, Sequence[str]], Iterator[pa.Table]]
"""The values of the changes at these positions (ascending) in these columns."""


class Fill(NamedTuple):
    """The values of one column. `rows`: positions of the rows that take one, ascending. `at`: which of the values in
    `chunks`, -1 for NULL.
    """

    rows: np.ndarray
    at: np.ndarray
    chunks: tuple[pa.Array, ...]


@dataclass(frozen=True, eq=False)
class Fills:
    """The values that inserted rows take from elsewhere, by column. `size`: their bytes, about."""

    columns: Mapping[str, Fill]
    size: int

    def between(self, begin: int, end: int) -> Fills:
        """Those of the rows at these positions, from `begin` to before `end`."""
        parts = {}
        for name, fill in self.columns.items():
            low, high = np.searchsorted(fill.rows, [begin, end])
            if high > low:
                parts[name] = Fill(fill.rows[low:high], fill.at[low:high], fill.chunks)
        return Fills(parts, self.size)

    def at_once(self, most_bytes: int) -> int:
        """The number of rows whose values take about `most_bytes`."""
        count = max((len(fill.rows) for fill in self.columns.values()), default=0)
        return max(1, most_bytes * max(count, 1) // max(self.size, 1))

    def with_dead(self, dead: pa.Table | None) -> Fills:
        """Also the marks of rows that a remembered delete has deleted. `dead`: ROW (ascending), DELETED_AT."""
        if dead is None:
            return self
        rows = np.asarray(dead[ROW].combine_chunks())
        marks = {
            DELETED: Fill(rows, np.zeros(len(rows), np.int64), (pa.array([True]),)),
            DELETED_AT: Fill(rows, np.arange(len(rows)), tuple(dead[DELETED_AT].chunks)),
        }
        return Fills({**self.columns, **marks}, self.size + dead.nbytes)

    def filled(self, rows: pa.Table, positions: np.ndarray) -> pa.Table:
        """The rows with their values. `positions`: of the rows, ascending."""
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        for name, fill in self.columns.items():
            low, high = np.searchsorted(fill.rows, [positions[0], positions[-1] + 1]) if len(positions) else (0, 0)
            if low == high or name not in columns:
                continue
            own = columns[name]
            is_encoded = pa.types.is_dictionary(own.type)
            values = _taken(fill.chunks, fill.at[low:high], own.type.value_type if is_encoded else own.type)
            if is_encoded and not has_long(values):  # those are not compared: each would be copied
                values = values.dictionary_encode()
            if values.type != own.type:
                own = own.cast(values.type)
            if len(values) < len(own):
                take = np.arange(len(own))
                take[np.searchsorted(positions, fill.rows[low:high])] = len(own) + np.arange(len(values))
                both = pa.chunked_array([*own.chunks, values], own.type).unify_dictionaries()
                values = both.take(whole_numbers(take))
            columns[name] = values
        return pa.table(columns) if columns else rows


NO_FILLS = Fills({}, 0)


class FillRequest(NamedTuple):
    """What `read_fills` needs, for the task that writes the rows. `adds`: the data files by number. `dead`: as of
    `Fills.with_dead`."""

    partial: PartialRows
    newest: pa.Table
    adds: Mapping[int, Action]
    dead: pa.Table | None = None

    def with_dead(self, dead: pa.Table | None) -> FillRequest:
        """As of `Fills`."""
        return self._replace(dead=dead)

    def between(self, begin: int, end: int) -> FillRequest:
        """The request for the rows at these positions, from `begin` to before `end`."""
        low, high = np.searchsorted(np.asarray(self.partial.kept[ROW].combine_chunks()), [begin, end])
        kept = self.partial.kept.slice(low, high - low).combine_chunks()
        first = np.asarray(kept[FIRST].combine_chunks())
        newest = self.newest.filter(pa.array(np.isin(np.asarray(self.newest[FIRST].combine_chunks()), first)))
        adds = {number: self.adds[number] for number in newest[FILE].unique().to_pylist()}
        nothing = PartialRows(kept, self.partial.firsts.slice(0, 0), self.partial.gone.slice(0, 0))
        dead = self.dead
        if dead is not None:
            low, high = np.searchsorted(np.asarray(dead[ROW].combine_chunks()), [begin, end])
            dead = dead.slice(low, high - low).combine_chunks() if high > low else None
        return FillRequest(nothing, newest.combine_chunks(), adds, dead)


def read_fills(
    partial: PartialRows, newest: pa.Table, adds: Mapping[int, Action], read_old: ReadOld, read_given: ReadGiven,
    memory: int, scratch: Path | None = None,
) -> Fills:  # fmt: skip
    """The values of all columns that inserted rows take from elsewhere.

    `newest`: as of `newest_rows`. More than `memory` bytes of values go into temporary files in `scratch` (None: the
    system's folder for such files).
    """
    names = [name for name in partial.kept.column_names if name not in (ROW, FIRST)]
    rows, first = (np.asarray(partial.kept[name].combine_chunks()) for name in (ROW, FIRST))
    takes = {name: np.flatnonzero(np.asarray(partial.kept[name].combine_chunks().is_valid())) for name in names}
    source = {name: np.asarray(partial.kept[name].combine_chunks().drop_null()) for name in names}
    positions = np.unique(_all([of[of >= 0] for of in source.values()]))
    given_names = [name for name in names if (source[name] >= 0).any()]
    of_change = _values(read_given(positions, given_names), given_names, memory, scratch)
    old_names = [name for name in names if (source[name] == IN_TABLE).any()]
    asked = _all([first[takes[name]][source[name] == IN_TABLE] for name in old_names])
    needed = newest.filter(pa.array(np.isin(np.asarray(newest[FIRST].combine_chunks()), asked)))
    of_table = _values(read_old(_by_file(needed, adds), old_names), old_names, memory, scratch)
    place_of_first = _places(np.asarray(needed[FIRST].combine_chunks()))
    fills, size = {}, 0
    for name in names:
        is_given, is_old = source[name] >= 0, source[name] == IN_TABLE
        chunks = tuple(chunk for values in (of_change, of_table) for chunk in values.get(name, ()))
        at = np.full(len(source[name]), -1, np.int64)
        at[is_given] = np.searchsorted(positions, source[name][is_given])
        old = place_of_first(first[takes[name]][is_old])
        at[is_old] = np.where(old >= 0, sum(map(len, of_change.get(name, ()))) + old, -1)
        fills[name] = Fill(rows[takes[name]], at, chunks)
        size += sum(chunk.nbytes for chunk in chunks)
    return Fills(fills, size)


def _taken(chunks: Sequence[pa.Array], at: np.ndarray, kind: pa.DataType) -> pa.Array:
    """The values at these places of all chunks together; NULL for -1. Only chunks with one of them are touched."""
    ends = np.cumsum([0, *map(len, chunks)])
    if ends[-1] <= 2 * len(at) and sum(chunk.nbytes for chunk in chunks) < _LARGE:
        return pa.concat_arrays([*chunks, pa.nulls(1, kind)]).take(whole_numbers(np.where(at < 0, ends[-1], at)))
    of_chunk = np.searchsorted(ends, at, "right") - 1
    order = order_of(of_chunk)
    parts = []
    for number in np.unique(of_chunk):
        its = at[order][of_chunk[order] == number]
        parts.append(pa.nulls(len(its), kind) if number < 0 else chunks[number].take(whole_numbers(its - ends[number])))
    values = pa.concat_arrays(parts) if parts else pa.nulls(0, kind)
    if (np.diff(order) == 1).all():
        return values
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return values.take(whole_numbers(back))


def _values(
    tables: Iterator[pa.Table], names: Sequence[str], memory: int, scratch: Path | None
) -> Mapping[str, Sequence[pa.Array]]:
    """The chunks of each column. Much is written to a file and mapped."""
    if not names:
        return {}
    held: list[pa.Table] = []
    size = 0
    for table in tables:
        held.append(table.select(list(names)))
        size += held[-1].nbytes
        if size > memory:
            return _mapped(held, tables, names, scratch)
    return {name: [chunk for table in held for chunk in table[name].chunks if len(chunk)] for name in names}


def _mapped(
    held: list[pa.Table], rest: Iterator[pa.Table], names: Sequence[str], scratch: Path | None
) -> Mapping[str, Sequence[pa.Array]]:
    with tempfile.NamedTemporaryFile(prefix="values-", dir=scratch) as file:
        with pa.ipc.new_file(file.name, held[0].schema) as writer:
            while held:
                writer.write_table(held.pop(0))
            for table in rest:
                writer.write_table(table.select(list(names)))
        with pa.memory_map(file.name) as source, pa.ipc.open_file(source) as reader:
            batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    return {name: [batch.column(name) for batch in batches if batch.num_rows] for name in names}


def _by_file(needed: pa.Table, adds: Mapping[int, Action]) -> list[Rows]:
    files, rows = np.asarray(needed[FILE].combine_chunks()), np.asarray(needed[ROW].combine_chunks())
    begins = np.flatnonzero(np.diff(files, prepend=-1))
    ends = [*begins[1:], len(files)][: len(begins)]
    return [
        (int(files[begin]), adds[int(files[begin])], rows[begin:end])
        for begin, end in zip(begins, ends, strict=True)
    ]  # fmt: skip


def _places(values: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A function that gives the place of each number among distinct `values`, -1 where it is not among them."""
    order = order_of(values)
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
