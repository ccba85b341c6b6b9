"""Key columns of row groups that were read lately: what changes often changes again.

Keys that rise by one from row to row but for a gap now and then, as an application numbers its rows, are kept as their
runs: a quarter of a byte for a row at most, and mostly much less. So the keys of large tables stay in memory.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa

_WORTH_IT = 64  # rows of a run, on average
_OF_AN_ENTRY = 2048  # bytes that it takes beside its rows: measured


@dataclass(frozen=True)
class Runs:
    """A column of whole numbers, each larger than the one before.

    `first`: the number with which each run of neighbours begins, `begin`: the place of its row among all `rows`.
    """

    first: np.ndarray
    begin: np.ndarray
    rows: int

    @staticmethod
    def of(values: np.ndarray) -> Runs | None:
        """None where the numbers do not rise, or in too many runs to be worth it."""
        if not len(values) or (values[1:] <= values[:-1]).any():
            return None
        begin = np.concatenate([[0], np.flatnonzero(values[1:] - values[:-1] != 1) + 1])
        if len(begin) * _WORTH_IT > len(values):
            return None
        return Runs(values[begin].astype(np.int64), begin, len(values))

    @property
    def nbytes(self) -> int:
        return self.first.nbytes + self.begin.nbytes

    def places(self, sought: np.ndarray) -> np.ndarray:
        """The rows that hold these numbers, which are in order and none twice."""
        lengths = np.diff(self.begin, append=self.rows)
        last = self.first + (lengths - 1)
        low, high = np.searchsorted(sought, self.first[0]), np.searchsorted(sought, last[-1], "right")
        inside = sought[low:high].astype(np.int64)
        run = np.searchsorted(self.first, inside, "right") - 1
        held = inside <= last[run]
        places: np.ndarray = self.begin[run[held]] + (inside[held] - self.first[run[held]])
        return places


Kept: TypeAlias = "pa.Table | Runs"


class Sized(Protocol):
    """What the cache holds: keys, or the summary of an index."""

    @property
    def nbytes(self) -> int: ...


class Cache:
    """What was read of row groups lately, of at most so many bytes. A data file never changes, so it stays true."""

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
        """Forgets everything."""
        with self._lock:
            self._held.clear()
            self._left = self.most_bytes

    def drop(self, name: Hashable) -> None:
        """Forgets what is held under this name, if anything is."""
        with self._lock:
            keys = self._held.pop(name, None)
            if keys is not None:
                self._left += size_of(keys)


def size_of(keys: Sized) -> int:
    """Bytes that it takes to keep them."""
    return keys.nbytes + _OF_AN_ENTRY
