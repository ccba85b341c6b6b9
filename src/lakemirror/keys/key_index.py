"""The key index: in which rows of large data files the keys are. It is kept in the cache folder across processes.

    look-up ─▶ find: an index of this data file ─▶ row numbers
                └ none ─▶ the key columns are read (`look_up`) ─▶ want ─▶ a thread builds the index

The index is a copy of what the data files say. An index that is damaged, incomplete or of another file is deleted, and
the keys are read from the data file. The key cache in memory holds the summaries of indexes. It also holds the keys of
files without an index: small files, and files whose only key is a rising number. Engines may share one folder.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakemirror import failpoints
from lakemirror.delta.statistics import record_count
from lakemirror.engines.kernels.data_rows import DataFile, opened, rows_of
from lakemirror.engines.row_work import Action, Target
from lakemirror.keys import look_up
from lakemirror.keys.index_builder import Builder
from lakemirror.keys.index_folder import (
    BUILDING,
    USED_LATELY,
    IndexFolder,
    data_file_identity,
    index_in,
    is_index,
    key_columns_text,
    name_of,
)
from lakemirror.keys.key_file import KeyFile, Replaced
from lakemirror.keys.key_format import MOST_ROWS, Damaged, size_of
from lakemirror.keys.key_layout import KeyLayout, encode, layout_of
from lakemirror.keys.key_search import rows_in
from lakemirror.keys.key_values import comparable, key_codes
from lakemirror.keys.look_up import Runs
from lakemirror.keys.row_copies import RowCopies, rows_at_once
from lakemirror.keys.wanted_keys import WantedKeys
from lakemirror.keys.write_keys import TooManyEqual, write_key_file
from lakemirror.storage.own_files import work_folder
from lakemirror.storage.place import capabilities_of

log = logging.getLogger("lakemirror")

FEWEST_ROWS = 64 * 1024
"""A data file with at least so many rows gets an index. The keys of smaller files are read quickly."""

_LASTING = 8  # times the fewest rows: a data file with so many is not merged soon (`maintenance/policy.py`)
_ROWS_AT_ONCE = 64 * 1024
_READ_ALL = 8  # if more than 1/8 of a file's rows are wanted, its keys are read instead
_READ_NUMBERS = 256  # a key of one number takes as long in an index as so many of them take to read
_REPEATED = 64  # rows of a key, on average: a file of inserts with such a "key", which nobody looks up
Each: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]

_SHARED: dict[Path, KeyIndex] = {}
_SHARING = threading.Lock()


class KeyIndex:
    """The index of all tables that an engine changes. Safe for several threads.

    `folder`: made when needed. `most_bytes`: the most that all its files may take.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = IndexFolder(folder, most_bytes)
        self.builder = Builder(folder)
        self.rows = RowCopies(self._folder, self.builder)

    @staticmethod
    def shared(folder: Path, most_bytes: int) -> KeyIndex:
        """The index in this folder that all engines of the process share."""
        with _SHARING:
            index = _SHARED.get(folder.absolute())
            if index is None:
                index = _SHARED[folder.absolute()] = KeyIndex(folder, most_bytes)
            index._folder.most_bytes = most_bytes
            return index

    def find(self, add: Action, target: Target, wanted: WantedKeys) -> np.ndarray | None:
        """Row numbers (int64, ascending) of the wanted keys in a data file; None if its keys must be read.

        Errors: FileNotFoundError if the data file does not exist any more; ArrowException or ValueError if it cannot be
        read.
        """
        return self.find_in([add], target, wanted)[0]

    def find_in(
        self, adds: Sequence[Action], target: Target, wanted: WantedKeys, each: Each = map
    ) -> list[np.ndarray | None]:
        """`find` for several data files; also None where reading keys is faster. `each`: a `map` that works on several
        items at once and keeps their order."""
        result: list[np.ndarray | None] = [None] * len(adds)
        keys = wanted.keys.num_rows
        asked = [(index, add) for index, add in enumerate(adds) if self.is_asked(add, keys)]
        if wanted.is_one_number and keys * _READ_NUMBERS > sum(record_count(add) or 0 for add in adds):
            waits = capabilities_of(target.path).waits
            asked = [(index, add) for index, add in asked if waits and not look_up.are_kept(add, target, wanted)]
        left = list(self._indexed(asked, target)) if asked else []
        for _ in range(2):  # another engine may replace an index while it is searched
            left = self._search(left, target, wanted, each, result) if left else []
        return result

    def is_asked(self, add: Action, keys: int) -> bool:
        """True if an index of the data file finds so many keys faster than reading all its keys does."""
        return (rows := record_count(add) or 0) >= FEWEST_ROWS and keys * _READ_ALL <= rows

    def _indexed(self, adds: Iterable[tuple[int, Action]], target: Target) -> Iterator[_Searched]:
        """The data files that have an index. `adds`: with the places of their rows in the result."""
        columns, folder = key_columns_text(target), self._folder.of(target)
        for place, add in adds:
            identity = data_file_identity(add, target, columns)
            path = index_in(folder, identity)
            is_open = look_up.LATELY_READ.get(name_of(path)) is not None
            if is_open or path.exists():
                yield _Searched(place, path, identity, record_count(add) or 0, add, is_open)

    def _search(
        self, searched: Sequence[_Searched], target: Target, wanted: WantedKeys, each: Each,
        result: list[np.ndarray | None],
    ) -> list[_Searched]:  # fmt: skip
        """Puts the found rows into `result`. Returns the files whose index was replaced since it was opened."""
        exact = []

        def files() -> Iterator[KeyFile | None]:
            opened = each if any(not one.is_open for one in searched) else map
            for file in opened(self._opened, searched):  # those that follow are opened meanwhile
                exact.append(file is None or file.layout.is_exact)
                yield file

        replaced = []
        for one, rows, is_exact in zip(searched, rows_in(files(), wanted.in_layout), exact, strict=True):
            if isinstance(rows, Replaced):
                look_up.LATELY_READ.drop(name_of(one.path))
                replaced.append(one._replace(is_open=False))
            elif isinstance(rows, Damaged | OSError):
                self._report(one, rows)
            elif rows is None or is_exact or not len(rows):
                result[one.place] = rows
            else:
                result[one.place] = _verified(rows, one.add, target, wanted)
        return replaced

    def _report(self, one: _Searched, error: Exception) -> None:
        """An index cannot be used: it is built again if it is damaged."""
        if isinstance(error, Damaged):
            log.info("the key index is built again: %s", error)
            self._folder.drop(one.path)
        else:
            look_up.LATELY_READ.drop(name_of(one.path))
            log.info("the key index is not used: %s", error)

    def want_lasting(self, adds: Iterable[Action], target: Target) -> None:
        """Requests the indexes of new data files that are too large to be merged soon; others when they are asked."""
        for add in adds:
            if (record_count(add) or 0) >= _LASTING * FEWEST_ROWS:
                self.want(add, target)

    def want(self, add: Action, target: Target) -> None:
        """Requests the index of a data file, if the file is large and has none. Does not wait for it."""
        if not is_large(record_count(add)) or not target.key_columns:
            return
        try:
            name = str(self._folder.index(data_file_identity(add, target, key_columns_text(target)), target))
        except OSError:
            return
        self.builder.request(name, partial(self.build, add, target))

    def want_missing(self, adds: Iterable[Action], target: Target) -> None:
        """Requests the indexes that data files of a table lack. Does not wait for them."""
        columns = key_columns_text(target)
        for add in adds:
            with contextlib.suppress(OSError):
                if (
                    is_large(record_count(add))
                    and not self._folder.index(data_file_identity(add, target, columns), target).exists()
                ):
                    self.want(add, target)

    def forget(self, adds: Iterable[Action], target: Target) -> None:
        """Deletes the indexes and copies of data files that the newest version of a table does not name any more, and
        what was requested of them."""
        columns = key_columns_text(target)
        for add in adds:
            paths = [self.rows.path(add, target)]
            with contextlib.suppress(OSError):
                paths.append(self._folder.index(data_file_identity(add, target, columns), target))
            for path in paths:
                self.builder.forget(str(path))
                with contextlib.suppress(OSError):
                    self._folder.drop(path)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """While the block runs, index building leaves the processor to the apply."""
        with self.builder.lock:
            self.builder.applies += 1
        try:
            yield
        finally:
            with self.builder.lock:
                self.builder.applies -= 1

    def wait(self, most: float = math.inf, is_over: Callable[[], bool] = lambda: False) -> None:
        """Waits until every requested index is built or given up; at most so many seconds, or until `is_over`."""
        self.builder.wait(most, is_over)

    def build(self, add: Action, target: Target) -> bool:
        """Builds the index of a data file. Returns False if it is not worth it, or there is no room.

        Uses about 160 MiB of memory for any number of rows. Errors: ArrowException, ValueError or FileNotFoundError
        if the data file cannot be read; OSError if the cache folder cannot be written.
        """
        identity = data_file_identity(add, target, key_columns_text(target))
        path = self._folder.index(identity, target)
        with opened(DataFile.of(add, target)) as parquet:
            rows = parquet.metadata.num_rows
            if record_count(add) not in (None, rows) or not 0 < rows < MOST_ROWS or self._rises(parquet, add, target):
                self.builder.remember_not_worth_it(path)
                return False
            first = next(_keys(parquet, add, target))
            if len(np.unique(key_codes(comparable(first)))) * _REPEATED <= first.num_rows:
                self.builder.remember_not_worth_it(path)
                return False
            path.parent.mkdir(parents=True, exist_ok=True)
            layout = layout_of(first)
            while True:
                try:
                    return self._write(path, identity, rows, layout, parquet, add, target)
                except _Wider as wider:
                    layout = layout.widened(wider.layout)
                except TooManyEqual:
                    self.builder.remember_not_worth_it(path)
                    return False

    def _write(
        self, path: Path, identity: str, rows: int, layout: KeyLayout, parquet: pq.ParquetFile, add: Action,
        target: Target,
    ) -> bool:  # fmt: skip
        if not self._folder.make_room(size_of(rows, layout)):
            self.builder.rest()
            return False
        with work_folder(path.parent, BUILDING) as place:
            built, words = place / path.name, self._words(parquet, add, target, layout)
            write_key_file(
                built, identity, rows, layout, words, seed=self._folder.seed, pause=self.builder.yield_to_applies
            )
            failpoints.reach("index.before-rename")
            if data_file_identity(add, target, key_columns_text(target)) != identity:
                raise ValueError("the data file changed while its index was built")
            if path.exists() and not is_index(path):
                raise ValueError(f"{path} is no key index, and stays")
            built.replace(path)
        return True

    def _words(self, parquet: pq.ParquetFile, add: Action, target: Target, layout: KeyLayout) -> Iterator[np.ndarray]:
        for keys in _keys(parquet, add, target):
            self.builder.yield_to_applies()
            words, fits = encode(keys, layout)
            if not fits.all():
                raise _Wider(layout_of(keys))
            yield words

    def _rises(self, parquet: pq.ParquetFile, add: Action, target: Target) -> bool:
        """True if the only key is a number that rises from row to row. The key cache holds such keys in few bytes."""
        version = look_up.version_of(add)
        for group in look_up.row_groups(add, target, None, parquet.metadata):
            if isinstance(look_up.kept_keys(group, target, version), Runs):
                continue
            found = look_up.RisingKeys(target)
            if found.column is None:
                return False
            at_once = rows_at_once(parquet, group, [found.column], _ROWS_AT_ONCE)
            for keys in rows_of(parquet, group, [found.column], at_once=at_once):
                found.add(keys[0])
                if not found.rises:
                    return False
            found.keep(group, target, version)
        look_up.keep_footer(add, target, parquet.metadata)
        return True

    def _opened(self, one: _Searched) -> KeyFile | None:
        """The open index of a data file; None if it cannot be used."""
        try:
            file = look_up.LATELY_READ.get(name_of(one.path))
            if not isinstance(file, KeyFile):
                file = KeyFile(one.path, one.identity)
                if file.rows != one.rows:
                    raise Damaged(f"{one.path.name} has {file.rows} rows, the data file {one.rows}")
                look_up.LATELY_READ.put(name_of(one.path), file)
            elif time.time() - file.touched > USED_LATELY / 2:
                file.touch()
        except (Damaged, OSError) as error:
            self._report(one, error)
            return None
        return file


class _Searched(NamedTuple):
    """A data file in a search, the place of its rows in the result, and its index.

    `is_open`: the summary of the index is in memory.
    """

    place: int
    path: Path
    identity: str
    rows: int
    add: Action
    is_open: bool


class _Wider(Exception):
    """A key does not fit into the layout; `layout` is one that it fits into."""

    def __init__(self, layout: KeyLayout) -> None:
        super().__init__()
        self.layout = layout


def replace_merged(files: Sequence[Action], adds: Sequence[Action], target: Target) -> None:
    """`KeyIndex.forget` of merged data files, in each folder of this process. If applies read rows of them, copies of
    the new ones are requested at once."""
    with _SHARING:
        indexes = list(_SHARED.values())
    for index in indexes:
        are_read = target.reads_old_rows and any(index.rows.are_read(add, target) for add in files)
        index.forget(files, target)
        if are_read:
            index.rows.open(adds, target)


def is_large(rows: int | None) -> bool:
    """True if a data file with so many rows gets an index. None: nobody knows how many."""
    return rows is not None and rows >= FEWEST_ROWS


def _keys(parquet: pq.ParquetFile, add: Action, target: Target) -> Iterator[pa.Table]:
    """The keys of a data file, in the order of its rows."""
    for group in look_up.row_groups(add, target, None, parquet.metadata):
        at_once = rows_at_once(parquet, group, target.keys, _ROWS_AT_ONCE)
        yield from rows_of(parquet, group, target.keys, at_once=at_once)


def _verified(found: np.ndarray, add: Action, target: Target, wanted: WantedKeys) -> np.ndarray:
    """The rows among `found` that really hold a wanted key: their row groups are read."""
    footer = look_up.read_footer(add, target)
    version = (add.get("size"), add.get("modificationTime"))
    parts = [np.zeros(0, np.int64)]
    for group in look_up.row_groups(add, target, None, footer):
        first, end = np.searchsorted(found, [group.first_row, group.first_row + group.rows])
        if first < end:
            parts.append(np.asarray(look_up.find(group, target, wanted, version=version, footer=footer)))
    return np.concatenate(parts)
