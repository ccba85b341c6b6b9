"""Splits work into units for tasks: several small files per unit, large files by their row groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import pyarrow.parquet as pq

from lakemirror.engines.row_work import Action, ChangeUnit
from lakemirror.engines.spark.task_values import DataFiles
from lakemirror.storage.place import opened

TASK_BYTES = 128 << 20  # of files, for one task
_LEAST_BYTES = 4 << 20  # for fewer bytes, another task costs more time than it saves

_Item = TypeVar("_Item")


def groups_of(
    items: Sequence[_Item], parallelism: int, *, weight: Callable[[_Item], int], most: int = TASK_BYTES
) -> list[list[_Item]]:
    """The items in order, in groups of similar weight (bytes).

    There is one group for each task that runs at once. There are more if a group would exceed `most`, and fewer if the
    groups would be very small.
    """
    total = sum(weight(item) for item in items)
    count = max(-(-total // most), min(parallelism, -(-total // _LEAST_BYTES)), 1)
    return _shared_out(items, count, weight)


def data_file_groups(files: Sequence[Action], count: int, *, weight: Callable[[Action], int]) -> list[DataFiles]:
    """Data files in at most `count` groups of similar weight."""
    numbered = list(enumerate(files))
    groups = _shared_out(numbered, count, lambda item: weight(item[1]))
    return [DataFiles(tuple((number, add, b"", b"") for number, add in group)) for group in groups]


def split(unit: ChangeUnit) -> list[ChangeUnit]:
    """A large unit split by row groups; a small unit as it is. Error: FileNotFoundError."""
    if unit.bytes <= 2 * TASK_BYTES:
        return [unit]
    footer = pq.read_metadata(opened(unit.path, unit.listed))
    numbers = list(range(footer.num_row_groups)) if unit.row_groups is None else list(unit.row_groups)
    if len(numbers) < 2 or sum(footer.row_group(number).num_rows for number in numbers) != unit.rows:
        return [unit]  # one row group; or the file was replaced, which its reader will find
    sizes = {number: footer.row_group(number).total_byte_size for number in numbers}
    total = max(1, sum(sizes.values()))
    found, first_row = [], unit.first_row
    for group in _shared_out(numbers, -(-unit.bytes // TASK_BYTES), lambda number: sizes[number]):
        rows = sum(footer.row_group(number).num_rows for number in group)
        size = unit.bytes * sum(sizes[number] for number in group) // total
        found.append(replace(unit, row_groups=tuple(group), first_row=first_row, rows=rows, bytes=size))
        first_row += rows
    return found


def _shared_out(items: Sequence[_Item], count: int, weight: Callable[[_Item], int]) -> list[list[_Item]]:
    """The items in order, in at most `count` groups of similar weight."""
    share = max(1, -(-sum(weight(item) for item in items) // count))
    groups: list[list[_Item]] = []
    before = 0
    for item in items:
        if not groups or (before >= share * len(groups) and len(groups) < count):
            groups.append([])
        groups[-1].append(item)
        before += weight(item)
    return groups
