"""Units of work: what a kernel gets (`unit_kernels`), and how the files of an apply are shared out to units.

    change files ─▶ split: large files by row groups ─▶ change_units: several small files together ─▶ ChangeFiles
    data files ─▶ data_units ─▶ DataFiles

Units are plain data. Threads get them as objects, Spark's tasks get them pickled (`spark/messages.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow.parquet as pq

from lakemirror.engines.kernels.decode import MemoryBudget
from lakemirror.engines.kernels.fill_values import FillRequest, Fills
from lakemirror.engines.kernels.write import SIZES, FileSizes
from lakemirror.engines.row_work import Action, ChangeUnit, HistoryWork, Ordering, RowWork, Target
from lakemirror.keys.wanted_keys import WantedKeys
from lakemirror.landing_zone.row_markers import INSERT
from lakemirror.storage.place import capabilities_of, opened

UNIT_BYTES = 128 << 20  # of files, for one task
SMALL_BYTES = 32 << 20
"""Work of at most so many bytes takes less time in this process than one more Spark job."""

ONE_THREAD_BYTES = 256 << 10
"""Work of at most so many bytes takes one thread less time than several, which wait for each other's interpreter lock;
but not where they wait for a store."""

_LEAST_BYTES = 4 << 20  # for fewer bytes, another unit costs more time than it saves
_LARGE_FILE = 256 << 20  # a data file with more bytes becomes several units

KEPT, UPDATE = 1, 2
"""Flags of changes whose row is inserted. UPDATE: the change data feed shows the row as an update. 0: not inserted."""

_NONE = np.zeros(0, np.int64)
_Item = TypeVar("_Item")


class Shared(NamedTuple):
    """What all units of an apply share. `append_only`, `default_marker`, `partial`, `ordering`, `history`,
    `inserts_replace`: as in `RowWork`. `wanted`: keys to find. `names`: columns to read. `changes`: all change files,
    for units that read values of changes themselves.
    """

    target: Target
    budget: MemoryBudget
    append_only: bool = False
    default_marker: int = INSERT
    sizes: FileSizes = SIZES
    wanted: WantedKeys | None = None
    partial: bool = False
    names: tuple[str, ...] = ()
    changes: ChangeFiles | None = None
    ordering: Ordering | None = None
    history: HistoryWork | None = None
    inserts_replace: bool = False


@dataclass(frozen=True, eq=False)
class ChangeFiles:
    """Change files, and which of their rows are inserted.

    `begin`: the position of the first row among all changes of the batch. `flags`: one byte for each row (KEPT, UPDATE
    or 0); None: all rows are inserted. `fills`: the values that partial rows take from elsewhere, or what is read for
    them.
    """

    begin: int
    files: tuple[ChangeUnit, ...]
    flags: np.ndarray | None = None
    fills: Fills | FillRequest | None = None

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def begins(self) -> Iterator[tuple[int, ChangeUnit]]:
        """The files, each with the position of its first row in the unit."""
        begin = 0
        for file in self.files:
            yield begin, file
            begin += file.rows


class TouchedFile(NamedTuple):
    """A data file: its number among the candidates, its `add` action, and row numbers (int64, ascending).

    `deleted`: the rows that the apply deletes. `updated`: those of them whose key is inserted again, if the table has a
    change data feed.
    """

    number: int
    add: Action
    deleted: np.ndarray = _NONE
    updated: np.ndarray = _NONE


@dataclass(frozen=True, eq=False)
class DataFiles:
    """Data files. `part`, `parts`: of one large file, every `parts`-th row group, beginning with number `part`."""

    files: tuple[TouchedFile, ...]
    part: int = 0
    parts: int = 1


def change_units(
    work: RowWork,
    flags: np.ndarray | None,
    parallelism: int,
    most: int,
    fills: Fills | FillRequest | None = None,
) -> list[ChangeFiles]:
    """The change files of a batch as units of at most about `most` bytes. `flags`, `fills`: of all changes."""
    units, begin = [], 0
    for group in groups_of(work.changes, parallelism, weight=lambda unit: unit.bytes + unit.rows, most=most):
        end = begin + sum(unit.rows for unit in group)
        its = None if fills is None else fills.between(begin, end)
        units.append(ChangeFiles(begin, tuple(group), None if flags is None else flags[begin:end], its))
        begin = end
    return units


def data_units(files: Sequence[TouchedFile], parallelism: int, *, in_parts: bool = False) -> list[DataFiles]:
    """Data files as units: small files together and, if `in_parts`, large files in parts."""
    units: list[DataFiles] = []
    for group in groups_of(files, parallelism, weight=lambda file: size_of(file.add)):
        items = tuple(file._replace(add=without_statistics(file.add)) for file in group)
        parts = -(-size_of(items[0].add) // _LARGE_FILE) if in_parts and len(items) == 1 else 1
        units += [DataFiles(items, part, parts) for part in range(max(1, parts))]
    return units


def groups_of(
    items: Sequence[_Item], parallelism: int, *, weight: Callable[[_Item], int], most: int = UNIT_BYTES
) -> list[list[_Item]]:
    """The items in order, in groups of similar weight (bytes).

    There is one group for each unit that is carried at once. There are more if a group would exceed `most`, and fewer
    if the groups would be very small.
    """
    total = sum(weight(item) for item in items)
    count = max(-(-total // most), min(parallelism, -(-total // _LEAST_BYTES)), 1)
    return shared_out(items, count, weight)


def shared_out(items: Sequence[_Item], count: int, weight: Callable[[_Item], int]) -> list[list[_Item]]:
    """The items in order, in at most `count` groups of similar weight: a group ends before an item of which most would
    be beyond its share."""
    share = max(1, -(-sum(weight(item) for item in items) // count))
    groups: list[list[_Item]] = []
    before = 0
    for item in items:
        its = weight(item)
        if not groups or (2 * before + its >= 2 * share * len(groups) and len(groups) < count):
            groups.append([])
        groups[-1].append(item)
        before += its
    return groups


def split(unit: ChangeUnit, most: int) -> list[ChangeUnit]:
    """A unit of more than two times `most` bytes split by row groups; others unchanged. Error: FileNotFoundError."""
    if unit.bytes <= 2 * most:
        return [unit]
    footer = pq.read_metadata(opened(unit.path, unit.listed))
    numbers = list(range(footer.num_row_groups)) if unit.row_groups is None else list(unit.row_groups)
    if len(numbers) < 2 or sum(footer.row_group(number).num_rows for number in numbers) != unit.rows:
        return [unit]  # one row group; or the file was replaced, which its reader will find
    sizes = {number: footer.row_group(number).total_byte_size for number in numbers}
    total = max(1, sum(sizes.values()))
    parts, first_row = [], unit.first_row
    for group in shared_out(numbers, -(-unit.bytes // most), lambda number: sizes[number]):
        rows = sum(footer.row_group(number).num_rows for number in group)
        size = unit.bytes * sum(sizes[number] for number in group) // total
        parts.append(replace(unit, row_groups=tuple(group), first_row=first_row, rows=rows, bytes=size))
        first_row += rows
    return parts


def weight_of(unit: Any) -> int:
    """The bytes of a unit of any kernel: change files decoded, data files as stored, rows in memory."""
    if isinstance(unit, ChangeFiles):
        return unit.bytes if unit.fills is None else sys.maxsize  # nobody knows how large filled values are
    if isinstance(unit, DataFiles):
        return sum(size_of(file.add) for file in unit.files) // unit.parts
    if isinstance(unit, tuple):
        return sum(map(weight_of, unit))
    return sum(batch.nbytes for batch in unit) if isinstance(unit, Sequence) else int(getattr(unit, "nbytes", 0))


def is_short(nbytes: int, target: Target) -> bool:
    """True if one thread does work of so many bytes faster than several."""
    return nbytes <= ONE_THREAD_BYTES and not capabilities_of(target.path).waits


def size_of(add: Action) -> int:
    """The bytes of a data file."""
    return int(add.get("size") or 0)


def without_statistics(add: Action) -> Action:
    """An `add` action without its statistics, which no kernel needs."""
    return {name: value for name, value in add.items() if name != "stats"}
