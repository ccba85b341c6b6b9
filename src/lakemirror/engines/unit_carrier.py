"""What carries units to kernels, for the parts of an apply that a `Pipeline` is put together from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

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


class UnitCarrier(Protocol):
    """The part of a `Pipeline` that other modules of an apply use. `Pipeline` says what each means."""

    memory: int
    fold_memory: int
    unit_bytes: int
    index: KeyIndex | None

    @property
    def parallelism(self) -> int: ...

    def carry(self, step: str, kernel: Kernel, shared: Shared, units: Sequence[Any]) -> Iterator[Any]: ...

    def write_units(
        self, step: str, kernel: Kernel, shared: Shared, units: Sequence[Any], written: list[Action], kept: int = 0
    ) -> list[Action]: ...

    def each(self, act: Any, items: Sequence[Any]) -> Iterable[Any]: ...

    def search(
        self, files: Sequence[Numbered], target: Target, wanted: WantedKeys
    ) -> Iterable[tuple[int, np.ndarray]]: ...

    def search_spilled(
        self, candidates: Sequence[Action], target: Target, deletes: Spill
    ) -> Mapping[int, np.ndarray]: ...

    def fold_apart(self, work: RowWork, shared: Shared, *, must: bool = False) -> NetEffect | None: ...

    def keys_of(self, work: RowWork, shared: Shared) -> Iterator[pa.Table]: ...

    def fills_of(
        self, work: RowWork, shared: Shared, held: HeldChanges | None, effect: NetEffect, newest: pa.Table
    ) -> Fills | FillRequest: ...

    def first_bad(self, work: RowWork, shared: Shared, bad: Bad) -> Bad: ...
