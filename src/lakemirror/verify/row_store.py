"""Hashed rows in buckets on disk, so that two sides of any size are compared in little memory.

rows ─▶ (key, key, row) ─▶ bucket by key ─▶ sums of both sides ─▶ equal, or the differing keys of the bucket
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from lakemirror.landing_zone.row_markers import DELETE, INSERT
from lakemirror.verify.row_hashes import NULL, Hashes, mixed

Records = np.ndarray[Any, np.dtype[np.uint64]]
"""Two-dimensional: a row for each row, a column for each number."""

_HELD = 32 << 20  # bytes in memory before they go to disk
ROWS_A_BUCKET = 1_000_000
MOST_BUCKETS = 1024


class RowStore:
    """Records of one side, `width` numbers each, the first of which chooses the bucket. Threads may add at once."""

    def __init__(self, width: int, buckets: int) -> None:
        self.buckets = buckets
        self.rows = 0
        self._width = width
        self._folder = tempfile.TemporaryDirectory(prefix="lakemirror-verify-")
        self._parts: list[list[Records]] = [[] for _ in range(buckets)]
        self._held = 0
        self._lock = threading.Lock()

    def __enter__(self) -> RowStore:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def add(self, records: Records) -> None:
        """Adds records, and writes them to disk when there are many in memory. OSError if the disk is full."""
        bucket = (records[:, 0] >> np.uint64(32)) % np.uint64(self.buckets)
        order = np.argsort(bucket, kind="stable")
        ends = np.searchsorted(bucket[order], np.arange(self.buckets + 1, dtype=np.uint64))
        records = records[order]
        with self._lock:
            self.rows += len(records)
            for number in np.flatnonzero(np.diff(ends)):
                self._parts[number].append(records[ends[number] : ends[number + 1]])
            self._held += records.nbytes
            if self._held > _HELD:
                self._spill()

    def read(self, bucket: int) -> Records:
        """All records of a bucket, in no order."""
        path = self._path(bucket)
        parts = list(self._parts[bucket])
        if path.exists():
            parts.append(np.fromfile(path, np.uint64).reshape(-1, self._width))
        return np.concatenate(parts) if parts else np.empty((0, self._width), np.uint64)

    def _spill(self) -> None:
        for bucket, parts in enumerate(self._parts):
            if parts:
                with self._path(bucket).open("ab") as file:
                    for part in parts:
                        np.ascontiguousarray(part).tofile(file)
        self._parts = [[] for _ in range(self.buckets)]
        self._held = 0

    def _path(self, bucket: int) -> Path:
        return Path(self._folder.name) / str(bucket)


@dataclass(frozen=True)
class Difference:
    """A key whose rows differ: how many rows the table has too many (`extra`) and too few (`missing`)."""

    key: tuple[int, int]
    extra: int
    missing: int


def buckets_for(rows: int) -> int:
    """The number of buckets for so many rows, so that each bucket fits into memory."""
    return max(1, min(MOST_BUCKETS, -(-rows // ROWS_A_BUCKET)))


RowOf: TypeAlias = Callable[[Sequence[Hashes], int], Hashes]
"""The hash of each row from the hashes of its columns."""


def differences(
    table: RowStore, other: RowStore, *, changes: bool, any_order: bool = False, row_of: RowOf | None = None
) -> Iterator[Difference]:
    """The keys whose rows differ, bucket by bucket; none where the sums of a bucket are equal.

    `table` holds (key, key, row). So does `other`, or with `changes` (key, key, row, place, marker), which is folded
    by the contract's net effect. `any_order`: files have no known order; keys that more than one file changes are
    left out on both sides. `row_of`: for records that also have (hash, left out) of each column (section 3a).
    """
    for bucket in range(table.buckets):
        mine, theirs = table.read(bucket), other.read(bucket)
        if changes:
            theirs, undecided = folded(theirs, any_order=any_order, row_of=row_of)
            if len(undecided):
                mine = mine[~np.isin(mine[:, 0], undecided[:, 0])]
                theirs = theirs[~np.isin(theirs[:, 0], undecided[:, 0])]
        if not np.array_equal(_sums(mine), _sums(theirs)):
            yield from _differing(mine, theirs)


def folded(changes: Records, *, any_order: bool = False, row_of: RowOf | None = None) -> tuple[Records, Records]:
    """The rows after all changes (contract section 3), and the keys whose rows depend on an unknown order.

    For each key, only the last marker other than 0 counts, and what follows it.
    """
    if not len(changes):
        return changes[:, :3], changes[:0, :2]
    order = np.lexsort((changes[:, 3], changes[:, 1], changes[:, 0]))
    changes = changes[order]
    begins = _begins(changes)
    group = np.cumsum(begins) - 1
    index = np.arange(len(changes))
    replaces = changes[:, 4] != np.uint64(INSERT)
    last = np.maximum.reduceat(np.where(replaces, index, -1), np.flatnonzero(begins))
    kept = (index >= last[group]) & (changes[:, 4] != np.uint64(DELETE))
    if row_of is not None:
        changes = _completed(changes, begins, row_of)
    undecided = changes[:0, :2]
    if any_order:
        file = changes[:, 3] >> np.uint64(40)
        starts = np.flatnonzero(begins)
        several = np.minimum.reduceat(file, starts) != np.maximum.reduceat(file, starts)
        undecided = changes[starts[several & (last >= 0)], :2]
    return changes[kept, :3], undecided


def _completed(changes: Records, begins: np.ndarray[Any, np.dtype[np.bool_]], row_of: RowOf) -> Records:
    """The changes, sorted by key and order, with the hash of the complete row: a column that a change leaves out is
    that of the change before, NULL after a delete and for the first one of a key.
    """
    index = np.arange(len(changes))
    begin = np.maximum.accumulate(np.where(begins, index, 0))
    is_delete = changes[:, 4] == np.uint64(DELETE)
    columns = []
    for column in range(5, changes.shape[1], 2):
        hashes = np.where(is_delete, NULL, changes[:, column])
        last = np.maximum.accumulate(np.where(changes[:, column + 1] == 0, index, -1))
        columns.append(np.where(last >= begin, hashes[last], NULL))
    complete = changes[:, :5].copy()
    complete[:, 2] = row_of(columns, len(changes))
    return complete


def _begins(records: Records) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """True at the first record of each key; the records are sorted by key."""
    found = np.ones(len(records), bool)
    found[1:] = (records[1:, 0] != records[:-1, 0]) | (records[1:, 1] != records[:-1, 1])
    return found


def _sums(records: Records) -> Hashes:
    """Number of rows, sum and exclusive or of their numbers: independent of order."""
    one = mixed(records[:, 0] + mixed(records[:, 1] + mixed(records[:, 2])))
    return np.array([len(one), one.sum(dtype=np.uint64), np.bitwise_xor.reduce(one) if len(one) else 0], np.uint64)


def _differing(mine: Records, theirs: Records) -> Iterator[Difference]:
    both = np.concatenate([mine[:, :3], theirs[:, :3]])
    weight = np.concatenate([np.ones(len(mine), np.int64), -np.ones(len(theirs), np.int64)])
    order = np.lexsort((both[:, 2], both[:, 1], both[:, 0]))
    both, weight = both[order], weight[order]
    begins = _begins(both)
    begins[1:] |= both[1:, 2] != both[:-1, 2]
    starts = np.flatnonzero(begins)
    surplus = np.add.reduceat(weight, starts)
    rows, surplus = both[starts][surplus != 0], surplus[surplus != 0]
    firsts = np.flatnonzero(_begins(rows)) if len(rows) else np.empty(0, np.int64)
    if not len(firsts):
        return
    extra = np.add.reduceat(np.maximum(surplus, 0), firsts)
    missing = np.add.reduceat(np.maximum(-surplus, 0), firsts)
    for first, more, less in zip(firsts, extra, missing, strict=True):
        yield Difference((int(rows[first, 0]), int(rows[first, 1])), int(more), int(less))
