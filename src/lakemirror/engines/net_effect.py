"""The net effect of a batch: which changes are inserted, and which rows of the table are deleted.

keys, markers ─▶ fit into memory ──▶ fold ─▶ Folded: one flag per change, and the keys to delete
            └──▶ Spill by key ─▶ fold one bucket at a time ─▶ the same, with the keys in buckets on the disk

Folded, and the rows that have the keys ─▶ NetEffect
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from lakemirror.delta.data_files import attempt_id
from lakemirror.engines.early_rows import EarlyRows
from lakemirror.engines.kernels.data_rows import work_schema
from lakemirror.engines.kernels.fill_values import FillRequest, Fills
from lakemirror.engines.kernels.fold import fold_places
from lakemirror.engines.kernels.live_rows import live_of
from lakemirror.engines.kernels.ordered_fold import FoldedKeys
from lakemirror.engines.kernels.partial_rows import PartialRows, partial_rows, together
from lakemirror.engines.row_work import MARKER, NAMES, ROW, RowWork, Target
from lakemirror.engines.units import KEPT, UPDATE, TouchedFile
from lakemirror.keys.key_values import whole_numbers
from lakemirror.keys.spill import MOST_BUCKETS, Spill
from lakemirror.storage.own_files import SPILLED, work_folder


@dataclass(frozen=True, eq=False)
class NetEffect:
    """The net effect of a batch.

    `flags`: one byte for each change, as in `ChangeFiles`. `touched`: the candidates with deleted rows, by their
    number; with a change data feed, or without deletion vectors, only live rows are among the deleted ones. `partial`:
    the partial rows, None without any. `found`: the table's rows with the keys of `partial.firsts`, as of `with_keys`.
    `fills`: the values that they take from elsewhere, once they are read. `ignored`, `late`, `dead`: as of
    `FoldedKeys`. `values`: of candidates whose rows were read with all columns, by their number: the numbers of these
    rows, ascending, and their values. `early`: a file with inserted rows that are not among the flags any more.
    `rows`: more inserted rows, complete; None: there are none.
    """

    flags: np.ndarray
    touched: Mapping[int, TouchedFile] = field(default_factory=dict)
    partial: PartialRows | None = None
    found: pa.Table | None = None
    fills: Fills | FillRequest | None = None
    ignored: int = 0
    late: int = 0
    dead: pa.Table | None = None
    values: Mapping[int, tuple[np.ndarray, pa.Table]] = field(default_factory=dict)
    early: EarlyRows | None = None
    rows: pa.Table | None = None

    def after(self, early: EarlyRows) -> NetEffect:
        """What is left to do after some rows were written early."""
        if not len(early.positions):
            return self
        self.flags[early.positions] = 0
        return replace(self, early=early)


@dataclass(frozen=True, eq=False)
class Folded:
    """The net effect as far as the changes alone show it.

    `flags`: one byte for each change: KEPT or 0. `deletes`: the keys whose rows in the table are deleted; empty if the
    table has no candidates. `replaced`: of the inserted rows the first one of each key that is also deleted: its key,
    and its position among the changes as ROW. Only for the change data feed. `partial`: as of `NetEffect`.
    """

    flags: np.ndarray
    deletes: pa.Table | Spill
    replaced: pa.Table
    partial: PartialRows | None = None


def fold(work: RowWork, keys: pa.Table, markers: np.ndarray, names: pa.ChunkedArray | None = None) -> Folded:
    """The net effect of all changes, in memory, from their keys and markers. `names`: what partial rows leave out."""
    flags = np.zeros(len(markers), np.uint8)
    return Folded(flags, *_fold(work, keys, markers, np.arange(len(markers)), flags, names))


@contextmanager
def fold_in_passes(work: RowWork, changes: Iterable[pa.Table], scratch: Path, memory: int) -> Iterator[Folded]:
    """The net effect of more changes than fit into memory. `changes`: their keys, positions as ROW, and MARKER.

    It uses about `memory` bytes. What does not fit is in files below `scratch`, which are deleted when the block ends.
    """
    with work_folder(scratch, SPILLED, str(attempt_id(work.target.version))) as folder:
        flags: np.ndarray
        if work.rows > memory // 8:
            flags = np.memmap(folder / "flags", np.uint8, "w+", shape=(work.rows,))
        else:
            flags = np.zeros(work.rows, np.uint8)
        held = in_buckets(work, changes, folder, memory)
        if isinstance(held, Spill):
            tables: Iterable[pa.Table] = (
                table for bucket in range(held.buckets) if (table := held.read(bucket)) is not None
            )
        else:
            tables = [held] if held is not None else []
        yield _fold_buckets(work, tables, flags, folder, memory, held.buckets if isinstance(held, Spill) else 1)


def in_buckets(work: RowWork, changes: Iterable[pa.Table], folder: Path, memory: int) -> pa.Table | Spill | None:
    """All keys in one table, or in buckets in `folder` if they take more than an eighth of `memory`; None for none."""
    held: list[pa.Table] = []
    size = rows = 0
    spill: Spill | None = None
    for table in changes:
        size, rows = size + table.nbytes, rows + table.num_rows
        held.append(table)
        if spill is None and size > memory // 8:
            spill = Spill(folder, _buckets(size * work.rows // rows, memory), work.target.key_columns)
        if spill is not None:
            for each in held:
                spill.add(each)
            held = []
    if spill is not None:
        return spill
    return pa.concat_tables(held) if held else None


def combined(work: RowWork, parts: Iterable[FoldedKeys]) -> NetEffect:
    """The net effect of all keys, from that of some keys each."""
    flags = np.full(work.rows, KEPT, np.uint8)
    of_file: dict[int, list[tuple[np.ndarray, np.ndarray]]] = {}
    partial, found, dead, rows = list[PartialRows](), list[pa.Table](), list[pa.Table](), list[pa.Table]()
    values: dict[int, tuple[np.ndarray, pa.Table]] = {}
    ignored = late = 0
    for folded in parts:
        values |= folded.values or {}
        flags[folded.dropped] = 0
        flags[folded.updates] = UPDATE
        for number, deleted, updated in folded.files:
            of_file.setdefault(number, []).append((deleted, updated))
        partial += [folded.partial] if folded.partial is not None else []
        found += [folded.found] if folded.found is not None else []
        dead += [folded.dead] if folded.dead is not None else []
        rows += [folded.rows] if folded.rows is not None else []
        ignored, late = ignored + folded.ignored, late + folded.late
    touched = {}
    for number in sorted(of_file):
        both = zip(*of_file[number], strict=True)
        deleted, updated = (np.sort(np.concatenate(its), kind="stable") for its in both)  # ascending runs
        touched[number] = TouchedFile(number, work.candidates[number], deleted, updated)
    return NetEffect(
        flags, touched, together(partial) if partial else None, pa.concat_tables(found) if found else None,
        ignored=ignored, late=late, dead=pa.concat_tables(dead).sort_by(ROW) if dead else None, values=values,
        rows=pa.concat_tables(rows) if rows else None,
    )  # fmt: skip


def only_live(touched: Mapping[int, TouchedFile], target: Target) -> dict[int, TouchedFile]:
    """The files with only the live ones of their deleted rows. Files without such a row are left out."""
    result = {}
    for number, file in touched.items():
        live = live_of(file.add, target, file.deleted)
        if len(live):
            result[number] = file._replace(deleted=live)
    return result


def _fold_buckets(
    work: RowWork, tables: Iterable[pa.Table], flags: np.ndarray, folder: Path, memory: int, buckets: int
) -> Folded:
    """Folds one bucket after the other. Many keys to delete are put into as many buckets again."""
    schema = work_schema(work.target, work.target.keys)
    deletes, replaced = [schema.empty_table()], [schema.append(pa.field(ROW, pa.int64())).empty_table()]
    spill: Spill | None = None
    partial: list[PartialRows] = []
    for table in tables:
        keys = table.select(list(work.target.key_columns)).combine_chunks()
        positions, markers = (np.asarray(table[name].combine_chunks()) for name in (ROW, MARKER))
        names = table[NAMES] if work.partial else None
        gone, firsts, part = _fold(work, keys, markers, positions, flags, names)
        partial += [part] if part is not None else []
        deletes.append(gone)
        replaced.append(firsts)
        if spill is None and buckets > 1 and sum(each.nbytes for each in deletes) > memory // 8:
            spill = Spill(folder, buckets, work.target.key_columns)
        if spill is not None:
            for gone in deletes:
                spill.add(gone)
            deletes = []
    found = together(partial) if partial else None
    return Folded(flags, pa.concat_tables(deletes) if spill is None else spill, pa.concat_tables(replaced), found)


def _fold(
    work: RowWork, keys: pa.Table, markers: np.ndarray, positions: np.ndarray, flags: np.ndarray,
    names: pa.ChunkedArray | None = None,
) -> tuple[pa.Table, pa.Table, PartialRows | None]:  # fmt: skip
    """Folds all changes of some keys. Sets their flags; returns `deletes`, `replaced` and `partial` as in `Folded`."""
    feed = work.target.feed and bool(work.candidates)
    places = fold_places(keys, markers, with_firsts=feed)
    flags[positions[places.kept]] = KEPT
    deletes = keys.take(whole_numbers(places.deletes)) if work.candidates else keys.slice(0, 0)
    replaced = keys.take(whole_numbers(places.firsts)) if feed else keys.slice(0, 0)
    partial = None
    if names is not None and names.null_count < len(names):
        partial = partial_rows(keys, markers, names, places.kept, positions)
    return deletes, replaced.append_column(ROW, pa.array(positions[places.firsts], pa.int64())), partial


def _buckets(size: int, memory: int) -> int:
    """The number of buckets, so that one takes about 1/32 of the memory: a fold needs several times its keys."""
    return int(min(MOST_BUCKETS, max(2, -(-size * 32 // memory))))
