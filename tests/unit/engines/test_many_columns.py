"""What a few rows of a wide table take grows with the number of columns, not with its square."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakemirror.engines.kernels.fill_values import Fill, Fills
from lakemirror.engines.kernels.version_rows import Changed, completed_rows
from lakemirror.engines.kernels.write import write_rows
from lakemirror.engines.row_work import Target, TargetColumn, Versioning
from lakemirror.engines.target import apply_target
from lakemirror.engines.versions import no_versions
from lakemirror.keys.written_rows import LATELY_WRITTEN, keep_written
from lakemirror.landing_zone.reserved_columns import END_AT, START_AT
from lakemirror.landing_zone.row_markers import UPDATE
from lakemirror.verify.expected_rows import with_left_out

Act = Callable[[], object]


def wide(folder: Path, count: int) -> tuple[Target, pa.Table]:
    names = [f"c{number}" for number in range(count)]
    columns = [TargetColumn(name, name, "string") for name in names]
    bounds = [TargetColumn(name, name, "string") for name in (START_AT, END_AT)]
    rows = pa.table({name: ["a", "b", "c"] for name in names})
    return Target(str(folder), (*columns, *bounds), key_columns=("c0",)), rows


def completing(folder: Path, count: int) -> Act:
    target, rows = wide(folder, count)
    names = pa.array([json.dumps(rows.column_names[2:])] * 3)
    changes = Changed(rows, np.full(3, UPDATE), names)
    return lambda: completed_rows(target, Versioning((), ("c1",), "hard"), no_versions(target), changes, None)


def filling(folder: Path, count: int) -> Act:
    _, rows = wide(folder, count)
    every = np.arange(3)
    fills = Fills({name: Fill(every, every, (pa.array(["x", "y", "z"]),)) for name in rows.column_names}, 1)
    return lambda: fills.filled(rows, every)


def keeping(folder: Path, count: int) -> Act:
    target, rows = wide(folder, count)
    (add,) = write_rows(rows.to_batches(), Target(str(folder), target.columns[:-2]))
    return lambda: keep_written(add, target, rows)


def planning(folder: Path, count: int) -> Act:
    target, _ = wide(folder, count)
    return lambda: apply_target(target)


def verifying(folder: Path, count: int) -> Act:
    _, rows = wide(folder, count)
    left_out = {name: np.zeros(3, bool) for name in rows.column_names}
    return lambda: with_left_out(rows, left_out)


@pytest.mark.parametrize("work", [completing, filling, keeping, planning, verifying])
def test_four_times_as_many_columns(tmp_path: Path, work: Callable[[Path, int], Act]) -> None:
    few, many = (_best(work(tmp_path, count)) for count in (600, 2400))
    LATELY_WRITTEN.clear()
    assert many < 8 * few, "sixteen times as much would be the square"


def _best(act: Act) -> float:
    """The least time of a thread's own that it takes."""
    times = []
    for _ in range(5):
        begun = time.thread_time()
        act()
        times.append(time.thread_time() - begun)
    return min(times)
