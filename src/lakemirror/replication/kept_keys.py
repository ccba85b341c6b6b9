"""Key columns of row groups that were read lately: what changes often changes again.

Keys that rise by one from row to row, as an application numbers its rows, are kept as their runs. That is a few bytes
for a row group however many rows it has, so the keys of a table of any size stay in memory.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

_WORTH_IT = 8  # rows of a run, on average


@dataclass(frozen=True)
class Runs:
    """A column of whole numbers, each larger than the one before: where runs of neighbours begin.

    `first` and `last`: of each run, its numbers; `begin`: of each run, the place of its first row.
    """

    first: np.ndarray
    last: np.ndarray
    begin: np.ndarray

    @staticmethod
    def of(values: np.ndarray) -> Runs | None:
        """None where the numbers do not rise, or in too many runs to be worth it."""
        if not len(values) or (values[1:] <= values[:-1]).any():
            return None
        ends = np.flatnonzero(values[1:] - values[:-1] != 1)
        if (len(ends) + 1) * _WORTH_IT > len(values):
            return None
        begin = np.concatenate([[0], ends + 1])
        return Runs(values[begin], values[np.concatenate([ends, [len(values) - 1]])], begin)

    @property
    def nbytes(self) -> int:
        return self.first.nbytes + self.last.nbytes + self.begin.nbytes

    def places(self, sought: np.ndarray) -> np.ndarray:
        """The rows that hold these numbers, which are in order and none twice."""
        low, high = np.searchsorted(sought, self.first[0]), np.searchsorted(sought, self.last[-1], "right")
        inside = sought[low:high]
        run = np.searchsorted(self.first, inside, "right") - 1
        held = inside <= self.last[run]
        places: np.ndarray = self.begin[run[held]] + (inside[held] - self.first[run[held]])
        return places


Kept: TypeAlias = "pa.Table | Runs"


class Cache:
    """What was read of row groups lately, of at most so many bytes. A data file never changes, so it stays true."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes
        self._held: OrderedDict[Hashable, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: Hashable) -> Kept | None:
        with self._lock:
            if name in self._held:
                self._held.move_to_end(name)
            return self._held.get(name)

    def put(self, name: Hashable, keys: Kept) -> None:
        with self._lock:
            if name not in self._held:
                self._held[name] = keys
                self._left -= keys.nbytes
            while self._left < 0:
                self._left += self._held.popitem(last=False)[1].nbytes
