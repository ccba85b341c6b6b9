"""The rows of the mirrored table as the first versions of a history that is switched on later (history.md section 4).

live rows of the mirrored table ─▶ without deleted ones, with `__START_AT` ─▶ data files of the table of versions

Of several rows of a key, which inserts have made, the newest becomes a version. A version begins at the sequence of its
row. Without a sequence it begins when the history does, or right before the first change that follows, if that is
earlier.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lakemirror import failpoints
from lakemirror.delta.data_files import attempt_id
from lakemirror.delta.log import Action
from lakemirror.delta.schema import from_delta
from lakemirror.delta.statistics import record_count
from lakemirror.engines.kernels.data_rows import stored_arrow_type
from lakemirror.engines.kernels.live_rows import undeleted_rows
from lakemirror.engines.kernels.version_rows import key_values, plain_columns
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.newest_rows import in_order_of_writing, newest_of_keys
from lakemirror.engines.row_work import Target
from lakemirror.engines.target import apply_target, target_of
from lakemirror.keys.key_values import key_hashes, whole_numbers
from lakemirror.keys.spill import MOST_BUCKETS, Spill
from lakemirror.landing_zone.reserved_columns import DELETED, START_AT
from lakemirror.mirror.history.version_plans import spelled
from lakemirror.mirror.observe import View
from lakemirror.mirror.planner import Base
from lakemirror.storage.own_files import SPILLED, work_folder
from lakemirror.storage.place import local_path

_TIME = pa.timestamp("us", "UTC")
_ROWS = 8_000_000  # whose hashes or keys are compared at a time, about


def begins_at(view: View) -> int:
    """When a history that is switched on later begins, in microseconds since the epoch: now, or right before the first
    file that follows if that is earlier."""
    now = time.time_ns()
    if view.pending.files:
        now = min(now, view.pending.files[0].entry.modified - 1000)
    return now // 1000


def first_versions(view: View, current: Base, path: str, metadata: Mapping[str, Any], began: int) -> list[Action]:
    """Writes the first versions as data files. `path`, `metadata`: of the table of versions. Returns `add` actions."""
    assert current.snapshot is not None
    options, keys = view.files.metadata.options, view.files.metadata.key_columns
    source = apply_target(target_of(current.path, current.snapshot.metadata.value, keys))
    target = replace(apply_target(target_of(path, metadata, keys)), version=0)
    columns = from_delta(current.snapshot.metadata.value["schemaString"])
    names = spelled(options.sequence, columns)
    files = in_order_of_writing(list(current.snapshot.files.values()))
    adds = write_rows(_versions(source, target, files, names, began), target)
    return [{"add": add} for add in adds]


def _versions(
    source: Target, target: Target, files: list[Action], sequence: tuple[str, ...], began: int
) -> Iterator[pa.RecordBatch]:
    kind = next(stored_arrow_type(each) for each in target.columns if each.name == START_AT)
    names = [each.name for each in target.sources.columns if each.stored]
    older = _older(source, files, sequence, local_path(target.path) or Path(tempfile.gettempdir()))
    for number, add in enumerate(files):
        begin = 0
        for rows in undeleted_rows(add, source):
            its = np.arange(begin, begin + rows.num_rows)
            begin += rows.num_rows
            if number in older:
                rows = rows.filter(pa.array(~np.isin(its, older[number])))
            chosen = rows.select([name for name in names if name in rows.column_names])
            yield from chosen.append_column(START_AT, _starts(rows, sequence, began, kind)).to_batches()


def _older(source: Target, files: list[Action], sequence: tuple[str, ...], scratch: Path) -> dict[int, np.ndarray]:
    """The rows that have a newer row of their key, by file: their numbers among those that are not deleted. `files`:
    the newest last. The keys are read once, and those that seem to repeat once more; only these are compared."""
    needed = {*source.key_columns, *sequence, DELETED}
    source = replace(source, columns=tuple(each for each in source.columns if each.name in needed))
    parts = min(MOST_BUCKETS, 1 + sum(record_count(add) or _ROWS for add in files) // _ROWS)
    found: dict[int, list[np.ndarray]] = {}
    for repeated in _repeated((hashes for hashes, *_ in _hashed(source, files)), parts, scratch):
        tables, places = [], []
        for hashes, rows, number, begin in _hashed(source, files):
            chosen = np.flatnonzero(np.isin(hashes, repeated))
            tables.append(rows.take(whole_numbers(chosen)))
            places.append(np.stack([np.full(len(chosen), number), begin + chosen]))
        file, row = np.concatenate(places, axis=1)
        is_older = np.ones(len(file), bool)
        is_older[newest_of_keys(pa.concat_tables(tables), source, sequence)] = False
        for number in np.unique(file[is_older]).tolist():
            found.setdefault(number, []).append(row[is_older & (file == number)])
    return {number: np.concatenate(rows) for number, rows in found.items()}


def _repeated(hashes: Iterable[np.ndarray], parts: int, scratch: Path) -> Iterator[np.ndarray]:
    """The hashes that come more than once, as many at a time as about `_ROWS` rows have."""
    with work_folder(scratch, SPILLED, str(attempt_id(0))) as folder, Spill(folder, parts, ["hash"]) as spill:
        for each in hashes:
            spill.add(pa.table({"hash": each}))
        failpoints.reach("history.keys-read")
        found = np.zeros(0, np.uint64)
        for part in range(parts):
            table = spill.read(part)
            if table is not None:
                its = np.sort(np.asarray(table["hash"].combine_chunks()))
                found = np.append(found, its[1:][its[1:] == its[:-1]])
            if len(found) >= _ROWS or (len(found) and part == parts - 1):
                yield found
                found = found[:0]


def _hashed(source: Target, files: list[Action]) -> Iterator[tuple[np.ndarray, pa.Table, int, int]]:
    """The hashes of the keys of some rows; these rows; their file; the number of the first one in it."""
    for number, add in enumerate(files):
        begin = 0
        for rows in undeleted_rows(add, source):
            rows = plain_columns(rows)
            yield key_hashes(key_values(rows, source)), rows, number, begin
            begin += rows.num_rows


def _starts(rows: pa.Table, sequence: tuple[str, ...], began: int, kind: pa.DataType) -> pa.Array:
    if not sequence:
        return pa.repeat(pa.scalar(began, pa.int64()), rows.num_rows).cast(_TIME)
    values = [rows[name].combine_chunks() for name in sequence]
    if not pa.types.is_struct(kind):
        return values[0].cast(kind)
    parts = [part.cast(field.type) for part, field in zip(values, kind, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=list(kind))
