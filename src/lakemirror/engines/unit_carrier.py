"""What carries units to kernels, for the parts of an apply that a `Pipeline` is put together from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from lakemirror.engines.held_changes import HeldChanges
from lakemirror.engines.kernels.fill_values import FillRequest, Fills
from lakemirror.engines.net_effect import NetEffect
from lakemirror.engines.row_work import Action, RowWork, Target
from lakemirror.engines.unit_kernels import Kernel
from lakemirror.engines.units import Shared
from lakemirror.errors import Bad
from lakemirror.keys.find_keys import Numbered
from lakemirror.keys.key_index import KeyIndex
from lakemirror.keys.spill import Spill
from lakemirror.keys.wanted_keys import WantedKeys


class UnitCarrier(ABC):
    """The part of a `Pipeline` that other modules of an apply use. What has no text here has one there."""

    memory: int
    fold_memory: int
    unit_bytes: int
    parallelism: int
    index: KeyIndex | None

    @abstractmethod
    def carry(self, step: str, kernel: Kernel, shared: Shared, units: Sequence[Any]) -> Iterator[Any]:
        """The results of the units, in the order of the units. `step`: what they do.

        If units fail, the results of the others that have begun come first, then the first error in that order.
        """

    @abstractmethod
    def each(self, act: Any, items: Sequence[Any]) -> Iterable[Any]:
        """A `map` that works on several items at once in this process and keeps their order."""

    @abstractmethod
    def spill_folder(self, target: Target) -> Path | None:
        """A folder for what was read once for all units; None if units may run in other processes."""

    @abstractmethod
    def search(self, files: Sequence[Numbered], target: Target, wanted: WantedKeys) -> Iterable[tuple[int, np.ndarray]]:
        """Reads the keys of data files, as `find_keys.Search`. Error: TooManyKeys."""

    @abstractmethod
    def write_units(
        self, step: str, kernel: Kernel, shared: Shared, units: Sequence[Any], written: list[Action], kept: int = 0
    ) -> list[Action]: ...

    @abstractmethod
    def search_spilled(self, candidates: Sequence[Action], target: Target, deletes: Spill) -> dict[int, np.ndarray]: ...

    @abstractmethod
    def fold_apart(self, work: RowWork, shared: Shared, *, must: bool = False) -> NetEffect | None: ...

    @abstractmethod
    def keys_of(self, work: RowWork, shared: Shared) -> Iterator[pa.Table]: ...

    @abstractmethod
    def fills_of(
        self, work: RowWork, shared: Shared, held: HeldChanges | None, effect: NetEffect, newest: pa.Table
    ) -> Fills | FillRequest: ...

    @abstractmethod
    def first_bad(self, work: RowWork, shared: Shared, bad: Bad) -> Bad: ...
