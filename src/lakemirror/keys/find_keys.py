"""Finds the rows of a batch's keys in all data files that may hold one: by bounds, by the key index, by reading keys.

deletes ─▶ in memory ─▶ find_keys: bounds of the log ─▶ key index ─▶ what it does not answer: search_files
       └▶ spilled ────▶ find_spilled: key index ─▶ the keys of all other data files, put into the same buckets
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror.delta.statistics import record_count
from lakemirror.engines.kernels.data_rows import RowGroup, opened, rows_of
from lakemirror.engines.kernels.decode import MemoryBudget
from lakemirror.engines.row_work import FILE, ROW, Action, Target
from lakemirror.keys.key_index import Each, KeyIndex, is_large
from lakemirror.keys.key_values import comparable, whole_numbers
from lakemirror.keys.look_up import (
    Runs,
    find,
    groups_to_search,
    has_footer,
    kept_keys,
    keys_at,
    matches,
    may_hold,
    read_footer,
    row_groups,
    version_of,
)
from lakemirror.keys.spill import Spill
from lakemirror.keys.wanted_keys import WantedKeys, is_among
from lakemirror.storage.place import capabilities_of

_REQUESTS_AT_ONCE = 8
_FEW = 256 * 1024  # so many rows of data files are read by one thread as fast as by several

Numbered: TypeAlias = tuple[int, Action]
"""A data file: its number among the candidates, and its `add` action."""

Search: TypeAlias = Callable[[Sequence[Numbered], Target, WantedKeys], Iterable[tuple[int, np.ndarray]]]
"""Reads the keys of data files. Gives the numbers of the files that have rows with a wanted key, and these rows."""


def find_keys(
    candidates: Sequence[Action], target: Target, deletes: pa.Table, search: Search, each: Each,
    index: KeyIndex | None = None,
) -> dict[int, np.ndarray]:  # fmt: skip
    """Row numbers (int64, ascending) of the rows whose key is among `deletes`, by the number of their candidate.

    Files without such a row are left out. `search`: for the files that the index does not answer for. `each`: a `map`
    that works on several items at once and keeps their order.
    """
    if not deletes.num_rows or not candidates:
        return {}
    wanted = WantedKeys(deletes)
    files = [(number, add) for number, add in enumerate(candidates) if may_hold(add, target, wanted)]
    rows: dict[int, np.ndarray] = {}
    if index is not None:
        indexed = index.find_in([add for _, add in files], target, wanted, each)
        rows = {number: got for (number, _), got in zip(files, indexed, strict=True) if got is not None and len(got)}
        files = [file for file, got in zip(files, indexed, strict=True) if got is None]
    parts: dict[int, list[np.ndarray]] = {}
    for number, got in search(files, target, wanted) if files else ():
        parts.setdefault(number, []).append(got)
    rows |= {number: np.sort(np.concatenate(got), kind="stable") for number, got in parts.items()}  # runs, mostly one
    if index is not None and target.reads_old_rows:
        index.rows.open([candidates[number] for number in rows], target)
    return rows


def kept_among(
    adds: Sequence[Action], target: Target, rows: Sequence[np.ndarray], wanted: WantedKeys
) -> list[np.ndarray | None]:
    """Of these rows (numbers, ascending) of each data file those with a wanted key; None if its keys are not cached.
    All rows with a wanted key are among them: where keys rise, the cache tells which they are."""
    parts: list[list[np.ndarray] | None] = [[np.zeros(0, np.int64)] for _ in adds]
    left: list[tuple[list[np.ndarray], np.ndarray, pa.Table]] = []
    for number, (add, its) in enumerate(zip(adds, rows, strict=True)):
        version = version_of(add)
        for group in groups_to_search(add, target, None).groups:
            low, high = np.searchsorted(its, [group.first_row, group.first_row + group.rows])
            kept, part = kept_keys(group, target, version), parts[number]
            if low == high or part is None:
                continue
            if isinstance(kept, Runs):
                part.append(matches(kept, wanted) + group.first_row)
            elif (keys := keys_at(group, target, version, its[low:high] - group.first_row)) is not None:
                left.append((part, its[low:high], keys))
            else:
                parts[number] = None
    hits = matches(pa.concat_tables([keys for *_, keys in left]), wanted) if left else np.zeros(0, np.int64)
    begin = 0
    for part, its, _ in left:
        low, high = np.searchsorted(hits, [begin, begin + len(its)])
        part.append(its[hits[low:high] - begin])
        begin += len(its)
    return [None if part is None else np.sort(np.concatenate(part), kind="stable") for part in parts]


def search_files(
    files: Sequence[Numbered],
    target: Target,
    wanted: WantedKeys,
    memory: int,
    each: Each,
    index: KeyIndex | None = None,
) -> list[tuple[int, np.ndarray]]:
    """Finds the wanted keys by reading key columns, or by the key cache. Requests the indexes that would have helped.

    `memory`: the bytes that it may add to the key cache. For the other parameters see `find_keys`.
    """
    budget = MemoryBudget(memory)

    def groups_of(file: Numbered) -> list[_Searched]:
        searched, version = groups_to_search(file[1], target, wanted), version_of(file[1])
        return [_Searched(file, group, searched.footer, version) for group in searched.groups]

    def rows_in(one: _Searched) -> np.ndarray:
        return np.asarray(find(one.group, target, wanted, version=one.version, room=budget, footer=one.footer))

    if capabilities_of(target.path).waits and len(files) > 1:
        with ThreadPoolExecutor(min(_REQUESTS_AT_ONCE, len(files)), thread_name_prefix="footers") as pool:
            groups = [one for searched in pool.map(groups_of, files) for one in searched]
    else:
        if sum(record_count(add) or _FEW for _, add in files) < _FEW:
            each = map  # starting threads takes longer than reading small files
        opening = each if each is map or any(not has_footer(add, target) for _, add in files) else map
        groups = [one for searched in opening(groups_of, files) for one in searched]
    if each is not map:
        unread = (one.group.rows for one in groups if kept_keys(one.group, target, one.version) is None)
        each = map if sum(unread) < _FEW else each
    found = [(one.file[0], rows) for one, rows in zip(groups, each(rows_in, groups), strict=True) if len(rows)]
    if index is not None:
        large = [
            one for one in groups if is_large(one.footer.num_rows) and index.is_asked(one.file[1], wanted.keys.num_rows)
        ]
        kept = [(one.file, kept_keys(one.group, target, one.version)) for one in large]
        for add in dict(file for file, keys in kept if not isinstance(keys, Runs)).values():
            index.want(add, target)
    return found


class _Searched(NamedTuple):
    """A row group that may hold a wanted key. `version`: as from `version_of`."""

    file: Numbered
    group: RowGroup
    footer: pq.FileMetaData
    version: object


def find_spilled(
    candidates: Sequence[Action], target: Target, deletes: Spill, each: Each, index: KeyIndex | None = None
) -> dict[int, np.ndarray]:
    """`find_keys` for keys that do not fit into memory: the table's keys are put into the same buckets.

    Each data file is read once. Data files with an index and far more rows than wanted keys are not read; the buckets
    are looked up in their index.
    """
    names, columns = list(target.key_columns), target.keys
    deletes.close()
    result: dict[int, list[np.ndarray]] = {}
    left = list(range(len(candidates)))
    if index is not None:
        left = _without_indexed(candidates, target, deletes, index, result)

    def keys_of(item: tuple[int, Any]) -> list[pa.Table]:
        number, group = item
        tables, begin = [], group.first_row
        with opened(group.file) as parquet:
            for rows in rows_of(parquet, group, columns):
                positions = whole_numbers(np.arange(begin, begin + rows.num_rows))
                numbers = pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows)
                tables.append(rows.append_column(ROW, positions).append_column(FILE, numbers))
                begin += rows.num_rows
        return tables

    items = [
        (number, group)
        for number, add in ((number, candidates[number]) for number in left)
        for group in row_groups(add, target, None, read_footer(add, target))
    ]
    with Spill(deletes.folder.parent, deletes.buckets, names) as table_keys:
        for tables in each(keys_of, items):
            for table in tables:
                table_keys.add(table)
        for bucket in range(deletes.buckets):
            wanted, rows = deletes.read(bucket), table_keys.read(bucket)
            if wanted is None or rows is None:
                continue
            hits = rows.take(whole_numbers(is_among(comparable(rows.select(names)), comparable(wanted))))
            for number, numbers in rows_by_file(hits):
                result.setdefault(number, []).append(numbers)
    return {number: np.sort(np.concatenate(rows)) for number, rows in result.items()}


def rows_by_file(rows: pa.Table) -> list[tuple[int, np.ndarray]]:
    """The numbers in column ROW, for each number in column FILE."""
    files, numbers = np.asarray(rows[FILE].combine_chunks()), np.asarray(rows[ROW].combine_chunks())
    return [(int(file), numbers[files == file]) for file in np.unique(files)]


def _without_indexed(
    candidates: Sequence[Action], target: Target, deletes: Spill, index: KeyIndex, result: dict[int, list[np.ndarray]]
) -> list[int]:
    """Looks up keys in the indexes. Returns the numbers of the candidates that must still be read.

    The rows found in all other candidates are added to `result`.
    """
    left = set(range(len(candidates)))
    large = [number for number in left if index.is_asked(candidates[number], deletes.rows)]
    for bucket in range(deletes.buckets):
        wanted = deletes.read(bucket) if large else None
        if wanted is None:
            continue
        found = index.find_in([candidates[number] for number in large], target, WantedKeys(wanted))
        for number, rows in zip(large, found, strict=True):
            if rows is None:
                result.pop(number, None)
            elif len(rows):
                result.setdefault(number, []).append(rows)
        large = [number for number, rows in zip(large, found, strict=True) if rows is not None]
    for number in left - set(large):
        result.pop(number, None)
        index.want(candidates[number], target)
    return sorted(left - set(large))
