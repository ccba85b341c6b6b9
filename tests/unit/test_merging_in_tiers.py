"""Which files with open versions are merged while changes arrive: by the policy alone, over many passes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from lakemirror.maintenance.policy import in_tiers

_MOST = 1 << 20


def _add(name: int, rows: int, living: int) -> dict[str, Any]:
    add: dict[str, Any] = {"path": str(name), "size": 30 * rows, "stats": json.dumps({"numRecords": rows})}
    return add if rows == living else {**add, "deletionVector": {"cardinality": rows - living}}


class Table:
    """The files of open versions of a table: rows and living rows of each, and what merging has written."""

    def __init__(self, rows: int) -> None:
        self.random = np.random.default_rng(7)
        self.files: dict[int, tuple[int, int]] = {}
        self.made = self.written = self.largest = 0
        for begin in range(0, rows, _MOST):
            self._make(min(_MOST, rows - begin))

    def _make(self, rows: int) -> None:
        self.files[self.made] = rows, rows
        self.made += 1

    def change(self, count: int) -> None:
        """So many of the open versions end, and as many begin."""
        living = [living for _, living in self.files.values()]
        ended = self.random.multivariate_hypergeometric(living, count)
        left = {
            name: (rows, has - int(gone)) for (name, (rows, has)), gone in zip(self.files.items(), ended, strict=True)
        }
        self.files = {name: (rows, has) for name, (rows, has) in left.items() if has}
        self._make(count)

    def merge(self) -> None:
        piece = in_tiers([_add(name, rows, living) for name, (rows, living) in self.files.items()])
        if piece:
            living = sum(self.files.pop(int(add["path"]))[1] for add in piece)
            self.written, self.largest = self.written + living, max(self.largest, living)
            self._make(living)


@pytest.mark.parametrize(
    ("rows", "changes", "passes", "most_files", "most_written"),
    [
        (1_000_000, 200_000, 120, 6, 1.5),
        (5_000_000, 200_000, 160, 16, 1.5),
        (5_000_000, 1_000, 800, 14, 5.5),
        (100_000, 1_000, 800, 9, 5.0),
        (20_000, 5_000, 100, 6, 2.0),
    ],
)
def test_an_apply_meets_few_files_however_many_came_before(
    rows: int, changes: int, passes: int, most_files: int, most_written: float
) -> None:
    table = Table(rows)
    for number in range(1, passes + 1):
        table.change(changes)
        if number % 4 == 0:
            table.merge()
        assert len(table.files) <= most_files
        assert sum(rows for rows, _ in table.files.values()) <= 2.2 * rows + 4 * changes
        assert table.largest <= _MOST
    assert table.written <= most_written * passes * changes, "rows that merging writes for each change"
    assert table.written, "nothing was merged"


def test_few_files_where_many_changes_come_between_few() -> None:
    """Files that have lost nearly all rows do not keep others from being merged."""
    table = Table(1_000_000)
    for number in range(1, 1_200):
        table.change(400_000 if number % 60 == 0 else 1_000)
        if number % 4 == 0:
            table.merge()
        assert len(table.files) <= 16, number


def test_few_files_of_one_size_and_files_that_are_half_deleted() -> None:
    small = [_add(name, 1_000, 1_000) for name in range(4)]
    large, half = _add(10, _MOST, _MOST * 3 // 4), _add(11, _MOST, _MOST // 2)
    assert in_tiers([*small[:3], large]) == []
    assert in_tiers([*small, large]) == small
    few = [_add(20, 1_000, 10), _add(21, 1_000, 11), _add(22, 1_000, 200)]
    assert in_tiers([*small, *few, large]) == [*few, *small]
    assert in_tiers([*small[:3], large, half]) == [half]
    assert in_tiers([*small, large, half]) == [*small, half]
    assert in_tiers([_add(1, 1_000, 400)]) == [], "a look-up costs the same without its deleted rows"
    assert in_tiers([_add(1, 4 * _MOST, 2 * _MOST)]) == [], "too much while changes arrive"
    assert in_tiers([{**add, "stats": "{}"} for add in small]) == []


def test_a_piece_has_few_rows_and_bytes() -> None:
    halves = [_add(name, _MOST // 2, _MOST // 2) for name in range(5)]
    assert len(in_tiers(halves)) == 2
    wide = [{**_add(name, 1_000, 1_000), "size": 30 << 20} for name in range(5)]
    assert len(in_tiers(wide)) == 2
    too_wide = [{**_add(name, 1_000, 1_000), "size": 40 << 20} for name in range(5)]
    assert in_tiers(too_wide) == []
