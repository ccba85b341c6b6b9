"""The changes of a batch that does not fit into memory in buckets of keys, for the row work of versions.

keys that rise from change to change   a bucket is some change files, or row groups: each unit reads its own
others, units of this process          change files, read once ─▶ one file for each bucket ─▶ each unit reads its own
others, units of other processes       each unit reads all change files and keeps the changes of its keys

A first load has rising keys as a rule, and so have the data files that are made of it: looking keys up there is cheap.
How many buckets there are is by the footers; one whose changes take much more memory is done in several (`in_memory`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import TypeVar

import numpy as np
import pyarrow as pa

from lakemirror.delta.data_files import attempt_id
from lakemirror.engines.kernels.read import read_changes
from lakemirror.engines.kernels.row_reader import Changes
from lakemirror.engines.kernels.version_rows import Changed, key_values
from lakemirror.engines.row_work import FILE, MARKER, NAMES, ROW, ChangeUnit, RowWork, Target
from lakemirror.engines.unit_carrier import UnitCarrier
from lakemirror.engines.unit_kernels import names_of
from lakemirror.engines.units import ChangeFiles, Shared, shared_out, split
from lakemirror.errors import Bad
from lakemirror.keys.key_index import KeyIndex
from lakemirror.keys.key_values import is_number, key_bucket, numbers_of, whole_numbers
from lakemirror.keys.spill import MOST_BUCKETS, Spill
from lakemirror.storage.own_files import SPILLED, work_folder

_COPIES = 8  # of the changes of a bucket: decoded, the versions that they touch, what is written, and what sorts them
_PARTS = 4  # of a bucket, at least: they are shared out to buckets of similar size
_MORE = 2.0  # times its share: so many bytes the changes of a bucket may take before it is done in several
_OWN = [FILE, ROW, MARKER, NAMES]
_Result = TypeVar("_Result")


@dataclass(frozen=True, eq=False)
class VersionBucket:
    """The changes of one bucket of keys, of all `buckets` that share the change files of `work`. `spill`: has them, if
    they were read; `index`: of keys. Both are of this process, and None for units of other ones. `room`: bytes that it
    may add to the key cache. `most`: bytes that its changes may take."""

    bucket: int
    buckets: int
    work: RowWork
    spill: Spill | None = None
    index: KeyIndex | None = None
    room: int = 0
    most: int = sys.maxsize

    @property
    def nbytes(self) -> int:
        return sum(unit.bytes for unit in self.work.changes) // self.buckets

    def split(self, size: int) -> list[VersionBucket]:
        """Buckets of fewer keys, whose changes take `size` bytes together."""
        count = min(MOST_BUCKETS, -(-size // max(1, self.most)))
        numbers = range(self.bucket, self.buckets * count, self.buckets)
        return [replace(self, bucket=each, buckets=self.buckets * count, most=sys.maxsize) for each in numbers]


class _TooMuch(Exception):
    """The changes of a bucket take more memory than they may. `size`: in bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def in_memory(
    kernel: Callable[[Shared, VersionBucket], Iterator[_Result]],
) -> Callable[[Shared, VersionBucket], Iterator[_Result]]:
    """A kernel that reads all changes of a bucket before its first result: a bucket with too many is done in several,
    one after the other, which read again. The changes of one key stay together."""

    @wraps(kernel)
    def within(shared: Shared, unit: VersionBucket) -> Iterator[_Result]:
        try:
            yield from kernel(shared, unit)
            return
        except _TooMuch as found:
            size = found.size
        for each in unit.split(size):
            yield from kernel(shared, each)

    return within


@contextmanager
def version_buckets(
    engine: UnitCarrier, work: RowWork, reading: Shared, target: Target
) -> Iterator[list[VersionBucket]]:
    """The buckets of keys that fit into the engine's memory, while the block runs. `reading`: to read change files.
    `target`: has the keys."""
    size = sum(unit.bytes for unit in work.changes)
    count = max(engine.parallelism, -(-size * _COPIES * engine.parallelism // engine.memory))
    scratch = engine.spill_folder(work.target)
    parts = _parts(engine, work, reading, target, count)
    index = None if scratch is None else engine.index
    most = int(engine.memory * _MORE) // (_COPIES * engine.parallelism)
    bucket = VersionBucket(0, 1, work, None, index, engine.memory // 8, most)
    if parts is not None:
        yield [replace(bucket, work=replace(work, changes=its)) for its in parts]
        return
    if scratch is None:
        yield [replace(bucket, bucket=number, buckets=count, room=0) for number in range(count)]
        return
    count = min(count, MOST_BUCKETS)
    with (
        work_folder(scratch, SPILLED, str(attempt_id(work.target.version))) as folder,
        Spill(folder, count, target.key_columns) as spill,
    ):
        for number, file in enumerate(work.changes):
            for changes in read_changes(file, reading, waits=True):
                spill.add(_spilled(changes, number))
                del changes  # before the next rows are decoded
        spill.close()
        yield [replace(bucket, bucket=number, buckets=count, spill=spill) for number in range(count)]


def _parts(
    engine: UnitCarrier, work: RowWork, reading: Shared, target: Target, count: int
) -> list[tuple[ChangeUnit, ...]] | None:
    """The change files in about `count` parts, in order, if their keys rise from change to change: then no key is in
    two parts. None if they do not, or a row group is too large for a part."""
    most = sum(unit.bytes for unit in work.changes) // count
    if len(target.keys) != 1:
        return None
    last: int | None = None
    try:
        units = [part for unit in work.changes for part in split(unit, max(1, most // _PARTS))]
        if any(unit.bytes > most for unit in units):
            return None
        for bounds in engine.carry("read keys", rising_keys, reading, [ChangeFiles(0, (unit,)) for unit in units]):
            if bounds is None or (bounds and last is not None and bounds[0] <= last):
                return None
            last = bounds[1] if bounds else last
    except (Bad, OSError, pa.ArrowException):  # who reads all columns says what is wrong
        return None
    return [tuple(part) for part in shared_out(units, count, lambda unit: unit.bytes)]


def rising_keys(shared: Shared, unit: ChangeFiles) -> Iterator[tuple[int, int] | tuple[()] | None]:
    """The first and the last key of the changes, as numbers, if each is a number above the one before it; empty without
    changes; None if they are not. A kernel of all engines."""
    (column,) = shared.target.keys
    bounds: tuple[int, int] | tuple[()] = ()
    for file in unit.files:
        for changes in read_changes(file, shared, columns=[column.name]):
            (keys,) = key_values(pa.Table.from_batches([changes.rows]), shared.target).columns
            if not is_number(keys.type) or keys.null_count:
                yield None
                return
            numbers = numbers_of(keys)
            if not len(numbers):
                continue
            if (numbers[1:] <= numbers[:-1]).any() or (bounds and int(numbers[0]) <= bounds[1]):
                yield None
                return
            bounds = bounds[0] if bounds else int(numbers[0]), int(numbers[-1])
    yield bounds


def changes_of_bucket(
    reading: Shared, unit: VersionBucket, target: Target
) -> Iterator[tuple[ChangeUnit, Changed, np.ndarray]]:
    """The changes of a bucket in order, in parts: the file of each part, its changes, and the rows in the file. For
    kernels that are `in_memory`."""
    parts, size = _read(reading, unit, target) if unit.spill is None else _read_again(unit, unit.spill, target), 0
    for part in parts:
        size += part[1].rows.nbytes
        if size > unit.most:
            raise _TooMuch(size + sum(changes.rows.nbytes for _, changes, _ in parts))
        yield part


def _read(reading: Shared, unit: VersionBucket, target: Target) -> Iterator[tuple[ChangeUnit, Changed, np.ndarray]]:
    for file in unit.work.changes:
        for changes in read_changes(file, reading, waits=True):
            table = pa.Table.from_batches([changes.rows])
            its = Changed(table, changes.marker, names_of(changes))
            rows = changes.first_row + np.arange(len(table))
            if unit.buckets > 1:
                chosen = np.flatnonzero(key_bucket(key_values(table, target), unit.buckets) == unit.bucket)
                its, rows = its.chosen(chosen), rows[chosen]
            if len(rows) or unit.buckets == 1:
                yield file, its, rows
            del changes, table, its  # before the next rows are decoded


def _spilled(changes: Changes, number: int) -> pa.Table:
    """Changes of the file with this number, with all that a unit needs of them."""
    count = changes.rows.num_rows
    own = [
        pa.array(np.full(count, number, np.int32)), whole_numbers(changes.first_row + np.arange(count)),
        pa.array(changes.marker), names_of(changes),
    ]  # fmt: skip
    table = pa.Table.from_batches([changes.rows])
    for name, values in zip(_OWN, own, strict=True):
        table = table.append_column(name, values)
    return table


def _read_again(unit: VersionBucket, spill: Spill, target: Target) -> Iterator[tuple[ChangeUnit, Changed, np.ndarray]]:
    for table in spill.parts(unit.bucket % spill.buckets):
        if unit.buckets > spill.buckets:
            keys = table.select(list(target.key_columns))
            table = table.filter(pa.array(key_bucket(keys, unit.buckets) == unit.bucket))
        if not table.num_rows:
            continue
        file, rows, markers = (np.asarray(table[name].combine_chunks()) for name in (FILE, ROW, MARKER))
        its = Changed(table.drop_columns(_OWN), markers, table[NAMES].combine_chunks())
        yield unit.work.changes[file[0]], its, rows
