"""The contract in plain Python: what a table must hold after change files, row by row and in order (section 3).

Rows are dicts; a table is a bag of them. Nothing here folds: each change acts on the table as the contract's table of
markers says, so that the engine's folding is held against something that knows nothing of it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]


@dataclass
class ModelTable:
    """A mirrored table: its columns in the order of first sight, its rows, its key columns."""

    keys: Sequence[str] = ()
    upsert_by_default: bool = False
    columns: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def apply(
        self, columns: Iterable[str], changes: Iterable[tuple[Any, Row]], unchanged: Sequence[Sequence[str]] = ()
    ) -> None:
        """One file: its columns, and its changes as (marker, row) in order; a marker None takes the default.

        `unchanged`: for each change, the columns that keep the value of the last row with its key (section 3a), and
        are NULL if there is no such row.
        """
        for column in columns:
            if column.lower() not in {c.lower() for c in self.columns}:
                self.columns.append(column)
        for place, (marker, row) in enumerate(changes):
            number = (4 if self.upsert_by_default else 0) if marker is None else int(marker)
            named = {c: _value_of(row, c) for c in self.columns}
            if unchanged and unchanged[place]:
                last = next((old for old in reversed(self.rows) if self._key(old) == self._key(named)), {})
                lower = {name.lower() for name in unchanged[place]}
                named = {c: last.get(c) if c.lower() in lower else value for c, value in named.items()}
            if number in (1, 2, 4):
                key = self._key(named)
                self.rows = [old for old in self.rows if self._key(old) != key]
            if number in (0, 1, 4):
                self.rows.append(named)

    def count(self, row: Row) -> int:
        """The number of rows with this row's key."""
        return sum(self._key(old) == self._key(row) for old in self.rows)

    def bag(self) -> Counter[tuple[Any, ...]]:
        """The rows, order-free, with NULL for columns that came later."""
        return Counter(tuple(canonical(row.get(c)) for c in self.columns) for row in self.rows)

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(canonical(_value_of(row, k)) for k in self.keys)


def canonical(value: Any) -> Any:
    """Equal exactly where the contract says so: NULL is NULL, NaN is NaN, -0.0 is 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def _value_of(row: Row, column: str) -> Any:
    return next((v for name, v in row.items() if name.lower() == column.lower()), None)
