"""Folds more changes than fit into memory. It uses only keys, markers and positions, in buckets of keys on the disk.

keys and markers ─▶ fit into memory ──▶ fold ─▶ flags: one byte per change, whether its row is inserted
               └──▶ Spill by key ─▶ fold one bucket at a time ─▶ deletes: keys, in memory or in buckets again
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lakemirror.delta.attempt_ids import attempt_id
from lakemirror.delta.statistics import record_count
from lakemirror.engines.kernels.data_rows import arrow_type, opened, rows_of
from lakemirror.engines.kernels.fold import fold_places
from lakemirror.engines.memory_budget import MemoryBudget
from lakemirror.engines.row_work import MARKER, ROW, Action, RowWork
from lakemirror.engines.spill import Spill
from lakemirror.keys.key_cache import Kept, Runs
from lakemirror.keys.key_index import Each, KeyIndex
from lakemirror.keys.key_values import comparable, whole_numbers
from lakemirror.keys.look_up import (
    find,
    groups_to_search,
    kept_keys,
    key_columns,
    may_hold,
    read_footer,
    row_groups,
    version_of,
)
from lakemirror.keys.wanted_keys import Sought, is_among
from lakemirror.storage.own_files import SPILLED, work_folder
from lakemirror.storage.place import capabilities_of

_REQUESTS_AT_ONCE = 8
_FEW = 256 * 1024  # so many rows of data files are read by one thread as fast as by several
_MOST_BUCKETS = 256  # each bucket is an open file; a process may often open 1024 files, and needs others too


class Narrow(NamedTuple):
    """Keys and markers of some changes. `begin`: the position of the first one among all changes of the batch."""

    begin: int
    keys: pa.Table
    markers: np.ndarray


@dataclass
class FoldedBatch:
    """The net effect of a batch.

    `flags`: one byte for each change: 0 not inserted, KEPT inserted, FIRST inserted and the first row of a key that is
    also deleted. `deletes`: the keys whose rows in the table are deleted. `replaced_keys`: the keys of the FIRST rows,
    only for the change data feed.
    """

    KEPT = 1
    FIRST = 2

    flags: np.ndarray
    deletes: pa.Table | Spill
    replaced_keys: pa.Table


@contextmanager
def fold_in_passes(work: RowWork, narrow: Iterable[Narrow], scratch: Path, memory: int) -> Iterator[FoldedBatch]:
    """The net effect of a batch, from its keys and markers.

    It uses about `memory` bytes. What does not fit is in files below `scratch`, which are deleted when the block ends.
    """
    names = list(work.target.key_columns)
    with work_folder(scratch, SPILLED, str(attempt_id(work.target.version))) as folder:
        flags: np.ndarray
        if work.rows > memory // 8:
            flags = np.memmap(folder / "flags", np.uint8, "w+", shape=(work.rows,))
        else:
            flags = np.zeros(work.rows, np.uint8)
        held: list[pa.Table] = []
        size = rows = 0
        changes: Spill | None = None
        for part in narrow:
            if not len(part.markers):
                continue
            places = whole_numbers(np.arange(part.begin, part.begin + len(part.markers)))
            table = part.keys.append_column(ROW, places).append_column(MARKER, pa.array(part.markers))
            size, rows = size + table.nbytes, rows + table.num_rows
            if changes is None and size > memory // 8:
                changes = Spill(folder, _buckets(size * work.rows // rows, memory), names)
                for each in held:
                    changes.add(each)
                held = []
            if changes is None:
                held.append(table)
            else:
                changes.add(table)
        if changes is None:
            tables: Iterable[pa.Table] = [pa.concat_tables(held)] if held else []
        else:
            tables = (found for bucket in range(changes.buckets) if (found := changes.read(bucket)) is not None)
        yield _folded(work, tables, flags, folder, memory, changes.buckets if changes is not None else 1)


def look_up_keys(
    work: RowWork, deletes: pa.Table | Spill, memory: int, each: Each, index: KeyIndex | None = None
) -> dict[str, np.ndarray]:
    """Row numbers (int64, ascending) of the rows whose key is among `deletes`, by the paths of `work.candidates`.

    Files without such a row are left out. `each`: a `map` that works on several items at once and keeps their order.
    `index`: used instead of reading keys, where it has an index of the file.
    """
    if isinstance(deletes, Spill):
        return _joined(work, deletes, memory, each, index)
    if not deletes.num_rows or not work.candidates:
        return {}
    target, sought = work.target, Sought(deletes)
    room = MemoryBudget(memory // 4)
    adds = [add for add in work.candidates if may_hold(add, target, sought)]
    result: dict[str, list[np.ndarray]] = {}
    if index is not None:
        indexed = index.find_in(adds, target, sought, each)
        result = {
            add["path"]: [rows] for add, rows in zip(adds, indexed, strict=True) if rows is not None and len(rows)
        }
        adds = [add for add, rows in zip(adds, indexed, strict=True) if rows is None]

    def groups_of(add: Action) -> list[tuple[Action, Any, Any]]:
        found = groups_to_search(add, target, sought)
        return [(add, group, found.footer) for group in found.groups]

    def kept(add: Action, group: Any) -> Kept | None:
        return kept_keys(group, target, version_of(add))

    def rows_in(item: tuple[Action, Any, Any]) -> np.ndarray:
        add, group, footer = item
        return np.asarray(find(group, target, sought, version=version_of(add), room=room, footer=footer))

    if capabilities_of(target.path).waits and len(adds) > 1:
        with ThreadPoolExecutor(min(_REQUESTS_AT_ONCE, len(adds)), thread_name_prefix="footers") as pool:
            groups = [item for found in pool.map(groups_of, adds) for item in found]
    else:
        if sum(record_count(add) or _FEW for add in adds) < _FEW:
            each = map  # starting threads takes longer than reading small files
        groups = [item for found in each(groups_of, adds) for item in found]
    if sum(group.rows for add, group, _ in groups if kept(add, group) is None) < _FEW:
        each = map
    for (add, _, _), rows in zip(groups, each(rows_in, groups), strict=True):
        if len(rows):
            result.setdefault(add["path"], []).append(rows)
    if index is not None:
        scattered = {add["path"] for add, group, _ in groups if not isinstance(kept(add, group), Runs)}
        for add in adds:
            if add["path"] in scattered:
                index.want(add, target)
    return {path: np.concatenate(rows) for path, rows in result.items()}


def _folded(
    work: RowWork, tables: Iterable[pa.Table], flags: np.ndarray, folder: Path, memory: int, buckets: int
) -> FoldedBatch:
    names = list(work.target.key_columns)
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in key_columns(work.target)])
    deletes: list[pa.Table] = []
    replaced: list[pa.Table] = [schema.empty_table()]
    size = 0
    spilled: Spill | None = None
    for table in tables:
        keys = table.select(names).combine_chunks()
        row = np.asarray(table[ROW].combine_chunks())
        places = fold_places(keys, np.asarray(table[MARKER].combine_chunks()), with_firsts=work.target.feed)
        flags[row[places.kept]] = FoldedBatch.KEPT
        flags[row[places.firsts]] = FoldedBatch.FIRST
        if work.target.feed:
            replaced.append(keys.take(whole_numbers(places.firsts)).cast(schema))
        if not work.candidates or not len(places.deletes):
            continue
        found = keys.take(whole_numbers(places.deletes)).cast(schema)
        size += found.nbytes
        if spilled is None and buckets > 1 and size > memory // 8:
            spilled = Spill(folder, buckets, names)
            for each in deletes:
                spilled.add(each)
            deletes = []
        if spilled is None:
            deletes.append(found)
        else:
            spilled.add(found)
    kept_deletes = pa.concat_tables([schema.empty_table(), *deletes]) if spilled is None else spilled
    return FoldedBatch(flags, kept_deletes, pa.concat_tables(replaced))


def _joined(work: RowWork, deletes: Spill, memory: int, each: Each, index: KeyIndex | None) -> dict[str, np.ndarray]:
    """`look_up_keys` for keys that do not fit into memory: the table's keys are put into the same buckets.

    Each data file is read once. Data files with an index and far more rows than sought keys are not read; the buckets
    are looked up in their index.
    """
    target = work.target
    columns = key_columns(target)
    deletes.close()
    result: dict[str, list[np.ndarray]] = {}
    numbers_left = list(range(len(work.candidates)))
    if index is not None:
        numbers_left = _without_indexed(work, deletes, index, result)

    def keys_of(item: tuple[int, Any]) -> list[pa.Table]:
        number, group = item
        found, begin = [], group.first_row
        with opened(group.file) as parquet:
            for rows in rows_of(parquet, group, columns):
                places = whole_numbers(np.arange(begin, begin + rows.num_rows))
                numbers = pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows)
                found.append(rows.append_column(ROW, places).append_column(MARKER, numbers))
                begin += rows.num_rows
        return found

    items = [
        (number, group)
        for number, add in ((number, work.candidates[number]) for number in numbers_left)
        for group in row_groups(add, target, None, read_footer(add, target))
    ]
    with Spill(deletes.folder.parent, deletes.buckets, list(target.key_columns)) as table_keys:
        for parts in each(keys_of, items):
            for part in parts:
                table_keys.add(part)
        for bucket in range(deletes.buckets):
            sought, rows = deletes.read(bucket), table_keys.read(bucket)
            if sought is None or rows is None:
                continue
            names = list(target.key_columns)
            hits = rows.select([ROW, MARKER]).take(
                whole_numbers(is_among(comparable(rows.select(names)), comparable(sought)))
            )
            numbers, places = np.asarray(hits[MARKER].combine_chunks()), np.asarray(hits[ROW].combine_chunks())
            for number in np.unique(numbers):
                result.setdefault(work.candidates[number]["path"], []).append(places[numbers == number])
    return {path: np.sort(np.concatenate(rows)) for path, rows in result.items()}


def _without_indexed(work: RowWork, deletes: Spill, index: KeyIndex, result: dict[str, list[np.ndarray]]) -> list[int]:
    """Looks up keys in the indexes. Returns the numbers of the candidates that must still be read.

    The rows found in all other candidates are added to `result`.
    """
    left = set(range(len(work.candidates)))
    large = [number for number in left if index.is_asked(work.candidates[number], deletes.rows)]
    for bucket in range(deletes.buckets):
        sought = deletes.read(bucket) if large else None
        if sought is None:
            continue
        found = index.find_in([work.candidates[number] for number in large], work.target, Sought(sought))
        for number, rows in zip(large, found, strict=True):
            path = work.candidates[number]["path"]
            if rows is None:
                result.pop(path, None)
            elif len(rows):
                result.setdefault(path, []).append(rows)
        large = [number for number, rows in zip(large, found, strict=True) if rows is not None]
    for number in left - set(large):
        result.pop(work.candidates[number]["path"], None)
        index.want(work.candidates[number], work.target)
    return sorted(left - set(large))


def _buckets(size: int, memory: int) -> int:
    """The number of buckets, so that one takes about 1/32 of the memory: a fold needs several times its keys."""
    return int(min(_MOST_BUCKETS, max(2, -(-size * 32 // memory))))


__all__ = ["FoldedBatch", "Narrow", "fold_in_passes", "look_up_keys"]
