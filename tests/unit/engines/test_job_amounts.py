"""What Spark's pages show of a job: how much it was given; and what each task does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from lakemirror.engines.kernels.decode import MemoryBudget
from lakemirror.engines.row_work import ChangeUnit
from lakemirror.engines.spark.jobs import Stage, amounts, shares_of
from lakemirror.engines.units import ChangeFiles, DataFiles, Shared, TouchedFile
from lakemirror.keys.wanted_keys import WantedKeys


def shared(keys: int = 0) -> Shared:
    wanted = WantedKeys(pa.table({"id": np.arange(keys)})) if keys else None
    target: Any = None
    return Shared(target, MemoryBudget(1), wanted=wanted)


def change(rows: int, bytes: int) -> ChangeUnit:
    return ChangeUnit("f", "f", 1, (), rows, bytes)


def stage(units: list[Any], keys: int = 0) -> Stage:
    kernel: Any = None
    return Stage(kernel, shared(keys), units)


def test_changes_and_data_files_are_counted_once() -> None:
    changes = stage([ChangeFiles(0, (change(3, 10), change(4, 20))), ChangeFiles(7, (change(1, 5),))])
    assert amounts(changes) == ": 3 change files; 8 changes; 35 bytes"
    large, small = TouchedFile(0, {"size": 100}), TouchedFile(1, {"size": 7})
    files = stage([DataFiles((large,), 0, 2), DataFiles((large,), 1, 2), DataFiles((small,))], keys=1000)
    assert amounts(files) == ": 2 data files; 107 bytes; 1000 keys", "a file in two parts is one file"
    assert amounts(changes, files) == ": 3 change files; 8 changes; 2 data files; 142 bytes; 1000 keys"
    assert "," not in amounts(changes, files), "which no tag of Spark Connect may hold"
    assert amounts(stage([])) == ""


def test_a_task_does_several_units_where_it_would_have_little_to_do() -> None:
    units = [ChangeFiles(0, (change(1, 128 << 20),)) for _ in range(7)]
    assert [len(shares_of(units, at_once)) for at_once in (1, 2, 4, 8, 100)] == [2, 2, 4, 7, 7]
    assert len(shares_of(units * 100, 2)) == 176, "of at most half a GiB each"
    assert shares_of([ChangeFiles(0, (change(1, 1),))], 4) == [[0]] and shares_of([], 4) == []


def test_tasks_have_equally_much_to_do_wherever_the_large_units_are() -> None:
    sizes = [100, 100, 10, 10, 10, 100, 10, 100]
    shares = shares_of([ChangeFiles(0, (change(1, size << 20),)) for size in sizes], 2)
    assert sorted(number for share in shares for number in share) == list(range(len(sizes)))
    assert [sum(sizes[number] for number in share) for share in shares] == [220, 220]
    assert [len(share) for share in shares_of([ChangeFiles(0, (change(1, 0),))] * 6, 2)] == [3, 3]
