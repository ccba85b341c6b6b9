"""A cache of key columns that were read recently: rows that changed once often change again.

Numbers that rise by one from row to row, with few gaps, are stored as runs: at most a quarter of a byte per row, and
usually much less. So the keys of large tables fit into memory.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

_WORTH_IT = 64  # average rows per run from which runs are used
_OF_AN_ENTRY = 2048  # bytes of an entry beside its keys: measured


class Runs(NamedTuple):
    """A column of integers, each larger than the one before, as runs of consecutive numbers.

    `first`: the first number of each run. `begin`: the position of that number's row. `rows`: the number of all rows.
    """

    first: np.ndarray
    begin: np.ndarray
    rows: int

    @staticmethod
    def of(values: np.ndarray) -> Runs | None:
        """The runs of these numbers; None if the numbers do not rise, or there are too many runs."""
        if not len(values) or (values[1:] <= values[:-1]).any():
            return None
        if int(values[-1]) - int(values[0]) == len(values) - 1:
            return Runs(values[:1].astype(np.int64), np.zeros(1, np.int64), len(values))
        begin = np.concatenate([[0], np.flatnonzero(values[1:] - values[:-1] != 1) + 1])
        if len(begin) * _WORTH_IT > len(values):
            return None
        return Runs(values[begin].astype(np.int64), begin, len(values))

    @staticmethod
    def joined(parts: Sequence[Runs]) -> Runs:
        """The runs of several columns, one after the other; each column begins above the end of the one before."""
        ends = np.cumsum([part.rows for part in parts])
        begins = [part.begin + (end - part.rows) for part, end in zip(parts, ends, strict=True)]
        return Runs(np.concatenate([part.first for part in parts]), np.concatenate(begins), int(ends[-1]))

    @property
    def nbytes(self) -> int:
        return self.first.nbytes + self.begin.nbytes

    @property
    def last(self) -> int:
        """The largest number."""
        return int(self.first[-1]) + self.rows - int(self.begin[-1]) - 1

    def places(self, wanted: np.ndarray) -> np.ndarray:
        """The positions of the rows with the wanted numbers. `wanted`: ascending and distinct."""
        lengths = np.diff(self.begin, append=self.rows)
        last = self.first + (lengths - 1)
        low, high = np.searchsorted(wanted, self.first[0]), np.searchsorted(wanted, last[-1], "right")
        inside = wanted[low:high].astype(np.int64)
        run = np.searchsorted(self.first, inside, "right") - 1
        held = inside <= last[run]
        places: np.ndarray = self.begin[run[held]] + (inside[held] - self.first[run[held]])
        return places


Kept: TypeAlias = "pa.Table | Runs"


class Sized(Protocol):
    """An entry of the cache: keys, or the summary of an index."""

    @property
    def nbytes(self) -> int: ...


class Cache:
    """Recently read keys of row groups, at most `most_bytes`. Data files never change, so entries stay correct."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._left = most_bytes
        self._held: OrderedDict[Hashable, Sized] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: Hashable) -> Sized | None:
        with self._lock:
            if name in self._held:
                self._held.move_to_end(name)
            return self._held.get(name)

    def put(self, name: Hashable, keys: Sized) -> None:
        with self._lock:
            if name not in self._held:
                self._held[name] = keys
                self._left -= size_of(keys)
            while self._left < 0:
                self._left += size_of(self._held.popitem(last=False)[1])

    def clear(self) -> None:
        """Removes all entries."""
        with self._lock:
            self._held.clear()
            self._left = self.most_bytes

    def drop(self, name: Hashable) -> None:
        """Removes the entry of this name, if there is one."""
        with self._lock:
            keys = self._held.pop(name, None)
            if keys is not None:
                self._left += size_of(keys)


def size_of(keys: Sized) -> int:
    """The bytes that an entry takes in the cache."""
    return keys.nbytes + _OF_AN_ENTRY
