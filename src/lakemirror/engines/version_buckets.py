"""The changes of a batch that does not fit into memory in buckets of keys, for the row work of versions.

keys that rise from change to change   a bucket is some change files, or row groups: each unit reads its own
others, units of this process          change files, read once ─▶ one file for each bucket ─▶ each unit reads its own
others, units of other processes       each unit reads all change files and keeps the changes of its keys

A first load has rising keys as a rule, and so have the data files that are made of it: looking keys up there is cheap.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

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
_OWN = [FILE, ROW, MARKER, NAMES]


@dataclass(frozen=True, eq=False)
class VersionBucket:
    """The changes of one bucket of keys, of all `buckets` that share the change files of `work`. `spill`: has them, if
    they were read; `index`: of keys. Both are of this process, and None for units of other ones. `room`: bytes that it
    may add to the key cache."""

    bucket: int
    buckets: int
    work: RowWork
    spill: Spill | None = None
    index: KeyIndex | None = None
    room: int = 0

    @property
    def nbytes(self) -> int:
        return sum(unit.bytes for unit in self.work.changes) // self.buckets


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
    if parts is not None:
        index = None if scratch is None else engine.index
        yield [VersionBucket(0, 1, replace(work, changes=its), None, index, engine.memory // 8) for its in parts]
        return
    if scratch is None:
        yield [VersionBucket(number, count, work) for number in range(count)]
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
        yield [VersionBucket(bucket, count, work, spill, engine.index, engine.memory // 8) for bucket in range(count)]


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
    """The changes of a bucket in order, in parts: the file of each part, its changes, and the rows in the file."""
    if unit.spill is not None:
        yield from _read_again(unit, unit.spill)
        return
    for file in unit.work.changes:
        for changes in read_changes(file, reading, waits=True):
            table = pa.Table.from_batches([changes.rows])
            if unit.buckets == 1:
                yield file, Changed(table, changes.marker, names_of(changes)), changes.first_row + np.arange(len(table))
                continue
            chosen = np.flatnonzero(key_bucket(key_values(table, target), unit.buckets) == unit.bucket)
            if len(chosen):
                names = names_of(changes).take(whole_numbers(chosen))
                its = Changed(table.take(whole_numbers(chosen)), changes.marker[chosen], names)
                yield file, its, changes.first_row + chosen
            del changes, table  # before the next rows are decoded


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


def _read_again(unit: VersionBucket, spill: Spill) -> Iterator[tuple[ChangeUnit, Changed, np.ndarray]]:
    table = spill.read(unit.bucket)
    if table is None:
        return
    table = table.combine_chunks()
    files, rows, markers = (np.asarray(table[name].combine_chunks()) for name in (FILE, ROW, MARKER))
    names, table = table[NAMES].combine_chunks(), table.drop_columns(_OWN)
    cuts = [0, *(np.flatnonzero(np.diff(files)) + 1).tolist(), len(files)]
    for begin, end in pairwise(cuts):
        its = Changed(table.slice(begin, end - begin), markers[begin:end], names.slice(begin, end - begin))
        yield unit.work.changes[files[begin]], its, rows[begin:end]
