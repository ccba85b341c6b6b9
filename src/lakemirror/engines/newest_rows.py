"""The newest row of each key where inserts have made several: it completes partial rows (contract section 3a), and is
the one that becomes a version (history.md section 4)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lakemirror.delta.data_files import version_in
from lakemirror.engines.bad_changes import place_of
from lakemirror.engines.kernels.partial_rows import FIRST, PartialRows
from lakemirror.engines.kernels.sequence_order import in_order, sequence_of, sequence_ranks
from lakemirror.engines.kernels.version_rows import codes_of
from lakemirror.engines.row_work import FILE, ROW, Action, RowWork, Target
from lakemirror.errors import Rejected
from lakemirror.keys.key_values import whole_numbers
from lakemirror.landing_zone.row_markers import UNCHANGED


def newest_rows(found: pa.Table | None, candidates: Sequence[Action]) -> pa.Table:
    """One row of the table for each first partial row that has one: FIRST, FILE, ROW, ascending by FILE and ROW.

    `found`: as of `with_keys`. If inserts made several rows of a key, it is the last one of the newest commit's last
    file, as far as files tell when they were written.
    """
    if found is None or not found.num_rows:
        return pa.table({name: whole_numbers(np.zeros(0, np.int64)) for name in (FIRST, FILE, ROW)})
    first, file, row = (np.asarray(found[name].combine_chunks()).astype(np.int64) for name in (FIRST, FILE, ROW))
    written = written_at(candidates)
    order = np.lexsort((row, file, written[file], first))
    is_last = np.ones(len(order), bool)
    is_last[:-1] = first[order][1:] != first[order][:-1]
    chosen = order[is_last]
    chosen = chosen[np.lexsort((row[chosen], file[chosen]))]
    return pa.table({
        name: whole_numbers(values[chosen]) for name, values in ((FIRST, first), (FILE, file), (ROW, row))
    })  # fmt: skip


def written_at(candidates: Sequence[Action]) -> np.ndarray:
    """When each file was written, in milliseconds: the same for all files of one commit of ours."""
    newest: dict[int, int] = {}
    versions = [version_in(add["path"]) for add in candidates]
    times = [int(add.get("modificationTime") or 0) for add in candidates]
    for version, moment in zip(versions, times, strict=True):
        if version is not None:
            newest[version] = max(moment, newest.get(version, 0))
    return np.array([
        moment if version is None else newest[version] for version, moment in zip(versions, times, strict=True)
    ])  # fmt: skip


def in_order_of_writing(files: Sequence[Action]) -> list[Action]:
    """The files, the newest last: of rows with one key the last one is the newest, as far as files tell."""
    return [files[place] for place in np.argsort(written_at(files), kind="stable")]


def newest_of_keys(rows: pa.Table, target: Target, sequence: Sequence[str]) -> np.ndarray:
    """The numbers (ascending) of the rows without those that have a newer row of their key: one with a higher sequence,
    or of the same and after it."""
    (codes,) = codes_of([rows], target)
    ranks = sequence_ranks([sequence_of(rows, sequence)], len(codes))[0] if sequence else np.zeros(len(codes), np.int64)
    order = in_order(codes, ranks)
    is_last = np.ones(len(order), bool)
    is_last[:-1] = codes[order][1:] != codes[order][:-1]
    return np.sort(order[is_last])


def missing_rows(partial: PartialRows, newest: pa.Table) -> np.ndarray:
    """The positions (ascending) of partial rows without a row of their key: in the table, or after a delete."""
    firsts = np.asarray(partial.firsts[ROW].combine_chunks())
    lost = np.setdiff1d(firsts, np.asarray(newest[FIRST].combine_chunks()), assume_unique=True)
    return np.sort(np.concatenate([lost, np.asarray(partial.gone[ROW].combine_chunks())]))


def missing_row(work: RowWork, position: int) -> Rejected:
    """The error of a partial row without a row of its key."""
    file, row = place_of(work.changes, position)
    message = f"{file}, row {row}: {UNCHANGED} names columns, and there is no row with this key to take them from"
    return Rejected("partial-row-missing", message, file, row, UNCHANGED)
