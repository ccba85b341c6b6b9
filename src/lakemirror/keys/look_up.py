"""Finds the rows with given keys in a table's data files. The result may include rows that are already deleted.

    add actions ─▶ may_hold: bounds in the log ─▶ row_groups: bounds in footers ─▶ find: key columns ─▶ row numbers
                                                                                    └ kept in `LATELY_READ`

Keys are compared by `key_values.comparable`. `wanted_keys.py` has the wanted keys and compares them with bounds.

Key columns that were read lately are kept: rows that changed once often change again. Numbers that rise by one from row
to row, with few gaps, are stored as runs: at most a quarter of a byte per row, and usually much less.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence, Set
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.statistics import parse_statistics, record_count
from lakemirror.engines.kernels.data_rows import DataFile, RowGroup, arrow_type, opened, place_of, rows_of
from lakemirror.engines.kernels.decode import MemoryBudget
from lakemirror.engines.row_work import Action, Target
from lakemirror.keys.key_values import comparable, is_number, numbers_of, whole_numbers
from lakemirror.keys.wanted_keys import WantedColumn, WantedKeys, is_among

_ROWS_AT_ONCE = 1 << 18  # key rows that are matched at once
_SMALL = 64 * 1024  # a file with fewer rows is small
_KEPT_ROWS = 1 << 20  # the most rows of a row group whose keys are cached
_KEPT_NUMBERS = 1 << 22  # the same if the key is one number


class Runs(NamedTuple):
    """A column of integers, each larger than the one before, as runs of consecutive numbers.

    `first`: the first number of each run. `begin`: the position of that number's row. `rows`: the number of all rows.
    """

    first: np.ndarray
    begin: np.ndarray
    rows: int

    @staticmethod
    def of(values: np.ndarray) -> Runs | None:
        """The runs of these numbers; None if the numbers do not rise, or there are too many runs."""
        if not len(values) or (values[1:] <= values[:-1]).any():
            return None
        if int(values[-1]) - int(values[0]) == len(values) - 1:
            return Runs(values[:1].astype(np.int64), np.zeros(1, np.int64), len(values))
        begin = np.concatenate([[0], np.flatnonzero(values[1:] - values[:-1] != 1) + 1])
        if len(begin) * _WORTH_IT > len(values):
            return None
        return Runs(values[begin].astype(np.int64), begin, len(values))

    @staticmethod
    def joined(parts: Sequence[Runs]) -> Runs:
        """The runs of several columns, one after the other; each column begins above the end of the one before."""
        ends = np.cumsum([part.rows for part in parts])
        begins = [part.begin + (end - part.rows) for part, end in zip(parts, ends, strict=True)]
        return Runs(np.concatenate([part.first for part in parts]), np.concatenate(begins), int(ends[-1]))

    @property
    def nbytes(self) -> int:
        return self.first.nbytes + self.begin.nbytes

    @property
    def last(self) -> int:
        """The largest number."""
        return int(self.first[-1]) + self.rows - int(self.begin[-1]) - 1

    def numbers_at(self, places: np.ndarray) -> np.ndarray:
        """The numbers of the rows at these positions (ascending)."""
        run = np.searchsorted(self.begin, places, "right") - 1
        numbers: np.ndarray = self.first[run] + (places - self.begin[run])
        return numbers

    def places(self, wanted: np.ndarray) -> np.ndarray:
        """The positions of the rows with the wanted numbers. `wanted`: ascending and distinct."""
        lengths = np.diff(self.begin, append=self.rows)
        last = self.first + (lengths - 1)
        low, high = np.searchsorted(wanted, self.first[0]), np.searchsorted(wanted, last[-1], "right")
        inside = wanted[low:high].astype(np.int64)
        run = np.searchsorted(self.first, inside, "right") - 1
        held = inside <= last[run]
        places: np.ndarray = self.begin[run[held]] + (inside[held] - self.first[run[held]])
        return places


Kept: TypeAlias = "pa.Table | Runs"


class Sized(Protocol):
    """An entry of the cache: keys, or the summary of an index."""

    @property
    def nbytes(self) -> int: ...


class Cache:
    """Recently read keys of row groups, at most `most_bytes`. Data files never change, so entries stay correct."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._left = most_bytes
        self._held: OrderedDict[Hashable, Sized] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: Hashable) -> Sized | None:
        with self._lock:
            if name in self._held:
                self._held.move_to_end(name)
            return self._held.get(name)

    def put(self, name: Hashable, keys: Sized) -> None:
        with self._lock:
            if name not in self._held:
                self._held[name] = keys
                self._left -= size_of(keys)
            while self._left < 0:
                self._left += size_of(self._held.popitem(last=False)[1])

    def clear(self) -> None:
        """Removes all entries."""
        with self._lock:
            self._held.clear()
            self._left = self.most_bytes

    def drop(self, name: Hashable) -> None:
        """Removes the entry of this name, if there is one."""
        with self._lock:
            self._drop(name)

    def keep_only(self, table: str, places: Set[str]) -> None:
        """Removes what was read of data files below this folder or address that are none of these."""
        with self._lock:
            for name in [name for name in self._held if isinstance(name, tuple)]:
                place = name[1] if isinstance(name[1], str) else name[0]
                if place not in places and str(place).startswith(f"{table}/"):
                    self._drop(name)

    def _drop(self, name: Hashable) -> None:
        keys = self._held.pop(name, None)
        if keys is not None:
            self._left += size_of(keys)


def size_of(keys: Sized) -> int:
    """The bytes that an entry takes in the cache."""
    return keys.nbytes + _OF_AN_ENTRY


LATELY_READ = Cache(192 << 20)  # holds 24 million numbers without runs, or the summaries of 120 million indexed keys


def may_hold(add: Action, target: Target, wanted: WantedKeys) -> bool:
    """False if the log's statistics or partition values of a file rule out all wanted keys."""
    stats = parse_statistics(add)
    told = (stats.get(name) for name in ("minValues", "maxValues", "nullCount"))
    low, high, nulls = (each if isinstance(each, dict) else {} for each in told)
    values = add.get("partitionValues") or {}
    for column in target.keys:
        keys = wanted.columns[column.name]
        name = column.physical_name
        if column.name in target.partition_columns:
            if not keys.has_text(values.get(name) or None):
                return False
        elif (
            name in low
            and name in high
            and not keys.may_be_in_file(low[name], high[name], column.type, nulls=nulls.get(name, 1) != 0)
        ):
            return False
    return True


def row_groups(add: Action, target: Target, wanted: WantedKeys | None, footer: pq.FileMetaData) -> list[RowGroup]:
    """The row groups of a data file that may hold a wanted key. `wanted` None: all row groups."""
    file = DataFile.of(add, target)
    places = _places(footer, target, wanted) if wanted is not None else []
    groups, begin = [], 0
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        if group.num_rows and all(keys.may_be_in(group.column(place)) for place, keys in places):
            groups.append(RowGroup(file, index, begin, group.num_rows))
        begin += group.num_rows
    return groups


class GroupsOfFile(NamedTuple):
    """The footer of a recently read data file, and its row groups that may hold a wanted key."""

    footer: pq.FileMetaData
    groups: tuple[RowGroup, ...]

    @property
    def nbytes(self) -> int:
        """The approximate bytes in memory."""
        return _PARSED * int(self.footer.serialized_size)


def groups_to_search(add: Action, target: Target, wanted: WantedKeys | None) -> GroupsOfFile:
    """The row groups of a data file that may hold a wanted key. `wanted` None: all.

    All row groups of small files are returned, and cached: reading their bounds takes longer than the search. Of other
    files the footer is cached alone.
    """
    kept = LATELY_READ.get(_name_of_groups(add, target))
    held = kept if isinstance(kept, GroupsOfFile) else keep_footer(add, target, read_footer(add, target))
    return held if _is_small(add) else GroupsOfFile(held.footer, tuple(row_groups(add, target, wanted, held.footer)))


def keep_footer(add: Action, target: Target, footer: pq.FileMetaData) -> GroupsOfFile:
    """Caches the footer of a data file; of a small one also all its row groups. Returns what it caches."""
    kept = GroupsOfFile(footer, tuple(row_groups(add, target, None, footer)) if _is_small(add) else ())
    LATELY_READ.put(_name_of_groups(add, target), kept)
    return kept


def has_footer(add: Action, target: Target) -> bool:
    """True if the footer of a data file is cached."""
    return LATELY_READ.get(_name_of_groups(add, target)) is not None


def are_kept(add: Action, target: Target, wanted: WantedKeys) -> bool:
    """True if a look-up reads nothing of a data file: its footer and the keys that it would read are cached."""
    held = LATELY_READ.get(_name_of_groups(add, target))
    if not isinstance(held, GroupsOfFile):
        return False
    version = version_of(add)
    groups = held.groups if _is_small(add) else row_groups(add, target, wanted, held.footer)
    return all(kept_keys(group, target, version) is not None for group in groups)


def _is_small(add: Action) -> bool:
    return (record_count(add) or _SMALL) < _SMALL


def _name_of_groups(add: Action, target: Target) -> tuple[object, ...]:
    place = place_of(target.path, add["path"])
    return "groups", place, add.get("size"), add.get("modificationTime"), target.partition_columns


def read_footer(add: Action, target: Target) -> pq.FileMetaData:
    """The footer of a data file. FileNotFoundError if the file does not exist any more."""
    with opened(DataFile.of(add, target)) as parquet:
        return parquet.metadata


def find(
    group: RowGroup, target: Target, wanted: WantedKeys, *, version: object = None, room: MemoryBudget | None = None,
    footer: pq.FileMetaData | None = None,
) -> pa.Array:  # fmt: skip
    """Row numbers within the file (int64, ascending) of the wanted keys.

    `version`: the file's size and time, which identify its content in the cache; None: nothing is cached. `room`: how
    much of the cache this look-up may fill. Errors: ArrowException, ValueError, FileNotFoundError.
    """
    name = _name_of_keys(group, target, version)
    keeps = version is not None and group.rows <= (_KEPT_NUMBERS if wanted.is_one_number else _KEPT_ROWS)
    kept = LATELY_READ.get(name) if keeps else None
    if isinstance(kept, pa.Table | Runs):
        if room is not None:
            room.take(size_of(kept))
        return whole_numbers(matches(kept, wanted) + group.first_row)
    found, parts, begin = [], [], group.first_row
    with opened(group.file, footer) as parquet:
        at_once = group.rows if keeps else _ROWS_AT_ONCE
        for rows in rows_of(parquet, group, target.keys, at_once=at_once):
            if keeps:
                parts.append(rows)
                continue
            found.append(matches(rows, wanted) + begin)
            begin += rows.num_rows
    if keeps:
        kept = _to_keep(pa.concat_tables(parts) if parts else wanted.keys.slice(0, 0), wanted)
        if room is None or room.take(size_of(kept)):
            LATELY_READ.put(name, kept)
        return whole_numbers(matches(kept, wanted) + group.first_row)
    return whole_numbers(np.concatenate(found) if found else np.zeros(0, np.int64))


class RisingKeys:
    """Collects the keys of a row group that is read for another purpose, and caches them for `find`.

    Only a key of one number that rises from row to row is collected. `rises` is False once a row breaks that rule.
    """

    def __init__(self, target: Target) -> None:
        stored = [each for each in target.columns if each.name not in target.partition_columns]
        self.column = next((each for each in stored if (each.name,) == tuple(target.key_columns)), None)
        self.rises = self.column is not None
        self._parts: list[Runs] = []

    def add(self, keys: pa.ChunkedArray) -> None:
        """The keys of the next rows, in the table's type."""
        runs = Runs.of(numbers_of(keys)) if is_number(keys.type) and not keys.null_count else None
        if runs is None or (self._parts and int(runs.first[0]) <= self._parts[-1].last):
            self.rises = False
        elif self.rises:
            self._parts.append(runs)

    def keep(self, group: RowGroup, target: Target, version: object) -> None:
        """Caches the keys, if they rise and are all keys of this row group."""
        if self.rises and group.rows <= _KEPT_NUMBERS and sum(part.rows for part in self._parts) == group.rows:
            LATELY_READ.put(_name_of_keys(group, target, version), Runs.joined(self._parts))


def kept_keys(group: RowGroup, target: Target, version: object) -> Kept | None:
    """The cached keys of a row group: Runs if they are numbers that rise, else a table. None if none are cached."""
    kept = LATELY_READ.get(_name_of_keys(group, target, version))
    return kept if isinstance(kept, pa.Table | Runs) else None


def keys_at(group: RowGroup, target: Target, version: object, places: np.ndarray) -> pa.Table | None:
    """The keys of the rows at these places (ascending) of a row group, from the cache; None if it lacks them."""
    kept = kept_keys(group, target, version)
    if kept is None:
        return None
    if isinstance(kept, Runs):
        ((name, kind),) = ((column.name, arrow_type(column.type)) for column in target.keys)
        whole = whole_numbers(kept.numbers_at(places))
        return pa.table({name: whole.cast(pa.int32()).cast(kind) if pa.types.is_date32(kind) else whole.cast(kind)})
    return kept.rename_columns([column.name for column in target.keys]).take(whole_numbers(places))


def version_of(add: Action) -> object:
    """What identifies the content of a data file in the cache: its size and time."""
    return add.get("size"), add.get("modificationTime")


def _name_of_keys(group: RowGroup, target: Target, version: object) -> tuple[object, ...]:
    """The name of a row group's keys in the cache."""
    kind = tuple((column.physical_name, column.type) for column in target.keys)
    return group.file.place, version, group.index, kind


def _places(footer: pq.FileMetaData, target: Target, wanted: WantedKeys) -> list[tuple[int, WantedColumn]]:
    """The key columns whose bounds can be used, with their positions in the file's footer."""
    plain = {
        column.name: place
        for place, column in enumerate(map(footer.schema.column, range(footer.num_columns)))
        if column.path == column.name and column.max_definition_level <= 1 and column.physical_type != "INT96"
        and "nanoseconds" not in str(column.logical_type)  # pyarrow rounds their statistics
    }  # fmt: skip
    return [
        (plain[column.physical_name], wanted.columns[column.name])
        for column in target.keys
        if column.physical_name in plain and column.name not in target.partition_columns
        and wanted.columns[column.name].is_bounded
    ]  # fmt: skip


def matches(kept: Kept, wanted: WantedKeys) -> np.ndarray:
    """The positions (int64, ascending) of the rows with a wanted key."""
    if wanted.is_one_number:
        (column,) = wanted.columns.values()
        if isinstance(kept, Runs):
            return kept.places(column.numbers)
        if (found := _searched(kept, column)) is not None:
            return found
    assert isinstance(kept, pa.Table)
    return is_among(comparable(kept), wanted.values)


def _to_keep(rows: pa.Table, wanted: WantedKeys) -> Kept:
    """What is cached of a row group's keys: runs, if the only key is a rising number, else the keys."""
    runs = None if not wanted.is_one_number or rows[0].null_count else Runs.of(numbers_of(rows[0]))
    return rows if runs is None else runs


def _searched(rows: pa.Table, column: WantedColumn) -> np.ndarray | None:
    """The positions of the rows with a wanted key, without hashing: by binary search for few in sorted rows, or else in
    a map of the wanted numbers. None if the rows are neither sorted nor the wanted numbers dense.
    """
    if rows[0].null_count or not rows.num_rows:
        return None
    values = numbers_of(rows[0])
    rises = bool((values[1:] > values[:-1]).all())
    if not rises and (values[1:] < values[:-1]).any():
        return column.places_of(values)
    wanted = column.numbers
    inside = wanted[np.searchsorted(wanted, values[0]) : np.searchsorted(wanted, values[-1], "right")]
    if len(inside) * 8 > len(values) and (dense := column.places_of(values)) is not None:
        return dense  # one pass over all values is faster than so many binary searches
    first = np.searchsorted(values, inside)
    if rises:
        held: np.ndarray = first[values[first] == inside]
        return held
    count = np.searchsorted(values, inside, "right") - first
    before = np.cumsum(count) - count
    found: np.ndarray = np.repeat(first - before, count) + np.arange(count.sum())
    return found


_WORTH_IT = 4  # average rows per run from which runs are used: half the memory, and a third of the time of a look-up
_OF_AN_ENTRY = 2048  # bytes of an entry beside its keys: measured
_PARSED = 11  # bytes of a parsed footer for each byte of the encoded one: measured
