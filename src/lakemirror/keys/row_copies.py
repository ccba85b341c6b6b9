"""Copies of old rows in the cache folder, for tables whose applies read them: versions and soft deletes.

    look-up ─▶ rows in a large data file ─▶ its copy is open: `copied_rows` reads them
                                         └▶ none: its pages are read, and a thread makes the copy (`KeyIndex`)

A copy has the rows that a data file has, for files that may have open versions or living rows. One that is damaged,
incomplete or of another file is deleted, and the data file is read.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lakemirror import failpoints
from lakemirror.delta.statistics import parse_statistics, record_count
from lakemirror.engines.kernels.data_rows import DataFile, RowGroup, opened, place_of, rows_of, stored_names
from lakemirror.engines.kernels.decode import longest
from lakemirror.engines.row_work import Action, Target, TargetColumn
from lakemirror.keys.index_builder import AFTER_FAILURE, Builder
from lakemirror.keys.index_folder import BUILDING, USED_LATELY, IndexFolder, data_file_identity, is_index, remove_index
from lakemirror.keys.key_file import Replaced
from lakemirror.keys.key_format import Damaged
from lakemirror.keys.look_up import LATELY_READ, row_groups, version_of
from lakemirror.keys.row_file import RowFile, can_hold
from lakemirror.keys.write_row_file import write_row_file
from lakemirror.keys.written_rows import is_in_memory, written_rows
from lakemirror.landing_zone.reserved_columns import END_AT
from lakemirror.storage.own_files import work_folder

log = logging.getLogger("lakemirror")

FEWEST_ROWS = 64 * 1024
"""A data file with fewer rows is read quickly."""

_WIDEST = 512  # bytes of a row, decoded, on average: pages have few of those that are wider
_WIDTH = 16  # bytes of a number, or of where a text begins
_BYTES_AT_ONCE = 32 << 20  # of rows, decoded
ROWS_AT_ONCE = 64 * 1024


class RowCopies:
    """The copies in a cache folder. `builder`: makes them."""

    def __init__(self, folder: IndexFolder, builder: Builder) -> None:
        self._folder = folder
        self._builder = builder
        self._not_before = 0.0

    def open(self, adds: Sequence[Action], target: Target) -> None:
        """Opens the copies of these data files for `copied_rows`; requests those that are missing."""
        for add in adds:
            is_large = (record_count(add) or 0) >= FEWEST_ROWS
            if is_large and not _is_closed(add, target) and not is_in_memory(add, target):
                self._open(add, target)

    def build(self, add: Action, target: Target) -> bool:
        """Makes the copy of a data file. False if there is no room. ValueError if it is not worth it; errors as of
        `KeyIndex.build`."""
        if time.monotonic() < self._not_before:
            return False
        path, columns = self.path(add, target), _columns(target)
        identity = data_file_identity(add, target, _ROWS)
        with opened(DataFile.of(add, target)) as parquet:
            rows, groups = parquet.metadata.num_rows, range(parquet.metadata.num_row_groups)
            size = sum(parquet.metadata.row_group(group).total_byte_size for group in groups)
            if record_count(add) != rows or rows >= 1 << 32 or size > _WIDEST * rows or not can_hold(columns):
                raise ValueError("its rows cannot be copied, or that is not worth it")
            if not self._has_room(add.get("size") or 0):
                return False
            path.parent.mkdir(parents=True, exist_ok=True)
            with work_folder(path.parent, BUILDING) as place:
                built = place / path.name
                write_row_file(built, identity, rows, columns, self._parts(parquet, add, target), _bounds(add, columns))
                if not self._has_room(built.stat().st_size):
                    return False
                failpoints.reach("rows.before-rename")
                if data_file_identity(add, target, _ROWS) != identity:
                    raise ValueError("the data file changed while it was copied")
                if path.exists() and not is_index(path):
                    raise ValueError(f"{path} is no copy of rows, and stays")
                built.replace(path)
        return True

    def _open(self, add: Action, target: Target) -> None:
        name, path = _name_of(add, target), self.path(add, target)
        try:
            identity, file = data_file_identity(add, target, _ROWS), LATELY_READ.get(name)
            if not isinstance(file, RowFile) or file.identity != identity or not file.has(_columns(target)):
                LATELY_READ.drop(name)
                file = RowFile(path)
                if file.identity != identity or file.rows != record_count(add) or not file.has(_columns(target)):
                    raise Damaged(f"{path.name} is the copy of another file, or has other columns")
                LATELY_READ.put(name, file)
            if time.time() - file.touched > USED_LATELY / 2:
                os.utime(path)
                file.touched = time.time()
        except Damaged as error:
            log.info("a copy of rows is made again: %s", error)
            self._folder.drop(path)
            self._builder.request(str(path), partial(self.build, add, target))
        except FileNotFoundError:
            self._builder.request(str(path), partial(self.build, add, target))
        except OSError as error:
            log.info("a copy of rows is not used: %s", error)

    def are_read(self, add: Action, target: Target) -> bool:
        """True if rows of a data file have a copy, or are in memory."""
        return is_in_memory(add, target) or self.path(add, target).exists()

    def path(self, add: Action, target: Target) -> Path:
        """The path of the copy of a data file."""
        return self._folder.copy(place_of(target.path, add["path"]), target)

    def _has_room(self, size: int) -> bool:
        has_room = self._folder.make_room(size, of_rows=True)
        self._not_before = self._not_before if has_room else time.monotonic() + AFTER_FAILURE
        return has_room

    def _parts(self, parquet: Any, add: Action, target: Target) -> Iterator[pa.Table]:
        columns, left = _columns(target), _WIDEST * parquet.metadata.num_rows
        for group in row_groups(add, target, None, parquet.metadata):
            at_once = rows_at_once(parquet, group, columns, ROWS_AT_ONCE)
            for table in rows_of(parquet, group, columns, at_once=at_once):
                self._builder.yield_to_applies()
                left -= table.nbytes
                if left < 0:
                    raise ValueError("its rows are wide")
                yield table


def rows_at_once(parquet: Any, group: RowGroup, columns: Sequence[TargetColumn], most: int) -> int:
    """How many rows of a row group can be decoded at once, where each may have the longest text of its dictionary.

    ValueError for texts that repeat the beginning of the one before: nothing says how long they are.
    """
    footer, held = parquet.metadata.row_group(group.index), set(stored_names(parquet, group.file, columns).values())
    chunks = [footer.column(leaf) for leaf in range(footer.num_columns)]
    texts = [each for each in chunks if each.physical_type == "BYTE_ARRAY" and each.path_in_schema in held]
    if any("DELTA_BYTE_ARRAY" in each.encodings for each in texts):
        raise ValueError("its texts have an encoding without lengths")
    width: int = _WIDTH * len(held) + footer.total_byte_size // max(1, group.rows)
    if texts and group.rows:
        names = [each.path_in_schema for each in texts]
        with opened(group.file, parquet.metadata, encoded=names) as file:
            first = next(file.iter_batches(1, row_groups=[group.index], columns=names, use_threads=False))
        width += sum(map(longest, first.columns))
    return max(1, min(most, _BYTES_AT_ONCE // width))


def copied_rows(add: Action, target: Target, numbers: np.ndarray, columns: Sequence[TargetColumn]) -> pa.Table | None:
    """The rows of a data file with these numbers (ascending), in these columns, from its copy or from memory; None
    without one."""
    written = written_rows(add, target, numbers, columns)
    if written is not None:
        return written
    name = _name_of(add, target)
    file = LATELY_READ.get(name)
    if not isinstance(file, RowFile) or not file.has(columns):
        return None
    try:
        return file.chosen(numbers, columns)
    except (Damaged, OSError, Replaced, pa.ArrowInvalid) as error:  # of Arrow: more than 2 GiB of texts
        LATELY_READ.drop(name)
        log.info("a copy of rows is not used: %s", error)
        if isinstance(error, Damaged):
            remove_index(file.path)
        return None


_ROWS = "rows"


def _name_of(add: Action, target: Target) -> tuple[object, ...]:
    return _ROWS, place_of(target.path, add["path"]), version_of(add)


def _columns(target: Target) -> list[TargetColumn]:
    return [column for column in target.columns if column.stored]


def _is_closed(add: Action, target: Target) -> bool:
    """True if the statistics say that all versions of a file have an end: applies seldom read these."""
    ends = next((column.physical_name for column in target.columns if column.name == END_AT), None)
    nulls = parse_statistics(add).get("nullCount")
    return ends is not None and isinstance(nulls, dict) and nulls.get(ends) == 0


def _bounds(add: Action, columns: Sequence[TargetColumn]) -> dict[str, tuple[int, int]]:
    """The least and the largest value of columns of whole numbers, as the log has them."""
    low, high = (parse_statistics(add).get(name) for name in ("minValues", "maxValues"))
    found = {}
    if isinstance(low, dict) and isinstance(high, dict):
        for column in columns:
            least, most = low.get(column.physical_name), high.get(column.physical_name)
            if type(least) is int and type(most) is int and least <= most:
                found[column.name] = least, most
    return found
